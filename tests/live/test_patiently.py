"""A log that cannot be used for a while is waited for: how long, and what ends the waiting."""

from __future__ import annotations

import threading

import pytest

from cotenant.errors import FullError, LostError, StoreError
from cotenant.live import storelog
from cotenant.live.storelog import patiently


class Answers:
    """Raises what it is given, one after the other; then answers."""

    def __init__(self, *raised: Exception) -> None:
        self.left, self.asked = list(raised), 0

    def __call__(self) -> int:
        self.asked += 1
        if self.left:
            raise self.left.pop(0)
        return 7


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storelog, "_RETRY_S", 0.001)


def test_a_server_that_comes_back_is_used_again() -> None:
    act = Answers(LostError("away"), LostError("away"), FullError("full"))
    assert (patiently(act, threading.Event()), act.asked) == (7, 4)


def test_a_server_is_waited_for_so_long_and_a_full_disk_without_end() -> None:
    for_ever = Answers(*[LostError("away")] * 1000)
    with pytest.raises(LostError):
        patiently(for_ever, threading.Event(), most_s=0.0)
    assert for_ever.asked == 1
    act = Answers(*[FullError("full")] * 50)
    assert patiently(act, threading.Event(), most_s=0.0) == 7


def test_whoever_ends_the_loop_ends_the_waiting_and_other_faults_are_not_waited_for() -> None:
    ended = threading.Event()
    ended.set()
    with pytest.raises(FullError):
        patiently(Answers(FullError("full")), ended)
    with pytest.raises(LostError):
        patiently(Answers(LostError("away")), None)
    with pytest.raises(StoreError, match="damaged"):
        patiently(Answers(StoreError("damaged")), threading.Event())
