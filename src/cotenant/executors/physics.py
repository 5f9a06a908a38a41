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
from cotenant.model.residents import joined, parted
from cotenant.model.settings import Settings
from cotenant.model.workload import Behaviour

__all__ = ["Attempt", "Physics"]

_INF = math.inf


class Attempt(msgspec.Struct, gc=False, eq=False):
    """An attempt in the world.

    ``epoch`` dates its entry in the heap of things to come: a later one voids it.
    """

    job: Job
    behaviour: Behaviour
    place: Placement
    attempt: int
    total_s: float
    left_s: float
    saved_s: float
    since_s: float
    alone: float
    rate: float = 0.0
    epoch: int = 0
    shared: bool = False
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
        self._bay_of, self._type_of = layout.device_bay, layout.device_type
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
        sharers, types, devices = self._sharers, self.layout.device_type, run.place.devices
        ids, kind = sharers[devices[0]], types[devices[0]]
        worst, run.source = self._beside(run, ids, kind)
        for device in devices[1:]:
            here = sharers[device]
            if here != ids or types[device] != kind:
                ids, kind = here, types[device]
                speed, source = self._beside(run, ids, kind)
                if speed < worst:
                    worst, run.source = speed, source
        return worst

    def _beside(self, run: Attempt, ids: tuple[int, ...], kind: int) -> tuple[float, str]:
        if len(ids) == 1:
            return self._ceiling(run), "alone"
        job, share, runs = run.job, run.place.share, self._runs
        if share.mode == "time-sliced":
            slice_s = self.settings.slice_s
            return slice_s / (slice_s + self.settings.slice_switch_s) / len(ids), "time-sliced"
        if 0 < job.compute_milli < DEVICE_MILLI and all(self._partitioned(runs[i]) for i in ids):
            # Everyone has the fraction it declared, and its running time is for that fraction.
            return self._ceiling(run), "partitioned"
        if len(ids) == 2:
            beside: tuple[str, ...] = (runs[ids[0] if ids[1] == job.id else ids[1]].job.model,)
        else:
            beside = tuple(sorted([runs[i].job.model for i in ids if i != job.id]))
        key = (job.model, beside, kind)
        found = self._co.get(key)
        if found is None:
            found = self._co[key] = self._look_up(*key)
        if share.compute_limit_milli >= DEVICE_MILLI:
            return found
        return min(found[0], self._ceiling(run)), found[1]

    def _look_up(self, model: str, beside: tuple[str, ...], kind: int) -> tuple[float, str]:
        """Ask the truth, once for each set."""
        if self._truth is None:
            return 1.0, "modelled"
        name = self.layout.types[kind].name
        return self._truth.co_speed(model, beside, name), self._truth.source(model, beside, name)

    @staticmethod
    def _partitioned(run: Attempt) -> bool:
        return (
            0 < run.job.compute_milli < DEVICE_MILLI
            and run.place.share.compute_milli >= run.job.compute_milli
        )

    @staticmethod
    def _ceiling(run: Attempt) -> float:
        limit = run.place.share.compute_limit_milli
        return 1.0 if limit >= DEVICE_MILLI else min(1.0, limit / (run.job.compute_milli or DEVICE_MILLI))

    def alone_speed(self, job: Job, place: Placement) -> float:
        """Speed with its devices to itself: type, locality, and size for elastic jobs."""
        devices, layout = place.devices, self.layout
        if not devices:
            return 1.0
        if (count := len(devices)) == job.gpus:
            bays, first = self._bay_of, devices[0]
            if count == 1 or bays[first] == bays[devices[-1]]:
                # All in one bay, as they are ascending.
                known = self._solo.get((job.model, kind := self._type_of[first]))
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

    def save_s(self, job: Job) -> float:
        """Seconds to save a job's state."""
        return self.settings.transfer_s(job)

    def restore_s(self, job: Job) -> float:
        """Seconds to load it again and warm up."""
        return self.settings.restore_s + self.settings.transfer_s(job)

    def join(self, job_id: int, place: Placement) -> None:
        """A job begins to share its devices."""
        sharers = self._sharers
        before: tuple[int, ...] = ()
        after: tuple[int, ...] = (job_id,)  # a gang's devices often have the same sharers
        for device in place.devices:
            ids = sharers.get(device, ())
            if ids != before:
                before, after = ids, joined(ids, job_id)
            sharers[device] = after

    def part(self, job_id: int, place: Placement) -> None:
        """A job shares its devices no more."""
        sharers = self._sharers
        before: tuple[int, ...] = ()
        after = before
        for device in place.devices:
            ids = sharers[device]
            if len(ids) == 1:
                del sharers[device]
            else:
                if ids != before:
                    before, after = ids, parted(ids, job_id)
                sharers[device] = after
