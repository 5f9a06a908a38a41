"""The log's clock never goes back, whatever the machine's wall clock does (case: clock jumps)."""

from __future__ import annotations

from cotenant.live.clock import BootClock, boot_s


class Machine:
    def __init__(self, steady: float, wall: float) -> None:
        self.steady, self.wall = steady, wall

    def clock(self, began: float, last: float = 0.0) -> BootClock:
        return BootClock(began, last, steady=lambda: self.steady, wall=lambda: self.wall)


def test_time_counts_from_the_beginning_of_the_log() -> None:
    machine = Machine(50.0, 1000.0)
    clock = machine.clock(900.0)
    assert clock.now() == 100.0
    machine.steady += 2.5
    machine.wall += 2.5
    assert clock.now() == 102.5
    assert clock.wall(102.5) == 1002.5


def test_a_jump_of_the_wall_clock_changes_no_time_of_the_log_and_is_told() -> None:
    machine = Machine(50.0, 1000.0)
    clock = machine.clock(900.0)
    machine.steady += 1.0
    machine.wall -= 7200.0
    assert clock.now() == 101.0
    assert clock.jumped_s() == -7201.0


def test_after_a_restart_with_the_wall_clock_set_back_time_goes_on_from_the_last_event() -> None:
    clock = Machine(0.0, 800.0).clock(900.0, last=250.0)
    assert clock.now() == 250.0


def test_a_gap_between_two_lives_counts() -> None:
    assert Machine(0.0, 2000.0).clock(900.0, last=250.0).now() == 1100.0


def test_time_of_a_predecessor_that_was_ahead_is_kept() -> None:
    machine = Machine(0.0, 1000.0)
    clock = machine.clock(900.0)
    clock.at_least(130.0)
    assert clock.now() == 130.0
    assert clock.wall(130.0) == 1000.0
    clock.at_least(20.0)
    assert clock.now() == 130.0


def test_the_machines_own_clock_goes_forward() -> None:
    first = boot_s()
    assert boot_s() >= first > 0.0
