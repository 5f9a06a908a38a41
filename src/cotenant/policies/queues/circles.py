"""With whom a job may share, and how much room it takes, as values."""

from __future__ import annotations

from cotenant.model.jobs import Job
from cotenant.model.placement import WHOLE, Share
from cotenant.model.quantities import GIB

__all__ = ["Circle", "circle_of", "needed_gib", "share_of"]

Circle = tuple[str, ...]


def circle_of(job: Job) -> Circle | None:
    """Whom a job may share with, as a value: jobs share within one circle only.

    None for exclusive jobs, and for jobs whose memory is unknown.
    """
    if job.sharing == "any":
        return () if job.memory_bytes > 0 else None
    if job.memory_bytes <= 0 or job.sharing == "exclusive":
        return None
    return (job.tenant,) if job.sharing == "trusted" else (job.tenant, job.user)


def needed_gib(job: Job) -> int:
    """Memory of a job in whole GiB, rounded up: the unit in which free memory is compared."""
    return -(-job.memory_bytes // GIB)


def share_of(job: Job, capacity: int) -> Share:
    """What a job holds: a share if it may have neighbours, else the whole device."""
    if circle_of(job) is None or capacity == 0:
        return WHOLE
    declared = job.compute_milli if job.compute_milli < 1000 else 0
    key = (job.memory_bytes, declared)
    share = _SHARES.get(key)
    if share is None:
        if len(_SHARES) > 65536:
            _SHARES.clear()
        share = _SHARES[key] = Share("spatial", job.memory_bytes, declared)
    return share


_SHARES: dict[tuple[int, int], Share] = {}
"""One object for each distinct share; a cache of values, so it carries no state."""
