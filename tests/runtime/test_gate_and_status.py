"""What a job tells, and how it keeps to its share; on a clock of the test's own."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.runtime import StatusFile, attach
from cotenant.runtime.gate import Gate
from cotenant.runtime.statusfile import MAGIC, SIZE_BYTES


class World:
    """A clock, a ceiling, and steps that are busy."""

    def __init__(self, limit: int) -> None:
        self.now_ns, self.limit, self.stop = 1, limit, False
        self.at_sleep: Callable[[], None] = lambda: None
        self.gate = Gate(lambda: self.limit, lambda: self.stop, lambda: self.now_ns, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9) + 1  # sleeps are never short
        self.at_sleep()

    def step(self, busy_ns: int, wait_ns: int = 0) -> int:
        before = self.gate.slept_ns
        self.now_ns += wait_ns + busy_ns
        self.gate.pay(busy_ns)
        return self.gate.slept_ns - before


def test_a_quarter_sleeps_three_times_what_it_works() -> None:
    world = World(250)
    assert sum(world.step(100_000_000) for _ in range(10)) == pytest.approx(3_000_000_000, rel=1e-6)


@given(st.lists(st.integers(10_000, 400_000_000), min_size=50, max_size=80), st.integers(20, 990))
def test_the_busy_share_keeps_to_the_ceiling(steps: list[int], limit: int) -> None:
    world = World(limit)
    for busy in steps:
        world.step(busy)
    # But for one debt that is carried on (2 ms).
    assert sum(steps) * 1000 <= world.now_ns * limit + 2_000_000 * 1000 + 1000 * len(steps)
    # And nothing is given away: it slept no more than needed, slices rounded.
    assert sum(steps) * 1000 >= world.now_ns * limit - 60_000_000 * limit


def test_waiting_for_data_is_paid_for_already() -> None:
    world = World(500)
    assert world.step(20_000_000, wait_ns=20_000_000) == 0
    assert world.step(100_000_000, wait_ns=300_000_000) == 0
    assert world.step(100_000_000) > 0


def test_without_a_ceiling_nothing_sleeps_and_no_debt_remains() -> None:
    world = World(0)
    assert [world.step(10**9) for _ in range(3)] == [0, 0, 0]
    world.limit = 1000
    assert world.step(10**9) == 0
    world.limit = 500
    assert world.step(10**8) == pytest.approx(10**8, rel=1e-6)


def test_a_new_ceiling_or_an_order_ends_a_long_sleep() -> None:
    world = World(10)

    def freed() -> None:
        world.limit = 0

    world.at_sleep = freed
    assert world.step(10**9) <= 50_000_001
    world = World(10)

    def ordered() -> None:
        world.stop = True

    world.at_sleep = ordered
    assert world.step(10**9) <= 50_000_001


def test_fields_lie_where_the_layout_says(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_bytes(MAGIC.ljust(SIZE_BYTES, b"\0"))
    file = StatusFile(path)
    file.begin(7, 90, 3)
    file.stepped(8, 123_456, 0.25, 99)
    file.saved(8, 5_000_000_000)
    file.give_order(1)
    file.reshare(300, 650)
    file.slept(77)
    file.close()
    raw = path.read_bytes()
    assert len(raw) == 4096
    expected = {8: 8, 16: 90, 24: 123_456, 40: 7, 48: 5_000_000_000, 56: 8, 64: 1, 80: 1, 88: 77, 96: 99}
    assert {offset: struct.unpack_from("<Q", raw, offset)[0] for offset in expected} == expected
    assert struct.unpack_from("<d", raw, 32) == (0.25,)
    assert struct.unpack_from("<II", raw, 72) == (300, 650)


def test_a_file_that_is_something_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine"
    path.write_bytes(b"my thesis" * 1000)
    with pytest.raises(ValueError, match="no status file"):
        StatusFile(path)
    monkeypatch.setenv("COTENANT_STATUS", str(path))
    attach().step()
    assert "no progress will be reported" in capsys.readouterr().err
    assert path.read_bytes() == b"my thesis" * 1000


def test_steps_are_counted_and_timed(status: StatusFile) -> None:
    run = attach(total_steps=4)
    before = status.read()
    assert (before.steps, before.total, before.flags) == (0, 4, 1)  # nowhere to save: cannot suspend
    for _ in run.steps(range(10)):
        pass
    after = status.read()
    assert after.steps == 4
    assert after.last_step_ns > before.last_step_ns
    assert after.mean_step_s > 0
    assert 0 < after.busy_ns <= after.last_step_ns


def test_other_processes_of_a_gang_do_not_report(status: StatusFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    attach(total_steps=4).step()
    assert status.read().flags == 0


def test_it_loads_nothing_heavy_and_does_nothing_outside(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from cotenant import runtime\n"
        "heavy = {'torch', 'numpy', 'msgspec', 'multiprocessing', 'asyncio', 'json'} & set(sys.modules)\n"
        "run = runtime.attach(total_steps=3)\n"
        "print(sorted(heavy), [step for step, _ in run.steps([0])], run.save(), len(sys.modules) < 150)\n"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COTENANT_")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] [0, 1, 2] False True\n"
    assert list(tmp_path.iterdir()) == []
