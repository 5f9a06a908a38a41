"""From requests that are on disk to events, in order; and jobs that wait for other jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cotenant.errors import CotenantError
from cotenant.live.admission import asked_of, understood
from cotenant.live.tenancy import TenantWatch
from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.liveports import Accepted, Store
from cotenant.model.quantities import parse_bytes
from cotenant.runs.jobfile import JobFile

__all__ = ["Intake"]


class Intake:
    """Turns what users asked for into events.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    done_seq : int
        The last request that was turned into events.
    refused : int
        Requests that could not be understood; whoever accepted them should have.
    tenants : TenantWatch or None
        Tells of quotas, limits and weights that changed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.done_seq = store.done_seq()
        self.refused = 0
        self.tenants: TenantWatch | None = None
        self._fate: dict[int, bool] = {}
        self._after: dict[int, tuple[int, ...]] = {}
        self._wrong: dict[int, str] = {}
        self._asked: dict[int, JobFile] = {}

    # -- before a restart ----------------------------------------------------------------

    def recall(self, events: Iterable[ev.Event]) -> None:
        """Learn from the log how jobs ended and who waits for whom."""
        events = list(events)
        if self.tenants is not None:
            self.tenants.recall(events)
        for event in events:
            if isinstance(event, ev.Ended) and event.final:
                self._fate[event.id] = event.outcome == "done"
            elif isinstance(event, ev.Rejected):
                self._fate[event.id] = False
                self._after.pop(event.id, None)
            elif isinstance(event, ev.Awaited):
                if event.after:
                    self._after[event.id] = event.after
                else:
                    self._after.pop(event.id, None)

    # -- what executors tell -------------------------------------------------------------

    def ended(self, job_id: int, *, well: bool) -> None:
        """A job ended for good; the first word on it stands."""
        self._fate.setdefault(job_id, well)
        self._after.pop(job_id, None)
        self._wrong.pop(job_id, None)
        self._asked.pop(job_id, None)

    def asked(self, job_id: int) -> JobFile | None:
        """What the request of a job said beside the ``Job``; None if it cannot be found or read."""
        found = self._asked.get(job_id)
        if found is None:
            accepted = self._store.job(job_id)
            if accepted is None:
                return None
            try:
                found = self._asked[job_id] = asked_of(accepted)
            except CotenantError:
                return None
        return found

    # -- events --------------------------------------------------------------------------

    def freed(self, t: float) -> list[ev.Event]:
        """Jobs whose wait for others is over, well or not."""
        found: list[ev.Event] = []
        for job_id in list(self._wrong):
            found.append(ev.Rejected(t, job_id, "malformed", {"error": self._wrong[job_id]}))
            self.ended(job_id, well=False)
        again = True
        while again:  # a job that fails for want of another fails those that wait for it
            again = False
            for job_id, after in list(self._after.items()):
                failed = [j for j in after if self._fate.get(j) is False or not self._known(j, job_id)]
                if failed:
                    facts = {"after": failed[0]}
                    found.append(ev.Rejected(t, job_id, "dependency-failed", facts))
                    self.ended(job_id, well=False)
                    again = True
                elif all(self._fate.get(j) for j in after):
                    del self._after[job_id]
                    found.append(ev.Awaited(t, job_id))
        return found

    def _known(self, job_id: int, of: int) -> bool:
        """A job can wait only for those that were submitted before it."""
        return 0 <= job_id < of

    def read(self, t: float) -> list[ev.Event]:
        """The requests that came since, as events."""
        found = [] if self.tenants is None else self.tenants.read(t)
        for accepted in self._store.waiting(self.done_seq):
            found += self._events(accepted, t)
            self.done_seq = accepted.seq
        return found

    def _events(self, accepted: Accepted, t: float) -> list[ev.Event]:
        request = accepted.request
        try:
            if request.kind == "submit":
                return self._submit(accepted, t)
            return [_EVENTS[request.kind](t, request.body, request.key)]
        except (CotenantError, KeyError, TypeError, ValueError):
            self.refused += 1
            return []

    def _submit(self, accepted: Accepted, t: float) -> list[ev.Event]:
        job_id = accepted.job_id
        try:
            asked, job = understood(accepted)
        except CotenantError as error:
            # It has a number and was accepted, so it must end: as refused.
            self.refused += 1
            self._wrong[job_id] = str(error)
            name = str(accepted.request.body.get("name", ""))[:200]
            job = Job(id=job_id, name=name, submit_s=accepted.t)
            return [ev.Submitted(t, job), ev.Awaited(t, job_id, (job_id,))]
        self._asked[job_id] = asked
        found: list[ev.Event] = [ev.Submitted(t, job)]
        if any(self._fate.get(j) is not True for j in asked.after):
            self._after[job_id] = asked.after
            found.append(ev.Awaited(t, job_id, asked.after))
        return found


def _bytes(value: Any) -> int:
    return value if isinstance(value, int) else parse_bytes(value)


def _resize(t: float, body: dict[str, Any], key: str) -> ev.Event:
    asked: dict[str, int] = {}
    for name in ("compute_milli", "compute_limit_milli", "gpus"):
        if name in body:
            asked[name] = int(body[name])
    if "memory_bytes" in body:
        asked["memory_bytes"] = _bytes(body["memory_bytes"])
    return ev.ResizeRequested(t, int(body["id"]), **asked, request=key)


_EVENTS: dict[str, Any] = {
    "cancel": lambda t, body, key: ev.CancelRequested(t, int(body["id"]), key),
    "suspend": lambda t, body, key: ev.SuspendRequested(t, int(body["id"]), key),
    "resume": lambda t, body, key: ev.ResumeRequested(t, int(body["id"]), key),
    "priority": lambda t, body, key: ev.PriorityChanged(t, int(body["id"]), int(body["priority"]), key),
    "drain": lambda t, body, key: ev.Drained(
        t, int(body.get("node", 0)), "asked", int(body.get("device", -1))
    ),
    "undrain": lambda t, body, key: ev.Undrained(t, int(body.get("node", 0)), int(body.get("device", -1))),
    "resize": _resize,
}
