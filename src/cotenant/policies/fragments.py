"""How much free compute of a node is of no use to the jobs that come: fragmentation.

The measure is that of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (Weng and others, USENIX ATC 2023): of a node, for one task, all
that is free if the node cannot run the task, else what is free on devices too small for it; and
the mean of that over the tasks of the workload, weighted by how often they come.

Here a device's free part is the smaller of its free guaranteed compute and its free memory, in
thousandths; memory is counted in 64ths of the device, so that states of nodes recur.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.demands import domain_of

__all__ = ["Ask", "Fragments", "Slopes", "Task"]

_PARTS = 64
_MOST_ASKS = 1024
_CLOSED = "-"
_EMPTY = ""


class Task(NamedTuple):
    """A typical job. ``milli`` is 1000 where it takes whole devices, 0 where it declares nothing."""

    gpus: int
    milli: int
    memory_bytes: int
    weight: float
    cpu_milli: int = 0
    types: tuple[int, ...] = ()


class Device(NamedTuple):
    """What is left on a device: thousandths, 64ths of memory, and who may come.

    ``domain`` says whom its residents share with: empty if there are none, ``-`` if nobody more
    may come. ``places`` is how many more may.
    """

    milli: int
    parts: int
    domain: str
    places: int


class Ask(NamedTuple):
    """A demand to be placed: thousandths, 64ths of memory for each device type, its domain."""

    gpus: int
    milli: int
    parts: tuple[int, ...]
    domain: str
    whole: bool
    cpu_milli: int


Node = tuple[int, int, tuple[Device, ...]]
"""Device type, free CPU (-1 if not declared) and devices, sorted: equal states are one."""


class Fragments:
    """Expected fragmentation of states, remembered.

    Parameters
    ----------
    tasks : tuple of Task
    capacities : tuple of int
        Memory of each device type, 0 if unknown.
    """

    def __init__(self, tasks: tuple[Task, ...], capacities: tuple[int, ...]) -> None:
        total = sum(t.weight for t in tasks) or 1.0
        self._tasks = tasks
        self._weights = [t.weight / total for t in tasks]
        self._capacities = capacities
        self._all = (1 << len(tasks)) - 1
        self._chance: dict[int, float] = {0: 0.0}
        self._fits: dict[tuple[int, Device], int] = {}
        self._known: dict[Node, float] = {}
        self._gangs = [(1 << i, t.gpus) for i, t in enumerate(tasks) if t.gpus > 1]
        self._cpu = [(1 << i, t.cpu_milli) for i, t in enumerate(tasks) if t.cpu_milli]

    def of(self, node: Node) -> float:
        """Thousandths of a device, expected to be of no use."""
        found = self._known.get(node)
        if found is None:
            if len(self._known) > 1 << 17:
                self._known.clear()
            found = self._known[node] = self._measure(node)
        return found

    def _measure(self, node: Node) -> float:
        kind, cpu, devices = node
        fits = [self._fit(kind, device) for device in devices]
        hosted = 0
        for mask in fits:
            hosted |= mask
        for bit, gpus in self._gangs:
            if hosted & bit and sum(1 for mask in fits if mask & bit) < gpus:
                hosted ^= bit
        if cpu >= 0:
            for bit, need in self._cpu:
                if need > cpu:
                    hosted &= ~bit
        known = self._capacities[kind] > 0
        total = 0.0
        for device, mask in zip(devices, fits, strict=True):
            free = min(device.milli, device.parts * DEVICE_MILLI // _PARTS) if known else device.milli
            if free:
                total += free * self._expected(self._all & ~(mask & hosted))
        return total

    def _expected(self, mask: int) -> float:
        found = self._chance.get(mask)
        if found is None:
            found = self._chance[mask] = sum(w for i, w in enumerate(self._weights) if mask >> i & 1)
        return found

    def _fit(self, kind: int, device: Device) -> int:
        """The tasks that a device has room for."""
        key = (kind, device)
        found = self._fits.get(key)
        if found is None:
            capacity, found = self._capacities[kind], 0
            for i, task in enumerate(self._tasks):
                if task.types and kind not in task.types:
                    continue
                if task.gpus > 1 or task.milli >= DEVICE_MILLI:
                    fits = device.domain == _EMPTY and (not capacity or task.memory_bytes <= capacity)
                else:
                    parts = _up(task.memory_bytes, capacity)
                    fits = device.places > 0 and device.milli >= task.milli and device.parts >= parts
                found |= fits << i
            self._fits[key] = found
        return found


def _up(need: int, capacity: int) -> int:
    """Memory in 64ths of a device, rounded up; more than there is if it can never fit."""
    if not capacity:
        return 0 if need == 0 else _PARTS + 1
    return -(-need * _PARTS // capacity)


class Slopes(Index):
    """For each demand: the node on which placing it adds least fragmentation.

    A node is a bay, the devices of one type in one machine. For each demand asked for there is
    a heap of nodes by gradient; a node that changed is looked at again when the demand is next
    asked for. A log of changes that grows beyond four times the nodes is dropped, and every
    heap built anew.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._ledger, self._layout = view.ledger, view.layout
        self._capacities = tuple(k.memory_bytes for k in view.layout.types)
        self._tasks: tuple[Task, ...] = ()
        self._fragments = Fragments((), self._capacities)
        self._most = view.settings.max_sharers
        self._nodes: list[Node] = [self._node(b) for b in range(len(view.layout.bay_node))]
        self._changed: list[int] = []
        self._dirty: dict[int, None] = {}
        self._epoch = 0
        self._asked: dict[Ask, _Heap] = {}
        self._gains: dict[tuple[Ask, Node], tuple[float, Device] | None] = {}

    def use(self, tasks: tuple[Task, ...]) -> None:
        """Measure fragmentation for these tasks from now on."""
        if tasks != self._tasks:
            self._tasks = tasks
            self._fragments = Fragments(tasks, self._capacities)
            self._asked.clear()
            self._gains.clear()

    def ask(self, record: JobRecord, milli: int) -> Ask:
        """The demand of a waiting job."""
        shape, domain = record.shape, "/".join(domain_of(record.job))
        whole = not domain or shape.gpus > 1
        need = 0 if whole else shape.memory_bytes
        parts = tuple(
            (_up(need, c) if k in shape.types else _PARTS + 1) for k, c in enumerate(self._capacities)
        )
        return Ask(shape.gpus, milli, parts, domain, whole, shape.cpu_milli)

    def best(self, ask: Ask) -> tuple[int, Device] | None:
        """The node and the kind of device on it that lose least; None if no node has room."""
        self._settle()
        heap = self._asked.get(ask)
        if heap is None:
            if len(self._asked) >= _MOST_ASKS:
                self._asked.clear()
            heap = self._asked[ask] = _Heap()
        if heap.epoch != self._epoch or heap.read < 0:
            heap.epoch, heap.read, heap.entries = self._epoch, len(self._changed), []
            todo: list[int] = list(range(len(self._nodes)))
        else:
            todo, heap.read = self._changed[heap.read :], len(self._changed)
        for bay in dict.fromkeys(todo):
            gain = self._gain(ask, self._nodes[bay])
            if gain is not None:
                heapq.heappush(heap.entries, (gain[0], bay, self._nodes[bay], gain[1]))
        entries = heap.entries
        while entries and self._nodes[entries[0][1]] != entries[0][2]:
            heapq.heappop(entries)
        return (entries[0][1], entries[0][3]) if entries else None

    def device(self, bay: int, like: Device) -> int:
        """The lowest device of a node in this state."""
        first = self._layout.bay_first[bay]
        return next(d for d in range(first, first + self._layout.bay_size[bay]) if self._device(d) == like)

    # -- gradients ---------------------------------------------------------------------

    def _gain(self, ask: Ask, node: Node) -> tuple[float, Device] | None:
        key = (ask, node)
        if key in self._gains:
            return self._gains[key]
        if len(self._gains) > 1 << 18:
            self._gains.clear()
        found = self._gains[key] = self._slope(ask, node)
        return found

    def _slope(self, ask: Ask, node: Node) -> tuple[float, Device] | None:
        """Growth of fragmentation on the best device of a node, and that device; None without room."""
        kind, cpu, devices = node
        parts = ask.parts[kind]
        if parts > _PARTS or 0 <= cpu < ask.cpu_milli:
            return None
        left = cpu - ask.cpu_milli if cpu >= 0 else cpu
        before = self._fragments.of(node)
        if ask.whole:
            empty = [d for d in devices if d.domain == _EMPTY]
            if len(empty) < ask.gpus:
                return None
            rest = [d for d in devices if d.domain != _EMPTY] + empty[ask.gpus :]
            taken = [Device(0, 0, _CLOSED, 0)] * ask.gpus
            after = self._fragments.of((kind, left, tuple(sorted(rest + taken))))
            return after - before, empty[0]
        best: tuple[float, Device] | None = None
        for i, device in enumerate(devices):
            if i and devices[i - 1] == device:
                continue
            if device.places < 1 or device.milli < ask.milli or device.parts < parts:
                continue
            if device.domain not in (_EMPTY, ask.domain):
                continue
            mine = Device(device.milli - ask.milli, device.parts - parts, ask.domain, device.places - 1)
            rest = sorted((*devices[:i], *devices[i + 1 :], mine))
            growth = self._fragments.of((kind, left, tuple(rest))) - before
            if best is None or growth < best[0]:
                best = (growth, device)
        return best

    # -- changes -------------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self._mark(place.devices, place.node, record)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self._mark(place.devices, place.node, record)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed, returned or were kept for somebody."""
        for device in devices:
            self._dirty[self._layout.device_bay[device]] = None

    def _mark(self, devices: tuple[int, ...], node: int, record: JobRecord) -> None:
        layout = self._layout
        for device in devices:
            self._dirty[layout.device_bay[device]] = None
        if record.job.cpu_milli:
            nodes = (node,) if node >= 0 else layout.nodes_of(devices)
            for number in nodes:
                self._dirty.update(dict.fromkeys(layout.node_bays[number]))

    def _settle(self) -> None:
        """Read the state of nodes that changed."""
        for bay in self._dirty:
            node = self._node(bay)
            if node != self._nodes[bay]:
                self._nodes[bay] = node
                self._changed.append(bay)
        self._dirty.clear()
        if len(self._changed) > 4 * len(self._nodes) + 1024:
            self._changed.clear()
            self._epoch += 1

    def _node(self, bay: int) -> Node:
        layout, ledger = self._layout, self._ledger
        machine, first = layout.bay_node[bay], layout.bay_first[bay]
        cpu = ledger.free_cpu[machine] if ledger.has_cpu[machine] else -1
        devices = sorted(self._device(d) for d in range(first, first + layout.bay_size[bay]))
        return layout.bay_type[bay], cpu, tuple(devices)

    def _device(self, device: int) -> Device:
        ledger = self._ledger
        machine = self._layout.device_node[device]
        if not ledger.usable[device] or ledger.draining[machine] or device in ledger.reserved:
            return Device(0, 0, _CLOSED, 0)
        capacity = self._capacities[self._layout.device_type[device]]
        residents = ledger.residents[device]
        if not residents:
            return Device(DEVICE_MILLI, _PARTS if capacity else 0, _EMPTY, self._most if capacity else 0)
        parts = ledger.free_memory[device] * _PARTS // capacity if capacity else 0
        milli = ledger.free_milli[device]
        if ledger.share_on(residents[0], device).mode != "spatial" or len(residents) >= self._most:
            return Device(milli, parts, _CLOSED, 0)
        records = self._view.records
        domains = {domain_of(records[j].job) for j in residents}
        domain = "/".join(domains.pop()) if len(domains) == 1 else ""
        if not domain:
            return Device(milli, parts, _CLOSED, 0)
        return Device(milli, parts, domain, self._most - len(residents))


class _Heap:
    """Nodes by gradient for one demand; ``read`` is how much of the log of changes it has seen."""

    __slots__ = ("entries", "epoch", "read")

    def __init__(self) -> None:
        self.entries: list[tuple[float, int, Node, Device]] = []
        self.epoch = -1
        self.read = -1
