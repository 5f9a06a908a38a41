"""Folds a log that is there already, as if the loop had run on: a restart of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cotenant.engine.foreseen import foreseen
from cotenant.engine.foretelling import Foretelling
from cotenant.engine.state import State
from cotenant.errors import IllegalEventError, LogError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.ports import RuntimeForecast

__all__ = ["recall"]

_BATCH = 2048


def recall(
    history: Iterable[ev.Event],
    *,
    state: State,
    appliers: dict[type, Callable[[Any], Any]],
    runtime: RuntimeForecast | None,
    foretelling: Foretelling,
    tell: Iterable[Callable[[list[ev.Event]], None]],
) -> ev.Opened | None:
    """Fold events into the state and into all that learns from them; nothing is logged or carried out.

    Parameters
    ----------
    history : iterable of Event
    state : State
        Empty so far.
    appliers : dict
        The state's, or those that are watched.
    runtime : RuntimeForecast or None
        Is asked and taught as it was.
    foretelling : Foretelling
    tell : iterable of callable
        Given the events too, in batches.

    Returns
    -------
    Opened or None
        The first event; None if the log is empty.

    Raises
    ------
    LogError
        If the log does not begin with ``Opened``, is of other devices, or cannot be folded.
    """
    opened: ev.Opened | None = None
    batch: list[ev.Event] = []
    for number, event in enumerate(history, 1):
        if opened is None:
            if not isinstance(event, ev.Opened):
                raise LogError(f"the log begins with {type(event).__name__}; a log begins with Opened")
            opened = event
            _check_cluster(opened.cluster, state.cluster)
        _teach(event, runtime, state)
        try:
            state.apply_by(appliers, event)
        except (IllegalEventError, KeyError) as error:
            raise LogError(f"event {number} of the log cannot be folded: {error}") from error
        _foretell(event, state, foretelling)
        batch.append(event)
        if len(batch) == _BATCH:
            _tell(tell, batch)
            batch = []
    _tell(tell, batch)
    foretelling.due.clear()
    return opened


def _teach(event: ev.Event, runtime: RuntimeForecast | None, state: State) -> None:
    if runtime is not None and isinstance(event, (ev.Submitted, ev.Ended)):
        foreseen(event, runtime, state.records)


def _foretell(event: ev.Event, state: State, foretelling: Foretelling) -> None:
    if isinstance(event, ev.Foretold):
        foretelling.recall(event)
    elif isinstance(event, (ev.Started, ev.Moved, ev.Resized)) and event.share is not None:
        record = state.records[event.id]
        if record.place is not None:
            foretelling.came(record, record.place)


def _tell(tell: Iterable[Callable[[list[ev.Event]], None]], batch: list[ev.Event]) -> None:
    if batch:
        for told in tell:
            told(batch)


def _check_cluster(logged: Cluster, found: Cluster) -> None:
    """Devices keep their numbers for as long as a log lives; new ones may come after those known."""
    before, now = _devices(logged), _devices(found)
    if before != now[: len(before)]:
        raise LogError(
            f"the log is of devices {', '.join(before) or 'none'}, and there are {', '.join(now) or 'none'}: "
            "give the log a state folder of its own, or bring the missing devices back"
        )


def _devices(cluster: Cluster) -> list[str]:
    return [name for node in cluster.nodes for name, count in node.gpus for _ in range(count)]
