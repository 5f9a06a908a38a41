"""Who is on a device: ascending ids in a tuple, shared where it can be."""

from __future__ import annotations

__all__ = ["joined", "parted"]


def joined(ids: tuple[int, ...], job_id: int) -> tuple[int, ...]:
    """Ascending ids with one more.

    >>> joined((1, 5), 3), joined((), 3)
    ((1, 3, 5), (3,))
    """
    if not ids or ids[-1] < job_id:
        return (*ids, job_id)
    return tuple(sorted((*ids, job_id)))


def parted(ids: tuple[int, ...], job_id: int) -> tuple[int, ...]:
    """Ascending ids, of which ``job_id`` is one, without it.

    >>> parted((1, 3, 5), 3), parted((1, 3), 3), parted((3,), 3)
    ((1, 5), (1,), ())
    """
    if len(ids) == 2:
        return (ids[ids[0] == job_id],)
    at = ids.index(job_id)
    return ids[:at] + ids[at + 1 :]
