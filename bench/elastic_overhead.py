"""What turns cost: N logical workers on one process, against plain accumulation of the same batches.

Three trainings go on side by side in one process: plain accumulation, and N workers in both orders. A step
of each is timed in turn, in CPU time of the process; told is the median of the ratios to plain accumulation
of the same round, so that neighbours on the machine matter little, its quartiles, and as noise the same for
a second plain accumulation. ``gpt`` and ``resnet`` are of realistic size; ``conv`` has short steps, ``wide``
many parameters for its compute.

Run with ``python -m bench.elastic_overhead [--steps 30] [--models resnet gpt]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from bench.elastic_models import MODELS
from cotenant import elastic

_WORKERS = 4
_FIRST = 3
"""Rounds that are left out: the first ones allocate."""


def turns(
    name: str,
    order: Any,
    steps: int,
    *,
    workers: int = _WORKERS,
    most: int | None = None,
    spare: int = 1,
    **more: Any,
) -> Iterator[None]:
    """Elastic steps; the data set has ``spare`` times the samples that they need. ``more`` goes to the run."""
    training = MODELS[name]
    run = elastic.Run(workers, most, seed=0, order=order, threads=1, **more)
    data = training.data(training.batch * workers * steps * spare)
    model, loader = run.prepare(training.model(), data, training.batch, random_data=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run.keep(opt)
    for step in run.steps(loader, epochs=1):
        for x, y in step:
            training.loss(model(x), y).backward()
        opt.step()
        opt.zero_grad()
        yield


def plain(name: str, steps: int, *, workers: int = _WORKERS, spare: int = 1) -> Iterator[None]:
    """Accumulation of as many batches."""
    training = MODELS[name]
    torch.use_deterministic_algorithms(True)  # as the others do
    torch.utils.deterministic.fill_uninitialized_memory = False
    model = training.model()
    loader = DataLoader(training.data(training.batch * workers * steps * spare), training.batch, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number, (x, y) in enumerate(loader):
        (training.loss(model(x), y) / workers).backward()
        if (number + 1) % workers == 0:
            opt.step()
            opt.zero_grad()
            yield


def rounds(kinds: Mapping[str, Iterator[None]], steps: int) -> dict[str, list[float]]:
    """Processor time of each kind's steps, taken one after the other, another one first each time."""
    spent: dict[str, list[float]] = {kind: [] for kind in kinds}
    order = list(kinds)
    for number in range(steps):
        shift = number % len(order)
        for kind in order[shift:] + order[:shift]:
            begun = time.process_time()
            next(kinds[kind])
            spent[kind].append(time.process_time() - begun)
    return spent


def overhead(name: str, steps: int) -> list[dict[str, Any]]:
    """A row for each order, and one for the noise."""
    torch.set_num_threads(1)
    kinds = {
        "plain": plain(name, steps),
        "plain again": plain(name, steps),
        "blocks": turns(name, "blocks", steps),
        "sequence": turns(name, "sequence", steps),
    }
    spent = rounds(kinds, steps)
    base = spent["plain"][_FIRST:]
    rows = []
    for kind in list(kinds)[1:]:
        ratios = [mine / theirs - 1 for mine, theirs in zip(spent[kind][_FIRST:], base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(
            {
                "model": name,
                "order": kind,
                "plain_ms": round(1e3 * statistics.median(base), 1),
                "overhead_percent": round(100 * middle, 2),
                "quartiles_percent": [round(100 * low, 2), round(100 * high, 2)],
                "load": round(os.getloadavg()[0], 1),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet", "gpt"])
    options = parser.parse_args(arguments)
    for name in options.models:
        for row in overhead(name, options.steps):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
