"""Containers on one device under limiter and controller, kernel by kernel.

The device runs one kernel at a time, to its end, in the order in which they were launched: containers
take turns, as processes without MPS do. Each container launches its next kernel when the last has
ended, if its bucket is open, else it sleeps 10 ms and looks again. Everything is seeded and pure.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from cotenant.shares.controller import WAKE_S, Controller, Quota, Reading
from cotenant.shares.limiter import DeviceModel, TokenBucket

__all__ = ["Container", "Trace", "run_shares"]

_SLEEP_S = 0.010
_LOOK_BACK_S = 1.0
_WAKE, _TRY, _END, _CHANGE = range(4)


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container and its endless stream of kernels.

    Parameters
    ----------
    quota : Quota or None
        None: no limiter at all.
    kernel_s : float
        Median length of a kernel alone, in seconds; lengths are lognormal.
    sigma : float
        Of the logarithm.
    arrives_s : float
    becomes : tuple of (float, Quota), optional
        When its quota is replaced in flight, and by what.
    """

    quota: Quota | None
    kernel_s: float = 0.005
    sigma: float = 0.3
    arrives_s: float = 0.0
    becomes: tuple[float, Quota] | None = None


class Trace(msgspec.Struct, kw_only=True):
    """What the watcher saw.

    Parameters
    ----------
    times_s : list of float
        Wake-ups.
    used : list of list of float
        By container: use over the last second at each wake-up, in percent of the device.
    kernels : list of int
        Kernels that ended, by container.
    busy_s : list of float
        Device time, by container.
    """

    times_s: list[float]
    used: list[list[float]]
    kernels: list[int]
    busy_s: list[float]


def run_shares(
    containers: Sequence[Container], span_s: float, *, seed: int = 0, device: DeviceModel | None = None
) -> Trace:
    """Simulate containers on one device.

    Parameters
    ----------
    containers : sequence of Container
    span_s : float
        How long, in seconds.
    """
    return _Device(containers, device or DeviceModel(), seed).run(span_s)


class _State:
    """One container while it runs."""

    def __init__(self, what: Container, device: DeviceModel, rng: np.random.Generator) -> None:
        self.what, self.device, self._rng = what, device, rng
        self.bucket = TokenBucket(float(device.pool))
        self.controller = Controller(device, what.quota) if what.quota is not None else None
        self.recent: deque[tuple[float, float]] = deque()
        self.there = False
        self.kernels, self.busy_s = 0, 0.0
        self._lengths: list[float] = []

    def next_length(self) -> float:
        """Seconds that the next kernel takes."""
        if not self._lengths:
            drawn = self.what.kernel_s * np.exp(self.what.sigma * self._rng.standard_normal(512))
            self._lengths = drawn.tolist()
        return self._lengths.pop()

    def use(self, now: float) -> float:
        """Percent of the device over the last second; a kernel that still runs counts so far."""
        since = now - _LOOK_BACK_S
        recent = self.recent
        while recent and recent[0][1] <= since:
            recent.popleft()
        total = math.fsum(min(end, now) - max(begin, since) for begin, end in recent if begin < now)
        return 100.0 * total / _LOOK_BACK_S


class _Device:
    def __init__(self, containers: Sequence[Container], device: DeviceModel, seed: int) -> None:
        seeds = np.random.SeedSequence(seed).spawn(len(containers))
        self._states = [
            _State(c, device, np.random.default_rng(s)) for c, s in zip(containers, seeds, strict=True)
        ]
        self._device = device
        self._queue: deque[tuple[int, float]] = deque()
        self._busy = False
        self._events: list[tuple[float, int, int, int]] = []
        self._count = 0
        self.trace = Trace(times_s=[], used=[[] for _ in containers], kernels=[], busy_s=[])

    def _at(self, time_s: float, what: int, who: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_s, what, self._count, who))

    def run(self, span_s: float) -> Trace:
        """Play all events up to ``span_s``."""
        for who, state in enumerate(self._states):
            self._at(state.what.arrives_s, _TRY, who)
            if state.what.becomes is not None:
                self._at(state.what.becomes[0], _CHANGE, who)
        self._at(WAKE_S, _WAKE, 0)
        wakes = 1
        while self._events and self._events[0][0] <= span_s:
            now, what, _, who = heapq.heappop(self._events)
            if what == _WAKE:
                self._wake(now)
                wakes += 1
                self._at(wakes * WAKE_S, _WAKE, 0)
            elif what == _TRY:
                self._try(now, who)
            elif what == _END:
                self._end(now, who)
            else:
                state = self._states[who]
                if state.controller is not None and state.what.becomes is not None:
                    state.controller.quota = state.what.becomes[1].check()
        self.trace.kernels = [state.kernels for state in self._states]
        self.trace.busy_s = [state.busy_s for state in self._states]
        return self.trace

    def _wake(self, now: float) -> None:
        uses = [state.use(now) for state in self._states]
        total, present = math.fsum(uses), sum(state.there for state in self._states)
        self.trace.times_s.append(now)
        for state, own, seen in zip(self._states, uses, self.trace.used, strict=True):
            seen.append(own)
            if state.there and state.controller is not None:
                state.controller.wake(Reading(own, total, present), state.bucket)

    def _try(self, now: float, who: int) -> None:
        state = self._states[who]
        state.there = True
        if state.controller is not None and not state.bucket.open:
            self._at(now + _SLEEP_S, _TRY, who)
            return
        length = state.next_length()
        if state.controller is not None:
            state.bucket.spend(length * self._device.blocks_per_s)
        self._queue.append((who, length))
        if not self._busy:
            self._begin(now)

    def _begin(self, now: float) -> None:
        who, length = self._queue.popleft()
        self._busy = True
        state = self._states[who]
        state.recent.append((now, now + length))
        state.busy_s += length
        self._at(now + length, _END, who)

    def _end(self, now: float, who: int) -> None:
        self._busy = False
        self._states[who].kernels += 1
        self._try(now, who)
        if self._queue and not self._busy:
            self._begin(now)
