"""What a user may ask of a live job: to leave its devices, and to have more or less of them."""

from __future__ import annotations

import msgspec

from cotenant.model import rules
from cotenant.model.events import ResizeRequested
from cotenant.model.jobs import Job
from cotenant.model.ledger import Ledger
from cotenant.model.placement import DEVICE_MILLI, Placement, Share
from cotenant.model.plan import Reason, Refusal
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.workers import may_mix

__all__ = ["asked_job", "asked_place", "asked_share", "check_asked", "check_suspend", "within"]


def check_suspend(books: rules.Books, record: JobRecord) -> Refusal | None:
    """May this running job save its state and leave because its user wants it to?

    As for a policy's stop, but no minimum quantum holds a user back.
    """
    if not record.job.suspendable:
        return Refusal(Reason.NOT_SUSPENDABLE)
    return books.tiers.refusal(record.job) if books.tiers is not None else None


def asked_job(job: Job, event: ResizeRequested) -> Job | Refusal:
    """The job as its user wants it to be; a refusal if that contradicts itself."""
    asked = {
        name: value
        for name in ("compute_milli", "compute_limit_milli", "memory_bytes", "gpus")
        if (value := getattr(event, name)) != -1
    }
    low = {"compute_milli": 1, "compute_limit_milli": 1, "memory_bytes": 0, "gpus": 1}
    wrong = {name: value for name, value in asked.items() if value < low[name]}
    if asked.get("compute_milli", 1) > DEVICE_MILLI or not -1 <= event.compute_limit_milli <= DEVICE_MILLI:
        wrong |= {"compute_milli": event.compute_milli, "compute_limit_milli": event.compute_limit_milli}
    gpus = asked.get("gpus", job.gpus)
    if job.gpus == 0 and asked:
        wrong["needs_gpus"] = 0
    if job.max_gpus and not job.min_gpus <= gpus <= job.max_gpus:
        wrong |= {"needs_gpus": gpus, "min_gpus": job.min_gpus, "max_gpus": job.max_gpus}
    if wrong:
        return Refusal(Reason.MALFORMED, wrong)
    found = msgspec.structs.replace(job, **asked)
    if found.compute_limit_milli < found.compute_milli < DEVICE_MILLI:
        # A guarantee above the ceiling of before lifts it.
        return msgspec.structs.replace(found, compute_limit_milli=found.compute_milli)
    return found


def asked_share(job: Job) -> Share:
    """What a job asks for of each device, for those who look at one that has none.

    >>> share = asked_share(Job(0, "a", 0.0, compute_limit_milli=300))
    >>> share.compute_milli, share.compute_limit_milli
    (300, 300)
    """
    limit = job.compute_limit_milli
    return Share("spatial", job.memory_bytes, min(job.compute_milli, limit), limit)


def within(share: Share, job: Job) -> Share:
    """The share that a policy gives a job, below the job's own ceiling."""
    if share.mode == "exclusive" or share.compute_limit_milli <= job.compute_limit_milli:
        return share
    limit = max(job.compute_limit_milli, share.compute_milli)
    return msgspec.structs.replace(share, compute_limit_milli=limit)


def check_asked(record: JobRecord, job: Job, shape: Shape) -> Refusal | None:
    """May a waiting job ask for this instead?"""
    if shape.never:
        return Refusal(*shape.never)
    if record.suspended and job.gpus != record.job.gpus and not job.max_gpus:
        return Refusal(Reason.MALFORMED, {"saved_on_gpus": record.job.gpus, "needs_gpus": job.gpus})
    return None


def asked_place(
    books: rules.Books, record: JobRecord, job: Job, event: ResizeRequested, now: float
) -> Placement | Refusal:
    """Where a running job goes on if its user's wish is granted."""
    place = record.place
    if place is None:
        return Refusal(Reason.NOT_RUNNING)
    devices = place.devices
    if event.gpus not in (-1, len(devices)):
        if not job.max_gpus:
            return Refusal(Reason.MALFORMED, {"elastic": False, "needs_gpus": event.gpus})
        found = _grown(books.ledger, record, devices, event.gpus)
        if found is None:
            return _short(books.ledger, devices, event.gpus)
        devices = found
    share = _asked_share(place.share, job, event)
    before, record.job = record.job, job
    refusal = rules.check_resize(books, record, devices, share, now)
    record.job = before
    if refusal and "used_gpus" in refusal.facts:
        # The rules have given back for the moment what it holds.
        used = books.used.get(job.tenant, 0)
        return Refusal(refusal.reason, refusal.facts | {"used_gpus": used, "needs_gpus": len(devices)})
    return refusal or Placement(devices, share)


def _asked_share(share: Share, job: Job, event: ResizeRequested) -> Share:
    if share.mode == "exclusive":
        if not 0 <= event.compute_milli < DEVICE_MILLI:
            return share
        limit = job.compute_limit_milli
        return Share("spatial", job.memory_bytes, event.compute_milli, max(limit, event.compute_milli))
    milli = event.compute_milli if event.compute_milli >= 0 else share.compute_milli
    limit = event.compute_limit_milli if event.compute_limit_milli >= 0 else share.compute_limit_milli
    memory = event.memory_bytes if event.memory_bytes >= 0 else share.memory_bytes
    return msgspec.structs.replace(
        share, memory_bytes=memory, compute_milli=milli, compute_limit_milli=max(limit, milli)
    )


def _short(ledger: Ledger, devices: tuple[int, ...], count: int) -> Refusal:
    """Too few devices are free; are there some that stand idle because they are drained or down?"""
    facts: dict[str, object] = {"needs_gpus": count, "holds_gpus": len(devices)}
    idle = [
        d
        for d, node in enumerate(ledger.layout.device_node)
        if not ledger.residents[d] and (not ledger.usable[d] or ledger.draining[node])
    ]
    if idle:
        return Refusal(Reason.DEVICE_UNAVAILABLE, {"device": idle[0], **facts})
    return Refusal(Reason.NO_CAPACITY, facts)


def _grown(ledger: Ledger, record: JobRecord, devices: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    """As many devices: the first of those it has, then free ones, those of its own bays first."""
    if count <= len(devices):
        return devices[:count]
    layout = ledger.layout
    mine = {layout.device_bay[d] for d in devices}
    kinds = record.shape.types if may_mix(record.job) else {layout.device_type[d] for d in devices}
    free = [
        d
        for d, bay in enumerate(layout.device_bay)
        if ledger.whole[bay] & layout.device_bit[d] and layout.bay_type[bay] in kinds
    ]
    free.sort(key=lambda d: (layout.device_bay[d] not in mine, d))
    more = free[: count - len(devices)]
    return tuple(sorted((*devices, *more))) if len(devices) + len(more) == count else None
