"""Shows a test the state after each event, at no price for runs that are not watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.engine.state import State
from cotenant.model.events import Event

__all__ = ["watched"]


def watched(state: State, on_event: Callable[[State, Event], None]) -> dict[type, Callable[[Any], Any]]:
    """The state's appliers, each of which shows the event once it is folded."""
    return {kind: _shown(state, applier, on_event) for kind, applier in state.appliers.items()}


def _shown(
    state: State, applier: Callable[[Any], Any], on_event: Callable[[State, Event], None]
) -> Callable[[Any], Any]:
    def apply(event: Any) -> Any:
        follows = applier(event)
        on_event(state, event)
        return follows

    return apply
