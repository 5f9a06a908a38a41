"""Is this decision legal? The only home of capacity, gang, quota and isolation rules.

Every decision of every policy passes here, against the current books, whoever made it.
The answer is None or a typed ``Refusal``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from cotenant.model.beside import check_beside, foreign_refusal
from cotenant.model.ledger import Ledger
from cotenant.model.placement import DEVICE_MILLI, WHOLE, Placement, Share
from cotenant.model.plan import Reason, Refusal
from cotenant.model.records import JobRecord, Status
from cotenant.model.settings import Settings
from cotenant.model.tiers import TierBooks
from cotenant.model.workers import may_mix

__all__ = [
    "Books",
    "ceiling_refusal",
    "check_move",
    "check_reserve",
    "check_resize",
    "check_start",
    "check_stop",
    "over_ceiling",
]


class Books:
    """What the rules need to see.

    Parameters
    ----------
    ledger : Ledger
    settings : Settings
    records : mapping of int to JobRecord
        Live jobs.
    limits, used : dict of str to int
        Devices each tenant may hold at most, and holds. Tenants without a limit are absent
        from ``limits``; ``used`` is kept for all.
    tiers : TierBooks or None
        Of saved state; None where the cluster declares no tiers.
    live : bool
        Jobs are real processes: none is moved before it is known to run.
    """

    __slots__ = ("ledger", "limits", "live", "records", "settings", "tiers", "used")

    def __init__(self, ledger: Ledger, settings: Settings, records: Mapping[int, JobRecord]) -> None:
        self.ledger = ledger
        self.settings = settings
        self.records = records
        self.tiers: TierBooks | None = None
        self.live = False
        self.limits: dict[str, int] = {}
        self.used: defaultdict[str, int] = defaultdict(int)


def check_start(
    books: Books, record: JobRecord | None, devices: tuple[int, ...], share: Share, node: int = -1
) -> Refusal | None:
    """May this pending job start on these devices with this share?"""
    if record is None or record.status:
        return Refusal(Reason.NOT_PENDING)
    if share is WHOLE and record.shape.plain and not books.limits and _offered(books, record, devices):
        return None
    job, ledger = record.job, books.ledger
    if not devices:
        return _check_cpu_only(books, record, node)
    count = len(devices)
    if count != job.gpus and not (0 < job.min_gpus <= count <= job.max_gpus):
        return Refusal(Reason.MALFORMED, {"needs_gpus": job.gpus, "given_gpus": count})
    blocks = ledger.layout.blocks(devices)
    if blocks is None:
        return Refusal(Reason.MALFORMED, {"devices": list(devices[:16])})
    if len(blocks) > 1 or not record.shape.types:
        refusal = _check_gang(books, record, devices, len(blocks))
        if refusal:
            return refusal
    elif (kind := ledger.layout.bay_type[blocks[0][0]]) not in record.shape.types:
        return _wrong_type(books, record, {kind}, devices[0])
    if books.limits:
        refusal = _check_limit(books, record, count)
        if refusal:
            return refusal
    for bay, mask in blocks:
        if ledger.whole[bay] & mask != mask:
            refusal = _check_devices(books, record, devices, share)
            break
    else:
        # All devices are empty and sound, so only the share itself can be wrong.
        refusal = None if share is WHOLE else _check_empty(books, record, devices, share)
    if refusal:
        return refusal
    if job.cpu_milli or job.host_memory_bytes:
        return _check_host(books, record, devices)
    return None


def _offered(books: Books, record: JobRecord, devices: tuple[int, ...]) -> bool:
    """Are these exactly as many whole, sound and empty devices of one bay as the job asks for?

    So it is for most starts of most runs, and then no other rule can object. False says nothing.
    """
    ledger, shape = books.ledger, record.shape
    if len(devices) != shape.gpus:
        return False
    layout = ledger.layout
    if shape.gpus == 1:
        device = devices[0]
        if not 0 <= device < len(layout.device_bay):
            return False
        bay, mask = layout.device_bay[device], layout.device_bit[device]
    else:
        blocks = layout.blocks(devices)
        if blocks is None or len(blocks) != 1:
            return False
        bay, mask = blocks[0]
    return ledger.whole[bay] & mask == mask and layout.bay_type[bay] in shape.types


def _check_cpu_only(books: Books, record: JobRecord, node: int) -> Refusal | None:
    ledger, job = books.ledger, record.job
    if job.gpus != 0 or not 0 <= node < ledger.layout.node_count:
        return Refusal(Reason.MALFORMED, {"needs_gpus": job.gpus, "given_gpus": 0, "node": node})
    if ledger.draining[node]:
        return Refusal(Reason.DEVICE_UNAVAILABLE, {"node": node})
    cpu_short = ledger.has_cpu[node] and job.cpu_milli > ledger.free_cpu[node]
    host_short = ledger.has_host[node] and job.host_memory_bytes > ledger.free_host[node]
    return Refusal(Reason.HOST, {"node": node}) if cpu_short or host_short else None


def _check_gang(books: Books, record: JobRecord, devices: tuple[int, ...], blocks: int) -> Refusal | None:
    layout, shape = books.ledger.layout, record.shape
    kinds = {layout.device_type[d] for d in devices}
    if not kinds <= set(shape.types):
        return _wrong_type(books, record, kinds, devices[0])
    if len(kinds) > 1 and not books.settings.mixed_types:
        return Refusal(Reason.DEVICE_TYPE, {"mixed": sorted(layout.types[k].name for k in kinds)})
    if len(kinds) > 1 and not may_mix(record.job):
        return _tied(books, record, kinds)
    nodes = len(layout.nodes_of(devices))
    if nodes > 1 and not shape.spans:
        return Refusal(Reason.SPAN, {"nodes": nodes, "needs_gpus": len(devices)})
    return None


def _wrong_type(books: Books, record: JobRecord, kinds: set[int], device: int) -> Refusal:
    """The refusal of types that the job does not accept, or that its saved state is not of."""
    if record.shape.tied >= 0:
        return _tied(books, record, kinds | {record.shape.tied})
    return Refusal(Reason.DEVICE_TYPE, {"device": device})


def _tied(books: Books, record: JobRecord, kinds: set[int]) -> Refusal:
    """The refusal of a mix, or of a change, of device types by the job's grade of reproducibility."""
    names = sorted(books.ledger.layout.types[k].name for k in kinds)
    return Refusal(Reason.DETERMINISM, {"grade": record.job.determinism, "types": names})


def over_ceiling(books: Books, record: JobRecord, count: int) -> bool:
    """Would this many more devices exceed the ceiling of the job's tenant?"""
    limit = books.limits.get(record.job.tenant)
    return limit is not None and books.used.get(record.job.tenant, 0) + count > limit


def ceiling_refusal(books: Books, record: JobRecord, count: int) -> Refusal | None:
    """The refusal of that many devices by the ceiling of the job's tenant, if it refuses them."""
    if not over_ceiling(books, record, count):
        return None
    tenant = record.job.tenant
    limit = books.limits[tenant]
    reason = Reason.TENANT_CAPACITY_ZERO if limit == 0 else Reason.TENANT_LIMIT
    return Refusal(reason, {"tenant": tenant, "limit_gpus": limit, "used_gpus": books.used.get(tenant, 0)})


def _check_limit(books: Books, record: JobRecord, count: int) -> Refusal | None:
    refusal = ceiling_refusal(books, record, count)
    return refusal and Refusal(refusal.reason, refusal.facts | {"needs_gpus": count})


def _check_devices(books: Books, record: JobRecord, devices: tuple[int, ...], share: Share) -> Refusal | None:
    ledger, job_id, exclusive = books.ledger, record.id, share.mode == "exclusive"
    if not exclusive and record.job.sharing == "exclusive":
        return Refusal(Reason.ISOLATION, {"sharing": "exclusive"})
    at_home = bool(ledger.leaving) or job_id in ledger.held
    last: tuple[object, ...] | None = None
    for device in devices:
        if ledger.impaired and (
            not ledger.usable[device] or ledger.draining[ledger.layout.device_node[device]]
        ):
            return Refusal(Reason.DEVICE_UNAVAILABLE, {"device": device})
        if ledger.reserved and (owner := ledger.reserved.get(device, job_id)) != job_id:
            return Refusal(Reason.RESERVED, {"device": device, "for": owner})
        beside = ledger.residents[device]
        if at_home:
            beside = tuple(j for j in beside if j != job_id)
        if exclusive:
            if beside:
                return Refusal(Reason.NO_CAPACITY, {"device": device, "residents": list(beside)})
            if ledger.used_outside(device):
                return foreign_refusal(ledger, device)
            continue
        # Where the same jobs hold as much as on the device before, the answer is the same.
        here = (
            beside,
            ledger.free_milli[device],
            ledger.free_memory[device],
            ledger.layout.device_type[device],
        )
        if at_home or here != last:
            refusal = check_beside(books, record, device, beside, share)
            if refusal:
                return refusal
            last = here
    return None


def _check_empty(books: Books, record: JobRecord, devices: tuple[int, ...], share: Share) -> Refusal | None:
    """Rules of a share on devices that nobody else is on."""
    if share.mode == "exclusive":
        return None
    job, ledger = record.job, books.ledger
    if job.sharing == "exclusive":
        return Refusal(Reason.ISOLATION, {"sharing": "exclusive"})
    if share.memory_bytes < job.memory_bytes or share.memory_bytes <= 0:
        return Refusal(Reason.MEMORY, {"needs_bytes": job.memory_bytes, "share_bytes": share.memory_bytes})
    if not 0 <= share.compute_milli <= DEVICE_MILLI:
        facts = {"device": devices[0], "needs_milli": share.compute_milli, "free_milli": DEVICE_MILLI}
        return Refusal(Reason.COMPUTE, facts)
    for device in devices:
        room = ledger.layout.device_memory[device] - ledger.foreign_bytes(device)
        if share.memory_bytes > room:
            facts = {"device": device, "needs_bytes": share.memory_bytes, "free_bytes": room}
            return Refusal(Reason.MEMORY, facts)
    return None


def _check_host(books: Books, record: JobRecord, devices: tuple[int, ...]) -> Refusal | None:
    ledger, job = books.ledger, record.job
    for node, cpu, host in ledger.host_parts(Placement(devices), job.cpu_milli, job.host_memory_bytes):
        if ledger.has_cpu[node] and cpu > ledger.free_cpu[node]:
            return Refusal(
                Reason.HOST, {"node": node, "needs_cpu_milli": cpu, "free_cpu_milli": ledger.free_cpu[node]}
            )
        if ledger.has_host[node] and host > ledger.free_host[node]:
            return Refusal(
                Reason.HOST,
                {"node": node, "needs_host_bytes": host, "free_host_bytes": ledger.free_host[node]},
            )
    return None


def check_stop(books: Books, record: JobRecord | None, suspend: bool, now: float) -> Refusal | None:
    """May this running job be taken off its devices now?"""
    if record is None or record.status != Status.RUNNING:
        return Refusal(Reason.NOT_RUNNING)
    if suspend and not record.job.suspendable:
        return Refusal(Reason.NOT_SUSPENDABLE)
    if suspend and books.tiers is not None and (refusal := books.tiers.refusal(record.job)):
        return refusal
    return _check_quantum(books, record, now)


def _check_quantum(books: Books, record: JobRecord, now: float) -> Refusal | None:
    ran = now - record.started_s
    if ran < books.settings.min_quantum_s:
        return Refusal(Reason.MIN_QUANTUM, {"ran_s": ran, "min_quantum_s": books.settings.min_quantum_s})
    return None


def check_move(
    books: Books, record: JobRecord | None, devices: tuple[int, ...], share: Share, now: float
) -> Refusal | None:
    """May this running job migrate to these devices? Old and new places must not overlap."""
    if record is None or record.status != Status.RUNNING or record.place is None:
        return Refusal(Reason.NOT_RUNNING)
    if record.id in books.ledger.leaving:
        return Refusal(Reason.MIN_QUANTUM, {"still_leaving": True})
    if not record.job.suspendable:
        return Refusal(Reason.NOT_SUSPENDABLE)
    if books.live and (refusal := _check_launched(record)):
        return refusal
    if set(devices) & set(record.place.devices):
        return Refusal(Reason.MALFORMED, {"overlap": True})
    refusal = _check_quantum(books, record, now) or _check_grade(books, record, devices)
    return refusal or _as_if_pending(books, record, devices, share)


def check_resize(
    books: Books, record: JobRecord | None, devices: tuple[int, ...], share: Share, now: float
) -> Refusal | None:
    """May this running job's share or devices change in place?"""
    if record is None or record.status != Status.RUNNING or record.place is None:
        return Refusal(Reason.NOT_RUNNING)
    if record.settling:
        return Refusal(Reason.STILL_RESIZING)
    if record.id in books.ledger.leaving:
        return Refusal(Reason.MIN_QUANTUM, {"still_leaving": True})
    if devices != record.place.devices:
        refusal = _check_quantum(books, record, now) or _check_grade(books, record, devices)
        if refusal is None and books.live:
            refusal = _check_launched(record) if record.job.suspendable else Refusal(Reason.NOT_SUSPENDABLE)
        if refusal:
            return refusal
    return _as_if_pending(books, record, devices, share)


def _check_launched(record: JobRecord) -> Refusal | None:
    """A real job goes elsewhere only once its processes are known to run where it is now."""
    if record.settling:
        return Refusal(Reason.STILL_RESIZING)
    known = record.process is not None and record.process.serial == record.serial
    return None if known else Refusal(Reason.STILL_STARTING, {"serial": record.serial})


def _check_grade(books: Books, record: JobRecord, devices: tuple[int, ...]) -> Refusal | None:
    """A running job whose grade ties it to one device type stays on that type when it is resized or moved."""
    if may_mix(record.job) or record.place is None:
        return None
    layout = books.ledger.layout
    if layout.blocks(devices) is None:
        return None
    kinds = {layout.device_type[d] for d in (*record.place.devices, *devices)}
    return _tied(books, record, kinds) if len(kinds) > 1 else None


def _as_if_pending(books: Books, record: JobRecord, devices: tuple[int, ...], share: Share) -> Refusal | None:
    """Check a running job's new place with its own holdings given back for the moment.

    Tenant use and host needs are given back too, so only what is new counts.
    """
    ledger, job = books.ledger, record.job
    status, tenant = record.status, job.tenant
    held = ledger.held[record.id]
    moving = not set(devices) & set(held.devices)
    used = books.used.get(tenant, 0)
    record.status = Status.PENDING
    books.used[tenant] = used - len(held.devices)
    if not moving:
        ledger.vacate(record.id, job.cpu_milli, job.host_memory_bytes)
    try:
        return check_start(books, record, devices, share)
    finally:
        if not moving:
            ledger.occupy(record.id, held, job.cpu_milli, job.host_memory_bytes)
        record.status, books.used[tenant] = status, used


def check_reserve(books: Books, record: JobRecord | None, devices: tuple[int, ...]) -> Refusal | None:
    """May these devices be kept for this pending job?"""
    if record is None or record.status:
        return Refusal(Reason.NOT_PENDING)
    if not devices:
        return None
    ledger = books.ledger
    if ledger.layout.blocks(devices) is None or len(devices) < record.job.gpus:
        return Refusal(Reason.MALFORMED, {"needs_gpus": record.job.gpus, "given_gpus": len(devices)})
    for device in devices:
        owner = ledger.reserved.get(device, record.id)
        if owner != record.id:
            return Refusal(Reason.RESERVED, {"device": device, "for": owner})
        if not ledger.usable[device] or ledger.draining[ledger.layout.device_node[device]]:
            return Refusal(Reason.DEVICE_UNAVAILABLE, {"device": device})
        if (kind := ledger.layout.device_type[device]) not in record.shape.types:
            return _wrong_type(books, record, {kind}, device)
    return None
