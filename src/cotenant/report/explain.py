"""Why a job waited, where it ran, who shared with it and who took its place: from the log alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cotenant.engine.log import read_log
from cotenant.errors import InputError
from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason, Why
from cotenant.model.quantities import format_duration
from cotenant.report.reasons import meaning, remedy
from cotenant.report.stage import Stage
from cotenant.report.tables import show

__all__ = ["Cause", "Explanation", "Neighbour", "Step", "Wait", "explain"]


class Step(msgspec.Struct, frozen=True):
    """One thing that happened to the job, in one sentence."""

    t: float
    what: str
    text: str


class Cause(msgspec.Struct, frozen=True):
    """A reason the scheduler gave, with its numbers and what the cluster looked like then."""

    t: float
    reason: str
    facts: dict[str, Any]
    free_gpus: int
    largest_hole_gpus: int
    ahead_jobs: int
    ahead_gpus: int


class Wait(msgspec.Struct, frozen=True):
    """One stay in the queue; ``end_s`` is None while it lasts."""

    start_s: float
    end_s: float | None
    causes: tuple[Cause, ...]


class Neighbour(msgspec.Struct, frozen=True):
    """Another job on at least one of its devices, and the job's own lowest speed meanwhile."""

    id: int
    name: str
    start_s: float
    end_s: float | None
    lowest_rate: float | None


class Explanation(msgspec.Struct, frozen=True):
    """What the log says about one job.

    Parameters
    ----------
    verdict : str
        How it stands at the end of the log, in one line.
    unblock : str
        What would end its wait, or would have shortened the last one; empty if it never waited.
    """

    id: int
    name: str
    gpus: int
    outcome: str
    verdict: str
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]
    neighbours: tuple[Neighbour, ...]
    unblock: str

    @property
    def text(self) -> str:
        """The whole story, one line for each thing that happened."""
        lines = [f"Job {self.id} {show(self.name)!r}: {self.verdict}", ""]
        lines += [f"{_at(step.t):>12}  {step.text}" for step in self.steps]
        if self.neighbours:
            lines += ["", "Shared its devices with:"]
            lines += [f"{'':12}  {_neighbour(n)}" for n in self.neighbours]
        if self.unblock:
            lines += ["", f"What would have helped: {self.unblock}."]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text


def explain(log_path: Path, job: str | int) -> Explanation:
    """Explain one job.

    Parameters
    ----------
    log_path : Path
        An event log, plain or gzip.
    job : str or int
        Its name, or its id; a name goes before an id that reads the same.

    Raises
    ------
    InputError
        If the log has no such job.
    LogError
        If the log cannot be read.
    """
    wanted = str(job)
    number = int(wanted) if wanted.isdigit() else -1
    by_name = _Story(lambda j: j.name == wanted)
    by_id = _Story(lambda j: j.id == number)
    stage = Stage()
    for event in read_log(log_path):
        by_name.before(event, stage)
        by_id.before(event, stage)
        stage.see(event)
        by_name.after(event, stage)
        by_id.after(event, stage)
    story = by_name if by_name.job is not None else by_id
    if story.job is None:
        raise InputError(
            f'{log_path} has no job "{show(wanted)}"; it holds {stage.submitted:,} jobs, ids from 0'
        )
    return story.told(stage)


def _at(t: float) -> str:
    """Time since the start of the run, as [days-]hours:minutes:seconds."""
    days, rest = divmod(int(t), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def _neighbour(n: Neighbour) -> str:
    until = "the end of the log" if n.end_s is None else _at(n.end_s)
    if n.lowest_rate is None:
        speed = "speed not logged"
    elif n.lowest_rate > 0:
        speed = f"slowest {n.lowest_rate:.2f} of the reference speed ({1 / n.lowest_rate:.2f}x)"
    else:
        speed = "no progress at times"
    return f"job {n.id} {show(n.name)!r} from {_at(n.start_s)} to {until}, {speed}"


def _facts(facts: dict[str, Any]) -> str:
    parts = []
    for key, value in facts.items():
        shown = f"{value:.4g}" if isinstance(value, float) else show(str(value))
        parts.append(f"{key.replace('_', ' ')} {shown}")
    return ", ".join(parts)


def _rule(why: Why) -> str:
    numbers = f" ({_facts(why.facts)})" if why.facts else ""
    return f" Rule: {show(why.rule)}{numbers}." if why.rule else ""


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class _Story:
    """Collects what concerns one job while the log goes by."""

    def __init__(self, is_it: Callable[[Job], bool]) -> None:
        self.job: Job | None = None
        self._is_it = is_it
        self._steps: list[Step] = []
        self._waits: list[tuple[float, float | None, list[Cause]]] = []
        self._beside: dict[int, list[Any]] = {}
        self._past: list[Neighbour] = []
        self._outcome = "waiting"
        self._verdict = ""

    def before(self, event: Any, stage: Stage) -> None:
        """Look at the state that an event is about to change."""
        if isinstance(event, ev.Submitted) and self.job is None and self._is_it(event.job):
            self.job = event.job
        if self.job is None:
            return
        if isinstance(event, ev.Held) and event.id == self.job.id:
            self._held(event, stage)

    def after(self, event: Any, stage: Stage) -> None:
        """Look at what an event has changed."""
        if self.job is None:
            return
        mine = event.job.id if isinstance(event, ev.Submitted) else getattr(event, "id", -1)
        if mine == self.job.id:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, stage)
        if isinstance(event, _TOUCHES):
            self._meet(event.t, stage)

    def _step(self, t: float, what: str, text: str) -> None:
        self._steps.append(Step(t, what, text))

    def _queue(self, t: float) -> None:
        self._waits.append((t, None, []))
        self._outcome = "waiting"

    def _leave_queue(self, t: float) -> float:
        if not self._waits or self._waits[-1][1] is not None:
            return 0.0
        start, _, causes = self._waits[-1]
        self._waits[-1] = (start, t, causes)
        return t - start

    def _held(self, event: ev.Held, stage: Stage) -> None:
        jobs, gpus = stage.ahead(event.id)
        cause = Cause(event.t, str(event.reason), event.facts, *stage.free(), jobs, gpus)
        if self._waits:
            self._waits[-1][2].append(cause)
        numbers = f" ({_facts(event.facts)})" if event.facts else ""
        self._step(
            event.t,
            "waiting",
            f"WAITING {cause.reason}: {meaning(cause.reason)}{numbers}. Asks for {_plural(stage.gpus(event.id), 'GPU')};"
            f" {cause.free_gpus} wholly free, {cause.largest_hole_gpus} on any one node;"
            f" {_plural(jobs, 'job')} ahead, asking for {_plural(gpus, 'GPU')}.",
        )

    def submitted(self, event: ev.Submitted, stage: Stage) -> None:
        """The job arrived."""
        jobs, gpus = stage.ahead(event.job.id)
        self._queue(event.t)
        ahead = f"{_plural(jobs, 'job')} ahead, asking for {_plural(gpus, 'GPU')}" if jobs else "nobody ahead"
        self._step(event.t, "submitted", f"Submitted, asks for {_plural(event.job.gpus, 'GPU')}; {ahead}.")

    def rejected(self, event: ev.Rejected, stage: Stage) -> None:
        """It will not run."""
        waited = self._leave_queue(event.t)
        never = event.reason in tuple(r.value for r in Reason if r.hopeless)
        self._outcome = "cancelled" if event.reason.startswith("cancel") else "rejected"
        numbers = f" ({_facts(event.facts)})" if event.facts else ""
        word = "REJECTED" if self._outcome == "rejected" else "CANCELLED"
        kind = " Waiting would not have helped." if never else ""
        self._verdict = f"{word} {event.reason}: {meaning(event.reason)}{numbers}.{kind}"
        self._step(event.t, self._outcome, f"{self._verdict} It had waited {format_duration(waited)}.")

    def started(self, event: ev.Started, stage: Stage) -> None:
        """It got its devices."""
        waited = self._leave_queue(event.t)
        silent = (
            " behind others (no reason of its own in the log)" if waited and not self._waits[-1][2] else ""
        )
        self._outcome = "running"
        verb = "Resumed" if event.resumed else f"Started (attempt {event.attempt})"
        share = (
            "whole"
            if event.share is None
            else f"{event.share.mode}, {event.share.compute_milli / 10:g} % guaranteed"
        )
        why = _rule(event.why)
        nodes = stage.nodes(event.devices)
        where = f"{'device' if len(event.devices) == 1 else 'devices'} {_range(event.devices)} on {_plural(nodes, 'node')}"
        self._step(
            event.t, "started", f"{verb} after {format_duration(waited)}{silent} on {where}, {share}.{why}"
        )

    def rated(self, event: ev.Rated, stage: Stage) -> None:
        """Its speed changed."""
        for meeting in self._beside.values():
            meeting[1] = event.rate if meeting[1] is None else min(meeting[1], event.rate)

    def stopping(self, event: ev.Stopping, stage: Stage) -> None:
        """It has to go."""
        winner = (
            f" for job {event.beneficiary} {show(stage.name(event.beneficiary))!r}"
            if event.beneficiary >= 0
            else ""
        )
        why = _rule(event.why)
        how = "saving its state" if event.suspend else "without saving its state"
        self._step(event.t, "stopping", f"Told to leave its devices{winner}, {how}.{why}")

    def suspended(self, event: ev.Suspended, stage: Stage) -> None:
        """It is in the queue again."""
        self._queue(event.t)
        self._step(
            event.t,
            "suspended",
            f"Suspended with {format_duration(event.work_s)} of work kept; queued again.",
        )

    def ended(self, event: ev.Ended, stage: Stage) -> None:
        """An attempt ended."""
        lost = f", {format_duration(event.lost_s)} of work lost" if event.lost_s else ""
        kept = f"{format_duration(event.work_s)} of useful work{lost}"
        if event.final:
            self._outcome = event.outcome
            self._verdict = f"{event.outcome} at {_at(event.t)} with {kept}."
            self._step(event.t, event.outcome, f"Ended: {event.outcome}, {kept}.")
        else:
            self._queue(event.t)
            self._step(
                event.t, "again", f"Attempt {event.attempt} ended ({event.outcome}, {kept}); queued again."
            )

    def moved(self, event: ev.Moved, stage: Stage) -> None:
        """It changes place."""
        self._step(
            event.t,
            "moved",
            f"Moved to {_range(event.devices)}; holds the old devices until its state is there.",
        )

    def resized(self, event: ev.Resized, stage: Stage) -> None:
        """Its share or its devices changed."""
        self._step(event.t, "resized", f"Now holds devices {_range(event.devices)}.")

    def _meet(self, t: float, stage: Stage) -> None:
        if self.job is None:
            return
        now = stage.neighbours(self.job.id)
        for other in sorted(set(self._beside) - now):
            start, rate = self._beside.pop(other)
            if t > start:
                self._past.append(Neighbour(other, stage.name(other), start, t, rate))
        for other in sorted(now - set(self._beside)):
            self._beside[other] = [t, stage.rate(self.job.id)]

    def told(self, stage: Stage) -> Explanation:
        """Everything collected."""
        job = self.job
        if job is None:
            raise InputError("no such job in the log")
        still = [Neighbour(o, stage.name(o), s, None, r) for o, (s, r) in sorted(self._beside.items())]
        waits = tuple(Wait(start, end, tuple(causes)) for start, end, causes in self._waits)
        return Explanation(
            job.id,
            job.name,
            job.gpus,
            self._outcome,
            self._verdict or self._standing(waits, stage),
            tuple(self._steps),
            waits,
            tuple(self._past + still),
            self._unblock(waits),
        )

    def _standing(self, waits: tuple[Wait, ...], stage: Stage) -> str:
        if self._outcome == "running":
            return "still running when the log ends."
        waited = format_duration(stage.now - waits[-1].start_s) if waits else "n/a"
        causes = waits[-1].causes if waits else ()
        why = f" {causes[-1].reason}: {meaning(causes[-1].reason)}" if causes else ""
        return f"WAITING{why}; has waited {waited} when the log ends (not now, which is not never)."

    def _unblock(self, waits: tuple[Wait, ...]) -> str:
        longest = max(
            waits, key=lambda w: (w.end_s if w.end_s is not None else float("inf")) - w.start_s, default=None
        )
        if longest is None or longest.end_s == longest.start_s:
            return ""
        if not longest.causes:
            return "an earlier start of the jobs ahead, or a policy that looks past the head of the queue"
        cause = longest.causes[-1]
        text = remedy(cause.reason)
        missing = self.job.gpus - cause.free_gpus if self.job is not None else 0
        if cause.reason == Reason.NO_CAPACITY and missing > 0:
            text += f" ({_plural(missing, 'more free GPU')} needed at {_at(cause.t)})"
        return text


def _range(devices: tuple[int, ...]) -> str:
    if len(devices) > 2 and devices[-1] - devices[0] == len(devices) - 1:
        return f"{devices[0]}-{devices[-1]}"
    return ", ".join(map(str, devices)) or "none"


_TOUCHES = (ev.Started, ev.Ended, ev.Suspended, ev.Moved, ev.Released, ev.Resized)
_HANDLERS: dict[type, Callable[[_Story, Any, Stage], None]] = {
    ev.Submitted: _Story.submitted,
    ev.Rejected: _Story.rejected,
    ev.Started: _Story.started,
    ev.Rated: _Story.rated,
    ev.Stopping: _Story.stopping,
    ev.Suspended: _Story.suspended,
    ev.Ended: _Story.ended,
    ev.Moved: _Story.moved,
    ev.Resized: _Story.resized,
}
