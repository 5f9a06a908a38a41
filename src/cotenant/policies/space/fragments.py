"""How much free compute of a node is of no use to the jobs that come: fragmentation.

The measure is that of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (Weng and others, USENIX ATC 2023): of a node, for one task, all
that is free if the node cannot run the task, else what is free on devices too small for it; and
the mean of that over the tasks of the workload, weighted by how often they come.

Here a device's free part is the smaller of its free guaranteed compute and its free memory, in
thousandths; memory is counted in 64ths of the device, so that states of nodes recur.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from cotenant.model.placement import DEVICE_MILLI

__all__ = ["CLOSED", "EMPTY", "PARTS", "Device", "Devices", "Fragments", "Node", "State", "Task", "parts_up"]

PARTS = 64
"""Parts in which the memory of a device is counted."""

CLOSED = "-"
EMPTY = ""
"""Domains of devices that nobody may join, and of those that are free."""


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


Node = tuple[int, int, tuple[Device, ...]]
"""Device type, free CPU (-1 if not declared) and devices, sorted: equal states are one."""

State = tuple[int, ...]
"""The same with devices by number: device type, free CPU, then the devices in the order of ``Node``.

Plain integers hash and compare fast, and the garbage collector does not look at them: there may be
hundreds of thousands.
"""


class Devices:
    """Numbers for what is left on devices, given on first sight."""

    def __init__(self) -> None:
        self.of: list[Device] = []
        self._numbers: dict[Device, int] = {}

    def number(self, device: Device) -> int:
        """The number of what is left on a device."""
        found = self._numbers.get(device)
        if found is None:
            found = self._numbers[device] = len(self.of)
            self.of.append(device)
        return found

    def replaced(self, numbers: Sequence[int], at: int, by: int) -> tuple[int, ...]:
        """Sorted devices with one of them changed, sorted again."""
        rest = [*numbers[:at], *numbers[at + 1 :]]
        insort(rest, by, key=self.of.__getitem__)
        return tuple(rest)


class Fragments:
    """Expected fragmentation of states, remembered.

    Parameters
    ----------
    tasks : tuple of Task
    capacities : tuple of int
        Memory of each device type, 0 if unknown.
    devices : Devices, optional
    """

    def __init__(
        self, tasks: tuple[Task, ...], capacities: tuple[int, ...], devices: Devices | None = None
    ) -> None:
        total = sum(t.weight for t in tasks) or 1.0
        self._tasks = tasks
        self._weights = [t.weight / total for t in tasks]
        self._capacities = capacities
        self._devices = devices if devices is not None else Devices()
        self._all = (1 << len(tasks)) - 1
        self._chance: dict[int, float] = {0: 0.0}
        self._parts: list[dict[int, tuple[int, int]]] = [{} for _ in capacities]
        self._known: dict[State, float] = {}
        # Tasks that are gangs, as bits: all, by size, and those that so many devices are enough for.
        self._sizes: dict[int, int] = {}
        for i, task in enumerate(tasks):
            if task.gpus > 1:
                self._sizes[task.gpus] = self._sizes.get(task.gpus, 0) | 1 << i
        self._gangs = sum(self._sizes.values())
        self._up_to: dict[int, int] = {}
        self._cpu = [(1 << i, t.cpu_milli) for i, t in enumerate(tasks) if t.cpu_milli]

    def of(self, node: Node) -> float:
        """Thousandths of a device, expected to be of no use."""
        kind, cpu, devices = node
        return self.of_state((kind, cpu, *[self._devices.number(d) for d in devices]))

    def of_state(self, state: State) -> float:
        """The same of a node given by numbers."""
        found = self._known.get(state)
        if found is None:
            if len(self._known) > 1 << 17:
                self._known.clear()
            found = self._known[state] = self._measure(state)
        return found

    def _measure(self, state: State) -> float:
        kind, cpu, gangs = state[0], state[1], self._gangs
        known, parts, hosted, empty = self._parts[kind], [], 0, 0
        for number in state[2:]:
            part = known.get(number) or self._part(kind, number)
            parts.append(part)
            hosted |= part[0]
            if part[0] & gangs:
                # Only a free device has room for a member of a gang, and then for one of any gang.
                empty += 1
        if gangs:
            hosted &= ~gangs | self._gangs_up_to(empty)
        if cpu >= 0:
            for bit, need in self._cpu:
                if need > cpu:
                    hosted &= ~bit
        everything, chance, total = self._all, self._chance, 0.0
        for mask, free in parts:
            if free:
                lost = everything & ~(mask & hosted)
                expected = chance.get(lost)
                total += free * (self._expected(lost) if expected is None else expected)
        return total

    def _gangs_up_to(self, gpus: int) -> int:
        """Tasks that are gangs of no more devices than this, as bits."""
        found = self._up_to.get(gpus)
        if found is None:
            found = self._up_to[gpus] = sum(bits for size, bits in self._sizes.items() if size <= gpus)
        return found

    def _part(self, kind: int, number: int) -> tuple[int, int]:
        """The tasks that a device has room for, as bits, and its free part in thousandths."""
        device = self._devices.of[number]
        free = device.milli
        if self._capacities[kind] > 0:
            free = min(free, device.parts * DEVICE_MILLI // PARTS)
        found = self._parts[kind][number] = (self._fit(kind, device), free)
        return found

    def _expected(self, mask: int) -> float:
        found = self._chance.get(mask)
        if found is None:
            found = self._chance[mask] = sum(w for i, w in enumerate(self._weights) if mask >> i & 1)
        return found

    def _fit(self, kind: int, device: Device) -> int:
        """The tasks that a device has room for."""
        capacity, found = self._capacities[kind], 0
        for i, task in enumerate(self._tasks):
            if task.types and kind not in task.types:
                continue
            if task.gpus > 1 or task.milli >= DEVICE_MILLI:
                fits = device.domain == EMPTY and (not capacity or task.memory_bytes <= capacity)
            else:
                parts = parts_up(task.memory_bytes, capacity)
                fits = device.places > 0 and device.milli >= task.milli and device.parts >= parts
            found |= fits << i
        return found


def parts_up(need: int, capacity: int) -> int:
    """Memory in 64ths of a device, rounded up; more than there is if it can never fit."""
    if not capacity:
        return 0 if need == 0 else PARTS + 1
    return -(-need * PARTS // capacity)
