"""How an attempt ended, told from what is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.stopping import grace_s
from cotenant.executors.local.verdict import judge, saved_as_asked

KNOWN = {"asked": "", "saved": False, "memory_kills": 0, "machine_kills": 0, "tail": b""}


@pytest.mark.parametrize(
    ("codes", "more", "expected"),
    [
        ([0, 0], {}, ("done", 0, 0)),
        ([0], {"asked": "terminate"}, ("done", 0, 0)),
        ([85], {"saved": True, "asked": "suspend"}, ("suspended", 85, 0)),
        ([85], {"saved": True}, ("suspended", 85, 0)),
        ([143], {"saved": True, "asked": "suspend"}, ("suspended", 143, 0)),
        ([85], {"saved": True, "asked": "terminate"}, ("killed", 85, 0)),
        ([143], {"saved": True}, ("failed", 143, 0)),
        ([85], {"asked": "suspend"}, ("killed", 85, 0)),
        ([85, 1], {"saved": True, "asked": "suspend"}, ("killed", 85, 0)),
        ([-9], {}, ("failed", 0, 9)),
        ([-9], {"machine_kills": 1}, ("out-of-memory", 0, 9)),
        ([-9], {"machine_kills": 1, "asked": "kill"}, ("killed", 0, 9)),
        ([-9], {"memory_kills": 2, "asked": "kill"}, ("out-of-memory", 0, 9)),
        ([1], {"tail": b"torch.OutOfMemoryError: CUDA out of memory. Tried"}, ("out-of-memory", 1, 0)),
        ([0], {"tail": b"MemoryError"}, ("done", 0, 0)),
        ([3, -9], {}, ("failed", 3, 0)),
    ],
)
def test_outcomes(codes: list[int], more: dict[str, object], expected: tuple[str, int, int]) -> None:
    assert judge(codes, **{**KNOWN, **more})[:3] == expected  # type: ignore[arg-type]


def test_a_state_counts_only_if_it_is_of_the_last_step() -> None:
    assert saved_as_asked(4, 10, 10) and not saved_as_asked(4, 9, 10) and not saved_as_asked(3, 10, 10)


def test_the_grace_is_that_of_the_last_save_or_of_its_size() -> None:
    assert grace_s(10.0, 0.1, 0.0, 10**9) == pytest.approx(40.3)  # 3 x 0.1 + 2 x 1 GB at 50 MB/s
    assert grace_s(10.0, 0.1, 8.0, 10**9) == pytest.approx(16.3)
    assert grace_s(10.0, float("inf"), 0.0, 0) == 10.0


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ({"detail": "ended by signal 9 (SIGKILL)", "signal": 9}, "its supervisor was ended by signal 9 (SIGKILL)"),
        ({"detail": "left with code 1", "code": 1}, "process 1 failed: KeyError: 'a'"),
    ],
)  # fmt: skip
def test_the_end_of_an_elastic_job_quotes_messages_and_no_frames_of_a_stack(
    tmp_path: Path, end: dict[str, Any], why: str
) -> None:
    attempt = Attempt(str(tmp_path), 0, 1, 1)
    attempt.spec = {"places": True}
    folder = Path(attempt.folder)
    folder.mkdir(parents=True)
    (folder / "placed").write_text('{"why": "process 1 failed"}')
    (folder / "stderr.log").write_text(
        "Traceback (most recent call last):\n  a()\nKeyError: 'a'\n"
        "frame #22: <unknown> + 0xd (libc.so.6)\n"
        "frame #23: clone + 0x2c (libc.so.6)\n\n"
    )
    (folder / "exit.json").write_text(json.dumps({"outcome": "failed", **end}))
    found = attempt.exit()
    assert found is not None
    assert found.detail == why
