"""Scripts run on 1, 2 and 3 processes and compared: equal where they are, and the likely cause where they are not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.elastic.checks import equal
from cotenant.elastic.checks.equal import Outcome, Trial, run_equal
from cotenant.errors import InputError

SCRIPT = """\
import sys
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from cotenant import elastic

class Noisy(Dataset):
    def __init__(self):
        self.x = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
        self.rng = np.random.default_rng(0)
    def __len__(self):
        return 60
    def __getitem__(self, index):
        noise = {noise}
        return self.x[index] + float(noise), index % 2

run = elastic.Run(workers=4, max_processes={most}, seed=0, state={state})
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
{model}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
model, loader = run.prepare(model, Noisy(), 3)
run.keep(opt, sched)
turns = 0
for step in run.steps(loader, epochs=2):
    for x, y in step:
        loss = nn.functional.cross_entropy(model(x), y)
        {turn}
        loss.backward()
        turns += 1
    opt.step()
    opt.zero_grad()
    sched.step()
print("all steps", step.number)
"""
RIGHT = {"noise": "np.random.rand()", "model": "", "turn": "", "most": 4, "state": None}


@pytest.fixture
def forked(play: Any) -> Any:
    from_play = type(play).alone.__globals__["Forked"]  # the nursery's children, as the other tests have them

    def start(words: Sequence[str], more: Mapping[str, str], output: Path) -> Any:
        return from_play({"script": "checked.py", "words": list(words), "output": str(output)}, more)

    return start


def _run(folder: Path, start: Any, processes: tuple[int, ...] = (1, 2), **changes: Any) -> Outcome:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(**RIGHT | changes))
    return run_equal(Trial(path, [], 4, processes, limit_s=200.0), start=start)


def test_a_script_that_is_elastic_is_equal_on_all_numbers_that_it_allows(tmp_path: Path, forked: Any) -> None:
    found = _run(tmp_path, forked, (1, 2, 3), most=2)
    assert (found.processes, found.steps, found.equal) == ([1, 2], 4, True)
    assert found.findings == [] and not found.again


@pytest.mark.parametrize(
    ("changes", "cause", "step", "again"),
    [
        ({"noise": "self.rng.random()"}, "loader", 0, False),
        ({"turn": "loss = loss * (1 + turns)"}, "kernel", 0, False),
        ({"turn": "sched.step()"}, "optimiser", 0, False),
        ({"turn": "turns and torch.rand(1)"}, "rng", 0, False),
        ({"model": "torch.seed(); nn.init.normal_(model[0].weight)"}, "state", 0, True),
    ],
    ids=["data", "turn", "schedule", "draws", "seed"],
)
def test_where_they_part_and_why(
    tmp_path: Path, forked: Any, changes: dict[str, str], cause: str, step: int, again: bool
) -> None:
    found = _run(tmp_path, forked, **changes)
    assert found.difference is not None
    assert (found.difference.cause, found.difference.step, found.other) == (cause, step, 2)
    assert found.again is again


def test_what_follows_the_number_of_the_process_is_a_contradiction_of_one_run(
    tmp_path: Path, forked: Any
) -> None:
    found = _run(tmp_path, forked, turn="opt.param_groups[0]['lr'] = 0.1 if run.first else 0.2")
    assert not found.equal
    assert found.contradictions and found.contradictions[0].startswith("on 2 processes: step 0")


def test_an_operator_without_deterministic_kernel_is_named_with_its_line(tmp_path: Path, forked: Any) -> None:
    turn = "torch.zeros(3).put_(torch.tensor([1]), torch.ones(1))"
    found = _run(tmp_path, forked, (1,), turn=turn, state=repr(str(tmp_path / "mine")))
    assert [(one.rule, one.line, one.stops, one.left) for one in found.findings] == [
        ("operator-at-run-time", 29, "D0", "statistical")
    ]
    assert found.findings[0].file == tmp_path / "script.py"
    assert found.findings[0].what.startswith("put_ in torch.zeros(3)")
    assert not (tmp_path / "mine").exists()  # the script's own state folder is left alone


def test_the_command_says_equal_or_where_they_part(
    tmp_path: Path, forked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal, "_start", forked)
    path = tmp_path / "script.py"

    def command(*words: str, **changes: Any) -> Any:
        path.write_text(SCRIPT.format(**RIGHT | {"most": 2} | changes))
        return CliRunner().invoke(app, ["elastic", "check", str(path), "--run", "3", *words])

    done = command(noise="0")
    assert done.exit_code == 0, done.output
    assert f"{path}: nothing found that stops D1" in done.stdout and "add --run" not in done.stdout
    assert "equal: 3 steps on 1, 2 processes, bit for bit\n" in done.stdout
    done = command(noise="self.rng.random()")
    assert done.exit_code == 1
    assert "differs: 1 and 2 processes part at step 0, logical worker 2: batch" in done.stdout
    assert "see above: line 15 [own-generator]" in done.stdout
    # What the text does not show is seen when it runs.
    done = command("--json", noise="0", turn="loss = loss * (1 + turns)")
    values = json.loads(done.stdout)
    assert (done.exit_code, values["left"], values["run"]["equal"]) == (1, "bitwise", False)
    assert values["run"]["difference"]["cause"] == "kernel"


def test_what_cannot_be_compared_is_told(tmp_path: Path, forked: Any) -> None:
    with pytest.raises(InputError, match=r"failed with exit code 1:\n(.*\n)*ValueError: mine"):
        _run(tmp_path, forked, turn="raise ValueError('mine')")
    path = tmp_path / "none.py"
    path.write_text("print('no step')\n")
    with pytest.raises(InputError, match="took no step of an elastic run"):
        run_equal(Trial(path, [], 2, limit_s=200.0), start=forked)
    path.write_text("import time\ntime.sleep(100)\n")
    with pytest.raises(InputError, match=r"not done after 0\.5 s"):
        run_equal(Trial(path, [], 2, limit_s=0.5), start=forked)
