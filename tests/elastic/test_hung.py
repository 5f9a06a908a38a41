"""Processes that live and do nothing: in a rendezvous, in a turn; and what tells a stopped one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cotenant.elastic.hung import Hung, is_stopped

torch = pytest.importorskip("torch")


def test_killed_between_being_a_member_and_building_the_group(play: Any, tmp_path: Path) -> None:
    """The others have said that all are there, and wait for one that never comes."""
    alone = play.alone(model="gates")
    kill = {"flag": str(tmp_path / "killed"), "name": "2", "how": "kill"}
    assert play.together(3, model="gates", rendezvous=kill) == alone
    noticed_s = float((tmp_path / "killed.noticed").read_text()) - float((tmp_path / "killed").read_text())
    assert noticed_s < 10.0  # and not the 20 s of a time-out


def test_stopped_between_being_a_member_and_building_the_group(play: Any, tmp_path: Path) -> None:
    alone = play.alone(model="gates")
    kill = {"flag": str(tmp_path / "stopped"), "name": "2", "how": "stop"}
    assert play.together(3, model="gates", rendezvous=kill) == alone
    assert any("process 2 is stopped, and others wait for it to join" in text for text in play.told)
    noticed_s = float((tmp_path / "stopped.noticed").read_text()) - float((tmp_path / "stopped").read_text())
    assert noticed_s < 10.0


@pytest.mark.parametrize("how", ["stop", "loop"])
def test_one_that_hangs_in_a_turn_is_replaced(play: Any, tmp_path: Path, how: str) -> None:
    alone = play.alone(model="gates")
    kill = {"flag": str(tmp_path / "hung"), "where": "turn", "step": 3, "name": "1", "how": how}
    assert play.together(3, model="gates", kill=kill, hang_after_s=3.0) == alone
    assert any("process 1 has been at turns 3 for more than 3 s: it is killed" in text for text in play.told)
    assert sum("killed by signal 9" in text for text in play.told) >= 1


def test_a_stopped_process_is_told_from_one_that_sleeps() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        assert not is_stopped(sleeper.pid)
        sleeper.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10.0
        while not is_stopped(sleeper.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sleeper.send_signal(signal.SIGCONT)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert not is_stopped(sleeper.pid)


def test_only_who_is_at_its_own_work_for_too_long_is_hung() -> None:
    hung = Hung(0.5)
    told = {"slow": "turns 4", "waits": "exchange 4", "busy": "turns 4"}
    me = os.getpid()
    found: dict[str, str] = {}
    for tick in range(7):
        told["busy"] = f"turns {tick}"
        # Looks count as 0.2 s at most, however long ago the last one was.
        found = hung.look(tick * 100.0, dict.fromkeys(told, me), lambda name: told[name], lambda name: True)
        assert found == {} or tick >= 3
    assert found == {"slow": "has been at turns 4 for more than 0.5 s"}
