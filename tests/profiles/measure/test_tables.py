"""Rows of the tables from repeats: what is a failure, what is missing, what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.profiles.measure.jobsfile import parse_jobs
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.measure.tables import Tables, make_tables, write_tables
from cotenant.profiles.measure.target import Target
from cotenant.profiles.measure.worker import JobFailure, What
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

FILE = parse_jobs(
    '[measure]\nsource = "s"\nself_pairs = false\n[[job]]\nname = "a"\ncommand = ["x"]\nbatch = 4\n'
    '[[job]]\nname = "b"\ncommand = ["x"]\n'
)
CARD = Target(name="cuda:0", kind="cuda", visible="0", device_type="A100", memory_mib=40960.0)
CORES = Target(name="cpu:0-1", kind="cpu", cores=(0, 1), device_type="X x2", memory_mib=1000.0)


def _ran(at_s: float, device: dict[str, float] | None = None, **speeds: float) -> Repeat:
    members = tuple(
        Member(job=j, steps=9, seconds=1.0, speed=v, ran_share=0.9, memory_mib=100.0 * v)
        for j, v in speeds.items()
    )
    return Repeat(session=1, at_s=at_s, jobs=tuple(speeds), members=members, device=device or {})


def _failed(*dead: str, what: What = "out of memory", jobs: tuple[str, ...] = ("a", "b")) -> Repeat:
    failures = tuple(JobFailure(job=name, what=what, detail="") for name in dead)
    return Repeat(session=1, at_s=3.0, jobs=jobs, failures=failures)


def _tables(*repeats: Repeat, target: Target = CARD) -> Tables:
    return make_tables(FILE, target, [_ran(0, a=10.0), _ran(1, b=4.0), *repeats])


@pytest.mark.parametrize(
    ("repeats", "status"),
    [
        ([], "unmeasured"),
        ([_failed("a", "b")], "failed"),
        ([_failed("b")], "failed_one_side"),
        ([_failed("b", what="crashed")], "failed_one_side"),
        ([_failed("b", what="too slow")], "unmeasured"),
        ([_failed("b", what="ended")], "unmeasured"),
        ([_failed("b"), _ran(2, a=5.0, b=2.0)], "ok"),
    ],
)
def test_what_became_of_a_set(repeats: list[Repeat], status: str) -> None:
    (run,) = _tables(*repeats).co_runs
    assert run.status == status
    assert all(side.usable for side in run.sides) == (status == "ok")


def test_on_a_card_busy_time_is_the_devices_and_on_cores_the_jobs_own() -> None:
    busy = {"busy_pct": 80.0, "memory_busy_pct": 30.0}
    card = make_tables(FILE, CARD, [_ran(0, busy, a=10.0)]).solo_runs[0]
    assert (card.gpu_util, card.mem_util) == (80.0, 30.0)
    cores = make_tables(FILE, CORES, [_ran(0, busy, a=10.0)]).solo_runs[0]
    assert cores.gpu_util == pytest.approx(45.0)  # 0.9 of one core is 45% of two


def test_what_was_not_read_is_missing() -> None:
    (run,) = _tables(_ran(2, a=5.0, b=2.0)).co_runs
    assert run.total_gpu_util is None
    assert run.total_mem_mib == pytest.approx(700.0)
    bare = Repeat(
        session=1,
        at_s=2.0,
        jobs=("a", "b"),
        members=tuple(Member(job=j, steps=9, seconds=1.0, speed=2.0) for j in "ab"),
    )
    assert _tables(bare).co_runs[0].total_mem_mib is None
    assert _tables(bare).solo_runs[0].counters["repeats"] == 1.0
    assert "step_cpu_ms" not in _tables(bare).solo_runs[0].counters


def test_tables_read_back_and_name_each_job_as_it_was_configured(tmp_path: Path) -> None:
    tables = _tables(_ran(2, a=5.0, b=2.0))
    write_tables(tmp_path, tables)
    assert tuple(read_co_runs(tmp_path)) == tables.co_runs
    assert tuple(read_solo_runs(tmp_path)) == tables.solo_runs
    (run,) = tables.co_runs
    assert [(s.job.label, s.speed, s.throughput_solo, s.throughput_co) for s in run.sides] == [
        ("a/b4", 0.5, 10.0, 5.0),
        ("b", 0.5, 4.0, 2.0),
    ]
    lines = (tmp_path / "intervals.csv").read_text().splitlines()
    assert lines[0] == "row_id,side,job,norm,low,high,repeats,set_aside,failed"
    assert lines[1].startswith("m0001,a,a,0.500000,")
    assert not list(tmp_path.glob("*.part"))
