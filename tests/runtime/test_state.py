"""What is refused, in words; and what a job does when it cannot save."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from cotenant.errors import InputError, StateError
from cotenant.runtime import StatusFile, attach, statefiles
from cotenant.runtime.statusfile import CAN_SUSPEND, RUNTIME_ATTACHED, SAVING_NOW, STATE_SAVED

from .training import Job


def _suspended(status: StatusFile, state: Path, **options: Any) -> Path:
    """The one file of a job that was suspended after four steps."""
    with pytest.raises(SystemExit):
        Job(state, **options).train(lambda step: status.give_order(step == 3))
    status.give_order(0)
    (file,) = state.iterdir()
    return file


def test_the_file_is_one_that_torch_reads_and_named_by_its_content(
    status: StatusFile, tmp_path: Path
) -> None:
    file = _suspended(status, tmp_path / "state")
    content = torch.load(file, weights_only=True)
    assert (content["cotenant"]["step"], content["cotenant"]["epoch"]) == (4, 0)
    assert file.name.startswith("state-1-000000000004-")
    now = status.read()
    assert (now.steps, now.total, now.state_step, now.state_bytes) == (4, 30, 4, file.stat().st_size)
    assert now.flags == RUNTIME_ATTACHED | CAN_SUSPEND | STATE_SAVED


def test_state_of_another_model(status: StatusFile, tmp_path: Path) -> None:
    _suspended(status, tmp_path / "state")
    with pytest.raises(
        StateError, match=r"of another model: body\.0\.weight is 12x6 float32 there, 9x6 float32 here"
    ):
        Job(tmp_path / "state", width=9)
    with pytest.raises(StateError, match="saved with scheduler scheduler, this run has none"):
        attach(torch.nn.Linear(2, 2), optimizer=torch.optim.SGD([torch.zeros(1)]), state=tmp_path / "state")


@pytest.mark.parametrize("left", [0, 1000, -1])
def test_truncated_state(left: int, status: StatusFile, tmp_path: Path) -> None:
    file = _suspended(status, tmp_path / "state")
    os.truncate(file, left % file.stat().st_size)
    with pytest.raises(StateError, match=r"truncated or damaged: its \d+ bytes"):
        Job(tmp_path / "state")


def test_one_wrong_bit(status: StatusFile, tmp_path: Path) -> None:
    file = _suspended(status, tmp_path / "state")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    with pytest.raises(StateError, match="truncated or damaged"):
        Job(tmp_path / "state")


def test_a_damaged_state_is_passed_over_for_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Job(None).train()
    Job(tmp_path, every_s=1e-9, keep=2).train()
    newest, older = statefiles.list_states(tmp_path)
    assert (newest.step, older.step) == (29, 28)
    os.truncate(newest.path, 100)
    job = Job(tmp_path, seed=5)
    assert job.run.done == 28
    assert "going on from step 28" in capsys.readouterr().err
    assert job.train().weights() == whole.weights()


def test_state_of_a_newer_format(status: StatusFile, tmp_path: Path) -> None:
    file = _suspended(status, tmp_path / "state")
    file.rename(file.with_name(file.name.replace("state-1-", "state-2-")))
    with pytest.raises(StateError, match="format 2, this version of cotenant reads up to 1"):
        Job(tmp_path / "state")


def test_c64_a_state_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    statefiles.write_state(tmp_path / "state", 3, lambda file: torch.save({"cotenant": Evil()}, file))
    with pytest.raises(StateError, match="cannot be loaded"):
        Job(tmp_path / "state")
    assert not (tmp_path / "ran").exists()


def test_state_that_could_not_be_loaded_is_refused_before_training(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"where": Path("x")}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise NotImplementedError

    with pytest.raises(StateError, match="cannot be loaded safely"):
        attach(torch.nn.Linear(1, 1), extra={"odd": Odd()}, state=tmp_path)
    with pytest.raises(InputError, match=r"extra 'text' is a str: its state cannot be saved"):
        attach(extra={"text": "x"})


def test_a_full_disk_does_not_end_the_job(
    status: StatusFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cotenant.runtime.statefiles.os.fsync", full)
    whole = Job(None).train()
    job = Job(tmp_path / "state")
    status.give_order(1)
    assert job.train().weights() == whole.weights()
    said = capsys.readouterr().err
    # Tried once, not at each of the thirty steps.
    assert said.count("not saved") == 1
    assert "state of step 1 not saved" in said
    assert "No space left on device" in said
    assert list((tmp_path / "state").iterdir()) == []
    assert not status.read().flags & (STATE_SAVED | SAVING_NOW)


def test_what_a_killed_writer_left_is_no_state_and_goes_away(status: StatusFile, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tmp-1-7").write_bytes(b"half")
    assert statefiles.list_states(tmp_path / "state") == []
    assert _suspended(status, tmp_path / "state").name.startswith("state-1-")


def test_term_saves_and_leaves(tmp_path: Path) -> None:
    whole = Job(None).train()
    before = signal.getsignal(signal.SIGTERM)
    try:
        job = Job(tmp_path, on_term="save")
        with pytest.raises(SystemExit) as left:
            job.train(lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 5 else None)
        assert left.value.code == 143
        assert Job(tmp_path, seed=8).train().weights() == whole.weights()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_resume_without_state_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COTENANT_RESUME", "1")
    assert Job(tmp_path / "none").run.done == 0
    assert "holds no saved state; beginning at step 0" in capsys.readouterr().err


def test_other_data_than_before(status: StatusFile, tmp_path: Path) -> None:
    _suspended(status, tmp_path / "state")
    job = Job(tmp_path / "state")
    with pytest.raises(StateError, match="an epoch had 7 batches when the state was saved, now it has 1"):
        next(job.run.steps(torch.utils.data.DataLoader(job.data, batch_size=50)))
    with pytest.raises(StateError, match="read by way of 'order' before, now it would be 'replay'"):
        next(Job(tmp_path / "state").run.steps([1, 2]))


def test_loops_without_an_end_or_without_data() -> None:
    run = attach()
    with pytest.raises(InputError, match="total_steps"):
        next(run.steps([1]))
    with pytest.raises(InputError, match="no data"):
        next(run.steps(epochs=1))
    with pytest.raises(InputError, match="an epoch of them is empty"):
        next(run.steps([], epochs=1))
    assert list(attach().steps("ab", epochs=2)) == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]
