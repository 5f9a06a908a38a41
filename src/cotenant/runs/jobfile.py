"""A job as its owner writes it, in TOML or YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import InfeasibleError, QuantityError
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Determinism, Job, Sharing
from cotenant.model.quantities import format_bytes, parse_bytes, parse_duration, parse_milli
from cotenant.traces.documents import Document, read_document

__all__ = ["JobFile", "check_fits", "read_job"]


class Elastic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range in which the job may grow and shrink."""

    min_gpus: int = 1
    max_gpus: int = 1
    determinism: Determinism = "none"


class JobFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file may contain.

    Parameters
    ----------
    name : str
        A label; never used as a path.
    command : tuple of str
        What runs, as a list of words; no shell reads it.
    gpus : int
        Gang size.
    gpu_memory : str or None
        Peak memory on each device, with unit; left out: unknown.
    gpu_compute : str or float or None
        Guaranteed share of each device (``"40%"``); left out: whole devices.
    time_limit : str or None
        The owner's own estimate (``"2h"``).
    sharing, device_types, tenant, user, priority, model, elastic
        As in ``model.jobs.Job``.
    """

    name: str
    command: tuple[str, ...] = ()
    gpus: int = 1
    gpu_memory: str | int | None = None
    gpu_compute: str | float | None = None
    time_limit: str | float | None = None
    sharing: Sharing = "same-owner"
    device_types: tuple[str, ...] = ()
    tenant: str = ""
    user: str = ""
    priority: int = 0
    model: str = ""
    elastic: Elastic | None = None


def read_job(path: Path) -> Job:
    """Read a job file.

    Raises
    ------
    ConfigError
        Naming file, line where known, the key, what was found and what to write.
    """
    document = read_document(path)
    found = document.convert(JobFile)
    if not found.name.strip():
        raise document.error("a job needs a name", ("name",))
    if found.gpus < 0:
        raise document.error(f"gpus must be zero or more, found {found.gpus}", ("gpus",))
    low, high = _range(document, found)
    return Job(
        id=0,
        name=found.name,
        submit_s=0.0,
        gpus=found.gpus,
        model=found.model,
        memory_bytes=_read(document, "gpu_memory", found.gpu_memory, parse_bytes, 0),
        compute_milli=_compute(document, found.gpu_compute),
        sharing=found.sharing,
        tenant=found.tenant,
        user=found.user,
        priority=found.priority,
        estimate_s=_read(document, "time_limit", found.time_limit, parse_duration, 0.0),
        device_types=found.device_types,
        min_gpus=low,
        max_gpus=high,
        determinism=found.elastic.determinism if found.elastic else "none",
    )


def _read(document: Document, key: str, value: Any, parse: Any, default: Any) -> Any:
    if value is None:
        return default
    try:
        return parse(value)
    except QuantityError as error:
        raise document.error(str(error), (key,)) from None


def _compute(document: Document, value: str | float | None) -> int:
    milli: int = _read(document, "gpu_compute", value, parse_milli, 1000)
    if milli > 1000:
        raise document.error(
            f"gpu_compute is a share of each device, at most 100%, found {value!r}; ask for more gpus",
            ("gpu_compute",),
        )
    return milli


def _range(document: Document, found: JobFile) -> tuple[int, int]:
    if found.elastic is None:
        return 0, 0
    low, high = found.elastic.min_gpus, found.elastic.max_gpus
    if not 1 <= low <= found.gpus <= high:
        raise document.error(
            f"elastic needs 1 <= min_gpus <= gpus <= max_gpus, found {low}, {found.gpus}, {high}",
            ("elastic",),
        )
    return low, high


def check_fits(job: Job, cluster: Cluster) -> None:
    """Check that an empty cluster has room for the job.

    Raises
    ------
    InfeasibleError
        With what was asked, the most there is, and what to ask instead.
    """
    types = {t.name: t for t in cluster.types}
    if job.device_types:
        unknown = [name for name in job.device_types if name not in types]
        if len(unknown) == len(job.device_types):
            raise InfeasibleError(
                f'job "{job.name}" never fits: it asks for device type {", ".join(unknown)}; '
                f"the cluster has {', '.join(types) or 'none'}"
            )
    wanted = [name for name in types if not job.device_types or name in job.device_types]
    largest = max((types[name].memory_bytes for name in wanted), default=0)
    roomy = [n for n in wanted if types[n].memory_bytes == 0 or types[n].memory_bytes >= job.memory_bytes]
    if job.gpus and wanted and not roomy:
        raise InfeasibleError(
            f'job "{job.name}" never fits: {format_bytes(job.memory_bytes)} of memory asked on each device; '
            f"the largest device has {format_bytes(largest)}. Ask for that or less."
        )
    count = sum(n for node in cluster.nodes for kind, n in node.gpus if kind in roomy)
    if job.gpus > count:
        raise InfeasibleError(
            f'job "{job.name}" never fits: {job.gpus} devices asked, {count} of {cluster.gpu_count} could hold it. '
            "Ask for fewer."
        )
