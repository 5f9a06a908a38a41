"""How long a sharded elastic run takes to go on with another number of processes: it saves, leaves, starts and loads.

A model of ``fully_shard`` with Adam goes from 2 processes to 3. Told are seconds from the end of the last step before to
the end of the first one after, and their parts as the slowest process has them.

Run with ``python -m bench.elastic_sharded [--width 2048] [--layers 6] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cotenant.elastic.supervisor import Supervisor


def script(options: argparse.Namespace) -> None:
    """The training, in each process."""
    log = Path(options.log).open("a", buffering=1)  # noqa: SIM115 - until the process is ended
    name = os.environ["COTENANT_ELASTIC"].rpartition(":")[2]

    def mark(what: str) -> None:
        log.write(json.dumps([name, what, time.monotonic()]) + "\n")

    mark("started")
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.utils.data import TensorDataset

    from cotenant import elastic

    mark("imported")

    def shard(model: Any, mesh: Any) -> None:
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)

    run = elastic.Run(workers=4, order="sequence", threads=1, state=options.log + ".state")
    layers = [nn.Linear(options.width, options.width) for _ in range(options.layers)]
    model = nn.Sequential(*layers)
    mark("built")
    data = TensorDataset(torch.randn(4000, options.width))
    model, loader = run.prepare(model, data, 1, random_data=False, shard=shard)
    mark("sharded")
    adam = torch.optim.Adam(model.parameters(), lr=1e-5)
    run.keep(adam)
    for step in run.steps(loader, epochs=1):
        mark("turns")
        for (x,) in step:
            model(x).square().mean().backward()
        adam.step()
        adam.zero_grad()
        mark(f"done {run.processes}")


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Two processes take steps, then three."""
    path = Path(options.log)

    def lines() -> list[tuple[str, str, float]]:
        text = path.read_text() if path.exists() else ""
        return [tuple(json.loads(line)) for line in text.splitlines() if line.endswith("]")]

    command = [sys.executable, "-m", "bench.elastic_sharded", "--script", "--log", options.log]
    command += ["--width", str(options.width), "--layers", str(options.layers)]
    supervisor = Supervisor(command, 2, 3, threads=1)
    supervisor.want(2)
    try:
        for processes, steps in ((2, 4), (3, 4)):
            supervisor.want(processes)
            while sum(what == f"done {processes}" for _, what, _ in lines()) < processes * steps:
                if supervisor.poll() is not None:
                    raise SystemExit(f"the run ended with exit code {supervisor.poll()}")
                time.sleep(0.02)
    finally:
        supervisor.close()
    found = lines()
    before = [at for _, what, at in found if what == "done 2"]
    last, names = max(before), {name for name, what, _ in found if what == "done 3"}
    after = [(what, at) for name, what, at in found if name in names and at > last]

    def first(what: str) -> float:
        return max(min(at for n, w, at in found if n == name and w == what) for name in names)

    third = sorted(at for what, at in after if what == "done 3")
    parts = {
        "saved, left, started": first("started") - last,
        "imported PyTorch": first("imported") - first("started"),
        "built": first("built") - first("imported"),
        "met, sharded": first("sharded") - first("built"),
        "loaded": first("turns") - first("sharded"),
        "first step": first("done 3") - first("turns"),
        "later step": third[5] - third[2],
        "all, to the end of the first step": first("done 3") - last,
    }
    return {what: round(value, 2) for what, value in parts.items()}


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log", default="")
    parser.add_argument("--script", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.script:
        script(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.log = str(Path(folder, "log"))
        found = measure(options)
    parameters = options.layers * (options.width + 1) * options.width / 1e6
    if options.json:
        print(json.dumps({"parameters_million": parameters, "seconds": found}))
        return
    print(f"{parameters:.1f} M parameters, 2 to 3 processes, load {os.getloadavg()[0]:.0f}; seconds")
    for what, value in found.items():
        print(f"{value:8.2f}  {what}")


if __name__ == "__main__":
    main()
