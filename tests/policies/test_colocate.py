"""Interference-aware co-location, on scenarios small enough to reckon by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp_settings
from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.plan import Reason
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.colocate import Colocate
from cotenant.testing import FixedForecast, FixedTruth, Harness

from .sharing_jobs import clusters, jobs, settings

PAIRS = {
    ("heavy", ("heavy",)): 0.5,
    ("heavy", ("light",)): 0.9,
    ("light", ("heavy",)): 0.8,
    ("light", ("light",)): 0.95,
}
TRIPLES = {
    ("light", ("heavy", "light")): 0.6,
    ("heavy", ("light", "light")): 0.7,
    ("light", ("light", "light")): 0.8,
}


def harness(
    cluster: str, *, settings: Settings | None = None, spread: float = 0.0, **params: float
) -> Harness:
    speeds = PAIRS | TRIPLES
    policy = Colocate(**({"guest_s": 0.0, "min_speed": 0.45} | params))
    return Harness(
        cluster,
        policy,
        truth=FixedTruth(speeds, default=0.05),
        forecast=FixedForecast(speeds, default=0.05, spread=spread),
        memory_bytes=16 * GIB,
        settings=settings,
    )


def test_free_devices_come_first_then_the_partner_with_the_largest_gain() -> None:
    h = harness("1x2")
    h.submit("h", runs_s=1000.0, model="heavy", memory_bytes=4 * GIB)
    h.submit("l", at_s=1.0, runs_s=1000.0, model="light", memory_bytes=4 * GIB)
    h.submit("x", at_s=2.0, runs_s=1000.0, model="light", memory_bytes=4 * GIB)
    run = h.run()
    assert run.devices("h") == (0,)
    assert run.devices("l") == (1,)
    # Beside l: gain 0.95 - (1 - 0.95) = 0.90. Beside h: gain 0.8 - (1 - 0.9) = 0.70.
    assert run.devices("x") == (1,)
    assert run.of("x", ev.Started)[0].why.facts == {"beside": [1], "gain": 0.9}


def test_a_set_below_the_floor_waits_and_says_why() -> None:
    # heavy beside heavy runs at 0.5, below a floor of 0.6: b waits until a ends at 100.
    h = harness("1x1", min_speed=0.6)
    h.submit("a", runs_s=100.0, model="heavy", memory_bytes=4 * GIB)
    h.submit("b", runs_s=10.0, model="heavy", memory_bytes=4 * GIB)
    run = h.run()
    assert run.reasons("b") == [Reason.SLOWDOWN]
    assert run.start_s("b") == 100.0


def test_doubt_counts_against_sharing() -> None:
    # The mean, 0.5, is above the floor of 0.45; the low end, 0.5 - 0.1, is not.
    for spread, start in ((0.0, 0.0), (0.1, 100.0)):
        h = harness("1x1", spread=spread, min_gain=0.0)
        h.submit("a", runs_s=100.0, model="heavy", memory_bytes=4 * GIB)
        h.submit("b", runs_s=10.0, model="heavy", memory_bytes=4 * GIB)
        assert h.run().start_s("b") == start


@pytest.mark.parametrize(("doubt", "together"), [(1.0, False), (0.5, True), (0.0, True)])
def test_how_much_of_the_doubt_counts_can_be_said(doubt: float, together: bool) -> None:
    # Two heavy jobs run at 0.5 each, give or take 0.1: the floor of 0.43 lies between low end and mean.
    h = harness("1x1", spread=0.1, min_speed=0.43, min_gain=-1.0, doubt=doubt)
    h.submit("a", runs_s=1000.0, model="heavy", memory_bytes=4 * GIB)
    h.submit("b", at_s=1.0, runs_s=1000.0, model="heavy", memory_bytes=4 * GIB)
    started = h.run().of("b", ev.Started)[0].t
    assert (started == 1.0) is together


def test_memory_is_a_hard_limit_and_is_named_as_the_reason() -> None:
    h = harness("1x1")
    h.submit("a", runs_s=100.0, model="light", memory_bytes=10 * GIB)
    h.submit("b", runs_s=10.0, model="light", memory_bytes=7 * GIB)
    run = h.run()
    assert run.reasons("b") == [Reason.MEMORY]
    assert run.start_s("b") == 100.0


def test_sets_of_three_form_when_they_pay() -> None:
    # Two lights at 0.95 each; a third: 3 x 0.8 - 2 x 0.95 = 0.5 gained.
    h = harness("1x1")
    for name in "abc":
        h.submit(name, runs_s=100.0, model="light", memory_bytes=4 * GIB)
    run = h.run()
    assert [run.start_s(n) for n in "abc"] == [0.0, 0.0, 0.0]
    assert run.of("c", ev.Started)[0].why.facts["gain"] == pytest.approx(0.5)
    assert run.end_s("a") == pytest.approx(100.0 / 0.8)


def test_a_gang_counts_a_neighbours_harm_on_all_its_devices() -> None:
    # A heavy gang of 4 slowed to 0.9 loses 4 x 0.1; the light single gains 0.8: 0.4 in all.
    for min_gain, start in ((0.3, 0.0), (0.5, 100.0)):
        h = harness("1x4", min_gain=min_gain)
        h.submit("a", gpus=4, runs_s=100.0, model="heavy", memory_bytes=4 * GIB)
        h.submit("b", runs_s=10.0, model="light", memory_bytes=4 * GIB)
        assert h.run().start_s("b") == start


def test_a_short_guest_needs_no_gain_but_still_the_floor() -> None:
    h = harness("1x4", min_gain=0.5, guest_s=60.0)
    h.submit("a", gpus=4, runs_s=100.0, model="heavy", memory_bytes=4 * GIB)
    h.submit("b", runs_s=10.0, model="light", memory_bytes=4 * GIB)
    h.submit("c", runs_s=10.0, model="odd", memory_bytes=1 * GIB)
    run = h.run()
    assert run.start_s("b") == 0.0
    # b needs 10 / 0.8 = 12.5 s, in which a does 12.5 x 0.9 = 11.25 of 100: a ends at 101.25.
    assert run.start_s("c") == pytest.approx(101.25)


def test_gangs_share_with_gangs_of_their_size_on_all_devices_or_none() -> None:
    h = harness("1x4")
    h.submit("a", gpus=4, runs_s=100.0, model="light", memory_bytes=4 * GIB)
    h.submit("b", gpus=2, runs_s=10.0, model="light", memory_bytes=4 * GIB)
    h.submit("c", gpus=4, runs_s=10.0, model="light", memory_bytes=4 * GIB)
    run = h.run()
    assert run.devices("c") == (0, 1, 2, 3)
    assert run.start_s("c") == 0.0
    assert run.start_s("b") == pytest.approx(run.end_s("a"))


def test_exclusive_and_unknown_jobs_are_alone() -> None:
    h = harness("1x1")
    h.submit("a", runs_s=100.0, model="light", memory_bytes=4 * GIB, sharing="exclusive")
    h.submit("b", runs_s=100.0, model="light", memory_bytes=4 * GIB)
    h.submit("c", runs_s=100.0, model="light")
    run = h.run()
    assert [run.start_s(n) for n in "abc"] == [0.0, 100.0, 200.0]


def test_the_bound_on_sharers_holds() -> None:
    h = harness("1x1", settings=Settings(max_sharers=2))
    for name in "abc":
        h.submit(name, runs_s=95.0, model="light", memory_bytes=2 * GIB)
    assert h.run().start_s("c") == pytest.approx(100.0)


def test_circles_of_trust_do_not_mix() -> None:
    h = harness("1x1")
    h.submit("a", runs_s=95.0, model="light", memory_bytes=2 * GIB, sharing="trusted", tenant="t")
    h.submit("b", runs_s=95.0, model="light", memory_bytes=2 * GIB, sharing="trusted", tenant="u")
    h.submit("c", runs_s=95.0, model="light", memory_bytes=2 * GIB, sharing="trusted", tenant="t")
    run = h.run()
    assert run.start_s("c") == 0.0
    assert run.start_s("b") == pytest.approx(100.0)


def test_an_overdue_gang_gets_its_node_and_nobody_overtakes_there() -> None:
    # b needs both devices; a holds one until 1000. From 100 on both are kept for b.
    h = harness("1x2", patience_s=100.0, min_gain=2.0)
    h.submit("a", runs_s=1000.0, model="heavy", memory_bytes=4 * GIB)
    h.submit("b", gpus=2, runs_s=10.0, model="heavy", memory_bytes=4 * GIB)
    h.submit("c", at_s=150.0, runs_s=10.0, model="light", memory_bytes=4 * GIB)
    run = h.run()
    assert [(e.t, e.devices) for e in run.of("b", ev.Reserved)] == [(100.0, (0, 1))]
    assert run.start_s("b") == 1000.0
    assert run.start_s("c") == 1010.0
    assert run.refusals() == []


@pytest.mark.parametrize("jobs", [3, 40])
def test_all_jobs_at_once_fill_everything_that_fits(jobs: int) -> None:
    # 4 devices, up to 3 lights each (0.8 >= floor; four are unknown, hence 0.05).
    h = harness("1x4")
    for i in range(jobs):
        h.submit(f"j{i:02}", runs_s=100.0, model="light", memory_bytes=4 * GIB)
    run = h.run()
    at_zero = sum(run.start_s(f"j{i:02}") == 0.0 for i in range(jobs))
    assert at_zero == min(jobs, 12)


def test_a_gang_that_leaves_while_a_guest_stays_on_its_first_device_frees_the_others() -> None:
    # The gang ends at 100 on (0, 1); its guest, on device 0, runs on. The exclusive job takes device 1.
    h = harness("1x2", min_gain=0.0)
    h.submit("gang", gpus=2, runs_s=95.0, model="light", memory_bytes=4 * GIB)
    h.submit("guest", runs_s=950.0, model="light", memory_bytes=4 * GIB)
    h.submit("alone", at_s=1.0, runs_s=10.0, model="light", memory_bytes=4 * GIB, sharing="exclusive")
    run = h.run()
    assert run.devices("guest") == (0,)
    assert run.start_s("alone") == pytest.approx(100.0)
    assert run.devices("alone") == (1,)


def test_a_device_beside_reserved_ones_may_be_joined() -> None:
    # From 50 on devices 0 and 1 are kept for b, which the gang of three still holds; device 2 is not.
    h = harness("1x3", patience_s=50.0, min_gain=-9.0)
    h.submit("a", gpus=3, runs_s=1000.0, model="light", memory_bytes=4 * GIB)
    h.submit("b", gpus=2, runs_s=10.0, model="light", memory_bytes=4 * GIB)
    h.submit("c", at_s=60.0, runs_s=10.0, model="light", memory_bytes=4 * GIB)
    run = h.run()
    assert [(e.t, e.devices) for e in run.of("b", ev.Reserved)] == [(50.0, (0, 1))]
    assert run.devices("c") == (2,)
    assert run.start_s("c") == 60.0


FEW = {
    (model, beside): speed
    for model in ("x", "y")
    for beside, speed in (
        (("x",), 0.9),
        (("y",), 0.7),
        (("x", "x"), 0.6),
        (("x", "y"), 0.5),
        (("y", "y"), 0.3),
    )
}


@given(clusters(), jobs(), settings(), st.lists(st.integers(0, 3)), st.sampled_from([0.0, 2.0]))
@hyp_settings(max_examples=80, deadline=None)
def test_what_is_remembered_between_calls_changes_nothing(
    cluster: Cluster,
    rows: list[dict[str, Any]],
    rules: Settings,
    down: list[int],
    patience_s: float,
) -> None:
    logs = []
    for drop in (False, True):
        h = Harness(
            cluster,
            Colocate(guest_s=2.0, min_gain=0.05, patience_s=patience_s),
            settings=rules,
            truth=FixedTruth(FEW, default=0.4),
            forecast=FixedForecast(FEW, default=0.4, spread=0.02),
            drop_indexes=drop,
        )
        for i, row in enumerate(rows):
            h.submit(f"j{i:02}", **row, model="xy"[i % 2])
        for i, node in enumerate(down[:2]):
            if node < len(cluster.nodes):
                h.happen(ev.NodeDown(2.5 + 8 * i, node))
                h.happen(ev.NodeUp(6.5 + 8 * i, node))
        h.happen(ev.PriorityChanged(3.0, 1, 2))
        h.happen(ev.PriorityChanged(4.0, 2, -1))
        run = h.run()
        assert run.refusals() == []
        logs.append(run.log)
    assert logs[0] == logs[1]
