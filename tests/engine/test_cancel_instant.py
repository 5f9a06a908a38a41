"""A request to cancel at the very instant at which something else happens to the job."""

from __future__ import annotations

import pytest

from cotenant.model import events as ev
from cotenant.model.settings import Settings
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness

GB = 10**9


def stopped_at_100(cancel_s: float) -> Harness:
    """v is stopped at 100, saved at 105, goes on at 115 and has loaded at 120 (5 s each way)."""
    h = Harness("1x1", Srtf(margin_s=0.0), settings=Settings(restore_s=0.0))
    h.submit("v", runs_s=1000.0, state_bytes=5 * GB)
    h.submit("p", at_s=100.0, runs_s=10.0)
    h.happen(ev.CancelRequested(t=cancel_s, id=0))
    return h


@pytest.mark.parametrize("cancel_s", [100.0, 105.0, 115.0, 120.0])
def test_a_job_can_be_cancelled_at_any_turn_of_its_life(cancel_s: float) -> None:
    run = stopped_at_100(cancel_s).run()
    assert run.state.counts["cancelled"] == 1
    assert run.state.counts["done"] == 1
    assert run.start_s("p") == (100.0 if cancel_s == 100.0 else 105.0)


def test_a_job_that_ends_at_that_instant_is_done() -> None:
    h = Harness("1x1", Srtf(margin_s=0.0))
    h.submit("a", runs_s=50.0)
    h.happen(ev.CancelRequested(t=50.0, id=0))
    assert h.run().state.counts["done"] == 1
