"""Placement by chance: the baseline that knows nothing at all."""

from __future__ import annotations

from typing import ClassVar

from cotenant.model.params import Params
from cotenant.model.placement import WHOLE, Share
from cotenant.model.plan import EMPTY, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View

__all__ = ["Scatter"]

_WHY = Why("by-chance")


class Scatter(Params):
    """First come, first served; each job on devices drawn from all on which the rules allow it.

    It tries every device for the head of the queue, which suits the few devices of an
    experiment and no larger cluster.

    Parameters
    ----------
    tries : int
        Draws for a job on several devices before it waits.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = False

    def __init__(self, *, tries: int = 50) -> None:
        self.tries = tries

    def decide(self, view: View) -> Plan:
        """Start the head of the queue somewhere."""
        head = view.head()
        if head is None:
            return EMPTY
        job = head.job
        share = WHOLE if job.sharing == "exclusive" or not job.memory_bytes else _share(job.memory_bytes)
        devices = self._draw(view, head, share)
        if devices is not None:
            return Plan((Start(head.id, devices, share, _WHY),), again=True)
        if head.hold is None:
            return Plan((Hold(head.id, *view.why_not(head)),))
        return EMPTY

    def _draw(self, view: View, head: JobRecord, share: Share) -> tuple[int, ...] | None:
        rng, count = view.rng(), view.layout.device_count
        gpus = head.job.gpus
        if gpus == 1:
            fit = [d for d in range(count) if view.refusal(head, (d,), share) is None]
            return (fit[int(rng.integers(len(fit)))],) if fit else None
        for _ in range(self.tries if gpus <= count else 0):
            devices = tuple(sorted(rng.choice(count, size=gpus, replace=False).tolist()))
            if view.refusal(head, devices, share) is None:
                return devices
        return view.find(head) if view.refusal(head, view.find(head) or (), share) is None else None


def _share(memory_bytes: int) -> Share:
    return Share("spatial", memory_bytes, 0, 1000)
