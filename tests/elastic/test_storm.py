"""Processes are killed at random moments, two at most in a run, while others come and go: the same bits.

How many runs: environment variable COTENANT_ELASTIC_KILLS.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
RUNS = int(os.environ.get("COTENANT_ELASTIC_KILLS", "2"))


class Storm:
    """What happens to one run, from one seed.

    A kill waits for an occasion, then for a moment of up to a tenth of a second: turns, exchange,
    rendezvous, transfer and the script between are all hit.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.options = {
            "model": self._draw.choice(["cnn", "gpt", "lstm", "gates"]),
            "order": self._draw.choice(["blocks", "sequence"]),
            "optimizer": self._draw.choice(["sgd", "adamw"]),
        }
        self.steps = 10
        occasions = ["start", "any", "any", "joining", "joining", "end", "end"]
        self._kills = [self._draw.choice(occasions) for _ in range(self._draw.choice([1, 2, 2]))]
        self._sizes = sorted((self._draw.randrange(1, 9), self._draw.randint(1, 4)) for _ in range(2))
        self._at_s: float | None = None
        self._after = self._draw.randrange(1, 8)
        self.killed: list[str] = []

    def on_poll(self, supervisor: Any, done: int) -> None:
        while self._sizes and done >= self._sizes[0][0]:
            supervisor.want(self._sizes.pop(0)[1])
        if not self._kills:
            return
        if self._at_s is None and self._is_time(supervisor, done):
            self._at_s = time.monotonic() + self._draw.random() * 0.1
        if self._at_s is not None and time.monotonic() >= self._at_s and supervisor.running:
            if not supervisor._board.finished:
                name = self._draw.choice(sorted(supervisor.running))
                os.kill(supervisor.running[name], signal.SIGKILL)
                self.killed.append(name)
            self._kills.pop(0)
            self._at_s, self._after = None, min(done + self._draw.randrange(3), self.steps - 2)

    def _is_time(self, supervisor: Any, done: int) -> bool:
        kind = self._kills[0]
        if kind == "start":
            return bool(supervisor.running)
        if kind == "joining":
            waiting = [name for name in supervisor.running if name not in supervisor.members]
            return supervisor.generation > 0 and bool(waiting or done >= self.steps - 2)
        return done >= (self.steps - 2 if kind == "end" else self._after)


@pytest.mark.parametrize("seed", range(RUNS))
def test_killed_at_random(play: Any, tmp_path: Path, seed: int) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    storm = Storm(seed)
    expected = play.alone(ends=str(alone), **storm.options)
    assert len(expected) in (10, 12)
    storm.steps = len(expected)
    log = str(tmp_path / "log")
    with contextlib.suppress(AssertionError):  # who writes was killed: the line of that step is missing
        play.together(
            3,
            up_to=4,
            on_poll=storm.on_poll,
            limit_s=150.0,
            sleep=0.03,
            log=log,
            ends=str(together),
            **storm.options,
        )
    late = "may not be done" in " ".join(play.told) or "may be missing" in " ".join(play.told)
    assert play.code == (137 if late else 0), play.told
    assert storm.killed
    assert len(play.ends(alone)) == 1
    assert play.ends(together) == play.ends(alone)
    lines = play.lines({"log": log})
    assert all(expected[int(line[0])] == line[1] for line in lines)
