"""How fast things are in the simulated world, and who shares what: the only reader of the truth.

A job's speed is::

    type speed x min over its devices of normalised speed (neighbours, shares, mode)
    x locality x granted/declared devices (elastic jobs)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings

__all__ = ["Attempt", "Physics"]

_INF = math.inf


class Attempt(msgspec.Struct, gc=False, eq=False):
    """An attempt in the world.

    ``epoch`` dates its entry in the heap of things to come: a later one voids it.
    """

    job: Job
    place: Placement
    attempt: int
    total_s: float
    left_s: float
    saved_s: float
    since_s: float
    shared: bool
    alone: float
    rate: float = 0.0
    epoch: int = 0
    paused: bool = False
    source: str = "alone"

    def kept_s(self, checkpoint_s: float) -> float:
        """Work that survives losing the devices: up to the last checkpoint, or the last resume."""
        if checkpoint_s <= 0 or not self.job.suspendable:
            return self.saved_s
        done = self.total_s - self.left_s
        return max(self.saved_s, math.floor(done / checkpoint_s) * checkpoint_s)


class Physics:
    """Speeds and prices.

    Parameters
    ----------
    layout : Layout
    truth : Truth or None
        None: every job runs at its device type's speed and sharing costs nothing.
    settings : Settings
    runs : dict of int to Attempt
        What runs, kept by the executor.
    """

    def __init__(
        self, layout: Layout, truth: Truth | None, settings: Settings, runs: dict[int, Attempt]
    ) -> None:
        self.layout = layout
        self.settings = settings
        self._truth = truth
        self._runs = runs
        self._sharers: dict[int, tuple[int, ...]] = {}
        self._solo: dict[tuple[str, int], float] = {}
        self._co: dict[tuple[str, tuple[str, ...], int], tuple[float, str]] = {}

    def neighbours(self, devices: tuple[int, ...]) -> Sequence[int]:
        """Sharers of these devices, ascending."""
        sharers = self._sharers
        first = sharers.get(devices[0], ())
        for device in devices:
            if sharers.get(device, ()) != first:
                return sorted({j for d in devices for j in sharers.get(d, ())})
        return first

    def on(self, devices: set[int], node: int, leaving: Mapping[int, Placement]) -> list[int]:
        """Jobs that hold any of these devices, old places included, or run on this node without any."""
        return sorted(
            job_id
            for job_id, run in self._runs.items()
            if (run.place.node == node >= 0)
            or not devices.isdisjoint(run.place.devices)
            or (job_id in leaving and not devices.isdisjoint(leaving[job_id].devices))
        )

    def normalised(self, run: Attempt) -> float:
        """Speed beside its neighbours, relative to alone: the slowest device decides."""
        worst, source, last = _INF, "alone", None
        for device in run.place.devices:
            ids = self._sharers[device]
            key = (ids, self.layout.device_type[device])
            if key == last:
                continue
            last = key
            speed, where = self._beside(run, ids, key[1])
            if speed < worst:
                worst, source = speed, where
        run.source = source
        return worst

    def _beside(self, run: Attempt, ids: tuple[int, ...], kind: int) -> tuple[float, str]:
        job, share = run.job, run.place.share
        if len(ids) == 1:
            return self._ceiling(run), "alone"
        if share.mode == "time-sliced":
            slice_s = self.settings.slice_s
            return slice_s / (slice_s + self.settings.slice_switch_s) / len(ids), "time-sliced"
        others = [self._runs[i] for i in ids if i != job.id]
        if self._partitioned(run) and all(self._partitioned(o) for o in others):
            # Everyone has the fraction it declared, and its running time is for that fraction.
            return self._ceiling(run), "partitioned"
        key = (job.model, tuple(sorted(o.job.model for o in others)), kind)
        found = self._co.get(key)
        if found is None:
            name = self.layout.types[kind].name
            if self._truth is None:
                found = (1.0, "modelled")
            else:
                found = (self._truth.co_speed(key[0], key[1], name), self._truth.source(key[0], key[1], name))
            self._co[key] = found
        return min(found[0], self._ceiling(run)), found[1]

    @staticmethod
    def _partitioned(run: Attempt) -> bool:
        return (
            0 < run.job.compute_milli < DEVICE_MILLI
            and run.place.share.compute_milli >= run.job.compute_milli
        )

    @staticmethod
    def _ceiling(run: Attempt) -> float:
        needs = run.job.compute_milli or DEVICE_MILLI
        return min(1.0, run.place.share.compute_limit_milli / needs)

    def alone_speed(self, job: Job, place: Placement) -> float:
        """Speed with its devices to itself: type, locality, and size for elastic jobs."""
        devices, layout = place.devices, self.layout
        if not devices:
            return 1.0
        blocks = layout.blocks(devices)
        if blocks is not None and len(blocks) == 1 and len(devices) == job.gpus:
            kind = layout.bay_type[blocks[0][0]]
            known = self._solo.get((job.model, kind))
            return known if known is not None else self._solo_speed(job.model, kind)
        kinds = {layout.device_type[d] for d in devices}
        speed = min(self._solo_speed(job.model, k) for k in kinds)
        widest = max(layout.bay_size[b] for k in kinds for b in layout.type_bays[k])
        if len(layout.nodes_of(devices)) > -(-len(devices) // widest):
            speed *= self.settings.span_speed
        return speed * len(devices) / max(job.gpus, 1)

    def _solo_speed(self, model: str, kind: int) -> float:
        key = (model, kind)
        speed = self._solo.get(key)
        if speed is None:
            name = self.layout.types[kind].name
            known = self._truth.solo_speed(model, name) if self._truth else self.layout.types[kind].speed
            speed = self._solo[key] = known
        return speed

    def _state_s(self, job: Job) -> float:
        size = job.state_bytes or job.memory_bytes * self.settings.state_fraction
        return size / self.settings.state_bytes_per_s

    def save_s(self, job: Job) -> float:
        """Seconds to save a job's state."""
        return self._state_s(job)

    def restore_s(self, job: Job) -> float:
        """Seconds to load it again and warm up."""
        return self.settings.restore_s + self._state_s(job)

    def join(self, job_id: int, place: Placement) -> None:
        """A job begins to share its devices."""
        for device in place.devices:
            ids = self._sharers.get(device, ())
            self._sharers[device] = tuple(sorted((*ids, job_id))) if ids else (job_id,)

    def part(self, job_id: int, place: Placement) -> None:
        """A job shares its devices no more."""
        for device in place.devices:
            ids = tuple(j for j in self._sharers[device] if j != job_id)
            if ids:
                self._sharers[device] = ids
            else:
                del self._sharers[device]
