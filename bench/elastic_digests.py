"""What the log of digests costs: steps that write one, against the same steps without.

Four trainings of 4 logical workers go on side by side in one process, on one thread: two without a log (the
second one is the noise), one that logs every step, one that logs every fifth. A step of each is timed in turn,
in CPU time of the process; told are the median of the ratios to the first one's step of the same round, with
quartiles, and the bytes that a logged step writes.

Run with ``python -m bench.elastic_digests [--steps 33] [--models resnet gpt]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.elastic_models import MODELS
from bench.elastic_overhead import rounds, turns
from cotenant.elastic.digests import EVERY, FOLDER

_FIRST = 3
"""Rounds that are left out: the first ones allocate."""
_EVERY = 5


def cost(name: str, steps: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each kind of step."""
    torch.set_num_threads(1)
    kinds = {
        "none": turns(name, "blocks", steps),
        "none again": turns(name, "blocks", steps),
        "every step": turns(name, "blocks", steps, digests=folder / "1"),
        "every fifth": turns(name, "blocks", steps, digests=folder / "5", digests_every=_EVERY),
    }
    spent = rounds(kinds, steps)
    base = spent["none"]
    ratios = {
        kind: [spent[kind][n] / base[n] - 1 for n in range(_FIRST, steps)]
        for kind in ("none again", "every step")
    }
    fifth = spent["every fifth"]
    # What is logged at a step's end, behind its update, is timed with the next one.
    ratios["every fifth, a logged step"] = [
        (fifth[n] + fifth[n + 1] - base[n + 1]) / base[n] - 1 for n in range(_EVERY, steps - 1, _EVERY)
    ]
    ratios["every fifth, another step"] = [
        fifth[n] / base[n] - 1 for n in range(_FIRST, steps) if n % _EVERY > 1
    ]
    return [
        _row(name, kind, found)
        | {"step_ms": round(1e3 * statistics.median(base[_FIRST:]), 1)}
        | ({"bytes_a_step": _bytes(folder / "1")} if kind == "every step" else {})
        for kind, found in ratios.items()
    ]


def _row(name: str, kind: str, ratios: Sequence[float]) -> dict[str, Any]:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "model": name,
        "log": kind,
        "overhead_percent": round(100 * middle, 2),
        "quartiles_percent": [round(100 * low, 2), round(100 * high, 2)],
        "load": round(os.getloadavg()[0], 1),
    }


def _bytes(folder: Path) -> int:
    """Of a step, the mean over those that are whole."""
    (path,) = folder.glob("*.jsonl")
    by_step: dict[int, int] = {}
    for line in path.read_text().splitlines()[1:]:
        step = int(json.loads(line)["step"])
        by_step[step] = by_step.get(step, 0) + len(line) + 1
    whole = [by_step[step] for step in sorted(by_step)[1:-1]]
    return round(statistics.mean(whole))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=33)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet", "gpt"])
    options = parser.parse_args(arguments)
    for variable in (FOLDER, EVERY):
        os.environ.pop(variable, None)
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            for row in cost(name, options.steps, Path(folder)):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
