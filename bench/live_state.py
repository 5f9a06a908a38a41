"""How long a job takes to have its state again, by tier and size.

::

    python -m bench.live_state --megabytes 10 100 1000

For each size: save (the runtime's, with fsync), absorb into the registry, restore from host memory to a folder in host
memory, from disk to disk (page cache dropped before), and load (verify, read, put into the model). The state is that
of a linear layer under Adam; what is timed is this machine's memory and disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant import runtime
from cotenant.pools.blocks import Tier
from cotenant.pools.registry import StateRegistry
from cotenant.pools.states import absorb, restore

__all__ = ["main"]


def _training(megabytes: int) -> tuple[Any, Any]:
    """A model and its optimiser whose state has about that size: weights and two moments in fp32."""
    import torch

    side = max(int((megabytes * 1e6 / 12) ** 0.5), 8)
    model = torch.nn.Linear(side, side, bias=False)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.randn(1, side)).sum().backward()
    optimiser.step()
    optimiser.zero_grad()
    return model, optimiser


@contextmanager
def _timed(row: dict[str, Any], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    row[name] = round(time.perf_counter() - began, 4)


def _drop_cache(folder: Path) -> None:
    """Ask the kernel to forget what it keeps of these files, so that they are read from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure(megabytes: int, disk: Path, memory: Path) -> dict[str, Any]:
    """One row."""
    row: dict[str, Any] = {"megabytes": megabytes}
    model, optimiser = _training(megabytes)
    run = runtime.attach(model, optimiser, state=disk / "state")
    run.step()
    with _timed(row, "save_s"):
        assert run.save()
    tiers = [Tier(name="memory", path=memory / "tier", durable=False), Tier(name="disk", path=disk / "tier")]
    with StateRegistry(disk / "books", tiers) as registry:
        with _timed(row, "absorb_both_tiers_s"):
            absorb(disk / "state", registry, 1, 1)
        with _timed(row, "restore_from_memory_s"):
            restore(registry, 1, memory / "again")
        registry.resize("memory", 0)
        _drop_cache(disk)
        with _timed(row, "restore_from_disk_s"):
            restore(registry, 1, disk / "again")
    for name, folder in (("memory", memory), ("disk", disk)):
        _drop_cache(disk)
        model, optimiser = _training(megabytes)
        with _timed(row, f"load_from_{name}_s"):
            assert runtime.attach(model, optimiser, state=folder / "again").done == 1
        row[f"resume_from_{name}_s"] = round(row[f"restore_from_{name}_s"] + row[f"load_from_{name}_s"], 4)
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, a line of JSON each."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_state", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--disk", type=Path, help="a folder on the disk to measure")
    given = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    for megabytes in given.megabytes:
        disk = Path(tempfile.mkdtemp(prefix="cotenant-bench-", dir=given.disk))
        memory = Path(tempfile.mkdtemp(prefix="cotenant-bench-", dir="/dev/shm"))
        try:
            print(json.dumps(measure(megabytes, disk, memory)), flush=True)
        finally:
            shutil.rmtree(disk)
            shutil.rmtree(memory)


if __name__ == "__main__":
    main()
