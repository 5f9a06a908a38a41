"""What users may ask of jobs that are there, checked before it is made durable."""

from __future__ import annotations

from typing import Any

from cotenant.errors import ConflictError, InfeasibleError, InputError, QuantityError
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.liveports import Request
from cotenant.model.quantities import format_bytes, parse_bytes
from cotenant.report.phrases import plural

__all__ = ["COMMANDS", "check_command", "check_gpus", "check_wish"]

COMMANDS: dict[str, tuple[str, ...]] = {
    "cancel": ("id",),
    "suspend": ("id",),
    "resume": ("id",),
    "priority": ("id", "priority"),
    "resize": ("id", "compute_milli", "compute_limit_milli", "memory_bytes", "gpus"),
    "drain": ("node", "device"),
    "undrain": ("node", "device"),
}
"""Kinds of requests beside ``submit``, and what their bodies may hold."""

_MOST_PRIORITY = 10**6


def check_command(request: Request, cluster: Cluster) -> int | None:
    """The number of the job that a request is about; None for one about a node.

    Raises
    ------
    InputError
        For an unknown kind, or a body that does not fit it.
    InfeasibleError
        If a resize asks for more than any device has.
    """
    kind, body = request.kind, request.body
    fields = COMMANDS.get(kind)
    if fields is None:
        raise InputError(f"unknown request {kind!r:.40}; known: submit, {', '.join(COMMANDS)}")
    unknown = sorted(set(body) - set(fields) - {"key"})
    if unknown:
        raise InputError(f"{kind}: unknown field {unknown[0]!r:.40}; known: {', '.join(fields)}")
    if "node" in fields:
        node = _whole(kind, body, "node", default=0)
        if not 0 <= node < len(cluster.nodes):
            raise InputError(f"{kind}: no node {node}; there are {len(cluster.nodes)}, numbered from 0")
        device = _whole(kind, body, "device", default=-1)
        if "device" in body and not 0 <= device < cluster.gpu_count:
            raise InputError(f"{kind}: no device {device}; there are {cluster.gpu_count}, numbered from 0")
        return None
    job_id = _whole(kind, body, "id")
    if kind == "priority":
        priority = _whole(kind, body, "priority")
        if abs(priority) > _MOST_PRIORITY:
            raise InputError(f"priority: at most a million either way; found {priority}")
    elif kind == "resize":
        _check_resize(body, cluster)
    return job_id


def check_wish(body: dict[str, Any], job: Job, held_milli: int, *, runs: bool) -> None:
    """Check that a job may be resized so at all; whether there is room is decided when its turn comes.

    Parameters
    ----------
    held_milli : int
        What it is guaranteed now, in thousandths of each device.
    runs : bool
        It is on devices.

    Raises
    ------
    ConflictError
        Says what stands against it, and what to ask for as well.
    """
    limit, guaranteed = body.get("compute_limit_milli"), body.get("compute_milli")
    if limit is not None and guaranteed is None and limit < held_milli:
        raise ConflictError(
            f"resize: the ceiling ({limit / 10:g}%) lies below what is guaranteed ({held_milli / 10:g}%); "
            "ask for a lower guarantee as well (--compute)"
        )
    if not runs:
        return
    if body.get("gpus", job.gpus) != job.gpus and not job.max_gpus:
        raise ConflictError(
            f"resize: job {job.id} is not elastic (max_gpus), so while it runs it keeps its devices ({job.gpus})"
        )
    if (guaranteed or 1000) < 1000 and not (job.memory_bytes or body.get("memory_bytes")):
        raise ConflictError(
            f"resize: nobody knows how much memory job {job.id} needs, so it holds its device alone; "
            "say how much as well (--memory)"
        )


def check_gpus(
    gpus: int, job: Job, holds: int, *, runs: bool, suspended: bool, settles: str, short: str
) -> None:
    """Check a wish for another number of devices, as far as its fate can be known at once.

    Parameters
    ----------
    holds : int
        Devices on which it is, or will be.
    runs, suspended : bool
        It is on devices; its state is saved.
    settles : str
        The devices to which it is just being resized.
    short : str
        Why so many are not to be had now; empty where nothing is known against it.

    Raises
    ------
    ConflictError
        Says what stands against it.
    """
    if not job.gpus:
        raise ConflictError(f"resize: job {job.id} was submitted without devices, and gets none")
    if job.max_gpus and not job.min_gpus <= gpus <= job.max_gpus:
        raise ConflictError(
            f"resize: job {job.id} is elastic on {job.min_gpus} to {job.max_gpus} devices; {gpus} asked"
        )
    if suspended and gpus != job.gpus and not job.max_gpus:
        raise ConflictError(
            f"resize: job {job.id} is not elastic (max_gpus), and its state was saved on {job.gpus} devices"
        )
    if not runs:
        if gpus != job.gpus and not job.max_gpus:
            raise ConflictError(
                f"resize: job {job.id} is not elastic (max_gpus): it gets the {plural(job.gpus, 'device')} that it was "
                "submitted for; for another number submit it anew (--gpus, or --elastic MIN:MAX)"
            )
        return
    if settles:
        raise ConflictError(
            f"resize: an earlier resize of job {job.id} (to {settles}) is under way; ask again when it is done"
        )
    if gpus == holds:
        raise ConflictError(f"resize: job {job.id} is on {plural(gpus, 'device')} already")
    if short:
        raise ConflictError(f"resize: job {job.id} is on {plural(holds, 'device')}, {gpus} asked; {short}")


def _whole(kind: str, body: dict[str, Any], key: str, default: int | None = None) -> int:
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{kind}: {key} must be a whole number, found {value!r:.60}")
    return value


def _check_resize(body: dict[str, Any], cluster: Cluster) -> None:
    if not any(key in body for key in COMMANDS["resize"][1:]):
        raise InputError(f"resize: nothing to change; give one of {', '.join(COMMANDS['resize'][1:])}")
    for key in ("compute_milli", "compute_limit_milli"):
        if key in body and not 1 <= _whole("resize", body, key) <= 1000:
            raise InputError(f"resize: {key} is thousandths of a device, 1 to 1000; found {body[key]}")
    if "compute_milli" in body and "compute_limit_milli" in body:
        low, high = body["compute_milli"], body["compute_limit_milli"]
        if low > high:
            raise ConflictError(f"resize: the ceiling ({high}) lies below the guarantee ({low})")
    if "gpus" in body and not 1 <= _whole("resize", body, "gpus") <= cluster.gpu_count:
        raise InfeasibleError(
            f"resize never fits: {body['gpus']} devices asked, there are {cluster.gpu_count}"
        )
    if "memory_bytes" in body:
        _check_memory(body["memory_bytes"], cluster)


def _check_memory(value: object, cluster: Cluster) -> None:
    try:
        size = value if isinstance(value, int) and not isinstance(value, bool) else parse_bytes(str(value))
    except QuantityError as error:
        raise InputError(f"resize: memory_bytes: {error}") from None
    largest = max((kind.memory_bytes for kind in cluster.types), default=0)
    if size <= 0:
        raise InputError(f"resize: memory_bytes must be positive, found {size}")
    if largest and size > largest:
        raise InfeasibleError(
            f"resize never fits: {format_bytes(size)} asked on each device; the largest has {format_bytes(largest)}"
        )
