"""Why a job waited, where it ran, who shared with it and who took its place: from the log alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from cotenant.engine.log import read_log
from cotenant.errors import InputError
from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.plan import Reason
from cotenant.model.poolevents import Loaded, Spilled, Stored, TierResized
from cotenant.model.quantities import format_duration
from cotenant.report.changes import Changes
from cotenant.report.derived import set_aside
from cotenant.report.explanation import Explanation, Step
from cotenant.report.finishing import Foreseen
from cotenant.report.neighbours import Neighbour, joined
from cotenant.report.ondevices import OnDevices
from cotenant.report.phrases import at, devices_named, facts_in_words, leaving, plural, rule, where
from cotenant.report.promises import Promises
from cotenant.report.real import ITSELF, REAL, amount, goes_to, how_ended, seen_late, sentence, work_in_words
from cotenant.report.reasons import meaning
from cotenant.report.runtimes import Expected, expectation, run_against
from cotenant.report.stage import Stage
from cotenant.report.tables import show
from cotenant.report.waiting import Waiting
from cotenant.report.waits import Cause, Refusal, Wait, helped

__all__ = ["Cause", "Explanation", "Neighbour", "Refusal", "Step", "Wait", "explain", "explain_events"]


def explain(log_path: Path, job: str | int) -> Explanation:
    """Explain one job.

    Parameters
    ----------
    log_path : Path
        An event log, plain or gzip.
    job : str or int
        Its name, or ``#`` and its number; an ``int`` is a number.

    Raises
    ------
    InputError
        If the log has no such job.
    LogError
        If the log cannot be read.
    """
    if isinstance(job, int):
        return explain_events(read_log(log_path), job, where=str(log_path))
    wanted = job
    digits = wanted.removeprefix("#")
    number = int(digits) if digits != wanted and digits.isascii() and digits.isdigit() else -1
    by_name = _Story(lambda j: j.name == wanted)
    by_id = _Story(lambda j: j.id == number)
    stage, promises = Stage(), Promises(lambda j: j.name == wanted or j.id == number)
    for event in read_log(log_path):
        promises.see(event)
        by_name.before(event, stage)
        by_id.before(event, stage)
        stage.see(event)
        by_name.after(event, stage)
        by_id.after(event, stage)
    story = by_name if by_name.job is not None else by_id
    if story.job is None:
        hint = f"; job number {wanted} is written #{wanted}" if wanted.isascii() and wanted.isdigit() else ""
        raise InputError(
            f'{log_path} has no job "{show(wanted)}"{hint}; it holds {stage.submitted:,} jobs, numbers from #0'
        )
    return msgspec.structs.replace(story.told(stage), promises=promises.of(story.job.id))


def explain_events(
    events: Iterable[ev.Event],
    job_id: int,
    *,
    where: str = "the log",
    now_s: float | None = None,
    present: tuple[str, dict[str, Any], str] | None = None,
) -> Explanation:
    """Explain the job of this number from events as they come.

    Parameters
    ----------
    where : str
        What the events are, for messages.
    now_s : float, optional
        The present, where the log still grows: waits last until then, and are told as lasting.
    present : tuple of str, dict and str, optional
        Why it waits at that time, if it does: a reason (empty: none that has a name), its numbers, and in words.

    Raises
    ------
    InputError
        If there is no such job among them.
    """
    story = _Story(lambda j: j.id == job_id)
    stage, promises = Stage(), Promises(lambda j: j.id == job_id)
    for event in events:
        promises.see(event)
        story.before(event, stage)
        stage.see(event)
        story.after(event, stage)
    if story.job is None:
        raise InputError(
            f'{where} has no job "#{job_id}"; it holds {stage.submitted:,} jobs, numbers from #0'
        )
    if now_s is not None:
        stage.now = max(stage.now, now_s)
    if present is not None:
        story.waits_now(*present, stage)
    told = story.told(stage, lasting=now_s is not None)
    return msgspec.structs.replace(told, promises=promises.of(job_id))


class _Story(Waiting):
    """Collects what concerns one job while the log goes by."""

    def __init__(self, is_it: Callable[[Job], bool]) -> None:
        super().__init__()
        self._is_it = is_it
        self._beside: dict[int, list[Any]] = {}
        self._past: list[Neighbour] = []
        self._verdict = ""
        self._own, self._saved_s = False, 0.0
        self._stays = OnDevices()
        self._expected: Expected = None
        self._changes = Changes()
        self._foreseen = Foreseen(-1)

    def before(self, event: Any, stage: Stage) -> None:
        """Look at the state that an event is about to change."""
        if isinstance(event, ev.Submitted) and self.job is None and self._is_it(event.job):
            self.job, self._foreseen = event.job, Foreseen(event.job.id)
        if self.job is None:
            return
        if self._waits and event.t > self._waits[-1].start_s:
            # Everything of the instant at which it was queued has happened, and nothing later.
            self._derive(stage)
        if told := self._foreseen.carried(event.t, stage, self.job.model):
            self._step(told[0], "foreseen", told[1])
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
        if isinstance(event, _STATE) and (told := stage.state_tiers.told(event, self.job.id)):
            self._step(event.t, str(event.__struct_config__.tag), told)
        self._foreseen.see(event)
        if isinstance(event, _TOUCHES):
            self._meet(event.t - getattr(event, "ago_s", 0.0), stage)

    def submitted(self, event: ev.Submitted, stage: Stage) -> None:
        """The job arrived."""
        self._queue(event.t, stage.ahead(event.job.id)[0])
        self._expected = event.expected_s
        ahead = stage.queue_in_words(event.job.id) + expectation(self._expected)
        self._step(event.t, "submitted", f"Submitted, asks for {plural(event.job.gpus, 'GPU')}; {ahead}.")

    def rejected(self, event: ev.Rejected, stage: Stage) -> None:
        """It will not run."""
        waited = self._leave_queue(event.t)
        never = event.reason in tuple(r.value for r in Reason if r.hopeless)
        self._outcome = "cancelled" if event.reason.startswith("cancel") else "rejected"
        numbers = f" ({facts_in_words(event.facts)})" if event.facts else ""
        kind = " Waiting would not have helped." if never else ""
        self._verdict = f"{self._outcome.upper()} {event.reason}: {meaning(event.reason)}{numbers}.{kind}"
        self._step(event.t, self._outcome, f"{self._verdict} It had waited {format_duration(waited)}.")

    def started(self, event: ev.Started, stage: Stage) -> None:
        """It got its devices."""
        waited = self._leave_queue(event.t)
        wait = self._waits[-1] if waited else None
        silent = f" ({wait.why})" if wait is not None and wait.silent and wait.why else ""
        self._outcome = "running"
        self._stays.came(event.t)
        verb = "Resumed" if event.resumed else f"Started (attempt {event.attempt})"
        if event.resumed and self._own:
            verb = "Started anew, from what it keeps itself,"
        part = event.share
        share = "whole" if part is None else f"{part.mode}, {_counted_on(part)}"
        why = rule(event.why)
        place = where(event.devices, stage.nodes(event.devices))
        self._step(
            event.t,
            "started",
            f"{verb} on {place}, {share}, after {format_duration(waited)} of waiting{silent}.{why}",
        )

    def rated(self, event: ev.Rated, stage: Stage) -> None:
        """Its speed changed."""
        if told := self._changes.measured(event):
            self._step(event.t, "measured", told)
        for meeting in self._beside.values():
            meeting[1] = event.rate if meeting[1] is None else min(meeting[1], event.rate)

    def sampled(self, event: ev.Sampled, stage: Stage) -> None:
        """Its speed was measured."""
        self._step(event.t, "sampled", self._foreseen.sampled(event))

    def stopping(self, event: ev.Stopping, stage: Stage) -> None:
        """It has to go."""
        winner = (
            f" for job {event.beneficiary} {show(stage.name(event.beneficiary))!r}"
            if event.beneficiary >= 0
            else ""
        )
        if winner and event.why.rule == Reason.LOWER_RANK:
            self._stopped_for = f"{winner.removeprefix(' for ')} ({event.why.rule})"
        why = rule(event.why)
        self._step(event.t, "stopping", f"Told to leave its devices{winner}, {leaving(event.suspend)}.{why}")

    def held(self, event: ev.SuspendRequested | ev.ResumeRequested | ev.Awaited, stage: Stage) -> None:
        """Its owner holds it or lets it go, or it awaits other jobs, or no longer."""
        self._wished_s = event.t
        self._asked, told = set_aside(event)
        self._aside(event.t)
        self._step(event.t, "asked", told)

    def real(self, event: Any, stage: Stage) -> None:
        """Its process runs or stands still, or its owner wants it to have another share."""
        self._wished_s = event.t
        self._stays.real = True
        if isinstance(event, ev.Paused):
            self._outcome = "paused" if event.paused else "running"
        self._step(event.t, *sentence(event))

    def suspended(self, event: ev.Suspended, stage: Stage) -> None:
        """It is in the queue again."""
        self._queue(event.t, stage.ahead(event.id)[0])
        self._own, stay = event.own, self._stays.left(event.t)
        if event.own:
            done = f"Ended after {format_duration(event.work_s)} of work{stay} to make room; queued again"
            self._step(event.t, "suspended", f"{done}{self._for_whom()}. It goes on {ITSELF}.")
            return
        self._saved_s = event.work_s
        kept = f"{amount(event.work_s, self.job)} kept{stay}"
        if where := stage.state_tiers.waits_where(event.id):
            kept += f"; {where}"
        self._step(event.t, "suspended", f"Suspended with {kept}; queued again{self._for_whom()}.")

    def ended(self, event: ev.Ended, stage: Stage) -> None:
        """An attempt ended."""
        ended_s = event.t - event.ago_s
        kept = work_in_words(event, self.job, self._saved_s) + self._stays.left(ended_s) + how_ended(event)
        if event.final:
            self._outcome = event.outcome
            self._verdict = f"{event.outcome} at {at(ended_s)} with {kept}."
            kept += "." + run_against(event, self._expected) + seen_late(event)
            last_s = self._steps[-1].t if self._steps else ended_s
            self._step(max(ended_s, last_s), event.outcome, f"Ended: {event.outcome}, {kept}")
        else:
            self._queue(event.t, stage.ahead(event.id)[0])
            self._own = event.own
            text = f"Attempt {event.attempt} ended ({event.outcome}, {kept}); queued again{self._for_whom()}."
            self._step(event.t, "again", text)

    def moved(self, event: ev.Moved, stage: Stage) -> None:
        """It changes place."""
        self._step(
            event.t,
            "moved",
            f"Moved to {devices_named(event.devices)}; holds the old devices until its state is there.{rule(event.why)}",
        )
        self._changes.changed(event, stage.rate(event.id))

    def resized(self, event: ev.Resized, stage: Stage) -> None:
        """Its share or its devices changed."""
        self._step(event.t, "resized", f"{goes_to(event)}.{rule(event.why)}")
        self._changes.changed(event, stage.rate(event.id))

    def _meet(self, t: float, stage: Stage) -> None:
        if self.job is None:
            return
        if (now := stage.neighbours(self.job.id)) != set(self._beside):
            self._foreseen.changed(t)
        for other in sorted(set(self._beside) - now):
            start, rate = self._beside.pop(other)
            if t > start:
                self._past.append(self._beside_it(other, stage, start, t, rate))
        for other in sorted(now - set(self._beside)):
            self._beside[other] = [t, stage.rate(self.job.id)]

    def _beside_it(
        self, other: int, stage: Stage, start_s: float, end_s: float | None, rate: float | None
    ) -> Neighbour:
        found = Neighbour(other, stage.name(other), start_s, end_s, rate, real=self._stays.real)
        if self.job is None or not self.job.max_gpus:
            return found
        against = f"its speed alone on {plural(self.job.gpus, 'device')}"
        return msgspec.structs.replace(found, against=against)

    def told(self, stage: Stage, *, lasting: bool = False) -> Explanation:
        """Everything collected; ``lasting``: the log still grows."""
        job = self.job
        if job is None:
            raise InputError("no such job in the log")
        still = [self._beside_it(o, stage, s, None, r) for o, (s, r) in sorted(self._beside.items())]
        self._derive(stage, again=True)
        waits = tuple(self._waits)
        for index, refusal in self._refused.items():
            self._steps[index] = Step(refusal.t, "refused", refusal.text)
        return Explanation(
            job.id,
            job.name,
            job.gpus,
            self._outcome,
            self._verdict or self._standing(waits, stage, lasting=lasting),
            tuple(self._steps),
            waits,
            joined(self._past + still),
            helped(waits),
        )

    def _standing(self, waits: tuple[Wait, ...], stage: Stage, *, lasting: bool) -> str:
        end = "" if lasting else " when the log ends"
        if self._outcome in ("running", "paused"):
            stay = self._stays.now(stage.now)
            return f"{'' if lasting else 'still '}{self._outcome}{end}{f'; {stay} so far' if stay else ''}."
        waited = format_duration(stage.now - waits[-1].start_s) if waits else "n/a"
        why = self._now or (waits[-1].why if waits else "")
        hope = "" if "never fits" in why else " (not now, which is not never)"
        return f"WAITING{' ' if why else ''}{why}; has waited {waited}{end}{hope}."


def _counted_on(share: Share) -> str:
    """What a job may count on beside others."""
    if share.mode == "spatial" and not share.compute_milli:
        return "guaranteed what is not its neighbours' there"
    return f"{share.compute_milli / 10:g} % guaranteed"


_TOUCHES = (ev.Started, ev.Ended, ev.Suspended, ev.Moved, ev.Released, ev.Resized, ev.Resettled)
_STATE = (Stored, Spilled, Loaded, TierResized)
_HANDLERS: dict[type, Callable[[_Story, Any, Stage], None]] = {
    ev.Submitted: _Story.submitted,
    ev.Rejected: _Story.rejected,
    ev.Started: _Story.started,
    ev.Rated: _Story.rated,
    ev.Sampled: _Story.sampled,
    ev.Stopping: _Story.stopping,
    ev.Suspended: _Story.suspended,
    ev.Ended: _Story.ended,
    ev.Moved: _Story.moved,
    ev.Resized: _Story.resized,
    ev.Refused: _Story.refused,
    ev.SuspendRequested: _Story.held,
    ev.ResumeRequested: _Story.held,
    ev.Awaited: _Story.held,
    **dict.fromkeys(REAL, _Story.real),
}
