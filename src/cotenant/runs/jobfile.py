"""A job as its owner writes it, in TOML or YAML."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import msgspec

from cotenant.errors import InfeasibleError, QuantityError
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Determinism, Job, Sharing
from cotenant.model.quantities import format_bytes, parse_bytes, parse_duration, parse_milli
from cotenant.traces.documents import Document, read_document

__all__ = ["JobFile", "SuspendMode", "check_fits", "job_of", "limit_milli", "read_job"]


SuspendMode = Literal["runtime", "restart", "pause", "none"]


class Elastic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range in which the job may grow and shrink; by default never on devices of several types at once."""

    min_gpus: int = 1
    max_gpus: int = 1
    determinism: Determinism = "D1"


class JobFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file may contain.

    Parameters
    ----------
    name : str
        A label; never used as a path.
    command : tuple of str
        What runs, as a list of words; no shell reads it.
    gpus : int or float
        Gang size; a fraction below one is a share of one device, as ``gpu_compute``. Left out: one; of an
        elastic job the least it may have.
    gpu_memory : str or None
        Peak memory on each device, with unit; left out: unknown.
    gpu_compute : str or float or None
        Guaranteed share of each device (``"40%"``); left out: whole devices.
    gpu_compute_limit : str or float or None
        Ceiling for elastic use of idle compute; left out: the whole device.
    time_limit : str or None
        The owner's own estimate (``"2h"``).
    cpus : float
        Cores for the whole job; 0: not limited.
    host_memory : str or None
        Host memory for the whole job; left out: not limited.
    retries : int
        How many failed attempts are followed by another.
    suspendable : bool
        Whether it can save its state and go on later.
    suspend : {"runtime", "restart", "pause", "none"}
        How it makes room for others: ``runtime`` saves its state at a step boundary when asked, ``restart`` is
        ended by a signal and goes on from what it saved itself, ``pause`` is stopped by a signal and keeps its
        memory, ``none`` does not make room. The last two are not suspended to free memory.
    array : int
        So many jobs like this one, which find their number in ``COTENANT_ARRAY_INDEX``; 0: one.
    sweep : dict of str to tuple
        One job for each combination of values: ``{name}`` in the command, variables and name becomes the
        value; a name that stands nowhere in the command is added as ``--name value``.
    env : dict of str to str
        Its own variables.
    cwd : str
        Where it runs; left out: a folder of its own.
    after : tuple of int
        Numbers of jobs that must have ended well before it starts.
    processes : {"one", "per-device"}
        One process for the whole job, or one for each of its devices, each told its rank as torchrun would
        (``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``).
    sharing, device_types, tenant, user, priority, model, elastic
        As in ``model.jobs.Job``.
    """

    name: str
    command: tuple[str, ...] = ()
    gpus: int | float = 1
    gpu_memory: str | int | None = None
    gpu_compute: str | float | None = None
    gpu_compute_limit: str | float | None = None
    time_limit: str | float | None = None
    sharing: Sharing = "same-owner"
    device_types: tuple[str, ...] = ()
    tenant: str = ""
    user: str = ""
    priority: int = 0
    model: str = ""
    elastic: Elastic | None = None
    cpus: float = 0.0
    host_memory: str | int | None = None
    retries: int = 0
    suspendable: bool = True
    suspend: SuspendMode = "runtime"
    array: int = 0
    sweep: dict[str, tuple[str | int | float, ...]] = {}
    env: dict[str, str] = {}
    cwd: str = ""
    after: tuple[int, ...] = ()
    processes: Literal["one", "per-device"] = "one"


def read_job(path: Path) -> Job:
    """Read a job file.

    Raises
    ------
    ConfigError
        Naming file, line where known, the key, what was found and what to write.
    """
    document = read_document(path)
    return _job(document, _converted(document))


def job_of(body: dict[str, Any], where: str = "job") -> tuple[JobFile, Job]:
    """A job that came as plain values, with the same words as in a file.

    Parameters
    ----------
    where : str
        Named in messages in place of a file.

    Returns
    -------
    JobFile
        As it was asked for.
    Job
        With number and time of submission 0.

    Raises
    ------
    ConfigError
        Naming the key, what was found and what to write.
    """
    document = Document(body, Path(where))
    found = _converted(document)
    for key, value in (("array", found.array), ("sweep", found.sweep)):
        if value:
            raise document.error(f"{key} stands for many jobs; cotenant submit sends each of them", (key,))
    job = _job(document, found)
    if found.processes == "per-device" and "suspend" not in body:
        # No state of several processes is saved by us.
        found = msgspec.structs.replace(found, suspend="restart")
    return found, job


def _converted(document: Document) -> JobFile:
    found = document.convert(JobFile)
    if found.elastic is not None and "gpus" not in document.data:
        found = msgspec.structs.replace(found, gpus=max(found.elastic.min_gpus, 1))
    return found


def _job(document: Document, found: JobFile) -> Job:
    _check(document, found)
    low, high = _range(document, found)
    gpus, fraction = (1, found.gpus) if 0 < found.gpus < 1 else (int(found.gpus), None)
    if fraction is not None and found.gpu_compute is not None:
        raise document.error(
            f"gpus = {found.gpus} is a share of one device already; leave gpu_compute out", ("gpu_compute",)
        )
    return Job(
        id=0,
        name=found.name,
        submit_s=0.0,
        gpus=gpus,
        model=found.model,
        memory_bytes=_read(document, "gpu_memory", found.gpu_memory, parse_bytes, 0),
        compute_milli=_compute(
            document, "gpus" if fraction else "gpu_compute", fraction or found.gpu_compute
        ),
        sharing=found.sharing,
        tenant=found.tenant,
        user=found.user,
        priority=found.priority,
        estimate_s=_read(document, "time_limit", found.time_limit, parse_duration, 0.0),
        retries=found.retries,
        device_types=found.device_types,
        cpu_milli=round(1000 * found.cpus),
        host_memory_bytes=_read(document, "host_memory", found.host_memory, parse_bytes, 0),
        min_gpus=low,
        max_gpus=high,
        suspendable=found.suspendable and found.suspend in ("runtime", "restart"),
        determinism=found.elastic.determinism if found.elastic else "none",
    )


def _check(document: Document, found: JobFile) -> None:
    if not found.name.strip():
        raise document.error("a job needs a name", ("name",))
    if not math.isfinite(found.gpus):
        raise document.error(f"gpus must be a number of devices, found {found.gpus}", ("gpus",))
    if found.processes == "per-device" and (found.elastic is not None or "suspend" in document.data):
        _check_gang(document, found)
    if found.elastic is not None and found.elastic.determinism == "D2":
        raise document.error(
            "D2 (equal bits on other kinds of devices) is not offered for jobs that really run; "
            "write D1, D0 or none",
            ("elastic", "determinism"),
        )
    if found.gpus < 0:
        raise document.error(f"gpus must be zero or more, found {found.gpus}", ("gpus",))
    if found.gpus >= 1 and found.gpus != int(found.gpus):
        raise document.error(
            f"gpus above one is a whole number, found {found.gpus}; a fraction is a share of one device",
            ("gpus",),
        )
    for key, value, most in (
        ("cpus", found.cpus, 1e6),
        ("retries", found.retries, 1e6),
        ("array", found.array, 10_000),
    ):
        if not 0 <= value <= most:
            raise document.error(f"{key} must lie in [0, {most:,.0f}], found {value}", (key,))
    for key in found.env:
        if not key or "=" in key or "\0" in key or "\0" in found.env[key]:
            raise document.error(
                f"{key!r:.60} cannot be a variable: names have no = and no zero byte", ("env",)
            )
    if any("\0" in word for word in (*found.command, found.cwd)):
        raise document.error("no zero byte may stand in a command or a path", ("command",))


def _check_gang(document: Document, found: JobFile) -> None:
    """Processes of a gang are ended and started together: no state of theirs is saved by us, nor their number changed."""
    if found.elastic is not None:
        raise document.error(
            'processes = "per-device" cannot be elastic; cotenant run --elastic starts the processes itself '
            '(processes = "one")',
            ("processes",),
        )
    if found.suspend == "runtime":
        raise document.error(
            'suspend = "runtime" saves the state of one process; with processes = "per-device" write '
            'suspend = "restart" (it goes on from a checkpoint of its own)',
            ("suspend",),
        )


def _read(document: Document, key: str, value: Any, parse: Any, default: Any) -> Any:
    if value is None:
        return default
    try:
        return parse(value)
    except QuantityError as error:
        raise document.error(str(error), (key,)) from None


def limit_milli(found: JobFile, where: str = "job") -> int:
    """Ceiling for elastic use of idle compute, in thousandths of a device.

    Raises
    ------
    ConfigError
        If it cannot be read, or is more than a device.
    """
    if found.gpu_compute_limit is None:
        return 1000
    document = Document({}, Path(where))
    return _compute(document, "gpu_compute_limit", found.gpu_compute_limit)


def _compute(document: Document, key: str, value: str | float | None) -> int:
    milli: int = _read(document, key, value, parse_milli, 1000)
    if milli > 1000:
        raise document.error(
            f"{key} is a share of each device, at most 100%, found {value!r}; ask for more gpus", (key,)
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
