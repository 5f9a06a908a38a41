"""The first line of a log, all that is needed to understand a run and to repeat it, and the last."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant import __version__
from cotenant.engine.state import State
from cotenant.model.cluster import Cluster
from cotenant.model.events import SCHEMA, Closed, Opened, Restarted
from cotenant.model.ports import Forecast, RuntimeForecast
from cotenant.model.settings import Settings

__all__ = ["closing", "opening", "restarting"]


def opening(
    *,
    policy: str,
    cluster: Cluster,
    settings: Settings,
    seed: int,
    forecast: Forecast | None,
    runtime: RuntimeForecast | None,
    header: dict[str, Any],
) -> Opened:
    """Build the event; ``header`` may name policy, params, workload and truth."""
    knows: dict[str, Any] = dict(forecast.describe()) if forecast else {"kind": "none"}
    knows["runtime"] = runtime.describe() if runtime else {"kind": "none"}
    return Opened(
        t=0.0,
        schema=SCHEMA,
        version=__version__,
        seed=seed,
        policy=header.get("policy", policy),
        params=header.get("params", {}),
        settings=_told(settings),
        cluster=cluster,
        workload=header.get("workload", {}),
        forecast=knows,
        truth=header.get("truth", {"kind": "unknown"}),
    )


def restarting(
    state: State, opened: Opened, header: dict[str, Any], policy: str, found: dict[str, Any]
) -> Restarted:
    """Build the event; ``found`` is what an executor found really running, and its epoch."""
    return Restarted(
        t=max(state.now, found.pop("t", state.now)),
        epoch=found.pop("epoch", 0),
        version=__version__,
        policy=header.get("policy", policy),
        params=header.get("params", opened.params),
        **found,
    )


def _told(settings: Settings) -> dict[str, Any]:
    """Every setting; those that logs from before have not only where they change something."""
    told: dict[str, Any] = msgspec.to_builtins(settings)
    if not settings.sample_s:
        told = {name: value for name, value in told.items() if not name.startswith("sample_")}
    if settings.elastic_speed == "linear":
        del told["elastic_speed"]
    if not settings.elastic_shares:
        del told["elastic_shares"]
    if not settings.undo_after_s:
        del told["undo_after_s"]
    return told


def closing(state: State, events: int, *, interrupted: bool) -> Closed:
    """Build the event; ``events`` counts it, too."""
    return Closed(
        state.now,
        events=events,
        submitted=state.counts["submitted"],
        finished=sum(n for name, n in state.counts.items() if name != "submitted"),
        waiting=len(state.queue),
        running=len(state.running),
        interrupted=interrupted,
    )
