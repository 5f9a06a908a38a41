"""The invariants of the books, checked after every event by ``cotenant.testing.Harness``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cotenant.errors import CotenantError
from cotenant.model.placement import DEVICE_MILLI
from cotenant.model.records import Status

if TYPE_CHECKING:
    from cotenant.engine.state import State
    from cotenant.model.events import Event

__all__ = ["InvariantError", "check_invariants"]


class InvariantError(CotenantError):
    """The books do not balance. Always a bug of ours."""


def check_invariants(state: State, event: Event) -> None:
    """Raise if any invariant is broken after an event.

    Memory is never over-committed; guaranteed compute never exceeds a device; gangs hold all
    their devices; a job is in one place at a time; residents and holdings agree; no job is
    lost; tenants' use adds up; the index of free devices agrees with the books.

    Raises
    ------
    InvariantError
        Naming the event and what is wrong.
    """
    wrong = [
        *_device_errors(state),
        *_job_errors(state),
        *_tenant_errors(state),
        *_pool_errors(state),
        *state.ledger.index_errors(),
    ]
    if wrong:
        raise InvariantError(f"after {event}: " + "; ".join(wrong[:5]))


def _device_errors(state: State) -> list[str]:
    wrong, ledger = [], state.ledger
    for device, residents in enumerate(ledger.residents):
        capacity = ledger.layout.device_memory[device]
        shares = [ledger.share_on(j, device) for j in residents]
        modes = {s.mode for s in shares}
        if len(modes) > 1 or ("exclusive" in modes and len(residents) > 1):
            wrong.append(f"device {device} has residents of modes {sorted(modes)}")
        if sum(s.compute_milli for s in shares) > DEVICE_MILLI:
            wrong.append(f"device {device} guarantees more than it has")
        if len(residents) > state.settings.max_sharers:
            wrong.append(f"device {device} has {len(residents)} sharers")
        if modes == {"spatial"} and sum(s.memory_bytes for s in shares) > capacity:
            wrong.append(f"device {device} has over-committed memory")
        if ledger.free_memory[device] < 0 or ledger.free_milli[device] < 0:
            wrong.append(f"device {device} offers less than nothing")
        if modes == {"time-sliced"} and ledger.turns_stay and sum(s.memory_bytes for s in shares) > capacity:
            wrong.append(f"device {device} has turns that do not fit together")
        if modes == {"time-sliced"} and max(ledger.turns_on(device).values()) > capacity:
            wrong.append(f"device {device} has a turn larger than itself")
        if not residents and (ledger.free_milli[device], ledger.free_memory[device]) != (
            DEVICE_MILLI,
            max(capacity - ledger.foreign_bytes(device), 0),
        ):
            wrong.append(f"device {device} is empty but not free")
        if len(set(residents)) != len(residents):
            wrong.append(f"device {device} has a job twice")
    for node in range(ledger.layout.node_count):
        if ledger.has_cpu[node] and ledger.free_cpu[node] < 0:
            wrong.append(f"node {node} has over-committed CPU")
        if ledger.has_host[node] and ledger.free_host[node] < 0:
            wrong.append(f"node {node} has over-committed host memory")
    return wrong


def _pool_errors(state: State) -> list[str]:
    ledger, layout = state.ledger, state.layout
    wrong = state.books.tiers.errors() if state.books.tiers else []
    if state.books.tiers:
        waiting = {j for j, copy in state.books.tiers.copies.items() if copy.home >= 0}
        if strange := [j for j in state.books.tiers.copies if j not in state.records]:
            wrong.append(f"state is kept for jobs that have ended: {strange[:5]}")
        idle = [j for j in state.books.tiers.copies if j not in waiting and j not in state.running]
        wrong += [f"state of waiting jobs is not whole: {idle[:5]}"] if idle else []
    if not layout.peers:
        return wrong
    cpu, host = layout.host_cpu[:], layout.host_bytes[:]
    for job_id, place in ledger.held.items():
        job = state.records[job_id].job
        for at, cores, size in ledger.host_parts(place, job.cpu_milli, job.host_memory_bytes):
            cpu[at] -= cores
            host[at] -= size
    for node, home in enumerate(layout.home):
        if (ledger.free_cpu[node], ledger.free_host[node]) != (cpu[home], host[home]):
            wrong.append(f"node {node} does not show what its host pool has free")
    return wrong


def _job_errors(state: State) -> list[str]:
    wrong, ledger = [], state.ledger
    pending = 0
    for job_id, record in state.records.items():
        pending += record.status == Status.PENDING
        holds = record.status in (Status.RUNNING, Status.STOPPING)
        if (
            holds != (job_id in state.running)
            or holds != (job_id in ledger.held)
            or holds != (record.place is not None)
        ):
            wrong.append(f"job {job_id} is {record.status.name}, but running/held/place disagree")
        if record.place is not None:
            wrong.extend(_gang_errors(state, job_id))
    if pending != len(state.queue):
        wrong.append(f"{pending} jobs wait, the queue counts {len(state.queue)}")
    orphans = {j for r in ledger.residents for j in r} - set(state.running)
    if orphans:
        wrong.append(f"devices are held for jobs that do not run: {sorted(orphans)[:5]}")
    counts = state.counts
    ended = sum(n for name, n in counts.items() if name != "submitted")
    live = len(state.records) + len(state.held)
    if counts["submitted"] != ended + live:
        wrong.append(f"{counts['submitted']} submitted, {ended} ended, {live} live: a job is lost")
    return wrong + _held_errors(state)


def _held_errors(state: State) -> list[str]:
    wrong = []
    for job_id, record in state.held.items():
        if record.status != Status.HELD or not (record.held or record.awaits) or record.place is not None:
            wrong.append(f"job {job_id} takes no part, but nothing keeps it: {record.status.name}")
        if job_id in state.records or job_id in state.ledger.held or record.reserved:
            wrong.append(f"job {job_id} takes no part, but is in the books")
    for job_id, record in state.records.items():
        if record.status == Status.HELD or (not record.status and (record.held or record.awaits)):
            wrong.append(f"job {job_id} is to take no part, but does")
        if record.process is not None and record.process.serial > record.serial:
            wrong.append(f"job {job_id} has a process that was never decided on")
    return wrong


def _gang_errors(state: State, job_id: int) -> list[str]:
    record, ledger = state.records[job_id], state.ledger
    place = ledger.held[job_id]
    job = record.job
    wrong = []
    if place != record.place:
        wrong.append(f"job {job_id}: the books and the record name different places")
    if len(place.devices) != job.gpus and not (0 < job.min_gpus <= len(place.devices) <= job.max_gpus):
        wrong.append(f"job {job_id} asked for {job.gpus} devices and holds {len(place.devices)}")
    if any(job_id not in ledger.residents[d] for d in place.devices):
        wrong.append(f"job {job_id} is not resident where it holds devices")
    return wrong


def _tenant_errors(state: State) -> list[str]:
    used: dict[str, int] = {}
    for record in state.running.values():
        if record.place is not None:
            tenant = record.job.tenant
            used[tenant] = used.get(tenant, 0) + len(record.place.devices)
    kept = {t: n for t, n in state.books.used.items() if n}
    if kept != {t: n for t, n in used.items() if n}:
        return [f"tenants use {used}, the books say {kept}"]
    return []
