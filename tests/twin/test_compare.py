"""A live run beside its simulation: what is compared, and what a study says of it."""

from __future__ import annotations

import pytest

from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.twin.compare import course_of, likeness
from cotenant.twin.mix import GANG, PLAIN, TORCH, draw, words_of
from cotenant.twin.page import gain_cells, html_page, like_cells, plain, side_cells
from cotenant.twin.rows import gains, mean_sd, sides
from cotenant.twin.study import Known, Played, Study

SHARED = Share("spatial")


def _log(starts, ends, submits=(0.0, 1.0, 2.0)):
    """Events of jobs a, b, c: starts are (job, time, devices), ends by job."""
    found = [ev.Submitted(t, Job(id=i, name="abc"[i], submit_s=t)) for i, t in enumerate(submits)]
    found += [ev.Started(t, i, 1, devices, SHARED) for i, t, devices in starts]
    found += [ev.Ended(t, i, 1, "done", 1.0) for i, t in enumerate(ends)]
    return sorted(found, key=lambda event: event.t)


LIVE = _log([(0, 0.0, (0,)), (1, 1.0, (1,)), (2, 2.0, (0,))], [10.0, 8.0, 12.0])


def test_a_course_is_read_off_a_log():
    course = course_of(LIVE)
    assert [fate.name for fate in course.fates] == ["a", "b", "c"]
    assert [fate.jct_s for fate in course.fates] == [10.0, 7.0, 10.0]
    assert course.by_name["c"].beside == ("a",)
    assert course.by_name["b"].beside == ()
    assert course.jct_s == 9.0
    assert course.makespan_s == 12.0
    assert course.shared == 1
    assert course.per_hour == pytest.approx(900.0)


def test_a_job_that_has_not_ended_is_named():
    with pytest.raises(ValueError, match="'c'"):
        course_of([event for event in LIVE if not (isinstance(event, ev.Ended) and event.id == 2)])


def test_a_run_is_like_itself():
    course = course_of(LIVE)
    found = likeness(course, course)
    assert (found.order, found.first_other, found.device, found.beside, found.jct_pct) == (
        1.0,
        3,
        1.0,
        1.0,
        0.0,
    )


def test_other_decisions_are_counted():
    # b goes to device 0 beside a, and c starts before b, alone on device 1.
    other = course_of(_log([(0, 0.0, (0,)), (2, 2.0, (1,)), (1, 3.0, (0,))], [10.0, 8.0, 17.0]))
    found = likeness(course_of(LIVE), other)
    assert found.first_other == 1
    assert found.order == pytest.approx(2 / 3)  # of ab, ac, bc the last is the other way round
    assert found.device == pytest.approx(1 / 3)
    assert found.beside == pytest.approx(1 / 3)
    assert found.jct_pct == pytest.approx(50.0 / 3)  # c: 15 s in place of 10 s


def _study(*runs):
    mix = draw(PLAIN, 3)
    known = Known(step_s={"dense": 0.01, "loader": 0.01}, starts_s={"dense/b1024": 0.2, "loader/b64": 0.2})
    return Study(
        mix=mix,
        devices=("cpu:0", "cpu:1"),
        known=known,
        pairs=[("dense/b1024", "loader/b64", 0.8, None)],
        settings={},
        policies={"fifo": "fifo", "colocate": "colocate"},
        played=list(runs),
        seconds=1.0,
    )


def _played(policy, live, simulated, others=0.0):
    one, other = course_of(live), course_of(simulated)
    return Played(
        policy=policy, repeat=0, live=one, simulated=other, like=likeness(one, other), others=others
    )


def test_a_study_tells_differences_gains_and_reasons():
    slow = _log([(0, 0.0, (0,)), (1, 1.0, (1,)), (2, 8.0, (1,))], [10.0, 8.0, 18.0])
    fast = _log([(0, 0.0, (0,)), (1, 1.0, (1,)), (2, 2.0, (0,))], [8.0, 8.0, 10.0])
    study = _study(_played("fifo", slow, slow), _played("colocate", LIVE, fast, others=0.4))
    of = {(s.policy, s.what): s for s in sides(study)}
    assert of["fifo", "makespan"].difference_pct == (0.0, 0.0)
    assert of["fifo", "makespan"].reason == "within 5 %"
    off = of["colocate", "makespan"]
    assert off.difference_pct[0] == pytest.approx(-100 / 6)
    assert "others had 40 % of the cores" in off.reason
    gained = {g.what: g for g in gains(study)}
    assert gained["makespan"].live_pct[0] == pytest.approx(-100 / 3)  # 12 s in place of 18 s
    assert gained["jobs ended per hour"].live_pct[0] == pytest.approx(50.0)
    assert side_cells(study)[3][2:5] == ("12.0 s", "10.0 s", "-16.7 %")
    assert gain_cells(study)[1][2] == "-33.3 %"
    assert like_cells(study)[0][3] == "none"
    page = html_page(study, "cotenant twin")
    assert "scatter-colocate" in page and "-16.7 %" in page
    assert plain(study, "cotenant twin")["likeness"][1]["others"] == 0.4


def test_a_simulation_that_is_too_slow_is_not_explained_by_others():
    study = _study(
        _played("fifo", LIVE, _log([(0, 0.0, (0,)), (1, 1.0, (1,)), (2, 2.0, (0,))], [20.0, 8.0, 24.0]), 0.9)
    )
    study.policies.pop("colocate")
    assert {s.reason for s in sides(study)} == {"not explained by what was measured"}


def test_means_and_spreads_of_repeats():
    assert mean_sd([4.0]) == (4.0, 0.0)
    assert mean_sd([2.0, 4.0, 6.0]) == (4.0, 2.0)


def test_a_mix_is_drawn_by_its_seed():
    mix = draw(TORCH, 20, gang=True)
    assert mix == draw(TORCH, 20, gang=True)
    assert mix != draw(TORCH, 20, gang=True, seed=2)
    assert len(mix.jobs) == 21
    assert len({job.name for job in mix.jobs}) == 21
    assert [job.gpus for job in mix.jobs if job.name == GANG] == [2]
    arrivals = [job.arrives_s for job in mix.jobs]
    assert arrivals == sorted(arrivals) and arrivals[0] == 0.0
    assert all(4.0 <= job.work_s <= 9.0 for job in mix.jobs)
    waiting = [job for job in mix.jobs if mix.kind(job.kind).wait_ms]
    assert len(waiting) == 8


def test_commands_say_how_many_steps():
    assert words_of(TORCH[1], 30)[1:] == (
        "-m", "cotenant.profiles.jobs", "input", "--batch", "16", "--wait-ms", "8", "--steps", "30",
    )  # fmt: skip
    assert words_of(TORCH[0], 5, threads=2)[-4:] == ("--threads", "2", "--steps", "5")
    assert words_of(PLAIN[1], 7)[-4:] == ("--wait-ms", "8", "--steps", "7")
