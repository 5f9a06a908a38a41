"""Time slicing: turns on over-subscribed devices, none while a device is free."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.plan import Reason
from cotenant.model.settings import Settings
from cotenant.policies.time_slice import TimeSlice
from cotenant.testing import Harness, HarnessRun

from .sharing_jobs import GIB, check, clusters, jobs, settings


def slicing(cluster: str, policy: TimeSlice, switch_s: float = 0.0) -> Harness:
    """Devices of 24 GiB; switching is free unless said."""
    return Harness(cluster, policy, settings=Settings(slice_switch_s=switch_s), memory_bytes=24 * GIB)


def test_two_take_turns() -> None:
    """Both want all memory. From 10 on each has half: a has 90 left, b 20, so b ends at 50."""
    h = slicing("1x1", TimeSlice())
    h.submit("a", memory_bytes=20 * GIB, runs_s=100.0)
    h.submit("b", at_s=10.0, memory_bytes=20 * GIB, runs_s=20.0)
    run = h.run()
    assert run.start_s("b") == 10.0
    # a has done 10 + 20 of 100 at 50 and goes on alone.
    assert (run.end_s("b"), run.end_s("a")) == (50.0, 120.0)
    share = run.of("a", ev.Started)[0].share
    assert (share.mode, share.memory_bytes, share.compute_milli) == ("time-sliced", 20 * GIB, 0)


def test_switching_costs() -> None:
    """60 s slices and 0.6 s switches: each has 60 / 60.6 / 2 of the device."""
    h = slicing("1x1", TimeSlice(), switch_s=0.6)
    h.submit("a", memory_bytes=GIB, runs_s=100.0)
    h.submit("b", memory_bytes=GIB, runs_s=100.0)
    run = h.run()
    assert run.end_s("a") == pytest.approx(100.0 * 2 * 60.6 / 60)


def test_six_jobs_on_four_devices() -> None:
    """Free devices first, then those with fewest residents, lowest number first."""
    h = slicing("1x4", TimeSlice())
    for i in range(6):
        h.submit(f"j{i}", memory_bytes=GIB, runs_s=100.0)
    run = h.run()
    assert [run.devices(f"j{i}") for i in range(6)] == [(0,), (1,), (2,), (3,), (0,), (1,)]


def test_residents_are_bounded() -> None:
    """With two at most on one device the third waits for whoever ends first."""
    h = slicing("1x1", TimeSlice(max_residents=2))
    for name, runs_s in (("a", 30.0), ("b", 50.0), ("c", 10.0)):
        h.submit(name, memory_bytes=GIB, runs_s=runs_s)
    run = h.run()
    assert run.reasons("c") == [Reason.NO_CAPACITY]
    assert run.start_s("c") == run.end_s("a") == 60.0


def test_gangs_take_turns_with_gangs_on_the_same_devices() -> None:
    """A single job never joins a member of a gang; the second gang joins the first."""
    h = slicing("1x3", TimeSlice())
    h.submit("g0", gpus=2, memory_bytes=GIB, runs_s=100.0)
    h.submit("s0", at_s=1.0, memory_bytes=GIB, runs_s=100.0)
    h.submit("s1", at_s=2.0, memory_bytes=GIB, runs_s=100.0)
    h.submit("g1", at_s=3.0, gpus=2, memory_bytes=GIB, runs_s=100.0)
    run = h.run()
    assert [run.devices(n) for n in ("g0", "s0", "s1", "g1")] == [(0, 1), (2,), (2,), (0, 1)]


def test_unknown_memory_is_never_sliced() -> None:
    """What must wait on the host is not known, so it waits for the device."""
    h = slicing("1x1", TimeSlice())
    h.submit("a", runs_s=10.0)
    h.submit("b", at_s=1.0, memory_bytes=GIB, runs_s=10.0)
    run = h.run()
    assert run.start_s("b") == 10.0


def test_bad_bound() -> None:
    """The error names it."""
    with pytest.raises(ConfigError, match="max_residents"):
        TimeSlice(max_residents=0)


def check_fewest(run: HarnessRun) -> None:
    """Each start beside others finds no free device, and no group of its size with fewer residents."""
    free = set(range(run.state.layout.device_count))
    residents: dict[int, set[int]] = {d: set() for d in free}
    for event in run.events:
        if isinstance(event, ev.Started):
            if event.share is not None and residents[event.devices[0]]:
                counts = {len(residents[d]) for d in event.devices}
                assert len(counts) == 1
                if len(event.devices) == 1:
                    assert all(residents.values())
                    single = [len(j) for d, j in residents.items() if d != event.devices[0]]
                    assert not single or min(single) >= 1
            for device in event.devices:
                residents[device].add(event.id)
        elif isinstance(event, ev.Ended):
            for jobs_here in residents.values():
                jobs_here.discard(event.id)


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from([1, 1, 2]), st.floats(1, 20)), max_size=14))
@hyp(max_examples=80, deadline=None)
def test_a_free_device_is_never_left_for_turns(bound: int, rows: list[tuple[int, float]]) -> None:
    """Over-subscription only without a free device."""
    h = slicing("2x2", TimeSlice(max_residents=bound))
    for number, (gpus, runs_s) in enumerate(rows):
        h.submit(f"j{number:02}", at_s=float(number), gpus=gpus, memory_bytes=GIB, runs_s=runs_s)
    if rows:
        check_fewest(h.run())


@given(
    st.sampled_from([TimeSlice(), TimeSlice(max_residents=2)]), clusters(), jobs(), settings(), st.booleans()
)
@hyp(max_examples=120, deadline=None)
def test_any_run(
    policy: TimeSlice, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings, burst: bool
) -> None:
    """No refusals, no index needed, everybody ends, also when all come at once."""
    rows = [{**row, "at_s": 0.0} for row in rows] if burst else rows
    check(policy, cluster, rows, rules)
