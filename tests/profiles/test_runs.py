"""Tables of measured runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, TraceError
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun
from cotenant.profiles.runsfile import (
    read_co_runs,
    read_counters,
    read_solo_runs,
    write_co_runs,
    write_solo_runs,
)

A = JobConfig(model="ResNet-50", family="ResNet-50", batch=32, amp=1)
B = JobConfig(model="LM", batch=5)

_NUMBERS = st.none() | st.floats(0.0, 1e6, allow_nan=False).map(lambda x: round(x, 6))
_NAMES = st.text("abcXYZ-0123", min_size=1, max_size=6)
_JOBS = st.builds(
    JobConfig,
    model=_NAMES,
    family=_NAMES,
    batch=st.integers(0, 4096),
    amp=st.integers(-1, 1),
    num_gpus=st.integers(1, 8),
    parallel=st.sampled_from(["", "DP24", "12,12"]),
)
_SIDES = st.builds(
    CoSide,
    job=_JOBS,
    speed=_NUMBERS,
    label_ok=st.booleans(),
    censored=st.booleans(),
    suspect=st.booleans(),
    throughput_solo=_NUMBERS,
    gpu_util=_NUMBERS,
)
_CORUNS = st.builds(
    CoRun,
    row_id=_NAMES,
    source=_NAMES,
    device_type=_NAMES,
    sides=st.lists(_SIDES, min_size=2, max_size=4).map(tuple),
    status=st.sampled_from(["ok", "failed", "unmeasured"]),
    device_mem_mib=_NUMBERS,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_CORUNS, max_size=5))
def test_co_runs_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, runs: list[CoRun]
) -> None:
    path = tmp_path_factory.mktemp("runs") / "pairs.csv"
    write_co_runs(path, runs)
    assert read_co_runs(path) == runs


def test_solo_runs_read_back_as_they_were_written(tmp_path: Path) -> None:
    runs = [
        SoloRun(source="own", device_type="CPU-1", job=A, throughput=12.5, unit="samples/s", gpu_util=0.0),
        SoloRun(source="own", device_type="CPU-1", job=B, fits=False, counters={"power_w": 31.25}),
    ]
    write_solo_runs(tmp_path / "solo_profiles.csv", runs)
    assert read_solo_runs(tmp_path) == runs


def test_missing_is_not_zero(tmp_path: Path) -> None:
    path = tmp_path / "solo_profiles.csv"
    path.write_text("source,gpu_type,model,gpu_util,mem_util\nown,T4,LM,,0\n")
    (run,) = read_solo_runs(path)
    assert run.gpu_util is None and run.mem_util == 0.0 and run.throughput is None and run.fits


def test_a_solo_throughput_of_zero_means_that_the_job_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "solo_profiles.csv"
    path.write_text("source,gpu_type,model,throughput\nown,T4,LM,0\n")
    assert [run.fits for run in read_solo_runs(path)] == [False]


def test_status_says_whether_a_set_fits() -> None:
    found = {
        status: CoRun(
            row_id="1", source="s", device_type="T4", sides=(CoSide(job=A), CoSide(job=B)), status=status
        ).fits
        for status in ("ok", "failed", "failed_one_side", "unmeasured")
    }
    assert found == {"ok": True, "failed": False, "failed_one_side": False, "unmeasured": None}


def test_the_key_of_a_set_knows_no_order() -> None:
    one = CoRun(row_id="1", source="s", device_type="T4", sides=(CoSide(job=A), CoSide(job=B)))
    two = CoRun(row_id="2", source="t", device_type="K80", sides=(CoSide(job=B), CoSide(job=A)))
    assert one.key == two.key and not one.self_pair
    assert one.others(0) == (CoSide(job=B),)


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ("s,T4,A,B,x,1", "a_norm"),
        ("s,T4,A,B,-0.5,1", "a_norm"),
        ("s,T4,A,B,1,nan", "b_norm"),
        ("s,T4,A,,1,1", "b_model"),
    ],
)
def test_bad_cells_are_refused_with_their_place(tmp_path: Path, cells: str, column: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"source,gpu_type,a_model,b_model,a_norm,b_norm\ns,T4,A,B,1,1\n{cells}\n")
    with pytest.raises(TraceError) as caught:
        read_co_runs(path)
    assert "3" in str(caught.value) and column in str(caught.value)


def test_a_table_without_its_columns_or_that_is_absent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("source,a_model\ns,A\n")
    with pytest.raises(ConfigError, match="gpu_type, b_model are missing"):
        read_co_runs(path)
    with pytest.raises(ConfigError, match="no such file"):
        read_solo_runs(tmp_path)


@pytest.mark.data
def test_the_published_collection_is_read_whole(data_dir: Path) -> None:
    folder = data_dir / "interference"
    runs, solos = read_co_runs(folder), read_solo_runs(folder)
    assert (len(runs), len(solos)) == (3780, 1359)
    lucid = [run for run in runs if run.source == "lucid"]
    assert len(lucid) == 631 and sum(all(s.usable for s in run.sides) for run in lucid) == 437
    assert any(s.censored for run in runs if run.device_type == "V100" for s in run.sides)
    assert len(read_counters(folder)) > 20


SHORT = "device_type,a,b,a_speed,b_speed,source\n"


def test_pairs_in_short_are_co_runs_too(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        SHORT + "V100,ResNet-50/b32,LM/b20,0.71,0.55,lab\nV100,our-net,our-net,0.52,,\nV100,x,y,,,\n"
    )
    pair, twins, untried = read_co_runs(path)
    assert (pair.source, pair.device_type, pair.status) == ("lab", "V100", "ok")
    assert [(s.job.model, s.job.batch, s.speed) for s in pair.sides] == [
        ("ResNet-50", 32, 0.71),
        ("LM", 20, 0.55),
    ]
    assert twins.source == "own" and [side.usable for side in twins.sides] == [True, False]
    assert untried.status == "unmeasured"


def test_a_bad_speed_in_short_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(SHORT + "V100,x,y,0.5,0,\n")
    with pytest.raises(TraceError, match=r"own\.csv:2 \[b_speed\]: speed '0' is not a positive number"):
        read_co_runs(path)
    path.write_text("device_type,a,b\nV100,x,y\n")
    with pytest.raises(ConfigError, match="or have device_type,a,b,a_speed,b_speed"):
        read_co_runs(path)
