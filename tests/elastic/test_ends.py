"""What the ends of single processes make of a run: the supervisor with processes that are told here how to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cotenant.elastic.members import ADDRESS, Member
from cotenant.elastic.slots import Slot
from cotenant.elastic.supervisor import Supervisor

pytest.importorskip("torch")


SLOTS = [Slot.of({"SPOT": name}) for name in "abcd"]


class Acted:
    """A process that ends when the test says so, or is killed; what it tells goes to the supervisor's store."""

    pid = os.getpid()

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.member = Member(environment[ADDRESS])
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = self.code if self.code is not None else -signal.SIGKILL

    def waits(self) -> None:
        self.member._store.set(f"ready/{self.member.name}", str(self.member.generation))

    def joins(self) -> None:
        self.member.generation = self.member.newest()
        self.member.inside()


class Acts:
    """A run of ``processes`` of them, of which ``most`` may be wanted."""

    def __init__(self, processes: int, most: int = 4) -> None:
        self.cast: list[Acted] = []
        self.told: list[str] = []
        self.supervisor = Supervisor([], 1, most, start=self._start, tell=self.told.append, slots=SLOTS)
        self.supervisor.want(processes)
        assert self.supervisor.poll() is None
        self.waiting_then_in(*range(processes))

    def _start(self, environment: Mapping[str, str]) -> Acted:
        self.cast.append(Acted(environment))
        return self.cast[-1]

    def waiting_then_in(self, *names: int) -> None:
        for name in names:
            self.cast[name].waits()
        assert self.supervisor.poll() is None
        assert set(map(str, names)) <= set(self.supervisor.members)
        for name in names:
            self.cast[name].joins()

    def ends(self, name: int, code: int) -> int | None:
        self.cast[name].code = code
        return self.supervisor.poll()


KILLED = -signal.SIGKILL


@pytest.fixture
def acted() -> Iterator[Callable[..., Acts]]:
    """Connections end before the store that they go to, which would wait for them."""
    made: list[Acts] = []

    def make(*given: int) -> Acts:
        made.append(Acts(*given))
        return made[-1]

    yield make
    for one in made:
        for player in one.cast:
            del player.member


@pytest.mark.parametrize("code", [0, 85])
def test_who_waits_for_one_that_has_left_is_called_together_anew(acted: Any, code: int) -> None:
    """One is killed when the first has all of a step and another has not; the first leaves, as it was to do then."""
    acts = acted(3, 3)
    if code == 85:
        acts.supervisor.stop()
    acts.supervisor.want(2)
    assert acts.ends(2, KILLED) is None
    assert acts.supervisor.generation == 2
    acts.cast[1].waits()
    acts.cast[0].member.wrote()
    assert acts.ends(0, code) is None
    assert (acts.supervisor.generation, acts.supervisor.members) == (3, ("1",))
    assert acts.cast[1].member._was_lost(2)
    acts.cast[1].joins()
    acts.cast[1].member.wrote()
    assert acts.ends(1, code) == code


def test_who_joins_as_the_others_leave_the_loop_is_let_go_and_a_killed_first_is_a_failure(acted: Any) -> None:
    acts = acted(2)
    assert acts.ends(0, KILLED) is None  # at the script's end, as it turns out
    acts.cast[2].waits()
    assert acts.supervisor.poll() is None
    assert acts.supervisor.members == ("1", "2")
    assert acts.ends(1, 0) is None
    assert acts.cast[2].code == KILLED  # it had nothing of the run, and nobody to get it from
    assert acts.supervisor.poll() == 137
    assert "process 0 was killed by signal 9 after others had left the loop" in acts.told[-1]


def test_one_that_joined_in_place_of_a_killed_first_is_the_first(acted: Any) -> None:
    acts = acted(2)
    assert acts.ends(0, KILLED) is None
    acts.cast[1].waits()
    acts.waiting_then_in(2)
    acts.cast[1].joins()
    assert acts.ends(2, 0) is None
    assert acts.ends(1, 0) == 0


@pytest.mark.parametrize("saved", [True, False])
def test_stopped_as_its_group_changes_a_sharded_run_is_suspended_if_it_was_saved(
    acted: Any, saved: bool
) -> None:
    acts = acted(2, 2)
    if saved:
        acts.cast[0].member.wrote()
    else:
        acts.supervisor.want(1)
        assert acts.ends(1, KILLED) is None
    acts.supervisor.stop()
    assert (acts.ends(0, 86) is None) == saved
    if saved:
        assert acts.ends(1, 86) == 85
        return
    assert acts.supervisor.poll() == 137
    assert acts.told[-1].startswith(
        "process 1 was killed by signal 9 before the state was saved: what was done"
    )


def test_who_was_to_leave_and_has_done_the_last_step_as_the_first_has_to_live_to_its_end(acted: Any) -> None:
    acts = acted(2)
    acts.supervisor.place(SLOTS[1:2])
    acts.supervisor.poll()
    assert acts.cast[0].member.has("retire/0")
    assert acts.supervisor.members == ("1",)
    acts.cast[0].member.finish()
    assert acts.supervisor.poll() is None
    assert acts.ends(1, 0) is None
    assert acts.ends(0, KILLED) == 137
    assert (
        "process 0 was killed by signal 9 after the last step: what the first process does" in acts.told[-1]
    )
