"""Peak memory of each process of a model sharded by ``fully_shard``, and unsharded beside it.

Linear layers of 100 M parameters with Adam, 4 logical workers, three steps; told is the largest resident size of any
of 1, 2 and 4 processes, and what it was before the first step (libraries, and the model as it is built).

Run with ``python -m bench.elastic_sharded_memory [--width 4096] [--layers 6] [--processes 1 2 4]``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from cotenant.elastic.supervisor import Supervisor

_STEPS = 3


def script(options: argparse.Namespace) -> None:
    """The training, in each process."""
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.utils.data import TensorDataset

    from cotenant import elastic

    def shard(model: Any, mesh: Any) -> None:
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)

    run = elastic.Run(workers=4, seed=0, threads=1, order="sequence", state=Path(options.out, "state"))
    model = nn.Sequential(*[nn.Linear(options.width, options.width) for _ in range(options.layers)])
    data = TensorDataset(torch.randn(4 * _STEPS, options.width))
    how = {"shard": shard} if options.sharded else {}
    model, loader = run.prepare(model, data, 1, random_data=False, **how)
    adam = torch.optim.Adam(model.parameters(), lr=1e-5, foreach=True)
    run.keep(adam)
    before = _peak_mb()
    for step in run.steps(loader, epochs=1):
        for (x,) in step:
            model(x).square().mean().backward()
        adam.step()
        adam.zero_grad()
        if step.last:
            kept = {"before": before, "peak": _peak_mb()}
            Path(options.out, str(os.getpid())).write_text(json.dumps(kept))


def _peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(options: argparse.Namespace, processes: int, *, sharded: bool) -> dict[str, Any]:
    """One run of its own."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = ["--width", str(options.width), "--layers", str(options.layers)]
        command = [sys.executable, "-m", "bench.elastic_sharded_memory", "--out", folder, *sizes]
        if sharded:
            command.append("--sharded")
        supervisor = Supervisor(command, 1, processes, threads=1)
        supervisor.want(processes)
        code = supervisor.run()
        found = [json.loads(path.read_text()) for path in Path(folder).glob("[0-9]*")]
    if code or len(found) != processes:
        raise SystemExit(f"{processes} processes: exit code {code}, {len(found)} have told their memory")
    return {
        "model": "sharded" if sharded else "whole",
        "processes": processes,
        "before_mb": max(one["before"] for one in found),
        "peak_mb": max(one["peak"] for one in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--sharded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.out:
        script(options)
        return
    for processes in options.processes:
        for sharded in (False, True):
            print(json.dumps(measure(options, processes, sharded=sharded)), flush=True)


if __name__ == "__main__":
    main()
