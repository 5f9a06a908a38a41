"""What a job asks of the cluster, worked out once for all jobs that ask the same.

Also the search for whole free devices, which most policies share, and the answer to
"why not": never, not now, or only in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.ledger import Ledger, low_bits
from cotenant.model.plan import Reason
from cotenant.model.settings import Settings

__all__ = ["Shape", "ShapeTable", "find_cpu_node", "find_whole", "host_fits", "why_not"]


class Shape:
    """A demand, and which parts of this cluster can ever meet it.

    Attributes
    ----------
    number : int
        Dense index among the shapes seen.
    gpus, memory_bytes, compute_milli, cpu_milli, host_bytes : int
    plain : bool
        It asks for nothing but devices: no cores, no host memory.
    types : tuple of int
        Device types that will do, in the order in which to try them.
    tied : int
        The only one of them that will do for a job whose saved state is of that type, see ``model.ties``; else -1.
    single : bool
        Some node has enough devices of one of these types.
    spans : bool
        The gang may lie on several nodes.
    never : (Reason, facts) or None
        Why it can never run here.
    seen : int
        Jobs submitted with this demand so far.
    """

    __slots__ = (
        "compute_milli",
        "cpu_milli",
        "gpus",
        "host_bytes",
        "memory_bytes",
        "never",
        "number",
        "plain",
        "seen",
        "single",
        "spans",
        "tied",
        "types",
    )

    def __init__(self, number: int, job: Job, layout: Layout, settings: Settings, tied: int = -1) -> None:
        self.number = number
        self.tied = tied
        self.seen = 0
        self.gpus = job.gpus
        self.memory_bytes = job.memory_bytes
        self.compute_milli = job.compute_milli
        self.cpu_milli = job.cpu_milli
        self.host_bytes = job.host_memory_bytes
        self.plain = job.gpus > 0 and not (job.cpu_milli or job.host_memory_bytes)
        self.types = _usable_types(job, layout, settings) if tied < 0 else (tied,)
        widest = max((max(layout.bay_size[b] for b in layout.type_bays[k]) for k in self.types), default=0)
        self.single = job.gpus <= widest
        self.spans = settings.gang_span == "any" or (
            settings.gang_span == "larger-than-node" and not self.single
        )
        # Who has been there fits, though perhaps with fewer devices.
        self.never = self._never(job, layout, widest) if tied < 0 else None

    def _never(self, job: Job, layout: Layout, widest: int) -> tuple[Reason, dict[str, Any]] | None:
        if job.gpus == 0:
            return self._never_cpu(job, layout)
        if not self.types:
            return _no_type(job, layout)
        counts = {k: sum(layout.bay_size[b] for b in layout.type_bays[k]) for k in self.types}
        if job.gpus > max(counts.values()):
            return Reason.NEVER_FITS, {"needs_gpus": job.gpus, "cluster_gpus": max(counts.values())}
        if not self.single and not self.spans:
            return Reason.SPAN, {"needs_gpus": job.gpus, "largest_node_gpus": widest}
        return self._never_host(job, layout)

    def _never_host(self, job: Job, layout: Layout) -> tuple[Reason, dict[str, Any]] | None:
        """Whether the nodes' declared cores and memory forbid the job for ever."""
        if not (job.cpu_milli or job.host_memory_bytes):
            return None
        for kind in self.types:
            most = [_most_devices(job, layout, bay) for bay in layout.type_bays[kind]]
            if max(most) >= job.gpus or (self.spans and sum(most) >= job.gpus):
                return None
        return Reason.NEVER_FITS, {"needs_gpus": job.gpus} | _host_facts(job, layout)

    @staticmethod
    def _never_cpu(job: Job, layout: Layout) -> tuple[Reason, dict[str, Any]] | None:
        for cpu_milli, host_bytes in zip(layout.host_cpu, layout.host_bytes, strict=True):
            if _host_could(cpu_milli, job.cpu_milli) and _host_could(host_bytes, job.host_memory_bytes):
                return None
        return Reason.NEVER_FITS, _host_facts(job, layout)


def _host_could(capacity: int, need: int) -> bool:
    return capacity == 0 or need <= capacity


def _most_devices(job: Job, layout: Layout, bay: int) -> int:
    """Most devices of an empty bay whose share of the job's host needs its node can meet.

    A host pool must be able to hold all that the job needs, as other nodes may draw from it, too.
    """
    node, most = layout.bay_node[bay], layout.bay_size[bay]
    for capacity, need in (
        (layout.host_cpu[node], job.cpu_milli),
        (layout.host_bytes[node], job.host_memory_bytes),
    ):
        if capacity and need:
            if layout.home and layout.home[node] in layout.peers:
                most = most if need <= capacity else 0
            else:
                most = min(most, capacity * job.gpus // need)
    return most


def _host_facts(job: Job, layout: Layout) -> dict[str, Any]:
    """What is asked of the host, and the most there is; only what is asked."""
    facts: dict[str, Any] = {}
    if job.cpu_milli or not job.host_memory_bytes:
        facts["needs_cpu_milli"] = job.cpu_milli
        facts["largest_node_cpu_milli"] = max(layout.host_cpu, default=0)
    if job.host_memory_bytes:
        facts["needs_host_bytes"] = job.host_memory_bytes
        facts["largest_node_host_bytes"] = max(layout.host_bytes, default=0)
    return facts


def _no_type(job: Job, layout: Layout) -> tuple[Reason, dict[str, Any]]:
    named = [t for t in job.device_types if t in layout.type_id]
    if job.device_types and not named:
        known = [t.name for t in layout.types]
        return Reason.DEVICE_TYPE, {"needs_types": list(job.device_types), "cluster_types": known}
    sizes = [t.memory_bytes for t in layout.types if not named or t.name in named]
    return Reason.NEVER_FITS, {"needs_bytes": job.memory_bytes, "largest_device_bytes": max(sizes, default=0)}


def _usable_types(job: Job, layout: Layout, settings: Settings) -> tuple[int, ...]:
    fitting = [
        i
        for i, kind in enumerate(layout.types)
        if layout.type_bays[i]
        and (not job.device_types or kind.name in job.device_types)
        and (kind.memory_bytes == 0 or job.memory_bytes <= kind.memory_bytes)
    ]
    if settings.type_order == "fastest":
        fitting.sort(key=lambda i: -layout.types[i].speed)
    elif settings.type_order == "slowest":
        fitting.sort(key=lambda i: layout.types[i].speed)
    elif settings.type_order == "largest-memory":
        fitting.sort(key=lambda i: -layout.types[i].memory_bytes)
    return tuple(fitting)


class ShapeTable:
    """Shapes by demand, made on first sight.

    Attributes
    ----------
    jobs : int
        Jobs submitted so far.
    """

    def __init__(self, layout: Layout, settings: Settings) -> None:
        self._layout, self._settings = layout, settings
        self._shapes: list[Shape] = []
        self._plain: dict[int, Shape] = {}
        self._full: dict[tuple[Any, ...], Shape] = {}
        self.jobs = 0

    def count(self, job: Job) -> Shape:
        """The shape of a job that was submitted just now."""
        shape = self.of(job)
        shape.seen += 1
        self.jobs += 1
        return shape

    def of(self, job: Job, tied: int = -1) -> Shape:
        """The shape of a job, perhaps of one that may only go to one device type."""
        key = (
            tied,
            job.gpus,
            job.memory_bytes,
            job.compute_milli,
            job.device_types,
            job.cpu_milli,
            job.host_memory_bytes,
        )
        found = self._full.get(key)
        if found is None:
            found = self._full[key] = self._make(job, tied)
        return found

    def __iter__(self) -> Iterator[Shape]:
        """All shapes, by number."""
        return iter(self._shapes)

    def _make(self, job: Job, tied: int) -> Shape:
        """A new shape; a declared 1000 milli and none declared are one demand, where nothing else is asked."""
        bare = not (job.memory_bytes or job.cpu_milli or job.host_memory_bytes or job.device_types)
        bare = bare and job.compute_milli in (0, 1000) and tied < 0
        if bare and job.gpus in self._plain:
            return self._plain[job.gpus]
        shape = Shape(len(self._shapes), job, self._layout, self._settings, tied)
        self._shapes.append(shape)
        if bare:
            self._plain[job.gpus] = shape
        return shape


def find_whole(ledger: Ledger, shape: Shape) -> tuple[int, ...] | None:
    """Whole free devices for a shape, or None.

    One node where possible: the one with fewest free devices that suffice, lowest number
    first, on the first device type that has room. Otherwise, if the gang may span, the
    fewest nodes: roomiest first, the remainder in the tightest.
    """
    gpus = shape.gpus
    if not gpus:
        return None
    if shape.single:
        for kind in shape.types:
            if shape.plain:
                found = ledger.tightest(kind, gpus)
                if found is not None:
                    return found
                continue
            for bay in ledger.bays_by_room(kind, gpus):
                if host_fits(ledger, shape, bay, gpus):
                    return ledger.layout.devices(bay, low_bits(ledger.whole[bay], gpus))
    if shape.spans:
        for kind in shape.types:
            if ledger.free_count[kind] >= gpus:
                found = _span(ledger, shape, kind)
                if found is not None:
                    return found
    return None


def _span(ledger: Ledger, shape: Shape, kind: int) -> tuple[int, ...] | None:
    left = shape.gpus
    devices: list[int] = []
    needs_host = bool(shape.cpu_milli or shape.host_bytes)
    for roomiest in ledger.bays_by_most_room(kind):
        bay, take = roomiest, min(ledger.whole[roomiest].bit_count(), left)
        while needs_host and take and not host_fits(ledger, shape, bay, take):
            take -= 1
        if not take:
            continue
        if take == left and not needs_host:
            taken = {ledger.layout.device_bay[d] for d in devices}
            bay = next(b for b in ledger.bays_by_room(kind, left) if b not in taken)
        devices.extend(ledger.layout.devices(bay, low_bits(ledger.whole[bay], take)))
        left -= take
        if not left:
            return tuple(sorted(devices))
    return None


def host_fits(ledger: Ledger, shape: Shape, bay: int, gpus: int) -> bool:
    """Whether a bay's node has the host share of ``gpus`` of a shape's devices."""
    node = ledger.layout.bay_node[bay]
    if gpus < shape.gpus and ledger.layout.peers and ledger.layout.home[node] in ledger.layout.peers:
        gpus = shape.gpus  # the other nodes of the gang may draw from the same pool
    cpu = -(-shape.cpu_milli * gpus // shape.gpus)
    host = -(-shape.host_bytes * gpus // shape.gpus)
    return (not ledger.has_cpu[node] or cpu <= ledger.free_cpu[node]) and (
        not ledger.has_host[node] or host <= ledger.free_host[node]
    )


def find_cpu_node(ledger: Ledger, shape: Shape) -> int:
    """The node with least free CPU that suffices for a CPU-only job; -1 if none.

    Walks the nodes: CPU-only jobs are few where GPUs are the scarce thing.
    """
    best, least = -1, 0
    for node in range(ledger.layout.node_count):
        if ledger.draining[node] or (ledger.has_host[node] and shape.host_bytes > ledger.free_host[node]):
            continue
        free = ledger.free_cpu[node] if ledger.has_cpu[node] else 1 << 62
        if free >= shape.cpu_milli and (best < 0 or free < least):
            best, least = node, free
    return best


def why_not(ledger: Ledger, shape: Shape) -> tuple[Reason, dict[str, Any]]:
    """Why no whole free devices are found for a shape, with the numbers."""
    if shape.never:
        return shape.never
    if shape.gpus == 0:
        return Reason.HOST, {"needs_cpu_milli": shape.cpu_milli}
    free = max([ledger.free_count[k] for k in shape.types])
    block = max([ledger.largest_block(k) for k in shape.types])
    facts = {"needs_gpus": shape.gpus, "free_gpus": free, "largest_block_gpus": block}
    if free < shape.gpus:
        if ledger.foreign and (kept := _foreign(ledger, shape)) and free + len(kept) >= shape.gpus:
            device = kept[0]
            held, pids = ledger.foreign[device]
            return Reason.FOREIGN_USE, {"device": device, "foreign_bytes": held, "pids": list(pids)}
        return Reason.NO_CAPACITY, facts
    if block < shape.gpus and not shape.spans:
        return Reason.FRAGMENTED, facts
    return Reason.HOST, facts | {"needs_cpu_milli": shape.cpu_milli, "needs_host_bytes": shape.host_bytes}


def _foreign(ledger: Ledger, shape: Shape) -> list[int]:
    """Devices that would do, were they not used from outside."""
    kind = ledger.layout.device_type
    return [
        d
        for d in sorted(ledger.foreign)
        if kind[d] in shape.types
        and ledger.used_outside(d)
        and ledger.usable[d]
        and not ledger.residents[d]
        and d not in ledger.reserved
    ]
