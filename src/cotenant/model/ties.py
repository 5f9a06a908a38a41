"""Jobs that only go on where they were: saved state of a grade that holds on devices of one type.

A job of grade D0 or D1 has the same bits on devices of one type only. Once it has state to go on from, it
waits for that type; a job that begins anew is free again.
"""

from __future__ import annotations

from typing import Any

from cotenant.model.ledger import Ledger
from cotenant.model.plan import Reason
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape, ShapeTable
from cotenant.model.workers import may_mix

__all__ = ["shape_after", "why_tied"]


def shape_after(record: JobRecord, kind: int, shapes: ShapeTable, *, live: bool) -> Shape:
    """What a job asks for that has just left devices of a type and waits again.

    Parameters
    ----------
    record : JobRecord
        ``suspended`` says whether it goes on from what it saved.
    kind : int
        Device type that it leaves; -1 if it had no devices.
    shapes : ShapeTable
    live : bool
        Real elastic jobs go on from what stands in their state folder, however they ended.
    """
    if kind < 0 or may_mix(record.job):
        return record.shape
    keeps = record.suspended or (live and record.job.max_gpus > 0)
    return shapes.of(record.job, kind if keeps else -1)


def why_tied(ledger: Ledger, record: JobRecord, reason: Reason) -> tuple[Reason, dict[str, Any]] | None:
    """Whether a job waits for want of room only because of the type of its saved state.

    So it is if that type has too few whole free devices and another one that the job accepts has enough.
    """
    kind = record.shape.tied
    if kind < 0 or reason not in (Reason.NO_CAPACITY, Reason.FRAGMENTED):
        return None
    job, types, free = record.job, ledger.layout.types, ledger.free_count
    needs = job.min_gpus or job.gpus
    others = [
        each.name
        for number, each in enumerate(types)
        if number != kind
        and free[number] >= needs
        and (not job.device_types or each.name in job.device_types)
        and (each.memory_bytes == 0 or job.memory_bytes <= each.memory_bytes)
    ]
    if free[kind] >= needs or not others:
        return None
    name = types[kind].name
    facts = {"grade": job.determinism, "type": name, "needs_gpus": needs, "free_gpus": free[kind]}
    return Reason.DETERMINISM, facts | {"free_types": others}
