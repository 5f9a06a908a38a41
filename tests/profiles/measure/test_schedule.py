"""What is measured next: runs alone in time, every set, then the widest; failures end."""

from __future__ import annotations

import math
import random

from cotenant.profiles.measure.jobsfile import MeasureFile, parse_jobs
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.measure.schedule import Schedule, all_sets
from cotenant.profiles.measure.worker import JobFailure


def _file(jobs: int = 4, **changes: object) -> MeasureFile:
    lines = "".join(f"{name} = {value!r}\n" for name, value in changes.items())
    return parse_jobs(
        "[measure]\n" + lines + "".join(f"[[job]]\nname = 'j{i}'\ncommand = ['x']\n" for i in range(jobs))
    )


def _run(
    file: MeasureFile,
    *,
    budget_s: float = math.inf,
    noise: float = 0.002,
    dead: str = "",
    failing: tuple[str, ...] = (),
) -> list[Repeat]:
    """Follow the schedule with made-up measurements of 2 s each."""
    schedule = Schedule(file, 1)
    random_ = random.Random(7)
    repeats: list[Repeat] = []
    now = 0.0
    while len(repeats) < 2000:
        chosen = schedule.next(repeats, now, budget_s - now)
        if chosen is None:
            return repeats
        now += 2.0
        jobs = chosen.jobs
        if dead in jobs or jobs == failing:
            failure = JobFailure(job=jobs[-1], what="crashed", detail="")
            repeats.append(Repeat(session=1, at_s=now, jobs=jobs, failures=(failure,)))
            continue
        speeds = [10.0 / len(jobs) * math.exp(random_.gauss(0, noise)) for _ in jobs]
        members = tuple(
            Member(job=j, steps=9, seconds=1.0, speed=s) for j, s in zip(jobs, speeds, strict=True)
        )
        repeats.append(Repeat(session=1, at_s=now, jobs=jobs, members=members))
    raise AssertionError("the schedule does not end")


def test_every_set_is_measured_as_often_as_asked_and_then_it_ends() -> None:
    file = _file(min_repeats=2, max_repeats=5, target_pct=50.0, triples=1)
    repeats = _run(file)
    counts = {jobs: sum(r.jobs == jobs for r in repeats) for jobs in all_sets(file)}
    assert set(counts.values()) == {2}
    assert len(counts) == 6 + 4 + 1


def test_no_co_run_is_far_from_a_run_alone_before_and_after() -> None:
    file = _file(jobs=5, min_repeats=3, target_pct=50.0, solo_every="20s")
    repeats = _run(file)
    alone: dict[str, list[float]] = {}
    for repeat in repeats:
        if len(repeat.jobs) == 1:
            alone.setdefault(repeat.jobs[0], []).append(repeat.at_s)
    for repeat in repeats:
        for name in repeat.jobs if len(repeat.jobs) > 1 else ():
            before = [at for at in alone[name] if at < repeat.at_s]
            after = [at for at in alone[name] if at > repeat.at_s]
            assert repeat.at_s - max(before) <= 20 + 2 * 2
            # Where it never ran beside others again, it ran alone at the end, unless it had just done so.
            assert after or repeat.at_s - max(before) <= 10


def test_repeats_go_where_the_interval_is_wide_up_to_the_limit() -> None:
    sure = _run(_file(min_repeats=2, max_repeats=6, target_pct=1.5), noise=0.0001)
    unsure = _run(_file(min_repeats=2, max_repeats=6, target_pct=0.01), noise=0.02)
    pair = ("j0", "j1")
    assert sum(r.jobs == pair for r in unsure) == 6
    assert sum(r.jobs == pair for r in sure) <= 6
    assert len(sure) < len(unsure)


def test_the_budget_is_kept_and_closes_with_runs_alone() -> None:
    repeats = _run(_file(jobs=6, min_repeats=4), budget_s=120.0)
    assert repeats[-1].at_s <= 120.0 + 8.0
    assert len(repeats[-1].jobs) == 1


def test_a_job_that_fails_alone_is_left_out_and_so_are_its_sets() -> None:
    repeats = _run(_file(target_pct=50.0), dead="j2")
    assert [r.jobs for r in repeats if "j2" in r.jobs] == [("j2",), ("j2",)]
    assert sum(r.jobs == ("j0", "j1") for r in repeats) == 2


def test_a_set_that_fails_is_tried_twice() -> None:
    repeats = _run(_file(target_pct=50.0), failing=("j0", "j3"))
    assert sum(r.jobs == ("j0", "j3") for r in repeats) == 2
    assert sum(r.jobs == ("j1", "j3") for r in repeats) == 2


def test_the_order_depends_on_the_seed_alone() -> None:
    one, again, other = (_run(_file(seed=s, target_pct=50.0)) for s in (1, 1, 2))
    assert [r.jobs for r in one] == [r.jobs for r in again]
    assert [r.jobs for r in one] != [r.jobs for r in other]
