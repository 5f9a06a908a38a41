"""The loop: events arrive, are logged and folded; the policy decides; each decision is
checked against the current state, logged, and only then carried out.

It serves the simulator and the live scheduler alike: only the executor differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from cotenant.engine import mistakes
from cotenant.engine.answers import UNCHANGED, Answers, resized
from cotenant.engine.autoscaler import autoscaled
from cotenant.engine.collector import seldom_collected
from cotenant.engine.foreseen import foreseen
from cotenant.engine.foretelling import Foretelling
from cotenant.engine.header import closing, opening, restarting
from cotenant.engine.history import recall
from cotenant.engine.learning import Learning
from cotenant.engine.log import LogWriter
from cotenant.engine.retries import tried_again
from cotenant.engine.state import State
from cotenant.engine.wakes import Wakes
from cotenant.engine.watch import watched
from cotenant.errors import PolicyError
from cotenant.model import events as ev
from cotenant.model import rules
from cotenant.model.asking import within
from cotenant.model.cluster import Cluster
from cotenant.model.events import Ended, Started, Submitted
from cotenant.model.placement import WHOLE, Placement
from cotenant.model.plan import (
    EMPTY,
    Hold,
    Move,
    Plan,
    Refusal,
    Reject,
    Reserve,
    Resize,
    Start,
    Stop,
)
from cotenant.model.ports import Executor, Forecast, Policy, RuntimeForecast
from cotenant.model.rules import check_start
from cotenant.model.settings import Settings
from cotenant.model.view import View

__all__ = ["Loop", "Observer"]

_FLUSH = 2048
_SPARE_ROUNDS = 1000
_INF = math.inf


class Observer(Protocol):
    """Sees every event, in batches, as they are written to the log."""

    def see(self, events: list[ev.Event]) -> None:
        """Take the next events."""


class Loop:
    """Runs one policy on one executor.

    Parameters
    ----------
    cluster : Cluster
    policy : Policy
    executor : Executor
    forecast : Forecast, optional
        What the policy may know about speeds.
    runtime : RuntimeForecast, optional
        Predicts lengths at submission.
    settings : Settings, optional
    seed : int
    log : LogWriter, optional
    observers : iterable of Observer
    header : dict, optional
        ``policy``, ``params``, ``workload`` and ``truth`` for the first line of the log.
    drop_indexes : bool
        Drop everything derived before each call of the policy: slow; for the purity check.
    on_event : callable, optional
        Called with the state after each event; for tests of invariants.
    history : iterable of Event, optional
        A log to go on with: it is folded first, as if this loop had written it. Observers with a
        method ``recall`` are given it too. An executor with methods ``recall`` and ``attach`` takes up
        what really runs.
    durable : bool
        All events of an instant are written before the executor may act upon them. If the log
        cannot be written, ``run`` ends with its error, and nothing more is done.

    Raises
    ------
    LogError
        If the history cannot be folded, or is of other devices.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        policy: Policy,
        executor: Executor,
        forecast: Forecast | None = None,
        runtime: RuntimeForecast | None = None,
        settings: Settings | None = None,
        seed: int = 0,
        log: LogWriter | None = None,
        observers: Iterable[Observer] = (),
        header: dict[str, Any] | None = None,
        drop_indexes: bool = False,
        on_event: Callable[[State, ev.Event], None] | None = None,
        history: Iterable[ev.Event] = (),
        durable: bool = False,
    ) -> None:
        self.settings = (settings or Settings()).check()
        self._runtime = runtime if getattr(policy, "uses_predictions", True) else None
        self.state = State(cluster, self.settings)
        if getattr(executor, "live", False):
            self.state.go_live()
        self.state.counts_service = getattr(policy, "uses_service", True)
        self._appliers = watched(self.state, on_event) if on_event else self.state.appliers
        if (half_life_s := getattr(policy, "usage_half_life_s", None)) is not None:
            self.state.track_usage(half_life_s)
        self.policy, self.executor = policy, autoscaled(self.state, executor)
        self.view = View(self.state, forecast, seed)
        self.log = log or LogWriter()
        self._observers = tuple(observers)
        self._drop_indexes = drop_indexes
        self._buffer: list[ev.Event] = []
        self._wake = _INF
        self._stopped = False
        self._starts_now, self._most_starts = 0, self.settings.starts_per_event
        self._wakes = Wakes(self.state, self.executor, policy)
        self._foretelling = Foretelling(self.state, forecast, self._happen)
        Learning(self.state, forecast)
        self._answers = Answers(
            self.state, self.executor, policy, self._happen, self._drain, self._foretelling
        )
        self._flush_at = 1 if durable else _FLUSH
        self._idle = getattr(policy, "idle_without_queue", False)
        self._handlers: dict[type, Callable[[Any, float], Refusal | None]] = {
            Start: self._start,
            Stop: self._stop,
            Move: self._change,
            Resize: self._change,
            Reserve: self._reserve,
            Hold: self._answers.hold,
            Reject: self._answers.reject,
        }
        self._begin(history, header or {}, seed=seed, forecast=forecast, runtime=runtime)

    def _begin(self, history: Iterable[ev.Event], header: dict[str, Any], **world: Any) -> None:
        """Open a log, or go on with one."""
        state, executor, name = self.state, self.executor, type(self.policy).__name__
        told = [o.recall for o in (*self._observers, executor) if hasattr(o, "recall")]
        opened = recall(
            history,
            state=state,
            appliers=self._appliers,
            runtime=self._runtime,
            foretelling=self._foretelling,
            tell=told,
        )
        attach = getattr(executor, "attach", None)
        found = attach(state) if attach else {}
        if opened is not None:
            self._happen(restarting(state, opened, header, name, found))
            self.view.memo, self.view.seed, self._wake = state.memo, opened.seed, state.now
            return
        first = opening(policy=name, cluster=state.cluster, settings=self.settings, header=header, **world)
        self._happen(first)

    def run(self) -> State:
        """Run until nothing is to come, or until ``stop``; closes the log."""
        with seldom_collected():
            if self._flush_at == 1:
                self._flush()
            self._play()
            self._close()
        return self.state

    def _play(self) -> None:
        wait, buffer, told = self.executor.wait, self._buffer, self._foretelling
        take, decide, state, queue = self._take, self._decide, self.state, self.state.queue
        skips, flush_at = self._idle and not self.settings.round_s, self._flush_at
        while not self._stopped:
            events = wait(self._wake)
            if events:
                take(events)
                if skips and not queue.count:
                    self._wake = _INF
                else:
                    decide(state.now)
            elif self._wake == _INF or self._wakes.in_vain():
                break
            else:
                state.now = self.executor.now()
                decide(state.now)
            if told.due:
                told.tell()
            if len(buffer) >= flush_at:
                self._flush()

    def stop(self) -> None:
        """End after the present instant; the log stays valid and says so. Safe in a signal handler."""
        self._stopped = True
        if interrupt := getattr(self.executor, "interrupt", None):
            interrupt()

    def _close(self) -> None:
        self._flush()
        if self._flush_at == 1:
            return  # the log goes on when the scheduler is back
        self._happen(closing(self.state, self.log.events + 1, interrupted=self._stopped))
        self._flush()
        self.log.close()

    def _flush(self) -> None:
        batch = self._buffer[:]
        self._buffer.clear()
        if batch:
            try:
                self.log.write(batch)
            except (TypeError, ValueError) as error:
                raise PolicyError(
                    f"{type(self.policy).__name__} gave a why, facts or memo that is not plain JSON: {error}"
                ) from error
            for observer in self._observers:
                observer.see(batch)

    def _happen(self, event: ev.Event) -> None:
        """Log and fold (``State.apply``, without the call)."""
        self._buffer.append(event)
        state = self.state
        state.now = event.t
        state.version += 1
        self._appliers[type(event)](event)

    def _take(self, events: list[ev.Event]) -> None:
        """Log and fold what the executor tells, and do at once what must follow from it."""
        state, buffer, appliers = self.state, self._buffer, self._appliers
        foresees = self._runtime is not None
        for event in events:
            kind = type(event)
            if foresees and (kind is Submitted or kind is Ended):
                event = foreseen(event, self._runtime, state.records)  # type: ignore[arg-type]  # noqa: PLW2901
            if kind is Ended and event.outcome != "done":  # type: ignore[union-attr]
                event = self._settle(event)  # type: ignore[arg-type]  # noqa: PLW2901
            # As _happen, without the call: these are the hottest lines of the engine.
            buffer.append(event)
            state.now = event.t
            state.version += 1
            follows = appliers[kind](event)
            if follows is not None:
                self._answers.to(event, follows)

    def _settle(self, event: ev.Ended) -> ev.Ended:
        if tried_again(event, self.state.records.get(event.id), self.settings):
            return msgspec.structs.replace(event, final=False)
        self.executor.forget(event.id)
        return event

    def _drain(self) -> None:
        self._take(self.executor.drain())

    def _decide(self, now: float) -> None:
        view, queue, most = self.view, self.state.queue, self._most_starts
        if self.settings.round_s and not self._round_is_due(now):
            return
        self._wake = _INF
        if self._idle and not queue.count:
            return
        self._starts_now = 0
        decide = self.policy.decide
        # Each live job may start, stop, move and be reserved for at one instant; more is going in circles.
        for _ in range(4 * len(self.state.records) + _SPARE_ROUNDS):
            if self._drop_indexes:
                view.drop_indexes()
            plan = decide(view)
            if plan is EMPTY:
                return
            if type(plan) is not Plan or type(plan.decisions) is not tuple:
                raise mistakes.wrong_plan(self.policy, plan)
            accepted = self._apply(plan, now)
            if not (plan.again and accepted) or (self._idle and not queue.count):
                return
            if 0 < most <= self._starts_now:
                # The bound is on one instant; go on at the next event, or a second later.
                self._wake = min(self._wake, now + 1.0)
                return
        raise mistakes.endless(self.policy, now)

    def _round_is_due(self, now: float) -> bool:
        """Round-based: decide only at multiples of ``round_s``."""
        size = self.settings.round_s
        due = math.floor(now / size) * size
        if now == due:
            return True
        self._wake = due + size if self.state.records else _INF
        return False

    def _apply(self, plan: Plan, now: float) -> int:
        """Carry out a plan; returns how many decisions changed something."""
        accepted = 0
        for decision in plan.decisions:
            if type(decision) is Start and type(decision.devices) is tuple:
                refusal = self._start(decision, now)
            else:
                handler = self._handlers.get(type(decision))
                if handler is None or type(getattr(decision, "devices", ())) is not tuple:
                    raise mistakes.wrong_decision(self.policy, decision, self._handlers)
                refusal = handler(decision, now)
            if refusal is None:
                accepted += 1
            elif refusal is not UNCHANGED:
                kind = type(decision).__name__.lower()
                self._happen(ev.Refused(now, decision.id, kind, refusal.reason, refusal.facts))
        if plan.memo is not None and plan.memo != self.view.memo:
            self.view.memo = plan.memo
            self._happen(ev.MemoSaved(now, plan.memo))
        if plan.wake_at_s is not None and plan.wake_at_s > now:
            self._wake = min(self._wake, plan.wake_at_s)
        return accepted

    def _start(self, decision: Start, now: float) -> Refusal | None:
        state = self.state
        if 0 < self._most_starts <= self._starts_now:
            return UNCHANGED
        job_id, devices, share, node = decision.id, decision.devices, decision.share, decision.node
        record = state.records.get(job_id)
        refusal = check_start(state.books, record, devices, share, node)
        if refusal is not None or record is None:
            return refusal
        self._starts_now += 1
        resumed = record.suspended
        attempt = record.attempt if resumed else record.attempt + 1
        told = None if share is WHOLE else within(share, record.job)
        event = Started(now, job_id, attempt, devices, told, resumed, decision.why, node)
        # As _happen, without the call: most decisions are starts.
        self._buffer.append(event)
        state.version += 1
        self._appliers[Started](event)
        if told is not None:
            self._foretelling.came(record, record.place)  # type: ignore[arg-type]
        if self.executor.start(record.job, record.place, attempt, resumed):  # type: ignore[arg-type]
            self._drain()
        return None

    def _stop(self, decision: Stop, now: float) -> Refusal | None:
        state = self.state
        record = state.records.get(decision.id)
        refusal = rules.check_stop(state.books, record, decision.suspend, now)
        if refusal is not None or record is None:
            return refusal
        self._happen(
            ev.Stopping(now, record.id, record.attempt, decision.suspend, decision.beneficiary, decision.why)
        )
        self.executor.stop(record.id, decision.suspend)
        self._drain()
        return None

    def _change(self, decision: Move | Resize, now: float) -> Refusal | None:
        """Give a running job other devices or another share."""
        moves = isinstance(decision, Move)
        check = rules.check_move if moves else rules.check_resize
        record = self.state.records.get(decision.id)
        devices, share = decision.devices, decision.share
        refusal = check(self.state.books, record, devices, share, now)
        if refusal is not None or record is None:
            return refusal
        share = within(share, record.job)
        if share is not decision.share and record.place == Placement(devices, share):
            return UNCHANGED
        told = None if share is WHOLE else share
        if moves:
            self._happen(ev.Moved(now, record.id, record.attempt, devices, told, decision.why))
        else:
            self._happen(resized(self.executor, record, devices, told, now, decision.why))
        if told is not None:
            self._foretelling.came(record, Placement(devices, share))
        (self.executor.move if moves else self.executor.resize)(record.id, Placement(devices, share))
        self._drain()
        return None

    def _reserve(self, decision: Reserve, now: float) -> Refusal | None:
        record = self.state.records.get(decision.id)
        refusal = rules.check_reserve(self.state.books, record, decision.devices)
        if refusal is not None or record is None:
            return refusal
        if record.reserved == decision.devices:
            return UNCHANGED
        self._happen(ev.Reserved(now, record.id, decision.devices, decision.why))
        return None
