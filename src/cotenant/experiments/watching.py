"""What an experiment reads off a run beside its metrics: work in a window of time, and first progress."""

from __future__ import annotations

from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.progress import Progress

__all__ = ["Watcher"]


class Watcher:
    """Observer of one run.

    Parameters
    ----------
    until_s : float
        Work done by then is kept for each job.
    first_s : float
        How much work counts as the first progress.
    from_s : float
        Work done before is not counted.

    Attributes
    ----------
    jobs : dict of int to Job
    work_s : dict of int to float
        Work of each job from ``from_s`` to ``until_s``, in seconds of running alone on the reference device.
    first : dict of int to float
        Seconds from submission to the first ``first_s`` of work, for jobs that got so far.
    events : list of Event
        Moves and resizes.
    """

    def __init__(self, until_s: float, first_s: float = 300.0, from_s: float = 0.0) -> None:
        self._from_s, self._until_s, self._first_s = from_s, until_s, first_s
        self._before: dict[int, float] | None = None
        self._progress = Progress()
        self.jobs: dict[int, Job] = {}
        self.work_s: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.events: list[ev.Moved | ev.Resized] = []
        self._closed = False

    def see(self, events: list[ev.Event]) -> None:
        """Take the next events."""
        for event in events:
            if event.t > self._from_s and self._before is None:
                self._before = self._done(self._from_s)
            if event.t > self._until_s and not self._closed:
                self._close()
            if isinstance(event, ev.Submitted):
                self.jobs[event.job.id] = event.job
            elif isinstance(event, ev.Moved | ev.Resized):
                self.events.append(event)
            job_id = getattr(event, "id", -1)
            if job_id in self.jobs and job_id not in self.first:
                due_s = self._progress.due_s(job_id, self._first_s)
                if due_s <= event.t:
                    self.first[job_id] = due_s - self.jobs[job_id].submit_s
            self._progress.see(event)
            if isinstance(event, ev.Ended) and not self._closed:
                self._keep(event.id, event.work_s)
            elif isinstance(event, ev.Closed) and not self._closed:
                self._close()

    def _done(self, t: float) -> dict[int, float]:
        return {j: self._progress.work_s(j, t) for j in self._progress.names if j in self.jobs}

    def _keep(self, job_id: int, work_s: float) -> None:
        if self._before is not None:
            self.work_s[job_id] = work_s - self._before.get(job_id, 0.0)

    def _close(self) -> None:
        self._closed = True
        for job_id, work_s in self._done(self._until_s).items():
            self._keep(job_id, work_s)
