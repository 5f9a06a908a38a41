"""How far each job is, from events alone: for whoever watches a run and is neither policy nor executor."""

from __future__ import annotations

import math

from cotenant.model import events as ev

__all__ = ["Progress"]


class Progress:
    """Useful work of every job's present attempt.

    Attributes
    ----------
    names : dict of int to str
        Of jobs submitted and not ended.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._rates: dict[int, float] = {}
        self._since: dict[int, tuple[float, float]] = {}  # time, and work done by then

    def started(self, t: float, job_id: int, resumed: bool) -> None:
        """An attempt began or went on; at speed 1.0 unless told otherwise."""
        self._since[job_id] = (t, self.work_s(job_id, t) if resumed else 0.0)
        self._rates[job_id] = 1.0

    def see(self, event: ev.Event) -> None:
        """Fold one event."""
        if isinstance(event, ev.Rated):
            self._rate(event.t, event.id, event.rate)
        elif isinstance(event, ev.Submitted):
            self.names[event.job.id] = event.job.name
        elif isinstance(event, ev.Started):
            self.started(event.t, event.id, event.resumed)
        elif isinstance(event, ev.Suspended):
            self._stop(event.t, event.id, event.work_s)
        elif isinstance(event, ev.Ended):
            self._stop(event.t, event.id, event.work_s)
            if event.final:
                self.names.pop(event.id, None)
        elif isinstance(event, ev.Rejected):
            self.names.pop(event.id, None)

    def _rate(self, t: float, job_id: int, rate: float) -> None:
        self._since[job_id] = (t, self.work_s(job_id, t))
        self._rates[job_id] = rate

    def _stop(self, t: float, job_id: int, work_s: float) -> None:
        self._since[job_id] = (t, work_s)
        self._rates[job_id] = 0.0

    def work_s(self, job_id: int, t: float) -> float:
        """Work done by a time not before the last event about the job, in reference-device seconds."""
        since_s, work = self._since.get(job_id, (t, 0.0))
        return work + self._rates.get(job_id, 0.0) * (t - since_s)

    def due_s(self, job_id: int, work_s: float) -> float:
        """When a job will have done so much work if nothing changes; infinite if it does not run."""
        rate = self._rates.get(job_id, 0.0)
        if rate <= 0.0:
            return math.inf
        since_s, work = self._since[job_id]
        return since_s + max(0.0, work_s - work) / rate
