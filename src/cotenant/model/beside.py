"""Who may be on a device together, and what room is left beside those who are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cotenant.model.jobs import Job
from cotenant.model.ledger import Ledger
from cotenant.model.placement import Share
from cotenant.model.plan import Reason, Refusal
from cotenant.model.records import JobRecord

if TYPE_CHECKING:
    from cotenant.model.rules import Books

__all__ = ["check_beside", "foreign_refusal"]


def check_beside(
    books: Books, record: JobRecord, device: int, beside: tuple[int, ...], share: Share
) -> Refusal | None:
    """May this job have this share of a device beside these jobs?"""
    ledger, job = books.ledger, record.job
    capacity = ledger.layout.device_memory[device]
    if capacity == 0:
        return Refusal(Reason.MEMORY, {"device": device, "capacity_bytes": None})
    if share.memory_bytes < job.memory_bytes or share.memory_bytes <= 0:
        return Refusal(Reason.MEMORY, {"needs_bytes": job.memory_bytes, "share_bytes": share.memory_bytes})
    if len(beside) >= books.settings.max_sharers:
        return Refusal(Reason.SHARERS, {"device": device, "sharers": len(beside)})
    for other_id in beside:
        other = books.records[other_id].job
        if ledger.share_on(other_id, device).mode != share.mode or not (
            job.sharing == other.sharing == "any" or _may_share(job, other)
        ):
            return Refusal(Reason.ISOLATION, {"device": device, "beside": other_id})
    # A running job that is resized holds some of this already.
    mine = ledger.held.get(record.id)
    again = mine is not None and device in mine.devices and mine.share.mode == share.mode
    free_milli = ledger.free_milli[device] + (mine.share.compute_milli if again and mine else 0)
    if not 0 <= share.compute_milli <= free_milli:
        return Refusal(
            Reason.COMPUTE, {"device": device, "needs_milli": share.compute_milli, "free_milli": free_milli}
        )
    if share.mode == "time-sliced":
        taken = _turn_memory(ledger, device, beside, share.turn)
        room = capacity - taken - ledger.foreign_bytes(device)
    else:
        room = ledger.free_memory[device] + (mine.share.memory_bytes if again and mine else 0)
    if share.memory_bytes > room:
        if share.memory_bytes <= room + ledger.foreign_bytes(device):
            return foreign_refusal(ledger, device)
        return Refusal(
            Reason.MEMORY, {"device": device, "needs_bytes": share.memory_bytes, "free_bytes": room}
        )
    return None


def _turn_memory(ledger: Ledger, device: int, beside: tuple[int, ...], turn: int) -> int:
    """Memory of those who are on the device in the same turn; of all, where turns stay in memory."""
    if turn < 0 and not ledger.turns_stay:
        return 0
    shares = [ledger.share_on(other_id, device) for other_id in beside]
    return sum(share.memory_bytes for share in shares if ledger.turns_stay or share.turn == turn)


def _may_share(job: Job, other: Job) -> bool:
    """Isolation tiers: both must agree to each other."""
    for one, two in ((job, other), (other, job)):
        if one.sharing == "exclusive":
            return False
        if one.sharing == "same-owner" and (one.tenant, one.user) != (two.tenant, two.user):
            return False
        if one.sharing == "trusted" and one.tenant != two.tenant:
            return False
    return True


def foreign_refusal(ledger: Ledger, device: int) -> Refusal:
    """The refusal of a device by what processes outside the scheduler hold there."""
    held, pids = ledger.foreign[device]
    return Refusal(Reason.FOREIGN_USE, {"device": device, "foreign_bytes": held, "pids": list(pids)})
