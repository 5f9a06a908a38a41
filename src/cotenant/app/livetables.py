"""Jobs and devices as rows of text: what ``ps``, ``top`` and ``history`` show."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cotenant.app.console import in_row
from cotenant.model.quantities import MIB, format_duration

if TYPE_CHECKING:
    from cotenant.live.views import DeviceView, JobView, Resident, StatusView

__all__ = [
    "DEVICE_COLUMNS",
    "ENDED",
    "HISTORY_COLUMNS",
    "ON_DEVICES",
    "PS_COLUMNS",
    "WAITING_COLUMNS",
    "device_rows",
    "headline",
    "history_rows",
    "job_title",
    "ps_rows",
    "slowdown",
    "waiting_rows",
    "wants",
]

ENDED = frozenset({"done", "failed", "cancelled", "rejected", "lost"})
"""Statuses after which nothing more happens to a job."""
ON_DEVICES = frozenset({"running", "paused", "stopping"})

PS_COLUMNS = (
    "job",
    "name",
    "status",
    "on",
    "share",
    "MiB",
    "slowdown",
    "progress",
    "since",
    "ends",
    "why",
)
HISTORY_COLUMNS = ("job", "name", "status", "exit", "waited", "took", "expected", "steps", "ended", "how")
DEVICE_COLUMNS = ("device", "state", "busy", "memory", "job", "share", "slowdown", "predicted")
WAITING_COLUMNS = ("job", "name", "asks for", "priority", "waits", "why")

Triple = tuple[float, float, float]
NOTHING = ""


def job_title(job: JobView) -> str:
    """Number and name, as every sentence about a job begins.

    The name is between quotes, for it may be several words.
    """
    return f'job {job.id} "{in_row(job.name)}"'


def mib(size: int) -> str:
    """A size in MiB, short: rows have the unit in common."""
    return f"{-(-size // MIB):,}" if size else NOTHING


def share(guaranteed: int, limit: int) -> str:
    """Guaranteed share, and the ceiling where it is another.

    >>> share(1000, 1000), share(400, 1000), share(400, 400), share(0, 1000)
    ('100%', '40-100%', '40%', 'up to 100%')
    """
    if not guaranteed:
        return f"up to {limit / 10:g}%"
    low, high = f"{guaranteed / 10:g}", f"{limit / 10:g}"
    return f"{low}%" if low == high else f"{low}-{high}%"


def slowdown(speed: float | None) -> str:
    """Times longer than alone, from a speed relative to alone.

    >>> slowdown(0.8), slowdown(1.0), slowdown(None), slowdown(0.0)
    ('1.25', '1.00', '', 'stands')
    """
    if speed is None:
        return NOTHING
    return "stands" if speed <= 0.0 else f"{1.0 / speed:.2f}"


def slowdown_range(speed: Triple | None) -> str:
    """Slowdown as predicted, with its 90% range: a low speed is a high slowdown.

    >>> slowdown_range((0.8, 0.5, 1.0))
    '1.25 (1.00-2.00)'
    """
    if speed is None:
        return NOTHING
    mean, low, high = speed
    return f"{slowdown(mean)} ({slowdown(high)}-{slowdown(low)})"


def wants(job: JobView) -> str:
    """What a job asks for, in words.

    Its share of one device, or so many devices.
    """
    parts = ["no device" if job.gpus == 0 else f"{job.gpus} devices" if job.gpus != 1 else "1 device"]
    if job.gpus and job.compute_milli < 1000:
        parts[0] = f"{share(job.compute_milli, job.compute_limit_milli)} of {parts[0]}"
    if job.memory_bytes:
        parts.append(f"{mib(job.memory_bytes)} MiB")
    return ", ".join(parts)


def _progress(job: JobView) -> str:
    if not job.steps and not job.total_steps:
        return NOTHING
    if not job.total_steps:
        return f"{job.steps:,} steps"
    return f"{job.steps:,}/{job.total_steps:,} ({100 * job.steps / job.total_steps:.0f}%)"


def _ends(job: JobView, now: float) -> str:
    if job.ends_at is None:
        return NOTHING
    mean, low, high = (format_duration(max(at - now, 0.0)) for at in job.ends_at)
    return f"{mean} ({low}-{high})"


def short(reason: str) -> str:
    """A reason without the numbers behind it; ``explain`` and ``top`` have them.

    >>> short("not now: too few devices are free (needs gpus 1, free gpus 0)"), short("done after 3s")
    ('not now: too few devices are free', 'done after 3s')
    """
    return reason[: reason.rindex(" (")] if reason.endswith(")") and " (" in reason else reason


def _since(job: JobView, now: float) -> str:
    begun = job.started if job.status in ON_DEVICES and job.started is not None else job.submitted
    return format_duration(max(round(now - begun), 0))


def ps_rows(jobs: Iterable[JobView], now: float) -> list[tuple[str, ...]]:
    """One row for each job, as ``PS_COLUMNS``."""
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        on = job.status in ON_DEVICES
        rows.append(
            (
                str(job.id),
                in_row(job.name),
                job.status,
                ",".join(job.devices) if on else NOTHING,
                share(job.compute_milli, job.compute_limit_milli) if job.gpus else NOTHING,
                mib(job.memory_used_bytes or job.memory_bytes),
                slowdown(job.measured_speed) if on else NOTHING,
                _progress(job),
                _since(job, now if job.ended is None else job.ended),
                _ends(job, now),
                short(job.reason),
            )
        )
    return rows


def history_rows(jobs: Iterable[JobView]) -> list[tuple[str, ...]]:
    """One row for each job that ended, as ``HISTORY_COLUMNS``."""
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        ended = job.ended if job.ended is not None else job.submitted
        waited = (job.started if job.started is not None else ended) - job.submitted
        took = ended - job.started if job.started is not None else None
        rows.append(
            (
                str(job.id),
                in_row(job.name),
                job.status,
                NOTHING if job.exit_code is None else str(job.exit_code),
                format_duration(max(round(waited), 0)),
                NOTHING if took is None else format_duration(max(took, 0.0)),
                NOTHING if job.predicted_s is None else _expected(job.predicted_s),
                _progress(job),
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ended)),
                job.reason + _replaced(job),
            )
        )
    return rows


def _replaced(job: JobView) -> str:
    """How many processes of an elastic job were killed while it ran on."""
    count = job.killed_processes
    if not count:
        return ""
    return f"; {count} of its processes {'was' if count == 1 else 'were'} killed and replaced"


def _expected(seconds: Triple) -> str:
    mean, low, high = (format_duration(value) for value in seconds)
    return f"{mean} ({low}-{high})"


def device_rows(devices: Iterable[DeviceView]) -> list[tuple[str, ...]]:
    """A row for each device with its first job, and one for each further job, as ``DEVICE_COLUMNS``."""
    rows: list[tuple[str, ...]] = []
    for device in devices:
        lead = (device.name, device.state, _busy(device.busy), _memory(device))
        others = [_resident(one) for one in device.residents]
        if device.foreign_bytes or device.foreign_pids:
            pids = ", ".join(map(str, device.foreign_pids))
            label = f"not ours: process {pids}" if pids else "not ours"
            others.append((f"{label} ({mib(device.foreign_bytes)} MiB)", NOTHING, NOTHING, NOTHING))
        if not others:
            others.append(("free", NOTHING, NOTHING, NOTHING))
        for number, other in enumerate(others):
            rows.append((*(lead if number == 0 else (NOTHING,) * len(lead)), *other))
    return rows


def _resident(one: Resident) -> tuple[str, str, str, str]:
    return (
        f"{one.id} {in_row(one.name)}".rstrip(),
        share(one.compute_milli, one.compute_limit_milli),
        slowdown(one.measured_speed),
        slowdown_range(one.predicted_speed),
    )


def _busy(busy: float | None) -> str:
    return "n/a" if busy is None else f"{100 * busy:.0f}%"


def _memory(device: DeviceView) -> str:
    used, size = mib(device.memory_used_bytes) or "0", mib(device.memory_bytes)
    return f"{used}/{size} MiB" if size else f"{used} MiB"


def waiting_rows(jobs: Iterable[JobView], now: float) -> list[tuple[str, ...]]:
    """One row for each job that waits, as ``WAITING_COLUMNS``."""
    return [
        (
            str(job.id),
            in_row(job.name),
            wants(job),
            str(job.priority) if job.priority else NOTHING,
            format_duration(max(round(now - job.submitted), 0)),
            job.reason or job.status,
        )
        for job in jobs
        if job.status not in ON_DEVICES | ENDED
    ]


def headline(status: StatusView, jobs: Sequence[JobView]) -> str:
    """The scheduler in one line."""
    counts = ", ".join(
        f"{sum(job.status == name for job in jobs)} {name}"
        for name in ("running", "paused", "stopping", "suspended", "held", "waiting")
        if any(job.status == name for job in jobs)
    )
    up = format_duration(max(round(status.now - status.started), 0))
    return f"cotenant {status.version}, policy {status.policy}, up {up}, {counts or 'no jobs'}"
