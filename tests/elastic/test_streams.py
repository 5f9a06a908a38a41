"""Streams, samplers, schedules and averaged weights: the same bits on any number of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

CASES: dict[str, dict[str, Any]] = {
    "stream without state, processes that read": {"data": "counted", "epochs": 2, "loaders": 2},
    "stream with state, one cycle": {"data": "stateful", "epochs": 2, "schedule": "one cycle"},
    "streams to the shortest, SWA": {"data": "counted", "epochs": 3, "last": "drop", "schedule": "swa"},
    "weighted sampler, plateau": {"data": "weighted", "epochs": 3, "schedule": "plateau"},
    "own sampler, some steps": {"data": "drawn", "steps": 11, "loaders": 1},
    "batches of a batch sampler": {"data": "buckets", "epochs": 3},
    "with replacement, chain": {"data": "again", "epochs": 2, "last": "pad", "schedule": "chain"},
}


def changing(supervisor: Any, steps: int) -> None:
    """Two processes, then three, then one."""
    for after, processes in ((5, 1), (2, 3)):
        if steps >= after:
            supervisor.want(processes)
            return


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_bits_and_epochs_do_not_depend_on_the_processes(
    play: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    options = options | {"script": "streaming.py"}
    alone = play.alone(**options)
    assert len(set(alone)) == len(alone) > 5
    more = {"loaders": 0} if "loaders" in options else {}
    assert play.together(2, up_to=3, on_poll=changing, sleep=0.03, **options | more) == alone
    assert len(set(play.processes)) >= 2
    # Stopped in the middle of an epoch, and resumed on another number.
    state = {"state": str(tmp_path / "state"), "log": str(tmp_path / "log")}

    def stopping(supervisor: Any, steps: int) -> None:
        if steps >= 3:
            supervisor.stop()

    first = play.together(3, on_poll=stopping, sleep=0.05, **options, **state)
    assert (play.code, 3 <= len(first) < len(alone)) == (85, True)
    assert play.alone(**options, **state) == alone
