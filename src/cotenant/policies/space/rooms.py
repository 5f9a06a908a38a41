"""Room left on devices that are shared, indexed so that no search looks at each device.

A *slot* is a device for single-device jobs, and for gangs a group of devices that hold the same
residents. Slots lie in pools by whom they may be shared with, type and size; inside a pool in
rows by free guaranteed compute; inside a row by free memory. Free devices are not here: the
ledger's own index knows them.
"""

from __future__ import annotations

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.queues.demands import Domain, domain_of
from cotenant.policies.space.pools import Order, Pool

__all__ = ["Rooms", "hosts_fit"]

_State = tuple[Pool, tuple[int, int], int]
"""Pool, row (sharers or 0, free thousandths), free bytes."""

_NOBODY: Domain = ()


class Rooms(Index):
    """Room on shared devices.

    Parameters
    ----------
    order : {"pack", "spread", "first"}
        Least memory left; fewest sharers, then most memory; lowest number.
    mode : {"spatial", "time-sliced"}
        The share mode of the residents looked at. Time-sliced residents are on the device one at
        a time, so each may use all of its memory.
    sharers : int
        Most jobs on one device.
    mixed : bool
        Whether a single-device job may lie beside one member of a gang.
    """

    def __init__(
        self, view: View, order: Order, mode: str = "spatial", sharers: int = 4, mixed: bool = True
    ) -> None:
        self._order: Order = order
        self._mode, self._most, self._mixed = mode, min(sharers, view.settings.max_sharers), mixed
        self._ledger, self._records = view.ledger, view.records
        self._size = view.layout.device_count
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._devices: dict[int, _State] = {}
        self._groups: dict[tuple[int, ...], _State | None] = {}
        self._members: dict[tuple[int, ...], int] = {}
        self._groups_on: dict[int, tuple[tuple[int, ...], ...]] = {}
        self._by_first: dict[int, tuple[int, ...]] = {}
        self._opened: dict[int, tuple[Domain, int, int] | None] = {}
        self._domains: dict[int, Domain] = {}
        self._kinds = view.layout.device_type
        self._singles: dict[tuple[Domain, int], Pool] = {}
        self._listed: dict[tuple[object, ...], tuple[Pool, ...]] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
        for job_id, place in self._ledger.leaving.items():
            self.placed(self._records[job_id], place)

    def pools(self, domain: Domain, kind: int, gpus: int = 1, spans: bool = False) -> tuple[Pool, ...]:
        """Pools of devices (``gpus`` = 1) or of groups that have had a slot: on one node, then over several."""
        key = (domain, kind, gpus, spans)
        found = self._listed.get(key)
        if found is None:
            wanted = (False, True) if spans and gpus > 1 else (False,)
            pools = [self._pools.get((domain, kind, gpus, over)) for over in wanted]
            found = self._listed[key] = tuple([pool for pool in pools if pool is not None])
        return found

    def _pool(self, domain: Domain, kind: int, gpus: int, spans: bool) -> Pool:
        key = (domain, kind, gpus, spans)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self._order, self._size)
            self._listed.clear()
        return pool

    def devices(self, slot: int, gpus: int) -> tuple[int, ...]:
        """The devices of a slot."""
        return (slot,) if gpus == 1 else self._by_first[slot]

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if place.share.mode == "exclusive":
            return
        if len(place.devices) > 1:
            self._join(place.devices, 1)
        self._refresh(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        if place.share.mode == "exclusive":
            return
        if record.id not in self._ledger.held:
            self._domains.pop(record.id, None)
        if len(place.devices) > 1:
            self._join(place.devices, -1)
        self._refresh(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed, returned or were kept for somebody."""
        self._refresh(devices)

    def _join(self, devices: tuple[int, ...], by: int) -> None:
        count = self._members.get(devices, 0) + by
        if count == by:
            self._groups[devices] = None
            for device in devices:
                self._groups_on[device] = (*self._groups_on.get(device, ()), devices)
                self._opened.setdefault(device, None)
        if count:
            self._members[devices] = count
            return
        self._set_group(devices, None)
        del self._members[devices], self._groups[devices]
        for device in devices:
            rest = tuple(g for g in self._groups_on[device] if g != devices)
            if rest:
                self._groups_on[device] = rest
            else:
                del self._groups_on[device], self._opened[device]

    def _refresh(self, devices: tuple[int, ...]) -> None:
        touched: dict[tuple[int, ...], None] = {}
        groups_on, states, residents_on = self._groups_on, self._devices, self._ledger.residents
        alike, domain = not self._ledger.leaving, _NOBODY
        last: tuple[int, ...] = ()
        for device in devices:
            residents = residents_on[device]
            if residents != last or not alike:
                # The devices of a gang most often have the same residents.
                last, domain = residents, self._domain_on(device, residents)
            found = self._open(device, domain) if domain else None
            mine = groups_on.get(device)
            if mine is not None:
                self._opened[device] = found
                for group in mine:
                    touched[group] = None
            state = None if found is None or (mine and not self._mixed) else self._state(device, found)
            before = states.get(device)
            if state == before:
                continue
            if before is not None:
                before[0].drop(before[1], before[2], device)
            if state is None:
                del states[device]
                continue
            state[0].put(state[1], state[2], device)
            states[device] = state
        # A group's devices are looked at together, so all of them are known by now.
        for group in touched:
            self._set_group(group, self._group_state(group))

    def _set_group(self, group: tuple[int, ...], state: _State | None) -> None:
        before = self._groups[group]
        if state == before:
            return
        first = group[0]
        if before is not None:
            before[0].drop(before[1], before[2], first)
        if state is None:
            del self._by_first[first]
        else:
            state[0].put(state[1], state[2], first)
            self._by_first[first] = group
        self._groups[group] = state

    # -- what the books say -------------------------------------------------------------

    def _domain_on(self, device: int, residents: tuple[int, ...]) -> Domain:
        """With whom a device's residents share it; empty if with nobody more."""
        if not 0 < len(residents) < self._most:
            return _NOBODY
        if self._ledger.share_on(residents[0], device).mode != self._mode:
            return _NOBODY
        domains = self._domains
        domain = domains.get(residents[0]) or self._domain(residents[0])
        for other in residents[1:]:
            if (domains.get(other) or self._domain(other)) != domain:
                return _NOBODY
        return domain

    def _open(self, device: int, domain: Domain) -> tuple[Domain, int, int] | None:
        """Domain, sharers and free bytes of a shared device that may take one more."""
        ledger = self._ledger
        if device in ledger.reserved:
            return None
        if ledger.impaired and (
            not ledger.usable[device] or ledger.draining[ledger.layout.device_node[device]]
        ):
            return None
        sliced = self._mode == "time-sliced"
        free = ledger.layout.device_memory[device] if sliced else ledger.free_memory[device]
        return (domain, len(ledger.residents[device]), free) if free > 0 else None

    def _domain(self, job_id: int) -> Domain:
        found = self._domains[job_id] = domain_of(self._records[job_id].job)
        return found

    def _state(self, device: int, found: tuple[Domain, int, int]) -> _State:
        domain, sharers, free = found
        row = (sharers if self._order == "spread" else 0, self._ledger.free_milli[device])
        kind = self._kinds[device]
        pool = self._singles.get((domain, kind))
        if pool is None:
            pool = self._singles[domain, kind] = self._pool(domain, kind, 1, False)
        return pool, row, free

    def _group_state(self, group: tuple[int, ...]) -> _State | None:
        ledger, first = self._ledger, group[0]
        residents = ledger.residents[first]
        found = self._opened[first]
        if found is None or len(residents) != self._members[group]:
            return None
        layout, opened = ledger.layout, self._opened
        kind = layout.device_type[first]
        for device in group:
            if (
                ledger.residents[device] != residents
                or layout.device_type[device] != kind
                or opened[device] is None
            ):
                return None
        domain, sharers, free = found
        row = (sharers if self._order == "spread" else 0, ledger.free_milli[first])
        spans = len(layout.nodes_of(group)) > 1
        return self._pool(domain, kind, len(group), spans), row, free


def hosts_fit(view: View, job: Job, devices: tuple[int, ...]) -> bool:
    """Whether the nodes of these devices have the host CPU and memory that a job needs."""
    if not (job.cpu_milli or job.host_memory_bytes):
        return True
    ledger = view.ledger
    return all(
        (not ledger.has_cpu[node] or cpu <= ledger.free_cpu[node])
        and (not ledger.has_host[node] or host <= ledger.free_host[node])
        for node, cpu, host in ledger.host_parts(Placement(devices), job.cpu_milli, job.host_memory_bytes)
    )
