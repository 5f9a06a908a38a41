"""How an attempt ended, told from what is known."""

from __future__ import annotations

import pytest

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
