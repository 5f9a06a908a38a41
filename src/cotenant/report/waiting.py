"""The waits in the story of a job: why it is in the queue, what was refused, and for whom it was stopped."""

from __future__ import annotations

from typing import Any

from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason
from cotenant.report.derived import derive, free_in
from cotenant.report.explanation import Step
from cotenant.report.phrases import facts_in_words, plural
from cotenant.report.stage import Stage
from cotenant.report.waits import Cause, Refusal, Wait

__all__ = ["Waiting"]


class Waiting:
    """Collects the waits of one job, and the steps of its story.

    Attributes
    ----------
    job : Job or None
        None until its submission is seen.
    """

    def __init__(self) -> None:
        self.job: Job | None = None
        self._steps: list[Step] = []
        self._waits: list[Wait] = []
        self._looked = 0
        self._refused: dict[int, Refusal] = {}
        self._outcome = "waiting"
        self._stopped_for = ""
        self._asked: Reason | None = None
        self._wished_s = -1.0
        self._now = ""

    def _derive(self, stage: Stage, *, again: bool = False) -> None:
        """Note once for each wait, and at the end of the log, what stands in the job's way."""
        if self.job is None or not self._waits or self._waits[-1].end_s is not None:
            return
        wait = self._waits[-1]
        if wait.silent and (again or self._looked < len(self._waits)):
            self._looked, wait.derived = len(self._waits), derive(self.job, stage)

    def _step(self, t: float, what: str, text: str) -> None:
        self._steps.append(Step(t, what, text))

    def _queue(self, t: float, ahead_jobs: int) -> None:
        self._waits.append(Wait(t, ahead_jobs, stopped_for=self._stopped_for))
        self._stopped_for = ""
        self._outcome = "waiting"
        self._aside(t)

    def _aside(self, t: float) -> None:
        """While its owner holds it, or it awaits other jobs, that is why it waits."""
        if self._asked is not None and self._waits and self._waits[-1].end_s is None:
            self._waits[-1].causes.append(Cause(t, str(self._asked), {}, 0, 0, 0, 0))

    def waits_now(self, reason: str, facts: dict[str, Any], words: str, stage: Stage) -> None:
        """Of what runs now: why it waits at this moment, which the log need not say."""
        wait = self._waits[-1] if self._waits else None
        if self.job is None or wait is None or wait.end_s is not None:
            return
        last = wait.in_force
        words = words.replace("not now: ", "", 1)
        self._now = f"{reason}: {words}" if reason else words
        if reason and (last is None or last.reason != reason):
            ahead = stage.ahead(self.job.id)
            cause = Cause(stage.now, reason, facts, *free_in(facts, stage.free()), *ahead, self.job.gpus)
            wait.causes.append(cause)

    def _for_whom(self) -> str:
        return f": {self._waits[-1].why}" if self._waits[-1].stopped_for else ""

    def _leave_queue(self, t: float) -> float:
        if not self._waits or self._waits[-1].end_s is not None:
            return 0.0
        self._waits[-1].end_s = t
        return t - self._waits[-1].start_s

    def _until_now(self, t: float) -> None:
        """Account for the part of a wait for which the log gave no reason, now that it gives one."""
        wait = self._waits[-1] if self._waits else None
        if wait is not None and wait.end_s is None and wait.silent and t > wait.start_s:
            self._step(wait.start_s, "behind", wait.before_reasons(t))

    def _held(self, event: ev.Held, stage: Stage) -> None:
        seen = stage.free()
        known = free_in(event.facts, seen)
        cause = Cause(
            event.t, str(event.reason), event.facts, *known, *stage.ahead(event.id), stage.gpus(event.id)
        )
        self._until_now(event.t)
        if self._waits:
            self._waits[-1].causes.append(cause)
        numbers = f" ({facts_in_words(event.facts)})" if event.facts else ""
        # A policy counts less as free (what is held for others); only one of two counts is told.
        cluster = f" {known[0]} wholly free, {known[1]} on any one node;" if known == seen else ""
        self._step(
            event.t,
            "waiting",
            f"WAITING {cause.reason}: {cause.text}{numbers}. Asks for {plural(stage.gpus(event.id), 'GPU')};"
            f"{cluster} {stage.queue_in_words(event.id)}.",
        )

    def refused(self, event: ev.Refused, stage: Stage) -> None:
        """The policy decided something about it that the rules forbid."""
        last = self._refused.get(len(self._steps) - 1)
        if last is not None and (last.decision, last.reason) == (event.decision, str(event.reason)):
            last.count, last.last_t = last.count + 1, event.t
            return
        self._until_now(event.t)
        wished = self._wished_s == event.t
        found = Refusal(event.t, event.decision, str(event.reason), event.facts, 1, event.t, wished)
        self._refused[len(self._steps)] = found
        self._step(event.t, "refused", "")  # its words are known once it is known how often
        if self._waits and self._waits[-1].end_s is None:
            self._waits[-1].refusals.append(found)
