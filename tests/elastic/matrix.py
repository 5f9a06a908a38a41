"""Runs the matrix of equality, and writes it as a page; goes on where it was left.

``python tests/elastic/matrix.py --journal FOLDER -o docs/elastic-matrix.md``; exit code 0 only if every cell is equal.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

KINDS = ("cnn", "vit", "gpt", "lstm", "dlrm", "gnn", "gan", "diffusion")
OPTIMIZERS = ("sgd", "adam", "adamw", "adafactor")
PRECISIONS = ("fp32", "bf16", "fp16")
WORKERS = (4, 8)
STEPS = 6
CHANGES = (4, 4, 2, 3, 3)
"""Processes wanted for the step after each of the first ones."""


def load(name: str) -> Any:
    """A file beside this one, as a module."""
    spec = importlib.util.spec_from_file_location(f"elastic_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(options: dict[str, Any]) -> None:
    """In a process of the training: a step begins when the gate's file says so, if there is one."""
    from cotenant.elastic import step

    if "gate" in options:
        gate, plain = Path(options["gate"]), step.Step._loop

        def held(self: Any, part: Any) -> Any:
            while int(gate.read_text()) < self.number:
                time.sleep(0.005)
            return plain(self, part)

        step.Step._loop = held  # type: ignore[method-assign]
    if options.get("wrong"):
        from cotenant.elastic.sums import Sums

        # What processes have summed, one after the other: not the tree of the run.
        Sums._fold = lambda self, node, parts: sum(  # type: ignore[method-assign]
            (parts[key] for key in sorted(parts)), start=0.0
        )
    try:
        load("models").main(options["cell"] | {"log": options["log"]})
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = str(error).splitlines()[0] if str(error) else "no text"
        at = f"{Path(where.filename).name}:{where.lineno}: {where.line}"
        Path(f"{options['log']}.error").write_text(f"{type(error).__name__}: {said} (at {at})")
        raise


def changing(play: Any, cell: dict[str, Any]) -> list[str]:
    """One process, then four, two, three: the digests of the steps."""
    gate = play.folder / f"gate{play.count}"
    gate.write_text("-1")

    def on_poll(supervisor: Any, steps: int) -> None:
        wanted = CHANGES[steps] if steps < len(CHANGES) else CHANGES[-1]
        # Before the first generation nobody is waited for at the gate.
        if not supervisor.members:
            return
        supervisor.want(wanted)
        if len(supervisor.members) == wanted:
            fresh = gate.with_suffix(".new")
            fresh.write_text(str(steps))
            fresh.rename(gate)

    return list(play.together(1, up_to=4, on_poll=on_poll, script="matrix.py", cell=cell, gate=str(gate)))


def run_cell(play: Any, cell: dict[str, Any]) -> str:
    """``equal``, or what was found instead."""
    alone = play.alone(script="matrix.py", cell=cell)
    if len(set(alone)) != STEPS:
        return f"{len(set(alone))} different steps of {STEPS} on one process"
    for processes in (1, 2, 3, 4):
        found = play.together(processes, script="matrix.py", cell=cell)
        if found != alone or play.processes != [processes] * STEPS:
            return f"differs on {processes} processes"
    if changing(play, cell) != alone:
        return "differs with changes"
    if play.processes != [1, *CHANGES]:
        return f"equal, but the processes were {play.processes}"
    return "equal"


def found_in(play: Any, cell: dict[str, Any]) -> str:
    """As ``run_cell``; of a training that ended with an error, what it said and where."""
    try:
        return run_cell(play, cell)
    except (AssertionError, pytest.fail.Exception) as error:
        texts = [path.read_text() for path in sorted(play.folder.glob("*.error"))]
        lines = str(error).splitlines() or ["the training ended with an error"]
        return f"failed: {texts[0] if texts else lines[0]}"


def journalled(folder: Path) -> dict[str, str]:
    """What was found so far, by cell."""
    path = folder / "matrix.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines)


def run(folder: Path, limit_s: float) -> None:
    """All cells that are not in the journal, fp32 first, for so long."""
    conftest = load("conftest")
    conftest.LIMIT_S = 900.0  # the machine may be busy with other things
    conftest.nursery()
    done, end = journalled(folder), time.monotonic() + limit_s
    for precision, workers, optimizer, kind in itertools.product(PRECISIONS, WORKERS, OPTIMIZERS, KINDS):
        name = f"{kind} {optimizer} {precision} {workers}"
        if name in done:
            continue
        if time.monotonic() > end:
            return
        cell = {"kind": kind, "optimizer": optimizer, "precision": precision, "workers": workers}
        with tempfile.TemporaryDirectory() as scratch:
            found = found_in(conftest.Play(Path(scratch)), cell)
        with (folder / "matrix.jsonl").open("a") as file:
            file.write(json.dumps([name, found]) + "\n")
        print(f"{name}: {found}", file=sys.stderr, flush=True)


def code(done: dict[str, str]) -> int:
    """Exit code: 0 if all cells were run and are equal."""
    cells = itertools.product(KINDS, OPTIMIZERS, PRECISIONS, WORKERS)
    return int(any(done.get(" ".join(map(str, cell))) != "equal" for cell in cells))


def page(done: dict[str, str], note: str = "") -> str:
    """The table, a note, and what is not equal."""
    import torch

    columns = list(itertools.product(PRECISIONS, OPTIMIZERS))
    short = {None: "", "equal": "="}
    rows = []
    for kind, workers in itertools.product(KINDS, WORKERS):
        found = [done.get(f"{kind} {optimizer} {precision} {workers}") for precision, optimizer in columns]
        rows.append(f"| {kind} | {workers} | {' | '.join(short.get(one, 'X') for one in found)} |")
    equal = sum(one == "equal" for one in done.values())
    others = [f"- {name}: {found}" for name, found in sorted(done.items()) if found != "equal"]
    head = f"| model | N | {' | '.join(f'{precision} {optimizer}' for precision, optimizer in columns)} |"
    text = [
        "# Matrix of equality",
        "",
        f"Written by `python tests/elastic/matrix.py --journal FOLDER -o docs/elastic-matrix.md` (PyTorch {torch.__version__}).",
        "",
        f"`=`: after each of {STEPS} steps parameters, buffers, optimiser and scaler state and the mean loss have the same SHA-256 alone, under",
        "a supervisor on 1, 2, 3 and 4 processes, and on 1, 4, 4, 2, 3, 3 processes in steps 0 to 5. `X`: see below. Empty: not run.",
        "The GAN has two inner loops and an update after each: the judge's, then the generator's through the updated judge.",
        "Under fp16 the LSTM's recurrent layer computes in fp32: oneDNN has no fp16 LSTM on this CPU (`could not create a primitive`).",
        f"{equal} of {len(columns) * len(KINDS) * len(WORKERS)} cells are equal, {len(others)} are not, the others were not run.",
        *([note] if note else []),
        "",
        head,
        "|" + " --- |" * (len(columns) + 2),
        *rows,
    ]
    return "\n".join([*text, "", "Not equal:", "", *others] if others else text) + "\n"


def command() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journal", type=Path, required=True, help="folder of what was found so far")
    parser.add_argument("-o", "--output", type=Path, help="the page")
    parser.add_argument(
        "--limit", type=float, default=3600.0, help="seconds; no further cell begins after it"
    )
    parser.add_argument("--note", default="", help="a sentence for the page")
    given = parser.parse_args()
    given.journal.mkdir(parents=True, exist_ok=True)
    run(given.journal, given.limit)
    done = journalled(given.journal)
    if given.output is not None:
        given.output.write_text(page(done, given.note))
    return code(done)


if __name__ == "__main__":
    sys.exit(command())
