"""Policies that decide in rounds: on a real clock, which is never exactly on time, they have their rounds, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cotenant.model import events as ev
from cotenant.policies.easyscale import EasyScale


def test_a_round_begins_on_time_although_the_clock_is_late(
    machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    m = machine(lambda: EasyScale(round_s=5.0), gpus=2)
    late = m.world.poll
    # Whoever waits is woken a little later than asked.
    monkeypatch.setattr(m.world, "poll", lambda timeout_s: late(timeout_s + 0.003))
    m.submit("a", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    (resized,) = m.log(ev.Resized)
    assert (resized.t, resized.devices, resized.why.rule) == (5.0, (0, 1), "increment")
