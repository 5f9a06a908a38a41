"""From what a user sent to a job that the scheduler takes, or a refusal that says what to ask for instead."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from cotenant.errors import ConfigError, DeniedError, InfeasibleError, InputError
from cotenant.live.tenants import TIERS, Tenants, check_priority
from cotenant.live.views import Caller
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.liveports import Accepted
from cotenant.model.quantities import MIB
from cotenant.runs.jobfile import JobFile, check_fits, job_of, limit_milli

__all__ = ["LONGEST_NAME", "admit", "asked_of", "job_from", "memory_of_model", "understood"]

LONGEST_NAME = 200


def admit(body: dict[str, Any], caller: Caller, tenants: Tenants, cluster: Cluster) -> Job:
    """Check a job as it was sent, before it is made durable.

    Raises
    ------
    ConfigError
        It cannot be read as a job; names the key, what was found and what to write.
    DeniedError
        It is for another tenant, or wants to share more widely than its tenant allows.
    InfeasibleError
        It never fits these devices or its tenant's limit: asked and available are named.
    """
    name = body.get("name")
    where = f'job "{name[:60]}"' if isinstance(name, str) and name else "job"
    asked, job = job_of(body, where)
    limit = limit_milli(asked, where)
    if limit < job.compute_milli < 1000:
        raise ConfigError(
            f"{where} [gpu_compute_limit]: a ceiling of {asked.gpu_compute_limit} is below the "
            f"{job.compute_milli / 10:g}% that are guaranteed; ask for less, or raise the ceiling"
        )
    _check_words(asked, where)
    tenant = _tenant(asked, caller, tenants, where)
    check_priority(caller, tenants.row(tenant), asked.priority, where)
    job = _completed(asked, job, tenant)
    _check_sharing(body, job, tenants, where)
    check_fits(job, cluster)
    _check_limit(job, tenants)
    _check_host(job, cluster)
    return job


def understood(accepted: Accepted) -> tuple[JobFile, Job]:
    """A request that was accepted: what it asked for, and its job; the same at every start of the scheduler.

    Raises
    ------
    ConfigError
        If it was never a job: what was accepted had been checked before.
    """
    asked, job = job_of(accepted.request.body)
    job = _completed(asked, job, accepted.request.tenant or asked.tenant)
    return asked, msgspec.structs.replace(job, id=accepted.job_id, submit_s=accepted.t)


def job_from(accepted: Accepted) -> Job:
    """The job of a request that was accepted; raises as ``understood``."""
    return understood(accepted)[1]


def asked_of(accepted: Accepted) -> JobFile:
    """What else the request said: command, variables, folder, the jobs it waits for."""
    return job_of(accepted.request.body)[0]


def _completed(asked: JobFile, job: Job, tenant: str) -> Job:
    memory = job.memory_bytes or (memory_of_model(job.model) if job.gpus else 0)
    return msgspec.structs.replace(
        job,
        tenant=tenant,
        memory_bytes=memory,
        user=asked.user or tenant,
        compute_limit_milli=limit_milli(asked),
    )


def _check_words(asked: JobFile, where: str) -> None:
    if not asked.command:
        raise ConfigError(f"{where} [command]: a job that is to run needs a command, as a list of words")
    if not asked.command[0].strip():
        raise ConfigError(f"{where} [command]: the first word names the program; it is empty")
    if len(asked.name) > LONGEST_NAME:
        raise ConfigError(f"{where} [name]: {len(asked.name)} characters; at most {LONGEST_NAME}")
    try:
        asked.name.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{where} [name]: no text that can be kept (half of a pair of characters)"
        ) from None
    if abs(asked.priority) > 10**6:
        raise ConfigError(f"{where} [priority]: at most a million either way; found {asked.priority}")
    if any(number < 0 for number in asked.after):
        raise ConfigError(f"{where} [after]: numbers of jobs; found {list(asked.after)}")


def _tenant(asked: JobFile, caller: Caller, tenants: Tenants, where: str) -> str:
    if not caller.admin:
        if asked.tenant not in ("", caller.tenant):
            raise DeniedError(
                f'{where} [tenant]: this token is of tenant "{caller.tenant}"; it cannot submit for "{asked.tenant}"'
            )
        return caller.tenant
    if asked.tenant and tenants.row(asked.tenant) is None:
        known = ", ".join(row.name for row in tenants.rows()) or "none"
        raise InputError(f'{where} [tenant]: no tenant "{asked.tenant}"; known: {known}')
    return asked.tenant


def _check_sharing(body: dict[str, Any], job: Job, tenants: Tenants, where: str) -> None:
    row = tenants.row(job.tenant)
    if row is None or "sharing" not in body:
        return
    if TIERS.index(job.sharing) > TIERS.index(row.isolation):
        raise DeniedError(
            f'{where} [sharing]: "{job.sharing}" asked; tenant "{row.name}" keeps at least "{row.isolation}". '
            f'Ask for sharing = "{row.isolation}" or less.'
        )


def _check_limit(job: Job, tenants: Tenants) -> None:
    row = tenants.row(job.tenant)
    if row is not None and row.limit_gpus is not None and job.gpus > row.limit_gpus:
        raise InfeasibleError(
            f'job "{job.name}" never fits: {job.gpus} devices asked; tenant "{row.name}" may hold {row.limit_gpus}. '
            "Ask for that or fewer."
        )


def _check_host(job: Job, cluster: Cluster) -> None:
    cores = max((node.cpu_milli for node in cluster.nodes), default=0)
    if cores and job.cpu_milli > cores:
        raise InfeasibleError(
            f'job "{job.name}" never fits: {job.cpu_milli / 1000:g} cores asked; this machine has {cores / 1000:g}. '
            "Ask for that or fewer."
        )
    memory = max((node.host_memory_bytes for node in cluster.nodes), default=0)
    if memory and job.host_memory_bytes > memory:
        raise InfeasibleError(
            f'job "{job.name}" never fits: {job.host_memory_bytes // MIB:,} MiB of host memory asked; this machine '
            f"has {memory // MIB:,} MiB. Ask for that or less."
        )


@lru_cache(maxsize=1024)
def memory_of_model(model: str) -> int:
    """Peak memory of a model that was measured or is in the catalogue of kinds; 0: not known.

    With a tenth and 256 MiB on top, as it is a limit that holds.
    """
    if not model:
        return 0
    from cotenant.profiles.kinds import find_kind

    known = _measured().get(model)
    if known is None and (kind := find_kind(model)) is not None:
        known = kind.memory_bytes
    return 0 if not known else round(1.1 * known) + 256 * MIB


@lru_cache(maxsize=1)
def _measured() -> dict[str, int]:
    """Of the campaigns that come with the package: the most that each model needed."""
    from cotenant.profiles.shipped import shipped_campaign, shipped_campaigns

    found: dict[str, int] = {}
    for name in shipped_campaigns():
        _, solo = shipped_campaign(name)
        for run in solo:
            if run.mem_mib:
                label = run.job.label
                found[label] = max(found.get(label, 0), int(run.mem_mib * MIB))
    return found
