"""How fast things are in the simulated world, and what it costs to move state.

A job's speed is::

    type speed x min over its devices of normalised speed (neighbours, shares, mode)
    x locality x granted/declared devices (elastic jobs)

The second factor is worked out in ``executors.company``, the others here. With the setting
``elastic_speed = "workers"``, type speeds and size of an elastic job follow ``model.workers``.
"""

from __future__ import annotations

from collections import Counter

from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings
from cotenant.model.workers import divide, workers_of

__all__ = ["Physics"]


class Physics:
    """Speeds and prices.

    Parameters
    ----------
    layout : Layout
    truth : Truth or None
        None: every job runs at its device type's speed and sharing costs nothing.
    settings : Settings
    """

    def __init__(self, layout: Layout, truth: Truth | None, settings: Settings) -> None:
        self.layout = layout
        self.settings = settings
        self._truth = truth
        self._bay_of, self._type_of = layout.device_bay, layout.device_type
        self._solo: dict[tuple[str, int], float] = {}

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
        if job.max_gpus and self.settings.elastic_speed == "workers":
            speed = self._workers_speed(job, devices)
        else:
            speed = min(self._solo_speed(job.model, k) for k in kinds) * len(devices) / max(job.gpus, 1)
        widest = max(layout.bay_size[b] for k in kinds for b in layout.type_bays[k])
        if len(layout.nodes_of(devices)) > -(-len(devices) // widest):
            speed *= self.settings.span_speed
        return speed

    def _workers_speed(self, job: Job, devices: tuple[int, ...]) -> float:
        """Speed by logical workers, relative to the declared number of reference devices."""
        type_of, workers = self._type_of, workers_of(job)
        held = Counter(type_of[d] for d in devices)
        division = divide(
            tuple((count, self._solo_speed(job.model, kind)) for kind, count in sorted(held.items())), workers
        )
        return -(-workers // job.gpus) / division.rounds

    def _solo_speed(self, model: str, kind: int) -> float:
        key = (model, kind)
        speed = self._solo.get(key)
        if speed is None:
            name = self.layout.types[kind].name
            known = self._truth.solo_speed(model, name) if self._truth else self.layout.types[kind].speed
            speed = self._solo[key] = known
        return speed

    def state_bytes_per_s(self, place: Placement) -> float:
        """How fast state is saved and loaded at most, for each device."""
        return self.settings.state_bytes_per_s

    def link_latency_s(self, place: Placement) -> float:
        """Added to each saving and loading: none where nothing is pooled."""
        return 0.0

    def save_s(self, job: Job, place: Placement) -> float:
        """Seconds to save a job's state."""
        return self.settings.transfer_s(job)

    def restore_s(self, job: Job, place: Placement) -> float:
        """Seconds to load it again and warm up."""
        return self.settings.restore_s + self.settings.transfer_s(job)
