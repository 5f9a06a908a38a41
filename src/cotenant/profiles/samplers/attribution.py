"""Whose is a shared device's reading? Measured per process, else shared out by a stated rule, else missing.

What jobs get adds up to the device: a value that the source repeats for each job is the
device's, and is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from cotenant.errors import ConfigError

__all__ = ["Attribution", "JobPart", "attribute"]

How = Literal["measured", "by memory", "by equal parts", "missing"]
RULES = ("none", "memory", "equal")


class JobPart(msgspec.Struct, frozen=True):
    """One job's part of a device's reading.

    Parameters
    ----------
    job : str
    value : float or None
    how : str
        ``measured`` per process, or the rule by which it was shared out, or ``missing``.
    """

    job: str
    value: float | None
    how: How


class Attribution(msgspec.Struct, frozen=True):
    """A device's reading and its parts; ``rest`` is the part that is no job's.

    ``rest`` is None where the device's own value, or that of some job, is missing.
    """

    device_value: float | None
    parts: tuple[JobPart, ...]
    rest: float | None

    @property
    def total(self) -> float | None:
        """Sum of what the jobs were given; None if nothing is known of any."""
        known = [part.value for part in self.parts if part.value is not None]
        return sum(known) if known else None


def attribute(
    device_value: float | None,
    measured: Mapping[str, float | None],
    *,
    rule: str = "none",
    memory_mib: Mapping[str, float | None] | None = None,
) -> Attribution:
    """Share a device's reading out among its jobs.

    Parameters
    ----------
    device_value : float or None
        The device's reading, once.
    measured : mapping of str to float or None
        Every job on the device, and what was measured of its processes.
    rule : {"none", "memory", "equal"}
        For jobs without a measurement: nothing, or what the others leave of the device's value,
        in proportion to memory used or in equal parts.
    memory_mib : mapping, optional
        Memory used by job, for the rule of that name.

    Raises
    ------
    ConfigError
        If the rule is unknown.
    """
    if rule not in RULES:
        raise ConfigError(f"no rule {rule!r} to share a reading out; known: {', '.join(RULES)}")
    known = {job: value for job, value in measured.items() if value is not None}
    open_jobs = [job for job in measured if job not in known]
    left = None if device_value is None else max(device_value - sum(known.values()), 0.0)
    weights = _weights(open_jobs, rule, memory_mib or {})
    parts: list[JobPart] = []
    for job in measured:
        if job in known:
            parts.append(JobPart(job, known[job], "measured"))
        elif left is None or weights is None:
            parts.append(JobPart(job, None, "missing"))
        else:
            how: How = "by memory" if rule == "memory" else "by equal parts"
            parts.append(JobPart(job, left * weights[job], how))
    values = [part.value for part in parts]
    rest = None
    if device_value is not None and all(value is not None for value in values):
        rest = max(device_value - sum(value for value in values if value is not None), 0.0)
    return Attribution(device_value, tuple(parts), rest)


def _weights(jobs: list[str], rule: str, memory_mib: Mapping[str, float | None]) -> dict[str, float] | None:
    """Weights that add up to 1; None where the rule gives none."""
    if not jobs or rule == "none":
        return None
    if rule == "equal":
        return {job: 1.0 / len(jobs) for job in jobs}
    sizes = {job: memory_mib.get(job) for job in jobs}
    total = sum(size for size in sizes.values() if size)
    if total <= 0.0 or any(size is None for size in sizes.values()):
        return None
    return {job: (size or 0.0) / total for job, size in sizes.items()}
