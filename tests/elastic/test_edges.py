"""What a script may get wrong: said at once, with what to do; and one run at a time in a state folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant import elastic
from cotenant.elastic import folders
from cotenant.elastic.supervisor import Supervisor
from cotenant.errors import InputError

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.set_num_threads(threads)


def made(batch_size: Any = 2, **options: Any) -> tuple[Any, Any, Any, Any]:
    run = elastic.Run(**{"workers": 2, "threads": 1} | options)
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(8, 3), torch.arange(8))
    model, loader = run.prepare(torch.nn.Linear(3, 8), data, batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.keep(optimizer)
    return run, model, loader, optimizer


def train(run: Any, model: Any, loader: Any, optimizer: Any, epochs: Any = 1) -> int:
    steps = 0
    for step in run.steps(loader, epochs):
        for x, y in step:
            torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("workers", 2.0, r"workers is 2.0, of type float: it must be a whole number, at least 1"),
        ("workers", "4", r"workers is '4', of type str"),
        ("workers", True, r"workers is True, of type bool"),
        ("workers", 0, r"workers is 0: it must be a whole number, at least 1"),
        ("max_processes", -1, r"max_processes is -1"),
        ("max_processes", 3, r"workers=2, max_processes=3: it must be a divisor of workers"),
        ("batch_size", 2.5, r"batch_size is 2.5, of type float"),
        ("batch_size", 0, r"batch_size is 0"),
        ("batch_size", np.bool_(True), r"batch_size is .*True.*, of type bool"),
        ("epochs", 1.5, r"epochs is 1.5, of type float"),
        ("epochs", "3", r"epochs is '3', of type str"),
        ("epochs", -1, r"epochs is -1"),
        ("epochs", None, r"steps\(\) without an end: give epochs=, or steps="),
        ("seed", 0.5, r"seed is 0.5, of type float"),
        ("every_steps", -5, r"every_steps is -5: it must be a whole number, at least 0"),
        ("keep", 0, r"keep is 0"),
        ("threads", 0, r"threads is 0"),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(name: str, value: Any, message: str) -> None:
    options = {name: value} if name != "epochs" else {}
    with pytest.raises(InputError, match=message):
        # Steps are asked for, none is taken: it is said before the first.
        made(**options)[0].steps(made()[2], epochs=value if name == "epochs" else 1)


def test_whole_numbers_of_numpy_and_pytorch_are_numbers() -> None:
    parts = made(workers=np.int64(2), batch_size=torch.tensor(2), seed=np.uint8(7))
    assert train(*parts, epochs=np.int32(2)) == 4
    assert parts[0].workers == 2


def test_a_second_loop_is_refused_and_says_what_to_do_instead() -> None:
    parts = made()
    assert train(*parts) == 2
    with pytest.raises(InputError, match=r"second run.steps\(\): the first one has done 2 steps"):
        train(*parts, epochs=2)


def test_a_run_of_which_nothing_is_left_says_so(tmp_path: Path, capsys: Any) -> None:
    assert train(*made(state=tmp_path)) == 2
    assert capsys.readouterr().err == ""
    assert train(*made(state=tmp_path)) == 0
    assert "saved state of 2 steps: all 1 epochs are done, no step is left" in capsys.readouterr().err
    assert train(*made(state=tmp_path), epochs=3) == 4


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(2, 3), r"step.note\(loss=...\) was given a Tensor of shape \(2, 3\)"),
        ("high", r"was given a str: it takes one number, such as loss.item\(\)"),
        (None, r"was given a NoneType"),
        ([1.0], r"was given a list"),
    ],
)
def test_what_is_not_one_number_cannot_be_noted(value: Any, message: str) -> None:
    run, model, loader, _ = made()
    step = next(iter(run.steps(loader, 1)))
    with pytest.raises(InputError, match=message):
        for x, _y in step:
            model(x).sum().backward()
            step.note(loss=value)


def test_a_number_is_noted_in_whatever_form() -> None:
    run, model, loader, _ = made()
    step = next(iter(run.steps(loader, 1)))
    values = (torch.tensor([2.0], requires_grad=True), np.float32(4))
    for (x, _y), value in zip(step, values, strict=True):
        model(x).sum().backward()
        step.note(loss=value)
    with pytest.raises(InputError, match="outside of the inner loop"):
        step.note(loss=1.0)
    assert step.mean("loss") == 3.0


def test_more_processes_than_can_share_the_work_are_refused_before_any_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from cotenant import elastic\n"
        "from cotenant.errors import InputError\n"
        "try:\n    elastic.Run(workers=8, max_processes=4)\n"
        "except InputError as error:\n"
        f"    open({str(tmp_path / 'said')!r}, 'w').write(str(error))\n    raise SystemExit(7)\n"
    )
    # One process at first: without the check it would train until the run grows beyond four.
    supervisor = Supervisor([sys.executable, str(script)], 1, 9)
    supervisor.want(1)
    assert supervisor.run() == 7
    assert (
        (tmp_path / "said")
        .read_text()
        .startswith("up to 9 processes are to be started, the run is made for 4 at")
    )


HOLD = """
import sys, time
from cotenant.elastic.folders import use_folder
from pathlib import Path
use_folder(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def holder(folder: Path, **more: str) -> subprocess.Popen[str]:
    env = {**os.environ, **more}
    found = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], env=env, stdout=subprocess.PIPE, text=True
    )
    assert found.stdout is not None
    assert found.stdout.readline() == "held\n"
    return found


def test_a_folder_is_of_one_run_until_its_process_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_S", 0.05)
    other = holder(tmp_path)
    try:
        with pytest.raises(InputError, match=rf"in use by another run \(process {other.pid} began it\)"):
            train(*made(state=tmp_path))
        assert not list(tmp_path.glob("*.pt"))
    finally:
        other.kill()
        other.wait()
        other.stdout.close()  # type: ignore[union-attr]
    assert json.loads((tmp_path / "in-use").read_text())["pid"] == other.pid
    assert train(*made(state=tmp_path)) == 2


def test_processes_of_one_supervisor_share_a_folder_and_others_are_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_S", 0.05)
    first = holder(tmp_path, COTENANT_ELASTIC="127.0.0.1:5001:0")
    second = holder(tmp_path, COTENANT_ELASTIC="127.0.0.1:5001:1")
    try:
        first.kill()
        first.wait()
        monkeypatch.setenv("COTENANT_ELASTIC", "127.0.0.1:5002:0")
        with pytest.raises(InputError, match="in use by another run"):
            folders.use_folder(tmp_path)
        monkeypatch.setenv("COTENANT_ELASTIC", "127.0.0.1:5001:2")
        folders.use_folder(tmp_path).release()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]


def test_a_resumed_attempt_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_S", 0.05)
    monkeypatch.setenv("COTENANT_STATE", str(tmp_path))
    before = holder(tmp_path)
    ender = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {before.pid}"])
    assert train(*made()) == 2
    assert ender.wait() == 0
    assert before.wait() == -signal.SIGKILL
    before.stdout.close()  # type: ignore[union-attr]


def test_a_loop_that_is_left_lets_go_of_the_folder(tmp_path: Path) -> None:
    run, model, loader, _ = made(state=tmp_path)
    steps = run.steps(loader, 1)
    for x, _y in next(steps):
        model(x).sum().backward()
    assert os.path.realpath(tmp_path) in {path for _, path in folders._open}
    steps.close()
    assert os.path.realpath(tmp_path) not in {path for _, path in folders._open}
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_the_run_before_takes_away_meanwhile_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, gone = os.open, []

    def opened(path: Any, *more: Any, **options: Any) -> int:
        file = real(path, *more, **options)
        if Path(path).name == folders.FILE and not gone:
            gone.append(path)
            Path(path).unlink()
        return file

    monkeypatch.setattr(os, "open", opened)
    use = folders.use_folder(tmp_path)
    assert gone
    assert json.loads((tmp_path / folders.FILE).read_text())["pid"] == os.getpid()
    use.release()
