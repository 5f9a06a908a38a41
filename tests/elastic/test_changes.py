"""Processes come, go and are killed: the same bits as a run that nothing happened to."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def gates(folder: Path, *steps: int) -> dict[int, Path]:
    """Before these steps all wait until the test makes the file."""
    return {step: folder / f"gate{step}" for step in steps}


def held(at: dict[int, Path]) -> dict[str, str]:
    """As an option of a training."""
    return {str(step): str(path) for step, path in at.items()}


def test_grown_and_shrunk_in_the_middle(play: Any, tmp_path: Path) -> None:
    alone = play.alone(model="cnn", epochs=3)
    at, sizes, called = gates(tmp_path, 3, 6, 9), {3: 4, 6: 1, 9: 3}, dict[int, int]()

    def on_poll(supervisor: Any, steps: int) -> None:
        # The step before which they wait is still of those there are, the next one of those that were called.
        if steps in at and steps not in called:
            called[steps] = supervisor.generation
            supervisor.want(sizes[steps])
        elif steps in at and supervisor.generation > called[steps]:
            at[steps].touch()

    options = {"model": "cnn", "epochs": 3, "holds": held(at)}
    assert play.together(2, up_to=4, on_poll=on_poll, **options) == alone
    assert play.code == 0
    assert play.processes == [2] * 4 + [4] * 3 + [1] * 3 + [3] * 5


@pytest.mark.parametrize("order", ["blocks", "sequence"])
def test_killed_twice_without_warning(play: Any, tmp_path: Path, order: str) -> None:
    options = {"model": "gpt", "epochs": 3, "optimizer": "adamw", "order": order}
    alone = play.alone(**options)
    killed: list[int] = []
    at = gates(tmp_path, 2, 7)

    def on_poll(supervisor: Any, steps: int) -> None:
        if steps == (2, 7, -1)[len(killed)] and len(supervisor._members) == 3:
            # The first time the one that writes, the second time another.
            name = supervisor._members[len(killed)]
            os.kill(supervisor.running[name], signal.SIGKILL)
            killed.append(steps)
            at[steps].touch()

    assert play.together(3, on_poll=on_poll, holds=held(at), **options) == alone
    assert len(killed) == 2
    assert play.code == 0
    assert sum("killed by signal 9" in text for text in play.told) == 2


def test_killed_within_a_turn(play: Any, tmp_path: Path) -> None:
    alone = play.alone(model="cnn")
    kill = {"flag": str(tmp_path / "killed"), "where": "turn", "step": 3, "name": "1"}
    assert play.together(3, kill=kill, model="cnn") == alone
    assert (tmp_path / "killed").exists()


def test_the_first_is_killed_as_it_writes_the_last_state(play: Any, tmp_path: Path) -> None:
    alone = play.alone()
    weights, state = tmp_path / "weights", tmp_path / "state"
    kill = {"flag": str(tmp_path / "killed"), "where": "save", "step": len(alone), "name": "0"}
    assert play.together(2, kill=kill, state=str(state), weights=str(weights)) == alone
    assert play.code == 0, play.told
    assert (tmp_path / "killed").exists()
    assert weights.exists()  # by the other, which is the first then
    assert play.together(2, state=str(state), log=str(tmp_path / "again")) == []


@pytest.mark.parametrize(("step", "code"), [(3, 0), (9, 137)])
def test_the_first_is_killed_as_it_writes_in_a_step(play: Any, tmp_path: Path, step: int, code: int) -> None:
    alone = play.alone()
    assert len(alone) == 10
    weights, error = tmp_path / "weights", tmp_path / "error"
    kill = {"flag": str(tmp_path / "killed"), "where": "script", "step": step, "name": "0"}
    assert play.together(2, kill=kill, weights=str(weights), error=str(error)) == alone
    assert play.code == code, play.told
    assert f"the first process was killed in step {step}, after the turns" in error.read_text()
    assert ("killed in the last step" in " ".join(play.told)) == bool(code)
    assert weights.exists()  # what follows the loop is done by the other, which is the first then


def test_the_first_leaves_after_the_last_step_without_a_word(play: Any) -> None:
    alone = play.alone()
    assert play.together(2, crash_after=len(alone) - 1, crash="0") == alone
    assert play.code == 0, play.told


@pytest.mark.parametrize(("killed", "code"), [(0, 137), (1, 0)])
def test_killed_while_the_first_still_writes_after_the_last_step(
    play: Any, tmp_path: Path, killed: int, code: int
) -> None:
    weights, gone = tmp_path / "weights", []

    def on_poll(supervisor: Any, steps: int) -> None:
        if supervisor._board.finished and not gone:
            gone.append(supervisor.members[killed])
            os.kill(supervisor.running[gone[0]], signal.SIGKILL)

    play.together(2, on_poll=on_poll, state=str(tmp_path / "state"), weights=str(weights), linger=2.0)
    assert play.code == code, play.told
    assert f"process {gone[0]} was killed by signal 9 after the last step" in " ".join(play.told)
    assert weights.exists() == (killed != 0)
    # Started again it has nothing else to do.
    log = str(tmp_path / "again")
    assert play.together(2, state=str(tmp_path / "state"), weights=str(weights), log=log) == []
    assert play.code == 0
    assert weights.exists()


def test_all_killed_go_on_from_the_checkpoint(play: Any, tmp_path: Path) -> None:
    alone = play.alone(model="cnn", epochs=3)
    killed: list[int] = []
    at = gates(tmp_path, 6)

    def on_poll(supervisor: Any, steps: int) -> None:
        if steps == 6 and not killed:
            for process in supervisor.running.values():
                os.kill(process, signal.SIGKILL)
            killed.append(steps)
            at[6].touch()

    options = {"model": "cnn", "epochs": 3, "holds": held(at), "state": str(tmp_path / "state"), "every": 4}
    log = str(tmp_path / "log")
    # Steps after the checkpoint are done twice, with the same bits.
    with pytest.raises(AssertionError):
        play.together(2, on_poll=on_poll, log=log, **options)
    lines = play.lines({"log": log})
    assert [alone[int(line[0])] for line in lines] == [line[1] for line in lines]
    assert {int(line[0]) for line in lines} == set(range(len(alone)))
    assert killed
    assert play.code == 0


def test_stopped_saved_and_resumed_on_another_number(play: Any, tmp_path: Path) -> None:
    options = {"model": "cnn", "epochs": 3, "state": str(tmp_path / "state"), "log": str(tmp_path / "log")}
    alone = play.alone(model="cnn", epochs=3)
    at = gates(tmp_path, 4)

    def on_poll(supervisor: Any, steps: int) -> None:
        if steps == 4 and not at[4].exists():
            supervisor.stop()
            at[4].touch()

    first = play.together(3, on_poll=on_poll, holds=held(at), **options)
    assert play.code == 85
    assert len(first) == 5
    assert play.alone(**options) == alone


def test_a_script_that_fails_ends_the_run(play: Any) -> None:
    assert play.together(2, model="no such model") == []
    assert play.code == 1
    assert any("exit code 1" in text for text in play.told)


def test_stopped_without_a_folder_is_no_suspension(play: Any) -> None:
    def on_poll(supervisor: Any, steps: int) -> None:
        if steps >= 2:
            supervisor.stop()

    done = play.together(2, on_poll=on_poll, model="gates", epochs=9, sleep=0.05)
    assert 2 <= len(done) < 40
    assert play.code == 143


def test_stopped_before_the_first_step(play: Any) -> None:
    assert play.together(2, on_poll=lambda supervisor, steps: supervisor.stop(), model="gates") == []
    assert play.code == 85


@pytest.mark.parametrize("step", [0, 3, 8, 9])
def test_killed_when_one_has_the_step_and_another_not(play: Any, tmp_path: Path, step: int) -> None:
    ends = [str(tmp_path / "alone.pt"), str(tmp_path / "together.pt")]
    alone = play.alone(model="cnn", weights=ends[0])
    assert len(alone) == 10
    flag, log = tmp_path / "given", str(tmp_path / "log")
    halfway = {"flag": str(flag), "step": step}
    with contextlib.suppress(AssertionError):  # who writes was killed: the line of that step is missing
        play.together(3, halfway=halfway, model="cnn", log=log, weights=ends[1])
    lines = play.lines({"log": log})
    assert [int(line[0]) for line in lines] == [number for number in range(10) if number != step]
    assert [line[1] for line in lines] == [alone[int(line[0])] for line in lines]
    assert flag.read_text() == str(step + 1)  # by one that had applied it meanwhile
    assert play.code == (
        137 if step == 9 else 0
    )  # what the first prints and writes in the last step is missing
    first, second = (torch.load(path, weights_only=True) for path in ends)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_script_that_is_not_elastic_is_told(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "cotenant",
        "run",
        "--elastic",
        "1:2",
        "--",
        sys.executable,
        "-c",
        "print(1)",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0
    assert "ended without a step: does it use cotenant.elastic.Run?" in done.stderr


def stop_behind(gate: Path) -> Any:
    """Stop the run when four steps are done; the gate lets it go on then."""

    def on_poll(supervisor: Any, steps: int) -> None:
        if steps == 4 and not gate.exists():
            supervisor.stop()
            gate.touch()

    return on_poll


def test_the_first_is_killed_as_it_saves_to_stop(play: Any, tmp_path: Path) -> None:
    alone, state = play.alone(), tmp_path / "state"
    kill = {"flag": str(tmp_path / "killed"), "where": "save", "step": 5, "name": "0"}
    gate = tmp_path / "gate"

    options = {"state": str(state), "holds": {"4": str(gate)}, "log": str(tmp_path / "log")}
    # Another saves, a step later.
    assert play.together(2, on_poll=stop_behind(gate), kill=kill, **options) == alone[:6]
    assert (play.code, Path(kill["flag"]).exists()) == (85, True)
    assert play.alone(**options) == alone


def test_stopped_and_killed_before_it_has_saved_is_no_suspension(play: Any, tmp_path: Path) -> None:
    kill = {"flag": str(tmp_path / "killed"), "where": "save", "step": 5, "name": "0"}
    gate = tmp_path / "gate"

    play.together(
        1, on_poll=stop_behind(gate), kill=kill, state=str(tmp_path / "state"), holds={"4": str(gate)}
    )
    assert play.code == 137
    assert "process 0 was killed by signal 9 before the state was saved" in play.told[-1]


def test_what_follows_the_loop_is_not_between_two_steps(play: Any, tmp_path: Path) -> None:
    gate, said = tmp_path / "gate", set()

    def on_poll(supervisor: Any, steps: int) -> None:
        if supervisor._board.finished and "0" in supervisor.running and not gate.exists():
            said.add(supervisor._board.told("0").split()[0])
            if "end" in said:
                gate.touch()

    play.together(2, on_poll=on_poll, hang_after_s=40.0, holds={"end": str(gate)})
    assert play.code == 0, (said, play.told)
    assert "end" in said
