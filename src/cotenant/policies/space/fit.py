"""Pure helpers that policies share: where a job goes, how long it will hold its place.

Times are predictions: a job whose length is not known holds its place for ``UNKNOWN_S``,
longer than anything known and shorter than for ever (``inf``: what is down).
"""

from __future__ import annotations

from collections.abc import Container

from cotenant.model.ledger import Ledger, low_bits
from cotenant.model.plan import Start, Why
from cotenant.model.ports import Forecast
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings
from cotenant.model.shape import Shape, host_fits
from cotenant.model.view import View

__all__ = [
    "UNKNOWN_S",
    "Speeds",
    "find_cpu_node_outside",
    "find_outside",
    "order",
    "place_whole",
    "startup_s",
]

UNKNOWN_S = 1e300
"""Stands for a length nobody knows."""


def order(record: JobRecord) -> int:
    """Place in the default order as one integer: priority, then submission.

    >>> from cotenant.model.jobs import Job
    >>> low, high = Job(id=3, name="l", submit_s=0.0), Job(id=9, name="h", submit_s=1.0, priority=1)
    >>> make = lambda job: JobRecord.of(job, None, 0.0, 0.0)
    >>> order(make(high)) < order(make(low))
    True
    """
    return record.key


def startup_s(settings: Settings, record: JobRecord) -> float:
    """Seconds between start and first useful work: a cold start, or loading saved state."""
    return settings.startup_s(record.job, record.suspended)


class Speeds:
    """Predicted speeds of jobs alone: the forecast's, or what the device types declare.

    Parameters
    ----------
    view : View
    """

    __slots__ = ("_forecast", "_known", "_types", "version")

    def __init__(self, view: View) -> None:
        self._types = view.layout.types
        self._forecast = _forecast(view)
        self._known: dict[tuple[str, int], float] = {}
        self.version = self._forecast.version if self._forecast else 0

    def stale(self) -> bool:
        """Whether the forecast has changed since."""
        return self._forecast is not None and self._forecast.version != self.version

    def of(self, model: str, kind: int) -> float:
        """Speed alone on a device type, by its number, relative to the reference device.

        Type -1 stands for no device at all: CPU-only jobs run at speed 1.
        """
        if kind < 0:
            return 1.0
        if self._forecast is None:
            return self._types[kind].speed
        speed = self._known.get((model, kind))
        if speed is None:
            speed = self._forecast.solo_speed(model, self._types[kind].name)
            self._known[(model, kind)] = speed
        return speed


def _forecast(view: View) -> Forecast | None:
    try:
        return view.forecast
    except RuntimeError:
        return None


def place_whole(view: View, record: JobRecord, why: Why) -> Start | None:
    """Start a job on whole free devices (a CPU-only job on a node), or None if it does not fit."""
    if record.shape.gpus == 0:
        node = view.find_node(record)
        return Start(record.id, (), why=why, node=node) if node >= 0 else None
    devices = view.find(record)
    return None if devices is None else Start(record.id, devices, why=why)


def find_outside(
    ledger: Ledger, shape: Shape, kept: Container[int], kept_kind: int = -1
) -> tuple[int, ...] | None:
    """Whole free devices for a shape outside the bays ``kept`` and the type ``kept_kind``, or None.

    The choice is that of ``model.shape.find_whole``: one node, the tightest, on the first
    type that has room; else, if the gang may span, the fewest nodes.
    """
    gpus = shape.gpus
    if shape.single:
        for kind in shape.types:
            bay = ledger.tightest_bay(kind, gpus)
            if bay < 0 or kind == kept_kind:
                continue
            if bay in kept or shape.cpu_milli or shape.host_bytes:
                bay = _tightest(ledger, shape, kind, gpus, kept)
            if bay >= 0:
                return ledger.layout.devices(bay, low_bits(ledger.whole[bay], gpus))
    if shape.spans:
        for kind in shape.types:
            found = None if kind == kept_kind else _span(ledger, shape, kind, kept)
            if found is not None:
                return found
    return None


def _tightest(ledger: Ledger, shape: Shape, kind: int, gpus: int, kept: Container[int]) -> int:
    host = bool(shape.cpu_milli or shape.host_bytes)
    for bay in ledger.bays_by_room(kind, gpus):
        if bay not in kept and (not host or host_fits(ledger, shape, bay, gpus)):
            return bay
    return -1


def _span(ledger: Ledger, shape: Shape, kind: int, kept: Container[int]) -> tuple[int, ...] | None:
    """Roomiest nodes first, the remainder in the tightest."""
    left = shape.gpus
    if ledger.free_count[kind] < left:
        return None
    host = bool(shape.cpu_milli or shape.host_bytes)
    devices: list[int] = []
    taken: set[int] = set()
    for roomiest in ledger.bays_by_most_room(kind):
        bay, take = roomiest, min(ledger.whole[roomiest].bit_count(), left)
        if bay in kept or (host and not host_fits(ledger, shape, bay, take)):
            continue
        if take == left and not host:
            bay = next(b for b in ledger.bays_by_room(kind, left) if b not in taken and b not in kept)
        taken.add(bay)
        devices.extend(ledger.layout.devices(bay, low_bits(ledger.whole[bay], take)))
        left -= take
        if not left:
            return tuple(sorted(devices))
    return None


def find_cpu_node_outside(ledger: Ledger, shape: Shape, kept: int) -> int:
    """The node other than ``kept`` with least free CPU that suffices; -1 if none.

    As ``model.shape.find_cpu_node``, which it walks like.
    """
    best, least = -1, 0
    for node in range(ledger.layout.node_count):
        if (
            node == kept
            or ledger.draining[node]
            or (ledger.has_host[node] and shape.host_bytes > ledger.free_host[node])
        ):
            continue
        free = ledger.free_cpu[node] if ledger.has_cpu[node] else 1 << 62
        if free >= shape.cpu_milli and (best < 0 or free < least):
            best, least = node, free
    return best
