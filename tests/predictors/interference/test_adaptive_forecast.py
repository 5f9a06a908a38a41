"""The adaptive predictor as the forecast behind policies, and its commands."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.ports import Forecast
from cotenant.predictors.adaptive import AdaptiveForecast
from cotenant.predictors.forecast import build_speeds
from cotenant.predictors.interference.modelfile import read_card, save_predictor
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.catalogue import device_type
from cotenant.profiles.kinds import kind_names
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun
from cotenant.profiles.runsfile import write_co_runs, write_solo_runs
from cotenant.profiles.shipped import shipped_campaign, shipped_campaigns

LOADS = {"ResNet-50": 0.9, "LM": 0.6, "CycleGAN": 1.0, "Transformer": 0.7, "ResNet-18": 0.5}
JOBS = [JobConfig(model=m, family=m, batch=b) for m in LOADS for b in (16, 32)]


def _runs() -> list[CoRun]:
    found: list[CoRun] = []
    for i, one in enumerate(JOBS):
        for two in JOBS[i:]:
            a, b = LOADS[one.model] * one.batch / 32, LOADS[two.model] * two.batch / 32
            sides = (CoSide(job=one, speed=1 / (1 + a * b)), CoSide(job=two, speed=1 / (1 + a * b)))
            found.append(CoRun(row_id=f"r{len(found)}", source="made", device_type="V100", sides=sides))
    return found


def _solos() -> list[SoloRun]:
    return [
        SoloRun(
            source="made",
            device_type="V100",
            job=j,
            throughput=5.0,
            unit="steps/s",
            gpu_util=90 * LOADS[j.model],
        )
        for j in JOBS
    ]


@pytest.fixture(scope="module")
def forecast() -> AdaptiveForecast:
    return AdaptiveForecast(AdaptiveInterferencePredictor(zoo="small").fit(_runs(), _solos()))


def test_it_is_a_forecast_and_answers_alike_one_by_one_and_in_batches(forecast: AdaptiveForecast) -> None:
    assert isinstance(forecast, Forecast)
    queries = [
        ("ResNet-50/b32", ("LM/b16",), "V100"),
        ("ResNet-50 (batch size 32)", ("LM-LSTM/b16",), "V100-32GB"),
        ("LM/b16", ("CycleGAN/b32", "ResNet-50/b32"), "V100"),
        ("LM/b16", (), "V100"),
    ]
    found = forecast.co_speeds(queries)
    assert found == [forecast.co_speed(*query) for query in queries]
    # ResNet-50 at full load beside LM at half of 0.6: 1 / (1 + 0.9 * 0.3) = 0.787.
    assert found[0].mean == pytest.approx(0.787, abs=0.04) and found[0].mean == found[1].mean
    assert found[3].mean == 1.0
    assert all(0 < one.low <= one.mean <= one.high <= 1 for one in found)


@pytest.mark.parametrize("pack_unknown", [False, True])
def test_one_by_one_is_bit_for_bit_as_in_a_batch(forecast: AdaptiveForecast, *, pack_unknown: bool) -> None:
    names = ("ResNet-50/b32", "LM/b16", "CycleGAN/b32", "nobody-knows-it")
    queries = [
        (victim, beside, "V100")
        for victim in names
        for count in (1, 2, 3)
        for beside in itertools.product(names, repeat=count)
    ]
    batch = AdaptiveForecast(forecast.predictor, pack_unknown=pack_unknown).co_speeds(queries)
    single = AdaptiveForecast(forecast.predictor, pack_unknown=pack_unknown)
    assert [single.co_speed(*query) for query in queries] == batch
    # Of one that nothing is known of, no more than an even share of the device is told, unless it may be packed.
    unknown = single.co_speed("nobody-knows-it", ("LM/b16",) * 3, "V100")
    assert pack_unknown or (unknown.mean <= 0.25 and (unknown.low, unknown.high) == (0.02, 1.0))


def test_what_was_asked_first_does_not_change_the_last_bit(forecast: AdaptiveForecast) -> None:
    kinds = kind_names()[:12]
    queries = [(a, (b, c), "V100") for a in kinds for b, c in itertools.pairwise(kinds)]
    forward, backward = (AdaptiveForecast(forecast.predictor) for _ in range(2))
    found = {query: forward.co_speed(*query) for query in queries}
    assert {query: backward.co_speed(*query) for query in reversed(queries)} == found


def test_it_says_which_of_the_cluster_s_types_nobody_measured(forecast: AdaptiveForecast) -> None:
    kinds = (device_type("V100"), device_type("H100"))
    nodes = tuple(Node(name=kind.name, gpus=((kind.name, 1),)) for kind in kinds)
    both = Cluster(nodes=nodes, types=kinds)
    told = AdaptiveForecast(forecast.predictor, cluster=both).describe()
    assert told["unmeasured_types"] == [device_type("H100").name]


def test_what_a_core_was_measured_to_do_is_not_taken_for_a_v100_s() -> None:
    runs, solos = (
        [msgspec.structs.replace(one, device_type="Some CPU x1") for one in found]
        for found in (_runs(), _solos())
    )
    kinds = (device_type("V100"), DeviceType(name="Some CPU x1", memory_bytes=1 << 34))
    nodes = tuple(Node(name=kind.name, gpus=((kind.name, 1),)) for kind in kinds)
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(runs, solos)
    on_core = AdaptiveForecast(predictor, cluster=Cluster(nodes=nodes, types=kinds))
    assert on_core.describe()["unmeasured_types"] == ["V100"]
    asked = ("ResNet-50/b32", ("LM/b16",))
    here, elsewhere = (on_core.co_speed(*asked, kind.name) for kind in kinds[::-1])
    # 1 / (1 + 0.9 * 0.3), as measured there.
    assert here.mean == pytest.approx(0.787, abs=0.04)
    assert elsewhere.high - elsewhere.low > 2 * (here.high - here.low)


def test_what_nobody_knows_is_not_worth_packing_unless_asked_for(forecast: AdaptiveForecast) -> None:
    careful = forecast.co_speed("never-heard-of", ("LM/b16",), "V100")
    assert careful.mean <= 0.5 and careful.low < 0.05 and careful.high == 1.0
    bold = AdaptiveForecast(forecast.predictor, pack_unknown=True).co_speed(
        "never-heard-of", ("LM/b16",), "V100"
    )
    assert bold.mean > 0.5


def test_it_learns_while_it_runs(forecast: AdaptiveForecast) -> None:
    fresh = AdaptiveForecast(AdaptiveInterferencePredictor(zoo="small").fit(_runs(), _solos()))
    strange = JobConfig(model="strange", family="strange", batch=8)
    before, version = fresh.co_speed("strange/b8", ("LM/b16",), "V100"), fresh.version
    sides = (CoSide(job=strange, speed=0.9), CoSide(job=JOBS[0], speed=0.95))
    fresh.observe([CoRun(row_id="n", source="made", device_type="V100", sides=sides)])
    after = fresh.co_speed("strange/b8", ("LM/b16",), "V100")
    assert fresh.version > version and before.mean <= 0.5 < 0.7 < after.mean


def test_the_name_takes_a_file_or_the_table_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    save_predictor(AdaptiveInterferencePredictor(zoo="small").fit(_runs(), _solos()), path)
    _, found = build_speeds(0, None, f"adaptive:{path}")
    assert found.describe()["source"] == "fit.json" and found.describe()["co_runs"] == {"made|V100": 55}
    with pytest.raises(ConfigError, match=r"adaptive:fit\.json"):
        build_speeds(0, None, "adaptive")
    with pytest.raises(ConfigError, match="no such file"):
        build_speeds(0, None, "adaptive:nowhere.json")
    table = tmp_path / "table.csv"
    lines = [
        f"V100,{r.sides[0].job.label},{r.sides[1].job.label},{r.sides[0].speed},{r.sides[1].speed}"
        for r in _runs()
    ]
    table.write_text("\n".join(["device_type,a,b,a_speed,b_speed", *lines]) + "\n")
    _, fitted = build_speeds(1, table, "adaptive")
    assert 0 < fitted.co_speed("ResNet-50/b32", ("LM/b16",), "V100").mean < 1


def test_the_commands_fit_predict_and_evaluate(tmp_path: Path) -> None:
    runs = _runs()
    write_co_runs(tmp_path / "pairs.csv", [r for i, r in enumerate(runs) if i % 5])
    write_co_runs(tmp_path / "on.csv", runs[::5])
    write_solo_runs(tmp_path / "solo_profiles.csv", _solos())
    run = CliRunner().invoke
    done = run(app, ["fit", str(tmp_path), "-o", str(tmp_path / "fit.json"), "--zoo", "small"])
    assert done.exit_code == 0, done.output
    assert "made|V100" in done.output
    told = run(app, ["predict", "interference", "LM/b16", "CycleGAN/b32", "--device", "V100", "--fit", str(tmp_path / "fit.json")])  # fmt: skip
    assert told.exit_code == 0 and "LM/b16" in told.output and "fits" in told.output
    ask = ["predict", "interference", "GPT-3/b9999", "LM/b16", "--device", "V100", "--fit", str(tmp_path / "fit.json")]  # fmt: skip
    assert (
        "memory: not known for GPT-3/b9999, LM/b16; whether the set fits cannot be told"
        in run(app, ask).stdout
    )
    assert json.loads(run(app, [*ask, "--json"]).stdout)["fits"] is None
    out = tmp_path / "predictions.csv"
    judged = run(app, ["predict", "evaluate", "--fit", str(tmp_path / "pairs.csv"), "--on", str(tmp_path / "on.csv"), "--zoo", "small", "-o", str(out)])  # fmt: skip
    assert judged.exit_code == 0 and "made V100" in judged.output
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["row_id"], r["side"]) for r in rows[:2]] == [("r0", "a"), ("r0", "b")]
    assert len(rows) == 2 * len(runs[::5])
    truth = {r.row_id: r.sides[0].speed for r in runs}
    errors = [abs(float(r["mean"]) - float(truth[r["row_id"]] or 0)) for r in rows]
    assert sum(errors) / len(errors) < 0.03


def test_judging_by_rows_that_were_learnt_from_is_told(tmp_path: Path) -> None:
    runs = _runs()
    (tmp_path / "on").mkdir()
    write_co_runs(tmp_path / "pairs.csv", runs[:40])
    write_co_runs(tmp_path / "on" / "pairs.csv", runs[30:55])
    write_solo_runs(tmp_path / "solo_profiles.csv", _solos())
    words = ["predict", "evaluate", "--fit", str(tmp_path), "--on", str(tmp_path / "on"), "--zoo", "additive"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0
    # Rows 30 to 39 are in both.
    assert "10 of 25 co-runs are in the table of --fit" in done.stderr
    assert json.loads(done.stdout)["reports"][-1]["sides"] == 50
    for command in (words, ["fit", str(tmp_path)]):
        refused = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "gone" / "x")])
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "gone" in refused.stderr and ".tmp" not in refused.stderr


def test_without_a_table_the_campaign_that_comes_with_the_package_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    monkeypatch.chdir(tmp_path)
    folder = shipped_campaigns()["cpu"]
    runs, solos = shipped_campaign("cpu")
    ask = ["predict", "interference", "convolution/b8", "recurrent/b16", "--json", "--device"]
    told = run(app, [*ask, "amd epyc X1"])
    assert told.exit_code == 0, told.output
    assert f"campaign cpu, measured on AMD EPYC x1; its manifest: {folder / 'manifest.json'}" in told.stderr
    assert told.stdout == run(app, [*ask, "AMD EPYC x1", "--fit", str(folder)]).stdout
    found = json.loads(told.stdout)
    assert (found["source"], found["device_type"]) == ("cpu-core", "AMD EPYC x1")
    # The pair was measured, so what is told lies near what was.
    (pair,) = (r for r in runs if sorted(s.job.label for s in r.sides) == ["convolution/b8", "recurrent/b16"])
    measured = {side.job.label: side.speed for side in pair.sides}
    assert all(abs(side["mean"] - measured[side["job"]]) < 0.05 for side in found["jobs"])

    fitted = run(app, ["fit", "--zoo", "small"])
    assert fitted.exit_code == 0, fitted.output
    assert str(folder / "manifest.json") in fitted.stderr
    data = read_card("fit.json")["data"]
    assert data["co_runs"] == {"cpu-core|AMD EPYC x1": len(runs)} and data["solo_runs"] == len(solos)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert data["files"] == {name: manifest["sha256"][name] for name in ("pairs.csv", "solo_profiles.csv")}


def test_what_does_not_come_with_the_package_must_be_given(tmp_path: Path) -> None:
    run = CliRunner().invoke
    elsewhere = run(app, ["predict", "interference", "LM/b16", "VAE/b32", "--device", "V100"])
    assert (elsewhere.exit_code, elsewhere.stdout) == (2, "")
    assert (
        "no measurements on V100 come with the package (known: cpu, measured on AMD EPYC x1)"
        in elsewhere.stderr
    )
    assert "--fit" in elsewhere.stderr
    for words in (["fit"], ["predict", "interference", "a/b1", "b/b1", "--device", "AMD EPYC x1"]):
        alone = run(app, [*words, "--solo", str(tmp_path / "solo.csv")])
        assert alone.exit_code == 2 and "--solo goes with a table of co-runs" in alone.stderr


def test_cores_and_the_packages_campaigns_go_by_their_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.profiles.corerates.core_set_of", lambda _: (0,))
    monkeypatch.setattr("cotenant.profiles.corerates.cpu_model", lambda: "AMD EPYC")
    pair = ["predict", "interference", "convolution/b8", "recurrent/b16", "--json"]
    run = CliRunner().invoke
    long, short = (run(app, [*pair, "--device", name]) for name in ("AMD EPYC x1", "cpu:0"))
    assert json.loads(short.stdout) == json.loads(long.stdout)
    named = run(app, [*pair, "--device", "AMD EPYC x1", "--fit", "cpu"])
    assert json.loads(named.stdout) == json.loads(long.stdout)


def test_commands_refuse_in_words(tmp_path: Path) -> None:
    run = CliRunner().invoke
    write_co_runs(tmp_path / "pairs.csv", _runs()[:3])
    table = str(tmp_path / "pairs.csv")
    assert run(app, ["predict", "evaluate", "--fit", "none.csv", "--on", "none.csv"]).exit_code == 1
    assert run(app, ["predict", "evaluate", "--fit", table, "--on", table, "--by", "colour"]).exit_code != 0
    assert run(app, ["predict", "interference", "LM/b16", "--device", "V100", "--fit", table]).exit_code == 1


def test_implausible_speeds_are_not_learnt_from_but_counted(tmp_path: Path) -> None:
    runs = _runs()
    sides = (CoSide(job=JOBS[0], speed=0.5), CoSide(job=JOBS[1], speed=40.0))
    wrong = CoRun(row_id="wrong", source="made", device_type="V100", sides=sides)
    predictor = AdaptiveInterferencePredictor(zoo="small").fit([*runs, wrong])
    assert predictor.implausible == 1 and [s.usable for s in predictor.runs[-1].sides] == [True, False]
    predictor.observe([wrong])
    assert predictor.implausible == 2
    # 1.84 is the highest speed of the public campaigns.
    high = (CoSide(job=JOBS[0], speed=1.84), CoSide(job=JOBS[1], speed=0.5))
    kept = AdaptiveInterferencePredictor(zoo="small").fit([*runs, CoRun(row_id="h", source="made", device_type="V100", sides=high)])  # fmt: skip
    assert kept.implausible == 0
    with pytest.raises(ConfigError, match="1 above 2, which is implausible"):
        AdaptiveInterferencePredictor().fit([CoRun(row_id="w", source="made", device_type="V100", sides=(*sides[1:], CoSide(job=JOBS[0])))])  # fmt: skip
    write_co_runs(tmp_path / "pairs.csv", [*runs, wrong])
    fitted = CliRunner().invoke(
        app, ["fit", str(tmp_path), "-o", str(tmp_path / "fit.json"), "--zoo", "small"]
    )
    assert (
        fitted.exit_code == 0 and "above 2 times alone are implausible; not learnt from: 1" in fitted.output
    )


def test_names_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    save_predictor(AdaptiveInterferencePredictor(zoo="small").fit(_runs(), _solos()), path)

    def ask(*jobs: str, device: str = "V100", source: str = "") -> tuple[int, str]:
        asked = ["predict", "interference", *jobs, "--device", device, "--source", source, "--fit", str(path)]
        done = CliRunner().invoke(app, asked)
        return done.exit_code, done.output or str(done.exception)

    code, told = ask("LM/b16", "LM/b32", device="Z9")
    assert code == 2 and "Z9" in told and "V100" in told
    assert ask("LM/b16", "LM/b32", device="")[0] == 2
    assert ask("LM/b16", "")[0] == 2 and ask("LM/b16", "/b32")[0] == 2
    for empty in ("LM/b0", "LM/b00", "LM/b-4"):
        code, told = ask("LM/b16", empty)
        assert code == 2 and "at least one sample" in told and empty in told
    # A model that no measurement names: answered as unknown, with the name that may have been meant.
    code, told = ask("Resnet50x/b16", "Transfomer")
    assert code == 0, told
    assert 'Transfomer: no measurement names this model; did you mean "Transformer"?' in told
    assert 'Resnet50x/b16: no measurement names this model; did you mean "ResNet-50/b16"?' in told
    assert "no measurement names" not in ask("Transformer/b48", "LM/b16")[1]
    # Of the catalogue, though nobody measured it: answered, with a warning; under a source, too.
    for source in ("", "made"):
        code, told = ask("LM/b16", "LM/b32", device="H100", source=source)
        assert code == 0 and "nothing was measured there (known: V100)" in told


def test_a_set_is_told_from_others_of_the_same_jobs(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    save_predictor(AdaptiveInterferencePredictor(zoo="small").fit(_runs(), _solos()), path)

    def ask(*jobs: str) -> tuple[bool, str]:
        words = ["predict", "interference", *jobs, "--device", "V100", "--fit", str(path)]
        shown = CliRunner().invoke(app, words).stdout
        return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["set_measured"], shown

    pair, shown = ask("LM/b32", "CycleGAN/b16")
    assert pair and shown.count("this set") == 2
    # All three pairs were measured; the three together were not.
    three, shown = ask("LM/b32", "CycleGAN/b16", "ResNet-18/b16")
    assert not three and shown.count("other sets here") == 3
    other_batch, shown = ask("LM/b32", "CycleGAN/b24")
    assert not other_batch and shown.count("other sets here") == 2
    assert ask("LM/b32", "GPT-3/b1")[1].count("nothing") >= 1


def test_an_empty_table_is_noticed_before_anything_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_co_runs(tmp_path / "pairs.csv", _runs())
    write_co_runs(tmp_path / "on.csv", [])
    monkeypatch.setattr(AdaptiveInterferencePredictor, "fit", lambda *_: pytest.fail("fitted"))
    asked = ["predict", "evaluate", "--fit", str(tmp_path / "pairs.csv"), "--on", str(tmp_path / "on.csv")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code != 0 and "on.csv: holds no co-runs" in (done.output or str(done.exception))
