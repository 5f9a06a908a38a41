"""What bays cost, kept by difference in heaps with void entries, against working it out anew."""

from __future__ import annotations

import random

import pytest

from cotenant.model import events as ev
from cotenant.model.plan import Plan
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.policies.las import Las
from cotenant.policies.preemption.victims import Order, Victims
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness


def test_void_entries_are_passed_over_and_swept() -> None:
    order = Order(1, 3)
    # Bay 1 cost -9 and costs -2 now; bay 2 had devices and has none.
    order.entries[:] = [(0, -5.0, 0), (0, -2.0, 1), None]
    order.heap[:] = [(0, -9.0, 1), (0, -7.0, 2), (0, -5.0, 0), (0, -2.0, 1)]
    order.heap[2:] = [e for e in order.entries if e is not None]
    assert order.best() == (0, -5.0, 0)
    assert order.first(5) == [(0, -5.0, 0), (0, -2.0, 1)]
    assert order.best() == (0, -5.0, 0)
    order.entries[0] = None
    order.sweep()
    assert order.heap == [(0, -2.0, 1)]
    order.entries[1] = None
    assert order.best() is None
    assert order.first(2) == []


class _Compared:
    """Mixed in: after each decision, the index kept up to date must answer like a fresh one."""

    compared = 0

    def decide(self, view: View) -> Plan:
        plan: Plan = super().decide(view)  # type: ignore[misc]
        kept = view.index(Victims, self._ranking)  # type: ignore[attr-defined]
        # A decision that ends early leaves what happened at this instant to the next.
        if not kept._changed and kept.next_turn_s() > view.now:
            fresh = Victims(view, self._ranking)  # type: ignore[attr-defined]
            fresh.turn(view.now)
            assert kept.standing == fresh.standing
            for gpus in (1, 2, 4):
                bays = kept.order(0, gpus).first(1000)
                assert bays == fresh.order(0, gpus).first(1000)
                assert kept.order(0, gpus).best() == (bays[0] if bays else None)
                for bay in range(len(kept.in_bay)):
                    assert kept.below(bay, (0, -300.0)) == fresh.below(bay, (0, -300.0))
            _Compared.compared += 1
        return plan


class _Srtf(_Compared, Srtf):
    pass


class _Las(_Compared, Las):
    pass


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("make", [lambda: _Srtf(margin_s=0.0), lambda: _Las(levels=(100.0, 400.0))])
def test_kept_costs_are_those_of_a_fresh_index_after_every_decision(make: object, seed: int) -> None:
    drawn = random.Random(seed)
    h = Harness("6x4", make(), settings=Settings(restore_s=5.0))  # type: ignore[operator]
    at_s = 0.0
    for i in range(150):
        at_s += drawn.expovariate(1 / 8.0)
        runs_s = drawn.lognormvariate(4.5, 1.2)
        h.submit(
            f"j{i}",
            at_s=at_s,
            runs_s=runs_s,
            gpus=drawn.choice((1, 1, 2, 4)),
            state_bytes=drawn.choice((0, 4)) * 10**9,
            priority=drawn.choice((0, 0, 0, 2)),
        )
    h.happen(ev.NodeDown(200.0, 1, "power"))
    h.happen(ev.NodeUp(300.0, 1))
    h.happen(ev.Drained(350.0, 2))
    h.happen(ev.Undrained(500.0, 2))
    before = _Compared.compared
    run = h.run()
    assert _Compared.compared - before > 200
    assert sum(isinstance(e, ev.Stopping) for e in run.events) > 10
    assert run.refusals() == []
