"""Many readings of one device: what is impossible is thrown out, what is missing is passed over."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from cotenant.profiles.samplers.readings import METERS, DeviceReading, ProcessReading, Snapshot

__all__ = ["SUSPECT_AFTER", "MeterSummary", "Series", "Summary", "summarise"]

SUSPECT_AFTER = 3
"""A device with so many impossible readings is marked suspect."""

_TOP_W = 20_000.0
_SLACK = 1.005


class MeterSummary(msgspec.Struct, frozen=True):
    """One meter over a time.

    Parameters
    ----------
    mean, peak : float or None
        None if no reading had it.
    count, missing, rejected : int
        Readings used, without a value, and with an impossible one.
    """

    mean: float | None
    peak: float | None
    count: int
    missing: int
    rejected: int


class Summary(msgspec.Struct, frozen=True):
    """One device, or one process on it, over a time.

    Parameters
    ----------
    device : str
    model : str
    readings : int
    meters : dict
        By field name.
    suspect : bool
        Whether so many values were impossible that the rest is in doubt.
    """

    device: str
    model: str
    readings: int
    meters: dict[str, MeterSummary]
    suspect: bool

    def mean(self, meter: str) -> float | None:
        """Mean of a meter; None where it is missing."""
        found = self.meters.get(meter)
        return None if found is None else found.mean

    def peak(self, meter: str) -> float | None:
        """Largest value of a meter; None where it is missing."""
        found = self.meters.get(meter)
        return None if found is None else found.peak


def _possible(meter: str, value: float, total_mib: float | None) -> bool:
    if not math.isfinite(value) or value < 0.0:
        return False
    if meter.endswith("_pct"):
        return value <= 100.0 * _SLACK
    if meter == "memory_used_mib" and total_mib is not None:
        return value <= total_mib * _SLACK
    return value <= _TOP_W if meter == "power_w" else True


def summarise(
    readings: Iterable[DeviceReading | ProcessReading], *, total_mib: float | None = None
) -> Summary:
    """Put readings of one device, or of one process on it, together.

    Parameters
    ----------
    readings : iterable
    total_mib : float, optional
        Memory of the device where the readings do not say it.
    """
    kept = list(readings)
    meters: dict[str, MeterSummary] = {}
    rejected_in_all = 0
    for meter in METERS:
        values: list[float] = []
        missing = rejected = 0
        for reading in kept:
            value = getattr(reading, meter, None)
            if value is None:
                missing += 1
            elif _possible(meter, value, getattr(reading, "memory_total_mib", None) or total_mib):
                values.append(value)
            else:
                rejected += 1
        rejected_in_all += rejected
        mean = math.fsum(values) / len(values) if values else None
        meters[meter] = MeterSummary(mean, max(values) if values else None, len(values), missing, rejected)
    first = kept[0] if kept else None
    return Summary(
        device="" if first is None else first.device,
        model=getattr(first, "model", ""),
        readings=len(kept),
        meters=meters,
        suspect=rejected_in_all >= SUSPECT_AFTER,
    )


class Series:
    """Collects snapshots, and sums up devices and processes."""

    def __init__(self) -> None:
        self._devices: dict[str, list[DeviceReading]] = {}
        self._processes: dict[tuple[str, int], list[ProcessReading]] = {}
        self.failures: dict[tuple[str, str], int] = {}
        self.snapshots = 0

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot."""
        self.snapshots += 1
        for device in snapshot.devices:
            self._devices.setdefault(device.device, []).append(device)
        for process in snapshot.processes:
            self._processes.setdefault((process.device, process.pid), []).append(process)
        for failure in snapshot.failures:
            key = (failure.device, failure.reason)
            self.failures[key] = self.failures.get(key, 0) + 1

    def devices(self) -> list[Summary]:
        """Each device that gave at least one reading."""
        return [summarise(readings) for _, readings in sorted(self._devices.items())]

    def process(self, pid: int, device: str | None = None) -> Summary | None:
        """One process, on one device or on the only one it was seen on; None if it was not."""
        for (name, number), readings in sorted(self._processes.items()):
            if number == pid and device in (None, name):
                totals = [d.memory_total_mib for d in self._devices.get(name, ()) if d.memory_total_mib]
                return summarise(readings, total_mib=max(totals, default=None))
        return None

    def pids(self) -> list[int]:
        """All processes seen."""
        return sorted({pid for _, pid in self._processes})
