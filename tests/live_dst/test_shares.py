"""What a job is guaranteed, and its ceiling: at its start, at later starts, after a takeover, and as it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.live.picture import Picture
from cotenant.policies.colocate import Colocate
from cotenant.policies.gaiagpu import GaiaGpu
from cotenant.testing import FixedForecast

Make = Any
ASKED = {"gpu_compute": "20%", "gpu_compute_limit": "30%"}


def begun(m: Any) -> Any:
    """Give a new scheduler what policies may ask for."""
    m.loop.view._forecast = FixedForecast()
    return m


def shown(m: Any, job_id: int) -> tuple[int, int]:
    """What tables say that a job is guaranteed, and its ceiling."""
    picture = Picture(m, ("card-0",), ("card",))
    picture.recall(m.log())
    view = picture.job(job_id)
    assert view is not None
    return view.compute_milli, view.compute_limit_milli


def held(m: Any, job_id: int) -> list[tuple[int, int]]:
    """The same of its process, and in the books."""
    place = m.state.records[job_id].place
    assert place is not None
    return [(s.compute_milli, s.compute_limit_milli) for s in (m.process(job_id).launch.share, place.share)]


@pytest.mark.parametrize("policy", [Colocate, GaiaGpu])
def test_a_ceiling_outlives_the_scheduler_and_is_shown(machine: Make, policy: Any) -> None:
    m = begun(machine(policy))
    a = m.submit("a", **ASKED)
    m.to(5.0)
    assert (held(m, a), shown(m, a)) == ([(200, 300)] * 2, (200, 300))
    m.begin()
    begun(m)
    m.to(60.0)
    assert (held(m, a), shown(m, a)) == ([(200, 300)] * 2, (200, 300))
    assert len(m.launched) == 1


def test_a_ceiling_is_shown_of_jobs_that_wait_are_held_and_have_ended(machine: Make) -> None:
    m = machine()
    first = m.submit("first", gib=20, runs_s=100.0, sharing="exclusive")
    m.to(5.0)
    a = m.submit("a", gib=20, **ASKED)
    m.to(10.0)
    assert (m.runs(), shown(m, a)) == ([first], (200, 300))
    m.ask("resize", id=a, compute_limit_milli=250)
    m.ask("suspend", id=a)
    m.to(15.0)
    assert shown(m, a) == (200, 250)
    m.ask("resize", id=a, compute_milli=400)
    m.to(20.0)
    assert shown(m, a) == (400, 400)
    m.ask("cancel", id=a)
    m.to(25.0)
    assert shown(m, a) == (400, 400)


@pytest.mark.parametrize("how", ["killed", "suspended", "taken over"])
def test_a_resized_ceiling_holds_for_later_starts(machine: Make, how: str) -> None:
    m = begun(machine(Colocate))
    a = m.submit("a", retries=1, **ASKED)
    m.to(5.0)
    m.ask("resize", id=a, compute_milli=210, compute_limit_milli=250)
    m.to(20.0)
    assert held(m, a) == [(210, 250)] * 2
    m.ask("resize", id=a, compute_milli=220, compute_limit_milli=900)
    m.to(30.0)
    if how == "taken over":
        m.begin()
        begun(m)
    else:
        if how == "killed":
            m.world._end(m.process(a), "failed", signal=9)
        else:
            m.ask("suspend", id=a)
            m.to(100.0)
            m.ask("resume", id=a)
        m.to(200.0)
        assert len(m.launched) == 2
    m.to(300.0)
    assert (held(m, a), shown(m, a)) == ([(220, 900)] * 2, (220, 900))


def test_a_job_without_a_fraction_is_shown_with_what_others_leave_it(machine: Make) -> None:
    m = begun(machine(Colocate))
    a = m.submit("a", gib=4, model="x")
    m.to(5.0)
    assert held(m, a) == [(0, 1000)] * 2, "guaranteed in the books it would keep others away"
    assert shown(m, a) == (1000, 1000)
    m.submit("b", gib=4, gpu_compute="30%", model="x")
    m.to(10.0)
    assert (len(m.runs()), shown(m, a)) == (2, (700, 1000))
    c = m.submit("c", gib=4, gpu_compute_limit="25%", model="x")
    m.to(15.0)
    assert (len(m.runs()), shown(m, a), shown(m, c)) == (3, (350, 1000), (250, 250))
    m.ask("cancel", id=a)
    m.to(30.0)
    assert (shown(m, a), shown(m, c)) == ((1000, 1000), (250, 250))
