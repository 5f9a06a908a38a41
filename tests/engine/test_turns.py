"""Turns: residents of a time-sliced device that are on it together."""

from __future__ import annotations

import pytest

from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.plan import Plan, Reason, Resize, Start
from cotenant.model.quantities import GIB
from cotenant.model.rules import check_resize, check_start
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.testing import FixedTruth, Harness

TRUTH = FixedTruth({("a", ("b",)): 0.8, ("b", ("a",)): 0.7})
OWN = Share("time-sliced", 6 * GIB, 0)
TOGETHER = Share("time-sliced", 6 * GIB, 0, turn=0)


class Script:
    """Decides what a table says for each time."""

    def __init__(self, at: dict[float, list[object]]) -> None:
        self.at = at

    def decide(self, view: View) -> Plan:
        """The decisions of this instant, once."""
        left = self.at.pop(view.now, [])
        return Plan(tuple(left), wake_at_s=min(self.at, default=None))  # type: ignore[arg-type]


def test_who_shares_a_turn_disturbs_each_other_while_it_lasts() -> None:
    # a and b share a turn, c has the other: two turns, 60/60.6/2 of the time each.
    share = 60 / 60.6 / 2
    h = Harness(
        "1x1",
        Script({0.0: [Start(0, (0,), TOGETHER), Start(1, (0,), TOGETHER), Start(2, (0,), OWN)]}),
        truth=TRUTH,
        memory_bytes=16 * GIB,
    )
    for name in "abc":
        h.submit(name, runs_s=1000.0, model=name, memory_bytes=6 * GIB)
    rates = {}
    for event in h.run().events:
        if isinstance(event, ev.Rated) and event.t == 0.0:
            rates[event.id] = event.rate
    assert rates == {0: pytest.approx(0.8 * share), 1: pytest.approx(0.7 * share), 2: pytest.approx(share)}


def test_joining_a_turn_takes_effect_at_once_and_one_turn_alone_does_not_switch() -> None:
    # Apart until 100 s: a has done 100 * 60/60.6/2 = 49.505 s. Together from then on at 0.8: the
    # other 50.495 s take 63.119 s.
    h = Harness(
        "1x1",
        Script(
            {
                0.0: [Start(0, (0,), OWN), Start(1, (0,), OWN)],
                100.0: [Resize(0, (0,), TOGETHER), Resize(1, (0,), TOGETHER)],
            }
        ),
        truth=TRUTH,
        memory_bytes=16 * GIB,
    )
    h.submit("a", runs_s=100.0, model="a", memory_bytes=6 * GIB)
    h.submit("b", runs_s=1000.0, model="b", memory_bytes=6 * GIB)
    run = h.run()
    assert run.end_s("a") == pytest.approx(100.0 + (100.0 - 100.0 * 60 / 60.6 / 2) / 0.8)
    assert not run.refusals()


def test_memory_adds_up_within_a_turn_only() -> None:
    kind = DeviceType(name="gpu", memory_bytes=16 * GIB)
    state = State(Cluster.uniform(1, gpu_type=kind), Settings())
    for i in range(4):
        state.apply(ev.Submitted(0.0, Job(id=i, name=str(i), submit_s=0.0, memory_bytes=6 * GIB)))
    for i, share in enumerate((TOGETHER, TOGETHER, OWN)):
        state.apply(ev.Started(0.0, i, 1, (0,), share))
    # Turn 0 holds 12 of 16 GiB, the turn of job 2 holds 6: four are left beside the larger.
    assert state.ledger.turns_on(0) == {0: 12 * GIB, ~2: 6 * GIB}
    assert state.ledger.free_memory[0] == 4 * GIB
    books, records = state.books, state.records
    assert check_start(books, records[3], (0,), OWN) is None
    refusal = check_start(books, records[3], (0,), TOGETHER)
    assert refusal is not None
    assert refusal.reason is Reason.MEMORY
    assert refusal.facts["free_bytes"] == 4 * GIB
    assert check_resize(books, records[2], (0,), TOGETHER, 0.0).reason is Reason.MEMORY  # type: ignore[union-attr]
    # Its own memory is not counted twice when one of a turn asks again for the same.
    assert check_resize(books, records[1], (0,), TOGETHER, 0.0) is None
