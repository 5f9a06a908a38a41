"""A state as plain values, to be compared and printed."""

from __future__ import annotations

from typing import Any

from cotenant.engine.state import State
from cotenant.model.records import JobRecord

__all__ = ["picture"]


def picture(state: State) -> dict[str, Any]:
    """All that the events determine, as plain values: two equal pictures are equal states."""
    ledger = state.ledger
    return {
        "now": state.now,
        "version": state.version,
        "records": {r.id: _record(r) for r in (*state.records.values(), *state.held.values())},
        "held": list(state.held),
        "foreign": dict(sorted(ledger.foreign.items())),
        "policy": state.policy,
        "queue": [r.id for r in state.queue],
        "running": list(state.running),
        "free": (list(ledger.free_milli), list(ledger.free_memory)),
        "residents": list(ledger.residents),
        "leaving": dict(ledger.leaving),
        "usable": (list(ledger.usable), list(ledger.draining)),
        "reserved": dict(sorted(ledger.reserved.items())),
        "host": (list(ledger.free_cpu), list(ledger.free_host)),
        "tenants": (
            dict(sorted(state.books.limits.items())),
            {t: n for t, n in state.books.used.items() if n},
        ),
        "memo": state.memo,
        "tiers": state.books.tiers and state.books.tiers.picture(),
        "counts": dict(state.counts),
    }


def _record(r: JobRecord) -> tuple[Any, ...]:
    return (
        r.status.value,
        r.priority,
        r.attempt,
        r.failures,
        r.losses,
        r.place,
        (r.queued_s, r.started_s, r.ran_s),
        (r.work_s, r.rate, r.rated_s),
        r.hold,
        r.reserved,
        r.suspended,
        r.predicted_s,
        (r.serial, r.real),
        (r.job, r.shape.number),
    )
