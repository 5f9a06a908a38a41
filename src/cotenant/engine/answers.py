"""What must follow at once from what users ask, from jobs that can never run, and from words about waiting jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.engine import mistakes
from cotenant.engine.foretelling import Foretelling
from cotenant.engine.livefold import LEAVE
from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.plan import Hold, Reason, Refusal, Reject, Why
from cotenant.model.ports import Executor, Policy
from cotenant.model.records import JobRecord, Status
from cotenant.model.ties import why_tied

__all__ = ["UNCHANGED", "Answers", "resized"]

_ASKED = Why("asked-by-owner")


class Answers:
    """Acts upon what folding an event returned.

    Parameters
    ----------
    state : State
    executor : Executor
    policy : Policy
        Named in messages.
    happen : callable
        Logs and folds an event.
    drain : callable
        Takes what the executor tells of this instant.
    foretelling : Foretelling
    """

    def __init__(  # noqa: PLR0917 - one caller, which has them all
        self,
        state: State,
        executor: Executor,
        policy: Policy,
        happen: Callable[[ev.Event], None],
        drain: Callable[[], None],
        foretelling: Foretelling,
    ) -> None:
        self._state, self._executor, self._happen, self._drain = state, executor, happen, drain
        self._policy, self._foretelling = policy, foretelling
        self._to: dict[type, Callable[[Any, Any], None]] = {
            ev.Submitted: self._submitted,
            ev.CancelRequested: self._cancel,
            ev.SuspendRequested: self._suspend,
            ev.ResumeRequested: self._resume,
            ev.ResizeRequested: self._resize,
        }

    def to(self, event: ev.Event, follows: Any) -> None:
        """Answer an event whose fold returned this."""
        self._to[type(event)](event, follows)

    def turn_away(self, now: float, job_id: int, reason: str, facts: dict[str, Any]) -> None:
        """A waiting job ends without running."""
        self._happen(ev.Rejected(now, job_id, reason, facts))
        self._executor.forget(job_id)

    def _submitted(self, event: ev.Submitted, never: tuple[Reason, dict[str, Any]]) -> None:
        reason, facts = never
        self.turn_away(event.t, event.job.id, reason.value, facts)

    def _cancel(self, event: ev.CancelRequested, _: bool) -> None:
        record = self._state.live(event.id)
        if record is None:
            return
        if record.status in (Status.PENDING, Status.HELD):
            self.turn_away(event.t, record.id, "cancelled", {})
        else:
            self._executor.cancel(record.id)
            self._drain()

    def _suspend(self, event: ev.SuspendRequested, follows: Refusal | str) -> None:
        record = self._state.records[event.id]
        if follows == LEAVE:
            self._happen(ev.Stopping(event.t, record.id, record.attempt, why=_ASKED))
            self._executor.stop(record.id, True)
            self._drain()
        elif isinstance(follows, Refusal) and not self._pause(event.id, True):
            self._refuse(event, "suspend", follows)

    def _resume(self, event: ev.ResumeRequested, _: str) -> None:
        self._pause(event.id, False)

    def _pause(self, job_id: int, paused: bool) -> bool:
        """Ask an executor that can to stop a process by signal, or to let it go on; answered by ``Paused``."""
        pause = getattr(self._executor, "pause", None)
        return bool(pause and pause(job_id, paused))

    def _resize(self, event: ev.ResizeRequested, follows: Refusal | Placement) -> None:
        if isinstance(follows, Refusal):
            self._refuse(event, "resize", follows)
            return
        record = self._state.records[event.id]
        if record.place == follows:
            return
        told = None if follows.share == WHOLE else follows.share
        self._happen(resized(self._executor, record, follows.devices, told, event.t, _ASKED))
        if told is not None:
            self._foretelling.came(record, follows)
        self._executor.resize(record.id, follows)
        self._drain()

    def _refuse(self, event: ev.SuspendRequested | ev.ResizeRequested, what: str, refusal: Refusal) -> None:
        self._happen(ev.Refused(event.t, event.id, what, refusal.reason, refusal.facts))

    # -- what policies say of jobs that wait -------------------------------------------

    def hold(self, decision: Hold, now: float) -> Refusal | None:
        """A policy says why a job waits."""
        record = self._waiting(decision)
        if record is None:
            return UNCHANGED
        tied = why_tied(self._state.ledger, record, decision.reason)
        reason, facts = tied or (decision.reason, decision.facts)
        if record.hold != reason:
            self._happen(ev.Held(now, record.id, reason, facts))
        return UNCHANGED

    def reject(self, decision: Reject, now: float) -> Refusal | None:
        """A policy turns a job away for good."""
        if self._waiting(decision) is None:
            return UNCHANGED
        self.turn_away(now, decision.id, decision.reason.value, decision.facts)
        return None

    def _waiting(self, decision: Hold | Reject) -> JobRecord | None:
        """The waiting job that a decision gives a reason for; None if it waits no more."""
        if not isinstance(decision.reason, Reason):
            raise mistakes.wrong_reason(self._policy, decision.reason)
        record = self._state.records.get(decision.id)
        return None if record is None or record.status else record


def resized(  # noqa: PLR0917 - as many things stand in the event
    executor: Executor, record: JobRecord, devices: tuple[int, ...], share: Share | None, t: float, why: Why
) -> ev.Resized:
    """A resize that was agreed to; in place, if the executor can do it so."""
    can = getattr(executor, "in_place", None)
    in_place = bool(can and can(record.id, Placement(devices, share or WHOLE)))
    return ev.Resized(t, record.id, record.attempt, devices, share, why, in_place)


UNCHANGED = Refusal(Reason.MALFORMED, {"unchanged": True})
"""Marks a decision that changed nothing and is not worth a line in the log."""
