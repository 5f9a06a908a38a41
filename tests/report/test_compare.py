"""Comparison of policies: hand-computed pairs, intervals, winners and losers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cotenant.errors import InputError
from cotenant.report.compare import bootstrap, by_policy, estimates, pair, relative_change, summary_frame
from cotenant.report.headlines import headline, single
from cotenant.report.rundir import load_manifest, load_run, load_runs, write_run_metrics


def test_bootstrap_is_seeded_and_says_when_there_is_one_run():
    one = bootstrap([5.0])
    assert (one.mean, one.low, one.high, one.n) == (5.0, None, None, 1)
    assert bootstrap([]).mean is None
    a, b = bootstrap([1.0, 2.0, 6.0]), bootstrap([1.0, 2.0, 6.0])
    assert a == b
    assert a.mean == 3.0
    assert 1.0 <= a.low < 3.0 < a.high <= 6.0
    assert not a.excludes_zero or a.low > 0


def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    inside = 0
    for i in range(200):
        e = bootstrap(rng.normal(1.0, 1.0, size=25), seed=i)
        inside += e.low <= 1.0 <= e.high
    assert 0.88 <= inside / 200 <= 1.0


def test_relative_change_resamples_pairs_together():
    # Each seed halves, whatever its level: the ratio has no spread although the levels have.
    change = relative_change([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (change.mean, change.low, change.high) == (-0.5, -0.5, -0.5)
    assert relative_change([0.0, 1.0], [1.0, 1.0]).mean is None


def test_pairs_over_the_same_jobs(make_runs):
    # Waits under a: 100, 100, 0, 0; under b: 0, 100, 50, 0.4. Completion times are 100 more:
    # 200, 200, 100, 100 against 100, 200, 150, 100.4. One better, one worse, 0.4 % is the same.
    directory = make_runs({"a": {1: [100, 100, 0, 0]}, "b": {1: [0, 100, 50, 0.4]}})
    policies = by_policy(load_runs(directory))
    p = pair(policies["a"], policies["b"])
    assert (p.seeds, p.jobs) == ((1,), 4)
    assert p.better == 0.25
    assert p.worse == 0.25
    assert p.longest_loss_s == 50
    assert p.speedup.mean == pytest.approx(600 / 550.4)
    assert p.speedup.low is None
    assert p.differences["jct_s_mean"].mean == pytest.approx((550.4 - 600) / 4)
    assert [(g.group, g.jobs) for g in p.by_size] == [("1", 4)]
    tenants = {g.group: g for g in p.by_tenant}
    # Jobs 0 and 2 belong to <i>red</i>: one better, one worse; mean waits 50 and 25.
    assert (tenants["<i>red</i>"].better, tenants["<i>red</i>"].worse) == (0.5, 0.5)
    assert (tenants["<i>red</i>"].base_wait_s, tenants["<i>red</i>"].wait_s) == (50, 25)


def test_only_seeds_that_both_have_are_paired(make_runs):
    directory = make_runs({"a": {1: [0.0], 2: [10.0], 3: [20.0]}, "b": {2: [0.0], 3: [0.0]}})
    policies = by_policy(load_runs(directory))
    p = pair(policies["a"], policies["b"])
    assert p.seeds == (2, 3)
    assert p.differences["wait_s_mean"].mean == -15
    assert (p.differences["wait_s_mean"].low, p.differences["wait_s_mean"].high) == (-20, -10)
    assert estimates(policies["a"])["wait_s_mean"].n == 3


def test_different_jobs_under_one_seed_are_refused(make_runs):
    directory = make_runs({"a": {1: [0.0]}, "b": {1: [0.0, 0.0]}})
    policies = by_policy(load_runs(directory))
    with pytest.raises(InputError, match="not the same jobs"):
        pair(policies["a"], policies["b"])


def test_summary_frame_has_every_metric_for_every_policy(make_runs):
    frame = summary_frame(load_runs(make_runs({"b": {1: [10.0], 2: [20.0]}, "a": {1: [0.0], 2: [0.0]}})))
    row = frame.filter((frame["policy"] == "a") & (frame["metric"] == "wait_s_mean")).row(0, named=True)
    assert (row["mean"], row["difference"], row["seeds"], row["better"]) == (0, -15, 2, "low")
    assert frame["policy"].unique(maintain_order=True).to_list() == ["b", "a"]  # as in the manifest


def test_headlines_say_what_happened_and_how_sure_it_is(make_runs):
    directory = make_runs(
        {"fifo": {1: [100.0, 100.0], 2: [100.0, 100.0]}, "x": {1: [0.0, 0.0], 2: [0.0, 0.0]}}
    )
    policies = by_policy(load_runs(directory))
    lead, detail = headline(pair(policies["fifo"], policies["x"]), policies["fifo"], policies["x"])
    sure = "the same under all 2 seeds, so n = 1 in effect"
    assert lead == f"x completes jobs 2.00x sooner than fifo on average ({sure})."
    assert "100 % sooner" in detail
    assert "The longest time in the queue is 0s; with fifo it is 1m 40s." in detail
    back, _ = headline(pair(policies["x"], policies["fifo"]), policies["x"], policies["fifo"])
    assert back.startswith("fifo completes jobs 2.00x later than x on average")
    same, _ = headline(pair(policies["x"], policies["x"]), policies["x"], policies["x"])
    assert "about as soon as" in same


def test_one_policy_alone_and_no_job_at_all(make_runs):
    directory = make_runs({"fifo": {1: [10.0]}})
    runs = load_runs(directory)
    assert single(runs)[0] == (
        "Under fifo, 1 of 1 jobs finished; a job completes after 1m 50s on average, 10s of it waiting to start."
    )


def test_saved_metrics_are_read_back_unchanged(make_runs):
    folder = make_runs({"fifo": {1: [10.0, 0.0]}}) / "runs" / "fifo" / "seed-1"
    written = write_run_metrics(folder)
    read = load_run(folder)
    assert read.summary == json.loads(json.dumps(written.summary))
    for name in ("jobs", "timeline", "devices", "segments"):
        assert getattr(read, name).equals(getattr(written, name)), name


def test_broken_directories_are_refused_with_a_reason(tmp_path):
    with pytest.raises(InputError, match="has no runs"):
        load_runs(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        load_manifest(tmp_path)
    folder = tmp_path / "runs" / "fifo" / "seed-1"
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match=r"no events\.jsonl"):
        load_run(folder)
    (folder / "metrics.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"):
        load_run(folder)
