"""How long a change of size takes: 2 to 4 processes and back, 100 M parameters with Adam.

One run under a supervisor; each process writes down when it does what, by the machine's monotonic clock.
Told are seconds from the request to the end of the second step after it: start of the new processes (the
others train meanwhile), the rest of the step under way, building the group, sending the state, first and
second step, and within these the turns, the exchange and the optimiser. Beside them stand what does not depend on
who else uses the machine: for both steps, processor time and first touches of memory (minor page faults, thousands)
of a process that was there before and of one that is new.

Run with ``python -m bench.elastic_resize [--width 4096] [--layers 6] [--batch 1] [--json]``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotenant.elastic.supervisor import Supervisor

STEPS_BEFORE, STEPS_AFTER = 2, 3


def script(options: argparse.Namespace) -> None:
    """The training, in each process."""
    log = Path(options.log).open("a", buffering=1)  # noqa: SIM115 - until the process is ended
    name = os.environ["COTENANT_ELASTIC"].rpartition(":")[2]

    def mark(what: str, number: int = -1) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cost = [used.ru_utime + used.ru_stime, used.ru_minflt]
        log.write(json.dumps([name, what, number, time.monotonic(), *cost]) + "\n")

    mark("started")
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from cotenant import elastic
    from cotenant.elastic import process
    from cotenant.elastic.members import Member
    from cotenant.elastic.process import Process

    _around(Member, "join", mark)
    _around(Member, "_group", mark)
    _around(process, "catch_up", mark)
    _around(Process, "end_turns", mark)
    run = elastic.Run(workers=4, seed=0, threads=1)
    layers = [nn.Linear(options.width, options.width) for _ in range(options.layers)]
    data = TensorDataset(torch.randn(options.batch * 4 * 400, options.width))
    model, loader = run.prepare(nn.Sequential(*layers), data, options.batch, random_data=False)
    adam = torch.optim.Adam(model.parameters(), lr=1e-5)
    run.keep(adam)
    for step in run.steps(loader, epochs=1):
        mark("turns", step.number)
        for (x,) in step:
            model(x).square().mean().backward()
        mark("update", step.number)
        adam.step()
        adam.zero_grad()
        mark(f"done {run.processes}", step.number)
        if Path(options.log + ".end").exists():
            os._exit(0)


def _around(owner: Any, name: str, mark: Callable[[str], None]) -> None:
    inner = getattr(owner, name)

    def outer(*given: Any) -> Any:
        mark(f"{name} begins")
        found = inner(*given)
        mark(f"{name} ends")
        return found

    setattr(owner, name, outer)


class Log:
    """What processes have written so far."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[tuple[str, str, int, float]]:
        """Process, what it did, step, and when."""
        return [(name, what, number, at) for name, what, number, at, *_ in self.whole()]

    def whole(self) -> list[tuple[str, str, int, float, float, int]]:
        """The same with processor time and first touches of memory until then."""
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines if line.endswith("]")]

    def steps(self, processes: int) -> list[tuple[int, float]]:
        """Steps that all of so many processes have done, and when the last one had."""
        found: dict[int, list[float]] = {}
        for _, what, number, at in self.all():
            if what == f"done {processes}":
                found.setdefault(number, []).append(at)
        return sorted((number, max(at)) for number, at in found.items() if len(at) == processes)


def change(supervisor: Supervisor, log: Log, before: int, after: int) -> dict[str, float]:
    """Let some steps pass, ask for another number, and take the time until two steps are done."""
    told: list[float] = []
    supervisor._tell = lambda text: told.append(time.monotonic()) if text.startswith("generation") else None
    seen = len(log.steps(before))
    while len(log.steps(before)) < seen + STEPS_BEFORE:
        _look(supervisor)
    past = log.all()[-1][3]
    asked = time.monotonic()
    supervisor.want(after)
    done: list[tuple[int, float]] = []
    while len(done) < STEPS_AFTER:
        _look(supervisor)
        done = [(number, at) for number, at in log.steps(after) if at > past]
    first = done[0][0]
    since = [entry for entry in log.all() if entry[3] > told[-1]]

    def last(what: str, number: int | None = None) -> float:
        return max(at for _, one, n, at in since if one == what and number in (None, n))

    joined = [at for _, what, _, at in log.all() if what == "join begins" and at > asked]
    together = max(told[-1], *joined)
    ready = [
        min(a for n, w, _, a in log.all() if w == "join begins" and n == name) for name in supervisor.members
    ]
    starting = max([told[-1] - asked, *(at - asked for at in ready if at > asked)]) if after > before else 0.0
    caught = last("catch_up ends")
    parts = {
        "asked to published": told[-1] - asked,
        "of that starting processes": min(starting, told[-1] - asked),
        "step under way": together - told[-1],
        "group": last("_group ends") - together,
        "state": caught - last("_group ends"),
        "first step": done[0][1] - caught,
        "second step": done[1][1] - done[0][1],
        "third step": done[2][1] - done[1][1],
    }
    for number, name in ((first, "first"), (first + 1, "second")):
        begun, end = last("turns", number), last("update", number)
        exchange = [at for _, what, _, at in since if what == "end_turns begins" and begun <= at <= end]
        parts[f"{name} step: turns"] = max(exchange) - begun
        parts[f"{name} step: exchange"] = end - max(exchange)
        parts[f"{name} step: update"] = dict(done)[number] - end
    parts["change, without start and step under way"] = done[0][1] - together
    names = supervisor.members
    counted = costs(log, told[-1], (first, first + 1), names[-1], names[0])
    return {what: round(value, 3) for what, value in (parts | counted).items()}


def costs(log: Log, since_s: float, numbers: tuple[int, int], new: str, old: str) -> dict[str, float]:
    """Processor time and page faults of the parts of two steps, in two processes."""
    found = {}
    for kind, name in (("old", old), ("new", new)):
        marks = [mark for mark in log.whole() if mark[0] == name and mark[3] > since_s]
        for number, step in zip(numbers, ("first", "second"), strict=True):
            start = next(n for n, mark in enumerate(marks) if mark[1:3] == ("turns", number))
            points = [
                mark
                for mark in marks[start:]
                if mark[1].split()[0] in ("turns", "end_turns", "update", "done")
            ]
            points = [mark for mark in points if mark[1] != "end_turns ends"][:4]
            for part, (before, after) in zip(
                ("turns", "exchange", "update"), itertools.pairwise(points), strict=True
            ):
                what = f"{kind} process, {step} step, {part}"
                found[f"{what}: cpu"] = round(after[4] - before[4], 2)
                found[f"{what}: faults"] = round((after[5] - before[5]) / 1000, 1)
    return found


def _look(supervisor: Supervisor) -> None:
    if supervisor.poll() is not None:
        raise SystemExit(f"the run ended with exit code {supervisor.poll()}")
    time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=1, help="of one logical worker")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.log:
        script(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        sizes = [
            "--width",
            str(options.width),
            "--layers",
            str(options.layers),
            "--batch",
            str(options.batch),
        ]
        command = [sys.executable, "-m", "bench.elastic_resize", "--log", str(path), *sizes]
        supervisor = Supervisor(command, 1, 4, threads=1)
        supervisor.want(2)
        begun = os.getloadavg()[0]
        try:
            found = {f"{a} -> {b}": change(supervisor, Log(path), a, b) for a, b in ((2, 4), (4, 2))}
        finally:
            Path(f"{path}.end").touch()
            supervisor.close()
    parameters = options.layers * options.width * (options.width + 1)
    if options.json:
        print(json.dumps({"parameters": parameters, "load_before": begun, "seconds": found}))
        return
    print(f"{parameters / 1e6:.1f} M parameters, Adam, load of the machine before: {begun:.1f}")
    for name, parts in found.items():
        print(f"{name} processes, seconds")
        for what, value in parts.items():
            print(f"  {what:42s}{value:8.2f}")


if __name__ == "__main__":
    main()
