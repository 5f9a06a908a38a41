"""The generator: its laws hold, seeds decide, descriptions are checked."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cotenant.errors import ConfigError, InputError, UnknownNameError
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.synthetic import generate
from cotenant.traces.synthetic_check import preset_names
from cotenant.traces.synthetic_draw import draw_choice, draw_law, warp
from cotenant.traces.synthetic_spec import Cycle, Lognormal, Pareto, Quantiles, SyntheticSpec

N = 20_000


def _near(share: float, expected: float, n: int) -> bool:
    """Within five standard deviations of a binomial share."""
    return abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n) + 1e-12


@pytest.mark.parametrize("preset", preset_names())
def test_the_same_seed_draws_the_same_jobs_and_another_seed_others(preset: str) -> None:
    first = generate(preset, jobs=300, seed=5)
    assert first.frame.equals(generate(preset, jobs=300, seed=5).frame)
    other = generate(preset, jobs=300, seed=6)
    assert not first.frame["duration_s"].equals(other.frame["duration_s"])
    assert len(first) == first.report.rows_read == first.report.rows_kept == 300
    assert "seed 5" in first.assumptions[0]


def test_one_ingredient_changed_leaves_the_others_alone() -> None:
    plain = generate(
        "steady",
        jobs=200,
        seed=1,
        arrivals={"kind": "poisson", "mean_gap_s": 10.0, "load": None, "gpus": None},
    )
    fixed = generate(
        "steady", jobs=200, seed=1, models="wide", arrivals={"kind": "fixed", "mean_gap_s": 10.0}
    )
    assert plain.frame["duration_s"].equals(fixed.frame["duration_s"])
    assert plain.frame["gpus"].equals(fixed.frame["gpus"])
    assert fixed.frame["submit_s"].to_list()[:3] == [0.0, 10.0, 20.0]


def test_gang_sizes_come_as_often_as_their_weights_say() -> None:
    frame = generate("common-like", jobs=N, seed=2).frame
    for gpus, expected in ((1, 0.70), (2, 0.10), (4, 0.12), (8, 0.08)):
        assert _near(float((frame["gpus"] == gpus).mean()), expected, N)


def test_lognormal_durations_have_the_median_and_spread_asked_for() -> None:
    frame = generate(
        jobs=N, duration={"kind": "lognormal", "median_s": 1000.0, "sigma": 0.5}, min_s=0.0
    ).frame
    logs = np.log(frame["duration_s"].to_numpy())
    assert abs(logs.mean() - math.log(1000)) < 5 * 0.5 / math.sqrt(N)
    assert abs(logs.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * N)


def test_the_pareto_tail_has_its_exponent() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    drawn = draw_law(rng, Pareto(min_s=10.0, alpha=1.5), N)
    assert drawn.min() >= 10
    # P(X > 40) = (10/40) ** 1.5 = 0.125
    assert _near(float((drawn > 40).mean()), 0.125, N)


def test_a_measured_law_gives_its_quantiles_back() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    law = Quantiles(p=(0.0, 0.25, 0.5, 1.0), values_s=(1.0, 10.0, 100.0, 1000.0))
    drawn = draw_law(rng, law, N)
    assert _near(float((drawn <= 10).mean()), 0.25, N)
    assert _near(float((drawn <= 100).mean()), 0.5, N)
    # Log-linear between: half way from 0.5 to 1 lies sqrt(100 x 1000).
    assert _near(float((drawn <= math.sqrt(1e5)).mean()), 0.75, N)


def test_a_hyper_exponential_has_the_mean_of_its_parts() -> None:
    law = {"kind": "hyper-exponential", "means_s": [100.0, 10_000.0], "weights": [0.9, 0.1]}
    drawn = generate(jobs=N, duration=law, min_s=0.0, max_s=1e9).frame["duration_s"].to_numpy()
    # mean 1090; E[X^2] = 2 (0.9 x 100^2 + 0.1 x 10000^2) = 2.0018e7
    deviation = math.sqrt(2.0018e7 - 1090**2)
    assert abs(drawn.mean() - 1090) < 5 * deviation / math.sqrt(N)


def test_poisson_gaps_have_their_mean_and_a_variation_of_one() -> None:
    gaps = np.diff(generate(jobs=N, arrivals={"mean_gap_s": 30.0}).frame["submit_s"].to_numpy(), prepend=0.0)
    assert abs(gaps.mean() - 30) < 5 * 30 / math.sqrt(N)
    assert abs(gaps.std() / gaps.mean() - 1) < 0.05


def test_gamma_gaps_have_the_variation_asked_for() -> None:
    arrivals = {"kind": "gamma", "mean_gap_s": 30.0, "cv": 3.0}
    gaps = np.diff(generate(jobs=N, arrivals=arrivals).frame["submit_s"].to_numpy(), prepend=0.0)
    assert abs(gaps.mean() - 30) < 5 * 90 / math.sqrt(N)
    assert abs(gaps.std() / gaps.mean() - 3) < 0.35


def test_bursts_keep_the_mean_rate_and_crowd_the_counts() -> None:
    arrivals = {
        "kind": "bursty",
        "mean_gap_s": 30.0,
        "burst_factor": 20.0,
        "burst_s": 600.0,
        "calm_s": 3000.0,
    }
    times = generate(jobs=200_000, arrivals=arrivals).frame["submit_s"].to_numpy()
    assert times[-1] / 200_000 == pytest.approx(30.0, rel=0.1)
    counts = np.bincount((times // 600).astype(int))
    # A Poisson process has variance = mean (20); bursts of 10 minutes have far more.
    assert counts.var() > 10 * counts.mean()


def test_offered_load_is_the_load_asked_for() -> None:
    work = generate("steady", jobs=N, seed=9, arrivals={"load": 0.5, "gpus": 100})
    frame = work.frame
    gpu_s = float((frame["gpus"] * frame["duration_s"]).sum())
    span = float(frame["submit_s"].max() or 0)
    assert gpu_s / (100 * span) == pytest.approx(0.5, rel=5 / math.sqrt(N))


def test_everything_at_once() -> None:
    frame = generate(jobs=10, arrivals={"kind": "at-once"}).frame
    assert frame["submit_s"].to_list() == [0.0] * 10
    assert frame["name"].to_list() == [f"j{i}" for i in range(10)]


def test_nothing_arrives_in_hours_of_rate_zero() -> None:
    hours = tuple(1.0 if 9 <= hour < 17 else 0.0 for hour in range(24))
    days = (1.0,) * 5 + (0.0, 0.0)
    times = warp(np.linspace(0, 5 * 7 * 86400, 5000, endpoint=False), Cycle(hours=hours, days=days))
    assert (np.diff(times) >= 0).all()
    hour, day = (times / 3600) % 24, (times / 86400) % 7
    assert ((hour >= 9 - 1e-6) & (hour <= 17 + 1e-6)).all()
    assert (day <= 5).all()
    # The mean rate stays: a week of even time is a week on the clock.
    assert times[1000] == pytest.approx(7 * 86400 + 9 * 3600, abs=1)


def test_philly_like_follows_what_it_says_it_follows() -> None:
    work = generate("philly-like", jobs=N, seed=1)
    frame = work.frame
    for gpus, count in ((1, 37730), (2, 658), (4, 547), (8, 538)):
        assert _near(float((frame["gpus"] == gpus).mean()), count / 39536, N)
    outcomes = frame["outcome"]
    for outcome, share in (("done", 0.693), ("cancelled", 0.135), ("failed", 0.172)):
        assert _near(float((outcomes == outcome).mean()), share, N)
    single = frame.filter(pl.col("gpus") == 1)["duration_s"]
    assert _near(float((single <= 1828).mean()), 0.5, single.len())
    assert _near(float((single > 59852).mean()), 0.02, single.len())
    assert _near(float((frame["tenant"] == "vc1").mean()), 25909 / 39536, N)
    assert any("ATC 2019" in sentence for sentence in work.assumptions)
    assert any("assumptions" in sentence for sentence in work.assumptions)
    retried = frame.filter(pl.col("failed_after_s").list.len() > 0)
    assert float((retried["outcome"] == "failed").mean()) > 0.5
    assert frame["failed_after_s"].list.len().max() <= 3


@pytest.mark.data
def test_philly_like_comes_near_the_extract_it_was_measured_on(data_dir: Path) -> None:
    real = read_trace(data_dir / "traces" / "philly" / "philly_first_half.csv.gz").frame
    drawn = generate("philly-like", jobs=real.height, seed=0).frame
    for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        assert drawn["duration_s"].quantile(q) == pytest.approx(real["duration_s"].quantile(q), rel=0.15)
    assert drawn["duration_s"].mean() == pytest.approx(real["duration_s"].mean(), rel=0.25)


def test_models_carry_their_memory_and_gangs_get_models_that_run_as_gangs() -> None:
    frame = generate("steady", jobs=N, seed=3).frame
    assert frame["model"].n_unique() == 26
    gangs = frame.filter(pl.col("gpus") > 1)["model"].unique().to_list()
    assert not [model for model in gangs if model.startswith(("A3C", "CycleGAN", "Recommendation"))]
    assert frame.filter(pl.col("model") == "ResNet-50/b64")["memory_bytes"].unique().to_list() == [7800 << 20]


def test_extras() -> None:
    work = generate(
        jobs=N,
        seed=8,
        arrivals={"mean_gap_s": 1.0},
        sizes=[{"gpus": 2}],
        sharing={"exclusive": 1.0, "any": 3.0},
        opportunistic=0.25,
        elastic=0.5,
        deadline=0.5,
        deadline_slack=[1.0, 1.0],
        estimate={"share": 0.5, "factor": 0.1, "limit": True, "round_s": 60.0},
    )
    frame = work.frame
    assert _near(float((frame["sharing"] == "any").mean()), 0.75, N)
    assert _near(float((frame["job_class"] == "opportunistic").mean()), 0.25, N)
    elastic = frame.filter(pl.col("max_gpus") > 0)
    assert _near(elastic.height / N, 0.5, N)
    assert elastic.select("min_gpus", "max_gpus").unique().rows() == [(1, 4)]
    due = frame.filter(pl.col("deadline_s") > 0)
    assert _near(due.height / N, 0.5, N)
    slack = (due["deadline_s"] - due["submit_s"]) / due["duration_s"]
    assert slack.to_numpy() == pytest.approx(np.full(due.height, 2.0))
    said = frame.filter(pl.col("estimate_s") > 0)
    assert _near(said.height / N, 0.5, N)
    assert (said["estimate_s"] >= said["duration_s"]).all()
    assert ((said["estimate_s"] % 60) == 0).all()


def test_choices_with_weight_zero_are_never_drawn() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    assert set(draw_choice(rng, [0.0, 1.0, 0.0], 1000).tolist()) == {1}


def test_no_jobs_is_a_workload_too() -> None:
    assert len(generate("philly-like", jobs=0)) == 0


def test_a_million_jobs_are_drawn() -> None:
    work = generate("bursty", jobs=1_000_000, seed=1)
    assert len(work) == 1_000_000
    assert work.frame.estimated_size() < 256 << 20


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"jobz": 1}, ["'jobz'", "'jobs'"]),
        ({"jobs": -1}, ["jobs", "between 0", "-1"]),
        ({"jobs": "many"}, ["[jobs]", "many"]),
        ({"arrivals": {"kind": "poison", "mean_gap_s": 1.0}}, ["poison", "poisson"]),
        ({"arrivals": {"mean_gap_s": 1.0, "load": 1.0, "gpus": 1}}, ["either mean_gap_s, or load"]),
        ({"arrivals": {"kind": "gamma", "mean_gap_s": 1.0}}, ["cv", "needed"]),
        ({"arrivals": {"kind": "poisson", "mean_gap_s": 1.0, "cv": 2.0}}, ["cv", "does not go"]),
        ({"arrivals": {"kind": "at-once", "mean_gap_s": 1.0}}, ["at-once"]),
        ({"duration": {"kind": "normal"}}, ["normal", "lognormal"]),
        ({"duration": {"kind": "lognormal", "median_s": 1.0}}, ["sigma"]),
        ({"sizes": [{"gpus": 1, "weight": 0.0}]}, ["sizes", "not all 0"]),
        ({"sizes": []}, ["sizes"]),
        ({"models": [{"name": "m", "memory": "80"}]}, ["80", "no unit"]),
        ({"models": "gavell"}, ["gavell", "gavel"]),
        ({"tenants": [{"name": "a"}, {"name": "a"}]}, ["tenants", "twice"]),
        ({"outcomes": {"failed": 0.8, "cancelled": 0.4}}, ["failed + cancelled"]),
        ({"sharing": {"everyone": 1.0}}, ["everyone", "same-owner"]),
        ({"duration": {"kind": "quantiles", "p": [0, 1], "values_s": [5, 1]}}, ["values_s"]),
        ({"preset": "phily-like"}, ["philly-like"]),
    ],
)
def test_a_wrong_description_is_refused_with_the_key(spec: dict[str, object], words: list[str]) -> None:
    with pytest.raises((ConfigError, UnknownNameError)) as caught:
        generate(spec)
    for word in words:
        assert word in str(caught.value)


def test_a_spec_object_is_taken_as_it_is() -> None:
    spec = SyntheticSpec(jobs=5, duration=Lognormal(median_s=10.0, sigma=0.0), min_s=0.0)
    assert generate(spec).frame["duration_s"].to_list() == [10.0] * 5
    with pytest.raises(InputError, match="changes"):
        generate(spec, jobs=6)


def test_a_file_describes_a_workload(tmp_path: Path) -> None:
    toml = tmp_path / "w.toml"
    toml.write_text('[synthetic]\npreset = "steady"\njobs = 7\nseed = 3\n')
    yaml = tmp_path / "w.yaml"
    yaml.write_text("synthetic:\n  preset: steady\n  jobs: 7\n  seed: 3\n")
    assert recognise(toml) == recognise(yaml) == "synthetic"
    expected = generate("steady", jobs=7, seed=3)
    assert read_trace(toml).frame.equals(expected.frame)
    assert read_trace(yaml).frame.equals(expected.frame)
    assert len(read_trace(toml, jobs="9")) == 9


def test_a_wrong_file_names_line_and_key(tmp_path: Path) -> None:
    yaml = tmp_path / "w.yaml"
    yaml.write_text("synthetic:\n  jobs: 7\n  arrivals:\n    kind: poison\n")
    with pytest.raises(ConfigError, match=r"w\.yaml:4 \[synthetic\.arrivals\.kind\].*poisson"):
        read_trace(yaml)
    yaml.write_text("synthetic: {}\nmore: 1\n")
    with pytest.raises(ConfigError, match="one table"):
        read_trace(yaml)


def test_the_options_of_all_formats_hold_here_too(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text(
        '[synthetic]\njobs = 100\nsizes = [{gpus = 0}, {gpus = 1}]\narrivals = {kind = "fixed", mean_gap_s = 1.0}\n'
    )
    whole = read_trace(path)
    part = read_trace(path, window=(10, 20), cpu_jobs="drop")
    inside = whole.frame.filter(pl.col("submit_s").is_between(10, 20, closed="left") & (pl.col("gpus") == 1))
    assert part.frame.select(inside.columns).equals(inside)
    assert part.report.rows_read == 100 == part.report.rows_kept + sum(f.rows for f in part.report.dropped)
    with pytest.raises(InputError, match="no option"):
        read_trace(path, speed=3)
