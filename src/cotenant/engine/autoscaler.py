"""Pools that resize themselves, whatever the policy: devices by the queue, state tiers by what they hold.

A rule looks at the state at its interval and orders changes: ``NodeUp`` and ``NodeDown`` for devices,
``TierResized`` for tiers. Orders are events like any other, so the log tells all; a change takes effect
when its event happens. Clusters without rules are not looked at.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Protocol, cast

from cotenant.engine.state import State
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.poolevents import TierResized
from cotenant.model.pools import GPUS, Scaling
from cotenant.model.ports import Executor

__all__ = ["autoscaled"]

CAUSE = "autoscaling"
_INF = math.inf


def autoscaled(state: State, executor: Executor) -> Executor:
    """The executor itself, or one that also carries out the rules of a cluster that has some.

    Raises
    ------
    ConfigError
        If there are rules and the executor cannot be given events of the cluster.
    """
    if not state.cluster.scaling:
        return executor
    if not hasattr(executor, "schedule"):
        raise ConfigError(
            f"the cluster has autoscaling rules, and {type(executor).__name__} cannot resize it"
        )
    return cast(Executor, _Autoscaled(state, executor))


class _Rule(Protocol):
    every_s: float

    def orders(self, now: float) -> list[ev.Event]:
        """Changes, at their times."""


class _Autoscaled:
    """An executor whose time stops where a rule looks."""

    def __init__(self, state: State, inner: Any) -> None:
        self._state, self._inner = state, inner
        self._rules: list[_Rule] = [_rule(state, scaling) for scaling in state.cluster.scaling]
        self._next = [0.0] * len(self._rules)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def wait(self, until: float) -> list[ev.Event]:
        """As of the executor, with the rules' looks in between."""
        inner, state = self._inner, self._state
        while True:
            due = min(self._next)
            if due <= inner.now():
                ordered = self._look(inner.now())
                if not ordered and until == _INF and inner.idle():
                    return []  # nothing is to come, and the rules have seen what there is
                continue
            if inner.idle() and not state.records:
                return cast("list[ev.Event]", inner.wait(until))
            events = cast("list[ev.Event]", inner.wait(min(until, due)))
            if events or until < due:
                return events

    def _look(self, now: float) -> bool:
        """Let the rules that are due look; whether they ordered anything."""
        ordered = False
        for number, rule in enumerate(self._rules):
            if self._next[number] <= now:
                self._next[number] = (math.floor(now / rule.every_s) + 1) * rule.every_s
                for event in rule.orders(now):
                    self._inner.schedule(event)
                    ordered = True
        return ordered


def _rule(state: State, scaling: Scaling) -> _Rule:
    if scaling.of == GPUS:
        return _Devices(state, scaling)
    tier = [t.name for t in state.cluster.state_tiers].index(scaling.of)
    return (_Retention if scaling.rule == "retention" else _Fill)(state, scaling, tier)


class _Devices:
    """Nodes come while waiting and running jobs ask for more devices than there are, in the order of the cluster.

    They go, last first, once they have been empty for ``idle_s`` and the others suffice. Nodes beyond ``least`` are
    off at first.
    """

    def __init__(self, state: State, scaling: Scaling) -> None:
        self.every_s = scaling.every_s
        self._state, self._scaling = state, scaling
        self._sizes = {n: len(d) for n, d in enumerate(state.layout.node_devices) if d}
        self._on: set[int] = set(self._sizes)
        self._empty_s: dict[int, float] = {}
        self._first = True

    def orders(self, now: float) -> list[ev.Event]:
        """Nodes to switch on after the delay, and off at once."""
        if self._first:
            self._first = False
            off = list(self._sizes)[self._scaling.least :]
            self._on.difference_update(off)
            return [ev.NodeDown(now, node, CAUSE) for node in off]
        busy, used = self._busy()
        asked = sum(record.job.gpus for record in self._state.queue)
        more = self._more(now, asked + used) if asked else []
        return more or self._less(now, asked + used, busy)

    def _busy(self) -> tuple[set[int], int]:
        """Nodes with jobs, or kept for one, and how many devices are held."""
        layout, state = self._state.layout, self._state
        busy, used = {layout.device_node[d] for d in state.ledger.reserved}, 0
        for record in state.running.values():
            place = record.place
            if place is not None:
                used += len(place.devices)
                busy.update(layout.nodes_of(place.devices))
                busy.add(place.node)
        for place in state.ledger.leaving.values():
            busy.update(layout.nodes_of(place.devices))
        return busy, used

    def _more(self, now: float, asked: int) -> list[ev.Event]:
        there = sum(self._sizes[n] for n in self._on)
        found: list[ev.Event] = []
        for node, size in self._sizes.items():
            if there >= asked or len(self._on) >= self._scaling.most:
                break
            if node not in self._on:
                self._on.add(node)
                self._empty_s.pop(node, None)
                there += size
                found.append(ev.NodeUp(now + self._scaling.delay_s, node))
        return found

    def _less(self, now: float, asked: int, busy: set[int]) -> list[ev.Event]:
        usable, devices = self._state.ledger.usable, self._state.layout.node_devices
        there = sum(self._sizes[n] for n in self._on)
        found: list[ev.Event] = []
        for node in sorted(self._on, reverse=True):
            if node in busy or not usable[devices[node][0]]:
                self._empty_s.pop(node, None)  # busy, failed, or still on its way
                continue
            since = self._empty_s.setdefault(node, now)
            room = there - self._sizes[node] >= asked and len(self._on) > self._scaling.least
            if room and now - since >= self._scaling.idle_s:
                self._on.discard(node)
                del self._empty_s[node]
                there -= self._sizes[node]
                found.append(ev.NodeDown(now, node, CAUSE))
        return found


class _Tier:
    """What the rules of tiers share: one order at a time, growth after the delay, shrinking at once."""

    def __init__(self, state: State, scaling: Scaling, tier: int) -> None:
        self.every_s = scaling.every_s
        self._scaling, self._tier = scaling, tier
        assert state.books.tiers is not None  # noqa: S101 - a rule names a tier that is there
        self._books = state.books.tiers
        self._ordered_s = -_INF

    def orders(self, now: float) -> list[ev.Event]:
        """A new capacity, if it should change."""
        wanted = self._wanted(now)
        capacity = self._books.capacity[self._tier]
        if wanted is None or now < self._ordered_s:
            return []
        wanted = min(max(wanted, self._scaling.least), self._scaling.most)
        if wanted == capacity:
            return []
        grows = capacity is not None and wanted > capacity
        self._ordered_s = now + (self._scaling.delay_s if grows else 0.0)
        return [TierResized(self._ordered_s, self._tier, wanted, CAUSE)]

    def _wanted(self, now: float) -> int | None:
        """Bytes that there should be; None: as it is."""
        raise NotImplementedError


class _Fill(_Tier):
    """By the share of the room that is held, and by the share of states that found room here."""

    def __init__(self, state: State, scaling: Scaling, tier: int) -> None:
        super().__init__(state, scaling, tier)
        self._seen = (0, 0)
        self._low_s = _INF

    def _wanted(self, now: float) -> int | None:
        books, scaling = self._books, self._scaling
        held, capacity = books.held[self._tier], books.capacity[self._tier]
        here, beyond = books.taken[self._tier], sum(books.taken[self._tier :])
        hits, looks = here - self._seen[0], beyond - self._seen[1]
        self._seen = (here, beyond)
        if capacity is None:
            return scaling.most
        if held > scaling.high * capacity or (looks and hits < scaling.hit_rate * looks):
            self._low_s = _INF
            return max(int(capacity * scaling.step), scaling.least, 1)
        if held >= scaling.low * capacity:
            self._low_s = _INF
            return scaling.least if capacity < scaling.least else None
        self._low_s = min(self._low_s, now)
        if now - self._low_s < scaling.idle_s:
            return None
        self._low_s = _INF
        return max(int(capacity / scaling.step), math.ceil(held / scaling.high))


class _Retention(_Tier):
    """The most that was held in the last ``retention_s``, and some headroom."""

    def __init__(self, state: State, scaling: Scaling, tier: int) -> None:
        super().__init__(state, scaling, tier)
        self._peaks: deque[tuple[float, int]] = deque()  # falling, so the first is the most

    def _wanted(self, now: float) -> int | None:
        held = self._books.held[self._tier]
        while self._peaks and self._peaks[-1][1] <= held:
            self._peaks.pop()
        self._peaks.append((now, held))
        while self._peaks[0][0] < now - self._scaling.retention_s:
            self._peaks.popleft()
        return math.ceil(self._peaks[0][1] * (1.0 + self._scaling.headroom))
