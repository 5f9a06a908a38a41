"""Preemption never goes in circles: whatever starting, saving and loading cost, every job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.model import events as ev
from cotenant.model.plan import Plan
from cotenant.model.ports import Policy
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.testing import Harness

_KEYWORDS: dict[str, dict[str, Any]] = {
    "srtf": {"margin_s": 0.0},
    "las": {"levels": (100.0, 400.0), "promote_knob": 1.0},
    "gittins": {"levels": (100.0, 400.0), "promote_knob": 1.0, "least_jobs": 5},
    "fair-share": {},
}


class _Bounded:
    """Gives up where a policy stops jobs for ever, which would hang the test."""

    def __init__(self, policy: Policy, calls: int) -> None:
        self.policy, self.left = policy, calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def decide(self, view: View) -> Plan:
        self.left -= 1
        assert self.left > 0, f"jobs go in circles at {view.now}: {view.queue.count} wait"
        return self.policy.decide(view)


def _factory(name: str) -> Callable[[], Policy]:
    return lambda: registry.load("policy", name)(**_KEYWORDS[name])


@pytest.mark.parametrize("name", sorted(_KEYWORDS))
@hyp(max_examples=100, deadline=None)
@given(
    number=st.integers(0, 10_000),
    restore_s=st.sampled_from([5.0, 60.0, 400.0]),
    start_s=st.sampled_from([0.0, 30.0]),
    over=st.sampled_from([0.3, 1.0, 2.0]),
    told=st.booleans(),
)
def test_every_job_ends_whatever_loading_costs(
    name: str, number: int, restore_s: float, start_s: float, over: float, told: bool
) -> None:
    harness = scenario(number, _factory(name))
    harness.settings = msgspec.structs.replace(
        harness.settings, restore_s=restore_s, start_s=start_s, rate_events=told, min_quantum_s=0.0
    )
    for row in harness.rows:
        row["estimate_s"] = row["duration_s"] * over
    harness.policy = _Bounded(harness.policy, 5_000)
    run = harness.run(invariants=False)
    assert run.state.counts["submitted"] == len(harness.rows)
    assert not run.state.running


def test_a_job_that_loads_does_not_outlive_its_prediction_where_speeds_are_not_told() -> None:
    # a works 0-30 and gives way to b until 50. Then it loads for 100 s and works for 70 more.
    # Were loading taken for work, a would seem to outlive its 100 s at 120, and from then on
    # a (70 s left) and c (75 s) would stop each other for ever, neither ever working.
    quiet = Settings(restore_s=100.0, rate_events=False)
    h = Harness("1x1", _Bounded(_factory("srtf")(), 1000), settings=quiet)
    h.submit("a", runs_s=100.0, estimate_s=100.0)
    h.submit("b", at_s=30.0, runs_s=20.0, estimate_s=20.0)
    h.submit("c", at_s=60.0, runs_s=75.0, estimate_s=75.0)
    run = h.run()
    assert [(e.t, e.id) for e in run.events if isinstance(e, ev.Stopping)] == [(30.0, 0)]
    assert (run.end_s("b"), run.end_s("a"), run.end_s("c")) == (50.0, 220.0, 295.0)
