"""Predicted memory against the real peak, model by model, each measured in a process of its own.

::

    python bench/memory_error.py                      # this machine's CPU: the table of docs/prediction/memory.md
    python bench/memory_error.py --device cuda        # the same on a GPU: allocated, reserved, and in use
    python bench/memory_error.py --solo ../shared/data/interference/solo_profiles.csv

A child process builds the network, takes three training steps as a training loop does, and
reports, on a CPU, the peak of live bytes (PyTorch's allocator, as its profiler reports every
allocation and release, those inside kernels included) and, from a second child without a
profiler, the peak of resident memory above that of a process that has only imported torch. On a
GPU it reports ``max_memory_allocated``, ``max_memory_reserved`` and what the driver says the
process holds, whose difference to what is reserved is the device context.

``--solo`` compares with memory measured on GPUs by others; rows under a non-commercial licence
are read for this evaluation alone, and nothing of them goes into the package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

CASES: dict[str, tuple[int, ...]] = {
    "ResNet-18@CIFAR-10": (8, 32, 64),
    "ResNet-18@ImageNet": (1, 4, 8),
    "ResNet-50@ImageNet": (1, 2, 4),
    "VGG@CIFAR-10": (8, 16, 32),
    "DLRM@Criteo": (256, 1024, 4096),
    "LM-LSTM@Wikitext-2": (5, 20, 40),
    "TD3@BipedalWalker": (32, 128, 1024),
    "Transformer@Multi30k": (2, 4, 8),
    "PointNet@ShapeNet": (2, 4, 8),
    "EfficientNet@CIFAR-10": (4, 8, 16),
    "DCGAN@LSUN": (4, 8, 16),
    "LM-PTB-medium@PTB": (5, 10, 20),
    "NMT@IWSLT15-vi-en": (4, 8, 16),
    "Recoder-AE@ML-20M": (64, 128, 256),
    "MobileNetV2@ImageNet": (1, 2, 4),
    "AlexNet@ImageNet": (2, 4, 8),
    "A3C@PongDeterministic-v4": (1, 2, 4),
    "MobileNetV3@ImageNet": (1, 2, 4),
    "BERT@SQuAD": (1, 2, 4),
    "ViT-B/16@ImageNet": (1, 2, 4),
    "VGG-16@ImageNet": (1, 2, 4),
    "GPT-2@WikiText": (1, 2),
}
STEPS = 3


def _optimiser(name: str, weights: Any) -> Any:
    import torch

    made: dict[str, Any] = {
        "sgd": lambda: torch.optim.SGD(weights, 1e-4),
        "momentum": lambda: torch.optim.SGD(weights, 1e-4, momentum=0.9),
        "adam": lambda: torch.optim.Adam(weights, 1e-4),
        "adamw": lambda: torch.optim.AdamW(weights, 1e-4),
    }
    return made[name]()


def train(name: str, batch: int, device: str) -> None:
    """A training loop as people write it."""
    import torch

    from cotenant.profiles.zoo.recipes import builder_of, find_recipe

    recipe = find_recipe(name)
    torch.manual_seed(0)
    module, inputs = builder_of(recipe)(batch)
    module = module.to(device)
    inputs = tuple(t.to(device) for t in inputs)
    optimiser = _optimiser(recipe.optimiser, module.parameters())
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimiser.step()


def live_bytes(name: str, batch: int) -> int:
    """Peak of live bytes on the CPU, from every allocation and release that the profiler saw."""
    import torch

    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as found:
        train(name, batch, "cpu")
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda e: e.start_ns())
    return int(np.cumsum([e.nbytes() for e in events]).max())


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no {key} in /proc/self/status: resident memory is measured on Linux only")


def resident_bytes(name: str, batch: int) -> dict[str, int]:
    """Peak of resident memory, and what the process held when it had only imported torch."""
    import torch

    torch.ones(8).sum().item()
    before = _status("VmRSS")
    train(name, batch, "cpu")
    return {"before": before, "peak": _status("VmHWM")}


def on_gpu(name: str, batch: int) -> dict[str, int]:
    """Peaks as PyTorch and the driver tell them."""
    import pynvml
    import torch

    train(name, batch, "cuda")
    torch.cuda.synchronize()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    used = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    reserved = int(torch.cuda.memory_reserved())
    # Inside a container the process may have another number: then the device's total is all there is.
    held = int(used[0].usedGpuMemory or 0) if used else int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    return {
        "allocated": int(torch.cuda.max_memory_allocated()),
        "reserved": int(torch.cuda.max_memory_reserved()),
        "context": held - reserved,
        "held": held,
    }


def _child(kind: str, name: str, batch: int) -> Any:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", kind, name, str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{name} at batch {batch} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(names: list[str], cases: dict[str, tuple[int, ...]], device: str, out: Path) -> None:
    """Measure each case in a process of its own; one JSON line a case, skipping those there."""
    known = set()
    if out.exists():
        known = {(r["name"], r["batch"]) for r in map(json.loads, out.read_text().splitlines())}
    for name in names:
        for batch in cases[name]:
            if (name, batch) in known:
                continue
            row: dict[str, Any] = {"name": name, "batch": batch, "device": device}
            if device == "cuda":
                row |= _child("gpu", name, batch)
            else:
                row["live"] = _child("live", name, batch)
                row |= _child("resident", name, batch)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, file=sys.stderr)


def _run_child(kind: str, name: str, batch: int) -> None:
    import torch

    torch.set_num_threads(1)
    found: Any = {"live": live_bytes, "resident": resident_bytes, "gpu": on_gpu}[kind](name, batch)
    print(json.dumps(found))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[], help="cases; all if none is given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--measured", type=Path, default=Path("memory_measured.jsonl"), help="kept, and resumed from"
    )
    parser.add_argument("--solo", type=Path, help="solo_profiles.csv of the measured tables")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "NAME", "BATCH"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        _run_child(asked.child[0], asked.child[1], int(asked.child[2]))
        return
    measure(asked.names or list(CASES), CASES, asked.device, asked.measured)


if __name__ == "__main__":
    main()
