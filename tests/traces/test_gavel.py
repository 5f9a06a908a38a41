"""Gavel's traces: steps become seconds, and what was assumed is said."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cotenant.errors import InputError, TraceError
from cotenant.traces.gavel import GavelReader
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.steps import NO_GAIN, STRETCHED, load_throughputs

LONG = "ResNet-50 (batch size 64)\tpython3 main.py %s\timage\t--steps\t1\t{steps}\t{gpus}\t{weight}\t{slo}\t{at}\n"
SHORT = "{kind}\tcd %s && python3 x.py\t-step\t1\t{steps}\t{at}\t{gpus}\n"
V100_RESNET50_B64 = 4.395  # steps/s, gavel-2020, to three places


def _long(steps: int = 4395, gpus: int = 1, weight: float = 1, slo: float = -1.0, at: float = 0) -> str:
    return LONG.format(steps=steps, gpus=gpus, weight=weight, slo=slo, at=at)


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.trace"
    path.write_text(text)
    return path


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("physical_cluster/artifact_evaluation.trace", 15),
        ("physical_cluster/debug.trace", 14),
        ("physical_cluster/debug_v2.trace", 14),
        ("physical_cluster/highmem_test.trace", 8),
        ("physical_cluster/max_min_fairness.trace", 96),
        ("physical_cluster/medium_test.trace", 20),
        ("physical_cluster/minimize_makespan.trace", 100),
        ("physical_cluster/small_test.trace", 20),
        ("msr_seed0/103959.trace.gz", 986),
        ("msr_seed0/2869ce.trace.gz", 533),
        ("msr_seed0/ed69ec.trace.gz", 951),
    ],
)
def test_published_files_load_whole(data_dir: Path, name: str, rows: int) -> None:
    path = data_dir / "traces" / "gavel" / name
    assert recognise(path) == "gavel"
    work = read_trace(path)
    assert len(work) == work.report.rows_read == work.report.rows_kept == rows
    assert (work.frame["duration_s"] > 0).all()
    assert any("not observed" in sentence for sentence in work.assumptions)


@pytest.mark.data
def test_the_bundled_throughputs_are_those_of_the_measured_table(data_dir: Path) -> None:
    with (data_dir / "interference" / "solo_profiles.csv").open(newline="") as source:
        table = [row for row in csv.DictReader(source) if row["placement"] in {"", "consolidated"}]
    for campaign in ("gavel-2020", "gavel-2020-physical", "gavel-2019-08"):
        for gpu_type in ("K80", "P100", "V100"):
            bundled = load_throughputs("", campaign, gpu_type)
            whole = load_throughputs(data_dir / "interference" / "solo_profiles.csv", campaign, gpu_type)
            assert bundled is not None
            assert whole is not None
            assert bundled._table == whole._table
            rows = [r for r in table if (r["source"], r["gpu_type"]) == (campaign, gpu_type)]
            assert len(bundled._table) == len(rows)


@pytest.mark.data
def test_the_times_from_which_the_msr_traces_were_made_come_back(data_dir: Path) -> None:
    # The same jobs, with times, are published as ElasticFlow's list of the same virtual cluster.
    options = {"campaign": "gavel-2019-08", "scale": "single"}
    gavel = read_trace(data_dir / "traces" / "gavel" / "msr_seed0" / "103959.trace.gz", **options).frame
    listed = read_trace(data_dir / "traces" / "elasticflow" / "philly_103959.csv").frame
    by_time = {
        (submit, gpus): duration
        for submit, gpus, duration in listed.select("submit_s", "gpus", "duration_s").rows()
    }
    pairs = [
        (duration, by_time[submit, gpus])
        for submit, gpus, duration in gavel.select("submit_s", "gpus", "duration_s").rows()
        if (submit, gpus) in by_time
    ]
    close = sum(abs(ours - theirs) <= 0.001 * theirs + 1 for ours, theirs in pairs)
    assert len(pairs) > 700
    # Others ran fastest on another device type when the trace was made.
    assert close > 0.8 * len(pairs)


def test_duration_is_steps_over_throughput(tmp_path: Path) -> None:
    work = read_trace(_file(tmp_path, _long(steps=4395)))
    assert work.frame["duration_s"][0] == pytest.approx(4395 / V100_RESNET50_B64, rel=1e-3)
    assert work.frame["model"].to_list() == ["ResNet-50/b64"]
    slower = read_trace(tmp_path / "x.trace", gpu_type="K80").frame["duration_s"][0]
    assert slower == pytest.approx(4395 / 0.619028, rel=1e-6)


def test_slo_and_weight(tmp_path: Path) -> None:
    work = read_trace(_file(tmp_path, _long(slo=2.0, at=100.0, weight=3) + _long(at=90, weight=1.5)))
    first, second = work.frame.to_dicts()
    # Time 0 is the first submission, at 90 s.
    assert (first["submit_s"], first["deadline_s"], first["priority"]) == (0.0, 0.0, 1)
    assert second["submit_s"] == 10.0
    assert second["deadline_s"] == pytest.approx(10.0 + 2 * second["duration_s"])
    assert second["priority"] == 3
    assert [f.rows for f in work.report.flagged if "weight" in f.reason] == [1]


def test_gangs_beyond_the_measured_ones_are_assumed_and_flagged(tmp_path: Path) -> None:
    kind = "ResNet-18 (batch size 64)"
    lines = [SHORT.format(kind=kind, steps=1000, at=i, gpus=g) for i, g in enumerate((8, 32))]
    lines.append(SHORT.format(kind="CycleGAN", steps=1000, at=2, gpus=4))
    lines.append(SHORT.format(kind="Mystery (batch size 2)", steps=1, at=3, gpus=1))
    work = read_trace(_file(tmp_path, "".join(lines)))
    eight, many, gan = work.frame["duration_s"].to_list()
    assert many == pytest.approx(eight / 4)
    assert gan == pytest.approx(1000 / 4.426, rel=1e-3)
    flagged = {f.reason: f.rows for f in work.report.flagged}
    assert (flagged[STRETCHED], flagged[NO_GAIN]) == (1, 1)
    assert [f.rows for f in work.report.not_simulated] == [1]
    assert work.report.rows_kept == 4


def test_without_a_table_jobs_are_not_simulated(tmp_path: Path) -> None:
    report = read_trace(_file(tmp_path, _long() * 3), throughputs="none").report
    assert (report.rows_read, report.rows_kept) == (3, 3)
    assert [(f.reason, f.rows) for f in report.not_simulated] == [
        ("steps without a table of throughputs: running time unknown", 3)
    ]


def test_a_device_that_the_job_does_not_fit_is_said(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        "gpu_type,model,batch,num_gpus,throughput\nV100,ResNet-50,64,1,0\nV100,ResNet-50,64,2,5\n"
    )
    path = _file(tmp_path, _long(steps=10) + _long(steps=10, gpus=2, at=1))
    work = read_trace(path, throughputs=table)
    assert work.frame["duration_s"].to_list() == [2.0]
    assert "does not fit" in work.report.not_simulated[0].reason


def test_wrong_options_are_named(tmp_path: Path) -> None:
    path = _file(tmp_path, _long())
    with pytest.raises(InputError, match=r"A100.*device types: K80, P100, V100"):
        read_trace(path, gpu_type="A100")
    with pytest.raises(InputError, match="scale"):
        read_trace(path, scale="double")
    with pytest.raises(TraceError, match=r"absent\.csv"):
        read_trace(path, throughputs=tmp_path / "absent.csv")


def test_bad_rows(tmp_path: Path) -> None:
    path = _file(tmp_path, _long() + "too\tfew\n" + _long(steps=-5) + _long(at=-1))
    report = read_trace(path).report
    assert (report.rows_read, report.rows_kept) == (4, 1)
    assert sorted(f.example_line or 0 for f in report.dropped) == [2, 3, 4]
    with pytest.raises(TraceError, match=r"x\.trace:"):
        read_trace(path, strict=True)


def test_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    lines = [_long(steps=i, at=i % 3, gpus=1 + i % 2) for i in range(1, 20)]
    one = read_trace(_file(tmp_path, "".join(lines))).frame
    assert read_trace(_file(tmp_path, "".join(reversed(lines)))).frame.equals(one)


def test_sniffing_wants_numbers_where_they_belong() -> None:
    reader = GavelReader()
    assert reader.sniff(Path("a.trace"), _long().encode()) == 0.95
    assert reader.sniff(Path("a.trace"), b"a\tb\tc\td\te\tf\tg\n") == 0.0
