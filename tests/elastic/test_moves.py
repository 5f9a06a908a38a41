"""Processes in places: started there, moved elsewhere; and checkpoints by order."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.elastic.slots import Control, Orders, Slot, surplus
from cotenant.elastic.supervisor import Supervisor
from cotenant.errors import InputError

torch = pytest.importorskip("torch")
A, B, C = (Slot.of({"SPOT": name}) for name in "abc")


@pytest.mark.parametrize("processes", [1, 4])
def test_moved_one_after_the_other_with_the_same_bits(play: Any, tmp_path: Path, processes: int) -> None:
    """Also with all of the places taken, and if it is the only process, which has all of the state."""
    alone = play.alone(model="gates", optimizer="adamw", epochs=3)
    slots = [Slot.of({"SPOT": str(number)}) for number in range(processes)]
    moved: list[str] = []
    seen: set[str] = set()

    def on_poll(supervisor: Any, steps: int) -> None:
        seen.update(str(place) for place in supervisor.places.values())
        if len(moved) < 2 and steps == (2, 8)[len(moved)] and supervisor.settled:
            name = supervisor.members[0]
            moved.append(name)
            called.append(supervisor.generation)
            supervisor.replace(name, Slot.of({"SPOT": f"new {len(moved)}"}))
        elif called and supervisor.generation > called[-1]:
            gates[len(called) - 1].touch()  # who comes has been called, for the step after this

    gates, called = [tmp_path / "first", tmp_path / "second"], list[int]()
    holds = {"2": str(gates[0]), "8": str(gates[1])}
    done = play.together(
        processes, on_poll=on_poll, model="gates", optimizer="adamw", epochs=3, holds=holds, slots=slots
    )
    assert done == alone
    assert play.code == 0
    assert moved[0] == "0"
    assert len(moved) == 2
    assert seen == {str(slot) for slot in slots} | {"SPOT=new 1", "SPOT=new 2"}
    assert set(play.processes) == {processes}
    assert not any("killed" in text for text in play.told)


def test_a_checkpoint_by_order_and_the_run_goes_on(play: Any, tmp_path: Path) -> None:
    alone = play.alone(model="cnn")
    control, folder = tmp_path / "control", tmp_path / "state"

    def on_poll(supervisor: Any, steps: int) -> None:
        if steps >= 3 and not control.exists():
            control.write_text("2\ncheckpoint first\n")

    done = play.together(
        2, on_poll=on_poll, model="cnn", sleep=0.05, state=str(folder), control=control, crash_after=7
    )
    assert done == alone[:8]
    (file,) = folder.glob("*.pt")
    step = torch.load(file, weights_only=True)["cotenant"]["place"][0]
    assert 3 <= step <= 8
    # What was saved is good: another run goes on from it.
    log = str(tmp_path / "resumed")
    with contextlib.suppress(AssertionError):  # steps are not numbered from 0
        play.alone(model="cnn", state=str(folder), log=log)
    lines = play.lines({"log": log})
    assert [(int(line[0]), line[1]) for line in lines] == list(enumerate(alone))[step:]


def test_asked_to_terminate_a_run_alone_saves_and_leaves(play: Any, tmp_path: Path) -> None:
    alone = play.alone(model="cnn")
    options = {"model": "cnn", "state": str(tmp_path / "state"), "log": str(tmp_path / "log")}
    first = play.alone(terminate=4, **options)
    assert play.code == 85
    assert first == alone[:5]
    assert play.alone(**options) == alone
    assert play.code == 0


def test_places_are_read_and_compared() -> None:
    slot = Slot.parse(" cores=4-6,1  CUDA_VISIBLE_DEVICES=0 B=x=y ")
    assert slot == Slot((("B", "x=y"), ("CUDA_VISIBLE_DEVICES", "0")), (1, 4, 5, 6))
    assert str(slot) == "B=x=y CUDA_VISIBLE_DEVICES=0 cores=1,4,5,6"
    assert str(Slot()) == "anywhere"
    for text in ("nothing", "cores=", "cores=a", "cores=7-3", "1X=2"):
        with pytest.raises(InputError, match="place"):
            Slot.parse(text)
    assert surplus({"0": A, "1": B, "2": A}, [A, C]) == (["1", "2"], [C])
    with pytest.raises(InputError, match="cores=999"):
        Slot(cores=(999,)).pin(os.getpid())


def test_a_control_file_orders_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "control"
    control = Control(path)
    assert control.news() == Orders()
    path.write_text("3\n")
    assert control.news() == Orders(3)
    assert control.news() == Orders()
    path.write_text("3\ncheckpoint a\n")
    assert control.news() == Orders(None, None, "a")
    path.write_text("SPOT=a\nSPOT=b\n")
    assert control.news() == Orders(None, (A, B))
    path.write_text("SPOT=a\nSPOT=b\ncheckpoint a\n")
    assert control.news() == Orders()
    path.write_text("SPOT=a\n\nwhat is this")
    with pytest.raises(InputError, match=r"control:3: place 'what is this'"):
        control.news()
    assert control.news() == Orders()  # said once
    path.write_text("2\nSPOT=a\n")
    with pytest.raises(InputError, match="both a number of processes and places"):
        control.news()


def test_places_and_limits_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 places for up to 2 processes"):
        Supervisor([], 1, 2, slots=[A])
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"--hang-after {wrong:g}: it must be more than 0 seconds"):
            Supervisor([], 1, 2, hang_after_s=wrong)
    supervisor = Supervisor([], 1, 2)
    with pytest.raises(InputError, match="3 places: this run takes 1 to 2"):
        supervisor.place([A, B, C])
    with pytest.raises(InputError, match="process '7' cannot be moved: running are none"):
        supervisor.replace("7", A)
    run = CliRunner().invoke(app, ["run", "--elastic", "1:2", "--place", "SPOT", "--", "true"])
    assert run.exit_code != 0
    assert "'SPOT' must be NAME=VALUE" in run.output + str(run.exception)


def test_a_slip_of_the_pen_does_not_fork_thousands() -> None:
    run = CliRunner().invoke(app, ["run", "--elastic", "1:99999", "--", "true"])
    assert run.exit_code != 0
    assert "MAX processes, and this machine takes" in " ".join(run.output.split())
