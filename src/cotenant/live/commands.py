"""What users may ask of jobs that are there, checked before it is made durable."""

from __future__ import annotations

from typing import Any

from cotenant.errors import ConflictError, InfeasibleError, InputError, QuantityError
from cotenant.model.cluster import Cluster
from cotenant.model.liveports import Request
from cotenant.model.quantities import format_bytes, parse_bytes

__all__ = ["COMMANDS", "check_command"]

COMMANDS: dict[str, tuple[str, ...]] = {
    "cancel": ("id",),
    "suspend": ("id",),
    "resume": ("id",),
    "priority": ("id", "priority"),
    "resize": ("id", "compute_milli", "compute_limit_milli", "memory_bytes", "gpus"),
    "drain": ("node",),
    "undrain": ("node",),
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
        return None
    job_id = _whole(kind, body, "id")
    if kind == "priority":
        priority = _whole(kind, body, "priority")
        if abs(priority) > _MOST_PRIORITY:
            raise InputError(f"priority: at most a million either way; found {priority}")
    elif kind == "resize":
        _check_resize(body, cluster)
    return job_id


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
