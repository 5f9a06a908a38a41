"""Why a job finds no place beside others, other than that it would go badly."""

from __future__ import annotations

from cotenant.model.placement import Share
from cotenant.model.plan import Hold
from cotenant.model.records import JobRecord
from cotenant.model.rules import Books, check_start
from cotenant.policies.company.groups import GroupIndex
from cotenant.policies.queues.classes import ClassLine

__all__ = ["kept_apart", "lacking"]


def kept_apart(groups: GroupIndex, found: ClassLine, live: int) -> bool:
    """Whether there are places on devices of its types among these slots (bits), whoever may be there with it."""
    return any(live >> number & 1 and slot[0] in found.types for number, slot in enumerate(groups.slots))


def lacking(
    groups: GroupIndex, books: Books, record: JobRecord, found: ClassLine, *, share: Share, suits: int
) -> Hold | None:
    """The rule that stands against the best partners with memory enough; None if it is memory.

    Only of jobs that are guaranteed a part of the compute: for others, memory is all that may lack.
    """
    if record.job.compute_milli >= 1000 or not suits:
        return None
    for _, slot in found.taste.best(suits):
        for devices in groups.roomy(found.gpus, slot, found.gib):
            if refusal := check_start(books, record, devices, share):
                return Hold(record.id, refusal.reason, refusal.facts)
    return None
