"""What turns cost: N logical workers on one process, against plain accumulation of the same batches.

Pairs of steps, one of each kind, are timed one after the other in CPU time of the process; the median of
the ratios of pairs is told, so that neighbours on the machine matter little. Peak memory is that of a
process of its own for each N.

Run with ``python -m bench.elastic_overhead [--steps 30] [--batch 32] [--memory]``.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from cotenant import elastic


def conv() -> Any:
    """Three convolutions with BatchNorm and dropout, 0.5 M parameters."""
    layers: list[Any] = []
    for inner, outer in ((3, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(inner, outer, 3, 2, 1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 10))


def wide() -> Any:
    """Two wide layers, 15 M parameters: gradients outweigh activations."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 5000), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5000, 10))


MODELS: dict[str, Callable[[], Any]] = {"conv": conv, "wide": wide}


def data(batch: int, workers: int, steps: int) -> Any:
    """Pictures of 32 x 32, enough for so many steps."""
    size = batch * workers * steps
    return TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(10, (size,)))


def turns(model: Any, workers: int, batch: int, steps: int, order: Any) -> Iterator[None]:
    """Elastic steps."""
    run = elastic.Run(workers, seed=0, order=order, threads=1)
    model, loader = run.prepare(model, data(batch, workers, steps), batch, random_data=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run.keep(opt)
    for step in run.steps(loader, epochs=1):
        for x, y in step:
            cross_entropy(model(x), y).backward()
        opt.step()
        opt.zero_grad()
        yield


def plain(model: Any, workers: int, batch: int, steps: int) -> Iterator[None]:
    """Accumulation of as many batches."""
    loader = DataLoader(data(batch, workers, steps), batch, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / workers).backward()
        if (number + 1) % workers == 0:
            opt.step()
            opt.zero_grad()
            yield


def overhead(name: str, order: str, workers: int, batch: int, steps: int) -> dict[str, Any]:
    """Median of the ratios of pairs, and how far they scatter."""
    torch.set_num_threads(1)
    kinds = [
        plain(MODELS[name](), workers, batch, steps),
        turns(MODELS[name](), workers, batch, steps, order),
    ]
    pairs = []
    for number in range(steps):
        spent = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            begun = time.process_time()
            next(kinds[which])
            spent[which] = time.process_time() - begun
        pairs.append(spent)
    pairs = pairs[3:]  # the first ones allocate
    ratios = sorted(mine / theirs - 1 for theirs, mine in pairs)
    return {
        "model": name,
        "order": order,
        "workers": workers,
        "plain_ms": round(1e3 * statistics.median(theirs for theirs, _ in pairs), 1),
        "overhead_percent": round(100 * statistics.median(ratios), 2),
        "quartiles_percent": [
            round(100 * ratios[len(ratios) // 4], 2),
            round(100 * ratios[3 * len(ratios) // 4], 2),
        ],
    }


def peak(name: str, order: str, workers: int) -> None:
    """In a process of its own: peak memory of four steps, in MB."""
    torch.set_num_threads(1)
    for _ in turns(MODELS[name](), workers, 4, 4, order):
        pass
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"model": name, "order": order, "workers": workers, "peak_mb": round(mb)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32, help="of one worker")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", nargs=3)
    options = parser.parse_args()
    if options.peak:
        peak(options.peak[0], options.peak[1], int(options.peak[2]))
        return
    for name in MODELS:
        for order in ("blocks", "sequence"):
            print(json.dumps(overhead(name, order, 4, options.batch, options.steps)), flush=True)
    if options.memory:
        for order in ("blocks", "sequence"):
            for workers in (1, 4, 16):
                command = ["-m", "bench.elastic_overhead", "--peak", "wide", order, str(workers)]
                subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main()
