"""For each demand the node on which placing it adds least fragmentation, kept as nodes change."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.queues.demands import Domain, domain_of
from cotenant.policies.space.fragments import (
    CLOSED,
    EMPTY,
    PARTS,
    Device,
    Devices,
    Fragments,
    State,
    Task,
    parts_up,
)

__all__ = ["Ask", "Slopes"]

_MOST_ASKS = 1024
_MOST_GAINS = 1 << 18
_NOTHING = Device(0, 0, CLOSED, 0)
_Gain = tuple[float, int]
"""Growth of fragmentation, and the number of the device."""


class Ask(NamedTuple):
    """A demand to be placed: thousandths, 64ths of memory for each device type, its domain."""

    gpus: int
    milli: int
    parts: tuple[int, ...]
    domain: str
    whole: bool
    cpu_milli: int


class Slopes(Index):
    """For each demand: the node on which placing it adds least fragmentation.

    A node is a bay, the devices of one type in one machine. For each demand asked for there is
    a heap of nodes by gradient; a node that changed is looked at again when the demand is next
    asked for. A log of changes that grows beyond four times the nodes is dropped, and every
    heap built anew.

    Attributes
    ----------
    source : object
        For its user: what the tasks in use were made of.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._ledger, self._layout = view.ledger, view.layout
        self._capacities = tuple(k.memory_bytes for k in view.layout.types)
        self._devices = Devices()
        self._closed = self._devices.number(_NOTHING)
        self._tasks: tuple[Task, ...] = ()
        self._fragments = Fragments((), self._capacities, self._devices)
        self._most = view.settings.max_sharers
        self._domains: dict[Domain, str] = {}
        self._left = [self._device(d) for d in range(view.layout.device_count)]
        self._nodes: list[State] = [self._node(b) for b in range(len(view.layout.bay_node))]
        # Nodes that changed, in order; devices and nodes not looked at since they may have.
        self._changed: list[int] = []
        self._touched: dict[int, None] = {}
        self._dirty: dict[int, None] = {}
        self._epoch = 0
        self._asked: dict[Ask, _Heap] = {}
        self._gains = 0
        self.source: object = None

    def use(self, tasks: tuple[Task, ...]) -> None:
        """Measure fragmentation for these tasks from now on."""
        if tasks != self._tasks:
            self._tasks = tasks
            self._fragments = Fragments(tasks, self._capacities, self._devices)
            self._asked.clear()
            self._gains = 0

    def ask(self, record: JobRecord, milli: int) -> Ask:
        """The demand of a waiting job."""
        shape, domain = record.shape, self._domain(record)
        whole = not domain or shape.gpus > 1
        need = 0 if whole else shape.memory_bytes
        parts = tuple(
            (parts_up(need, c) if k in shape.types else PARTS + 1) for k, c in enumerate(self._capacities)
        )
        return Ask(shape.gpus, milli, parts, domain, whole, shape.cpu_milli)

    def best(self, ask: Ask) -> tuple[int, int] | None:
        """The node and the kind of device on it that lose least; None if no node has room."""
        self._settle()
        if self._gains > _MOST_GAINS:
            self._asked.clear()
            self._gains = 0
        heap = self._asked.get(ask)
        if heap is None:
            if len(self._asked) >= _MOST_ASKS:
                self._asked.clear()
            heap = self._asked[ask] = _Heap()
        nodes, entries = self._nodes, heap.entries
        if heap.epoch != self._epoch or heap.read < 0:
            heap.epoch, heap.read = self._epoch, len(self._changed)
            entries[:] = [
                (gain[0], bay, node, gain[1])
                for bay, node in enumerate(nodes)
                if (gain := self._gain(ask, heap, node)) is not None
            ]
            heapq.heapify(entries)
        else:
            todo, heap.read = self._changed[heap.read :], len(self._changed)
            for bay in dict.fromkeys(todo):
                gain = self._gain(ask, heap, nodes[bay])
                if gain is not None:
                    heapq.heappush(entries, (gain[0], bay, nodes[bay], gain[1]))
        while entries and nodes[entries[0][1]] != entries[0][2]:
            heapq.heappop(entries)
        return (entries[0][1], entries[0][3]) if entries else None

    def device(self, bay: int, like: int) -> int:
        """The lowest device of a node in this state."""
        first = self._layout.bay_first[bay]
        return self._left.index(like, first, first + self._layout.bay_size[bay])

    # -- gradients ---------------------------------------------------------------------

    def _gain(self, ask: Ask, heap: _Heap, node: State) -> _Gain | None:
        try:
            return heap.gains[node]
        except KeyError:
            self._gains += 1
            slope = self._slope_whole if ask.whole else self._slope
            found = heap.gains[node] = slope(ask, heap, node)
            return found

    def _slope_whole(self, ask: Ask, heap: _Heap, node: State) -> _Gain | None:
        """Growth of fragmentation by whole devices of a node, and what they are; None without room."""
        kind, cpu, *numbers = node
        if ask.parts[kind] > PARTS or 0 <= cpu < ask.cpu_milli:
            return None
        of = self._devices.of
        empty = [d for d in numbers if of[d].domain == EMPTY]
        if len(empty) < ask.gpus:
            return None
        rest = [d for d in numbers if of[d].domain != EMPTY] + empty[ask.gpus :]
        rest += [self._closed] * ask.gpus
        rest.sort(key=of.__getitem__)
        left = cpu - ask.cpu_milli if cpu >= 0 else cpu
        after = self._fragments.of_state((kind, left, *rest))
        return after - self._fragments.of_state(node), empty[0]

    def _slope(self, ask: Ask, heap: _Heap, node: State) -> _Gain | None:
        """Growth of fragmentation on the best device of a node, and that device; None without room."""
        kind, cpu, *numbers = node
        if ask.parts[kind] > PARTS or 0 <= cpu < ask.cpu_milli:
            return None
        left = cpu - ask.cpu_milli if cpu >= 0 else cpu
        best: _Gain | None = None
        before, last = 0.0, -1
        for i, device in enumerate(numbers):
            if device == last:
                continue
            last = device
            after = heap.after.get((kind, device))
            if after is None:
                after = heap.after[kind, device] = self._after(ask, kind, device)
            if after < 0:
                continue
            if best is None:
                before = self._fragments.of_state(node)
            state = (kind, left, *self._devices.replaced(numbers, i, after))
            growth = self._fragments.of_state(state) - before
            if best is None or growth < best[0]:
                best = (growth, device)
        return best

    def _after(self, ask: Ask, kind: int, number: int) -> int:
        """What is left of a device once the demand is on it, by number; -1 without room."""
        device, parts = self._devices.of[number], ask.parts[kind]
        if device.places < 1 or device.milli < ask.milli or device.parts < parts:
            return -1
        if device.domain not in (EMPTY, ask.domain):
            return -1
        left = Device(device.milli - ask.milli, device.parts - parts, ask.domain, device.places - 1)
        return self._devices.number(left)

    # -- changes -------------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self._mark(place.devices, place.node, record)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self._mark(place.devices, place.node, record)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed, returned or were kept for somebody."""
        self._touched.update(dict.fromkeys(devices))

    def _mark(self, devices: tuple[int, ...], node: int, record: JobRecord) -> None:
        if len(devices) == 1:
            self._touched[devices[0]] = None
        else:
            self._touched.update(dict.fromkeys(devices))
        if record.job.cpu_milli:
            layout = self._layout
            for number in (node,) if node >= 0 else layout.nodes_of(devices):
                # All nodes of a host pool show what it has left.
                for peer in layout.peers.get(layout.home[number], (number,)) if layout.home else (number,):
                    self._dirty.update(dict.fromkeys(layout.node_bays[peer]))

    def _settle(self) -> None:
        """Read the state of nodes that changed."""
        left, bays = self._left, self._layout.device_bay
        for device in self._touched:
            now = self._device(device)
            if now != left[device]:
                left[device] = now
                self._dirty[bays[device]] = None
        self._touched.clear()
        for bay in self._dirty:
            node = self._node(bay)
            if node != self._nodes[bay]:
                self._nodes[bay] = node
                self._changed.append(bay)
        self._dirty.clear()
        if len(self._changed) > 4 * len(self._nodes) + 1024:
            self._changed.clear()
            self._epoch += 1

    def _node(self, bay: int) -> State:
        layout, ledger = self._layout, self._ledger
        machine, first = layout.bay_node[bay], layout.bay_first[bay]
        cpu = ledger.free_cpu[machine] if ledger.has_cpu[machine] else -1
        devices = self._left[first : first + layout.bay_size[bay]]
        devices.sort(key=self._devices.of.__getitem__)
        return (layout.bay_type[bay], cpu, *devices)

    def _device(self, device: int) -> int:
        """What is left on a device, by number."""
        ledger = self._ledger
        if ledger.impaired or ledger.reserved:
            machine = self._layout.device_node[device]
            if not ledger.usable[device] or ledger.draining[machine] or device in ledger.reserved:
                return self._closed
        capacity = self._capacities[self._layout.device_type[device]]
        residents = ledger.residents[device]
        if not residents:
            left = Device(DEVICE_MILLI, PARTS if capacity else 0, EMPTY, self._most if capacity else 0)
            return self._devices.number(left)
        parts = ledger.free_memory[device] * PARTS // capacity if capacity else 0
        places = self._most - len(residents)
        domain = ""
        if places > 0 and ledger.share_on(residents[0], device).mode == "spatial":
            domains = {self._domain(self._view.records[j]) for j in residents}
            domain = domains.pop() if len(domains) == 1 else ""
        if not domain:
            domain, places = CLOSED, 0
        return self._devices.number(Device(ledger.free_milli[device], parts, domain, places))

    def _domain(self, record: JobRecord) -> str:
        """With whom a job shares, as one word; empty if with nobody."""
        domain = domain_of(record.job)
        found = self._domains.get(domain)
        if found is None:
            found = self._domains[domain] = "/".join(domain)
        return found


class _Heap:
    """Nodes by gradient for one demand.

    ``read`` is how much of the log of changes it has seen, ``gains`` the gradients worked out,
    ``after`` what the demand leaves of a device, by type and number.
    """

    __slots__ = ("after", "entries", "epoch", "gains", "read")

    def __init__(self) -> None:
        self.entries: list[tuple[float, int, State, int]] = []
        self.epoch = -1
        self.read = -1
        self.gains: dict[State, _Gain | None] = {}
        self.after: dict[tuple[int, int], int] = {}
