"""Fragmentation gradient descent: put each job where least free compute becomes useless.

Card: ``docs/policies/fgd.md``. Source: Weng and others, USENIX ATC 2023.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.ledger import low_bits
from cotenant.model.placement import DEVICE_MILLI, WHOLE
from cotenant.model.plan import Plan, Why
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import View
from cotenant.policies.queues.classwise import Offer
from cotenant.policies.queues.demands import Family
from cotenant.policies.space.fragments import Task
from cotenant.policies.space.pools import Order
from cotenant.policies.space.rooms import hosts_fit
from cotenant.policies.space.sharing import Sharer
from cotenant.policies.space.slopes import Slopes

__all__ = ["Fgd"]

_GIB = 1 << 30
_MOST_TASKS = 64
_DESCENT = Why("least-fragmentation-added")


class Fgd(Sharer):
    """Share devices like best fit, but choose the node by the growth of its fragmentation.

    Parameters
    ----------
    popularity : float
        Typical tasks are the most frequent demands that make up this part of all jobs seen.
    mix : tuple of str
        The workload's demands, given instead of learned: ``GPUSxMILLIxGIB:WEIGHT`` each, with
        1000 for a whole device; for example ``1x300x8:5`` and ``2x1000x0:1``.

    Raises
    ------
    ConfigError
        If the popularity is not in (0, 1] or an entry of the mix cannot be read.
    """

    _why = Why("least-memory-left")

    def __init__(self, *, popularity: float = 0.95, mix: tuple[str, ...] = ()) -> None:
        if not 0.0 < popularity <= 1.0:
            raise ConfigError(f"popularity of fgd must lie in (0, 1], found {popularity}")
        self.popularity = popularity
        self.mix = mix
        self._given = tuple(_read(entry) for entry in mix)

    def _order(self) -> Order:
        return "pack"

    def decide(self, view: View) -> Plan:
        """As best fit; and remember the mix of demands whenever the jobs seen have doubled."""
        plan = super().decide(view)
        if self._given or not self._due(view):
            return plan
        return msgspec.structs.replace(plan, memo=self._learned(view))

    # -- the workload -----------------------------------------------------------------------

    @staticmethod
    def _due(view: View) -> bool:
        memo = view.memo
        return bool(view.shapes.jobs >= (2 * memo["jobs"] if memo else 1))

    def _learned(self, view: View) -> dict[str, Any]:
        """Demands by frequency among the jobs seen so far, as plain lists."""
        counts: dict[tuple[Any, ...], int] = {}
        for shape in view.shapes:
            if shape.gpus and not shape.never:
                key = (
                    shape.gpus,
                    _milli(shape),
                    -(-shape.memory_bytes // _GIB),
                    shape.cpu_milli,
                    shape.types,
                )
                counts[key] = counts.get(key, 0) + shape.seen
        enough = self.popularity * sum(counts.values())
        mix: list[list[Any]] = []
        for key, seen in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if enough <= 0 or len(mix) == _MOST_TASKS:
                break
            mix.append([*key[:4], list(key[4]), seen])
            enough -= seen
        return {"jobs": view.shapes.jobs, "mix": mix}

    def _tasks(self, view: View) -> tuple[Task, ...]:
        if self._given:
            return self._given
        memo = self._learned(view) if self._due(view) else view.memo
        return tuple(
            Task(gpus, milli, gib * _GIB, float(seen), cpu, tuple(types))
            for gpus, milli, gib, cpu, types, seen in memo["mix"]
        )

    def _slopes(self, view: View) -> Slopes:
        """The gradients for the tasks given or learned, which are made out only when they changed."""
        slopes, memo = view.index(Slopes), view.memo
        if memo is None or slopes.source is not memo or self._due(view):
            slopes.source = memo
            slopes.use(self._tasks(view))
        return slopes

    # -- where --------------------------------------------------------------------------------

    def offer(self, view: View, family: Family, record: JobRecord) -> Offer | None:
        """The device or devices whose taking adds least fragmentation.

        Gangs that may share join a gang of their size where one has room. What the descent
        cannot place, best fit does: gangs over several nodes, host memory, memory that fits to
        the byte but not in 64ths.
        """
        shape = record.shape
        if not shape.gpus or not shape.single:
            return super().offer(view, family, record)
        if family.domain and shape.gpus > 1:
            joined = self._join(view, family, self._known(view, family), record)
            if joined is not None:
                return Offer(joined[1], family.share(self._mode, shape.memory_bytes), self._why)
        slopes = self._slopes(view)
        ask = slopes.ask(record, family.milli)
        found = slopes.best(ask)
        if found is None:
            return super().offer(view, family, record)
        bay, like = found
        if ask.whole:
            devices = view.layout.devices(bay, low_bits(view.ledger.whole[bay], shape.gpus))
        else:
            devices = (slopes.device(bay, like),)
        if family.host and not hosts_fit(view, record.job, devices):
            return super().offer(view, family, record)
        shared = family.domain and view.layout.device_memory[devices[0]] > 0
        share = family.share(self._mode, shape.memory_bytes) if shared else WHOLE
        return Offer(devices, share, _DESCENT)


def _milli(shape: Shape) -> int:
    """Thousandths of a device that a demand takes: 0 where it shares and declares nothing."""
    if 0 < shape.compute_milli < DEVICE_MILLI:
        return shape.compute_milli
    return 0 if shape.memory_bytes and shape.gpus == 1 else DEVICE_MILLI


def _read(entry: str) -> Task:
    try:
        sizes, weight = entry.split(":")
        gpus, milli, gib = sizes.split("x")
        task = Task(int(gpus), int(milli), round(float(gib) * _GIB), float(weight))
    except ValueError as error:
        raise ConfigError(f'mix of fgd: write GPUSxMILLIxGIB:WEIGHT, found "{entry}"') from error
    if task.gpus < 1 or not 0 <= task.milli <= DEVICE_MILLI or task.memory_bytes < 0 or not task.weight > 0:
        raise ConfigError(f'mix of fgd: a number of "{entry}" is out of range')
    return task
