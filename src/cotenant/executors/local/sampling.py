"""How far jobs are and what they use, read so seldom that it costs next to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.holding import Holding
from cotenant.executors.local.layout import RUNTIME_ATTACHED, read_json
from cotenant.executors.local.trees import TreeClock, resident_bytes
from cotenant.model.liveports import Progress

__all__ = ["SAMPLE_S", "Sampler"]

SAMPLE_S = 1.0
"""Between two readings of a job, at least."""

_COST = 200.0
"""Readings may cost one part in so many of the daemon's time: with many jobs they come less often."""


class _Last(msgspec.Struct):
    steps: int = 0
    last_ns: int = 0
    told: Progress | None = None
    clock: TreeClock | None = None


class Sampler:
    """Reads all running attempts when it is time."""

    def __init__(self, holding: Holding, every_s: float = SAMPLE_S) -> None:
        self._holding, self._every_s = holding, every_s
        self._next = 0.0
        self._known: dict[tuple[int, int], _Last] = {}

    def wait_s(self, now: float) -> float:
        """Until the next reading."""
        return max(self._next - now, 0.0)

    def read(self, attempts: Iterable[Attempt]) -> list[Progress]:
        """Progress of those for whom something changed; none if it is not time yet."""
        began = time.monotonic()
        if began < self._next:
            return []
        found = [progress for attempt in attempts if (progress := self._one(attempt)) is not None]
        cost = time.monotonic() - began
        self._next = began + max(self._every_s, cost * _COST)
        return found

    def one(self, attempt: Attempt) -> Progress | None:
        """The last words of an attempt that has ended; what it used when it was last seen stands."""
        last = self._known.get(attempt.key)
        told = last.told if last is not None else None
        found = self._one(attempt)
        if found is None or told is None:
            return found
        return msgspec.structs.replace(
            found,
            memory_bytes=told.memory_bytes,
            cpu_s=max(found.cpu_s, told.cpu_s),
            step_s=found.step_s or told.step_s,
        )

    def forget(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        self._known.pop(attempt.key, None)

    def _one(self, attempt: Attempt) -> Progress | None:
        reading = attempt.reading()
        if reading is None:
            return None
        last = self._known.setdefault(attempt.key, _Last())
        step_s = 0.0
        if reading.steps > last.steps and last.last_ns and reading.last_ns > last.last_ns:
            step_s = (reading.last_ns - last.last_ns) / 1e9 / (reading.steps - last.steps)
        elif reading.steps > last.steps:
            step_s = reading.step_s if 0.0 < reading.step_s < 1e9 else 0.0
        last.steps, last.last_ns = reading.steps, reading.last_ns
        # A job without our runtime counts from its own start; what it did before is known to us.
        base = 0 if reading.flags & RUNTIME_ATTACHED else int(attempt.spec.get("base_steps", 0))
        cpu_s, memory = self._use(attempt, last)
        progress = Progress(
            id=attempt.id,
            attempt=attempt.attempt,
            serial=attempt.serial,
            steps=base + reading.steps,
            total=reading.total or (int(attempt.spec.get("base_total", 0)) if base else 0),
            step_s=step_s,
            cpu_s=round(cpu_s, 3),
            memory_bytes=memory,
            state_bytes=reading.state_bytes,
            **_killed(attempt),
        )
        if last.told is not None and _same(progress, last.told):
            return None
        last.told = progress
        return progress

    def _use(self, attempt: Attempt, last: _Last) -> tuple[float, int]:
        cpu_s, memory = self._holding.cpu_s(attempt), self._holding.memory_bytes(attempt)
        if cpu_s is not None and memory is not None:
            return cpu_s, memory
        if last.clock is None:
            last.clock = TreeClock(attempt.shepherd)
        used = last.clock.read()
        return (
            used if cpu_s is None else cpu_s,
            resident_bytes(last.clock.pids) if memory is None else memory,
        )


def _killed(attempt: Attempt) -> dict[str, Any]:
    """Processes of an elastic attempt that were killed and replaced, as its supervisor tells."""
    if not attempt.spec.get("places"):
        return {}
    told = read_json(f"{attempt.folder}/placed")
    count, by, at_s = told.get("killed"), told.get("killed_by"), told.get("killed_at_s")
    if not (isinstance(count, int) and isinstance(by, int) and isinstance(at_s, int | float)):
        return {}
    ago_s = max(time.clock_gettime(time.CLOCK_BOOTTIME) - at_s, 0.0)
    return {"killed": count, "killed_by": by, "killed_ago_s": round(ago_s, 3)}


def _same(new: Progress, old: Progress) -> bool:
    """Nothing that anybody would want to know has changed."""
    near = abs(new.memory_bytes - old.memory_bytes) <= max(old.memory_bytes, 1 << 20) // 50
    calm = new.cpu_s - old.cpu_s < 0.05
    if new.killed != old.killed:
        return False
    return (
        near and calm and (new.steps, new.total, new.state_bytes) == (old.steps, old.total, old.state_bytes)
    )
