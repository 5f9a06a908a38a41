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
import csv
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.model.quantities import MIB
from cotenant.profiles.graph.ir import Options
from cotenant.profiles.graph.memory import MemoryForecast, forecast_memory
from cotenant.profiles.graph.torchreader import read_builder
from cotenant.profiles.zoo.recipes import RECIPES, builder_of, find_recipe

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
    "GPT-2@WikiText": (1,),
}
HELD_OUT: dict[str, tuple[int, ...]] = {
    "googlenet": (2, 4, 8),
    "overfeat": (2, 8),
    "resnet101": (1, 2),
    "VAE@MNIST": (64, 256),
    "CycleGAN@monet2photo": (1,),
    "deepspeech2": (2,),
    "mobilenet": (32, 64),
    "LM-PTB-large@PTB": (5, 20),
    "NeuMF@MovieLens": (128,),
    "PPO@LunarLander": (64,),
}
"""Networks on which nothing was set; what was learnt from them is judged on:"""
HELD_OUT_LATER: dict[str, tuple[int, ...]] = {
    "inception3": (2, 4),
    "vgg11": (1, 4),
    "resnet152": (1, 2),
    "SRCNN@srcnn_data": (2, 4),
    "transformer": (8, 16),
    "LM-PTB-small@PTB": (10, 20),
    "MobileNetV2@CIFAR-10": (16, 64),
    "VGG-19@ImageNet": (2,),
    "BERT-large@WikiText": (1,),
    "bert": (2,),
    "cyclegan": (2,),
    "resnet": (32, 64),
}
"""Networks that nobody looked at before the model was as it is now."""
ALL = CASES | HELD_OUT | HELD_OUT_LATER
SETS = {"first": CASES, "held-out": HELD_OUT, "later": HELD_OUT_LATER}
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


def _measured(kind: str, name: str, batch: int) -> Any:
    """Measure in a process of its own.

    Where only the allocator is asked, a forked one, so that torch is imported once.
    """
    context = multiprocessing.get_context("fork" if kind == "live" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(sender, kind, name, batch))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        raise SystemExit(f"{name} at batch {batch} failed; see above") from None
    finally:
        process.join()
    return found


def _tell(sender: Any, kind: str, name: str, batch: int) -> None:
    import torch

    torch.set_num_threads(1)
    sender.send({"live": live_bytes, "resident": resident_bytes, "gpu": on_gpu}[kind](name, batch))


def measure(names: list[str], cases: dict[str, tuple[int, ...]], device: str, out: Path) -> None:
    """Measure each case in a process of its own; one JSON line a case, skipping those there."""
    import torch

    from cotenant.profiles.zoo import makers  # noqa: F401

    torch.ones(8).sum().item()
    kinds = {"cuda": {"gpu": "held"}, "cpu": {"live": "live", "resident": "peak"}}[device]
    for kind, key in kinds.items():
        rows = map(json.loads, out.read_text().splitlines()) if out.exists() else ()
        known = {(r["name"], r["batch"]) for r in rows if key in r}
        for name, batch in [(case, size) for case in names for size in cases[case]]:
            if (name, batch) in known:
                continue
            found = _measured(kind, name, batch)
            row = {"name": name, "batch": batch, "device": device}
            row |= found if isinstance(found, dict) else {key: found}
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, file=sys.stderr, flush=True)


def compare(measured: Path, names: list[str]) -> None:
    """Print predicted against measured, and the summary of all."""
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for row in map(json.loads, measured.read_text().splitlines()):
        if not names or row["name"] in names:
            merged.setdefault((row["name"], row["batch"]), {}).update(row)
    rows = [row for row in merged.values() if row["name"] in ALL and ("live" in row or "held" in row)]
    order = list(ALL)
    rows.sort(key=lambda r: (order.index(r["name"]), r["batch"]))
    live: list[tuple[float, float, float]] = []
    whole: list[tuple[float, float, float]] = []
    head = "| network | batch | tensors, MiB | P50 | error | process, MiB | P50 | P95 | error |"
    print(head + "\n| --- " + "| ---: " * 8 + "|")
    for row in rows:
        recipe = find_recipe(row["name"])
        cpu = row["device"] == "cpu"
        options = Options(batch=row["batch"], optimiser=recipe.optimiser, device="cpu" if cpu else "gpu")
        forecast = forecast_memory(read_builder(builder_of(recipe), options))
        tensors, process = (row["live"], row.get("peak")) if cpu else (row["allocated"], row["held"])
        live.append((tensors, forecast.live_bytes, tensors_p95(forecast)))
        line = f"| {row['name']} | {row['batch']} | {tensors / MIB:,.0f} | {forecast.live_bytes / MIB:,.0f} "
        line += f"| {_percent(live[-1])} "
        if process:
            whole.append((process, forecast.p50_bytes, forecast.p95_bytes))
            line += (
                f"| {process / MIB:,.0f} | {forecast.p50_bytes / MIB:,.0f} | {forecast.p95_bytes / MIB:,.0f} "
            )
            line += f"| {_percent(whole[-1])} |"
        else:
            line += "| | | | |"
        print(line, flush=True)
    _summary("tensors", live)
    _summary("process", whole)


def tensors_p95(forecast: MemoryForecast) -> int:
    """High value of what tensors hold: all parts but the three that are outside them."""
    return sum(p.p95_bytes for p in forecast.parts if p.name not in {"workspace", "reserve", "context"})


def _percent(row: tuple[float, float, float]) -> str:
    return f"{100 * (row[1] / row[0] - 1):+.1f}%"


def _summary(what: str, rows: list[tuple[float, float, float]]) -> None:
    errors = [abs(middle / true - 1) for true, middle, _ in rows]
    above = sum(high >= true for true, _, high in rows)
    print(
        f"{what}: {len(rows)} cases, median error {100 * float(np.median(errors)):.2f}%, "
        f"worst {100 * max(errors):.1f}%, within P95 {above}"
    )


def compare_solo(path: Path) -> None:
    """Print predicted against memory that others measured on GPUs; medians by source and network."""
    found: dict[tuple[str, str], list[float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = f"{row['model']}@{row['dataset']}" if row["dataset"] else row["model"]
            if row["source"] != "lucid" or not row["mem_mib"] or name not in RECIPES:
                continue
            precision = "amp" if row["amp"] == "1" else "fp32"
            options = Options(batch=int(row["batch"]), optimiser=RECIPES[name].optimiser, precision=precision)
            graph = read_builder(builder_of(RECIPES[name]), options)
            forecast = forecast_memory(graph, row["gpu_type"], framework="pytorch-before-1.13")
            measured = float(row["mem_mib"]) * MIB
            found.setdefault((row["source"], name), []).append(forecast.p50_bytes / measured - 1)
            found.setdefault((row["source"], f"{name} P95"), []).append(float(forecast.p95_bytes >= measured))
    print(
        "| source | network | cases | median error of P50 | within P95 |\n| --- | --- | ---: | ---: | ---: |"
    )
    for (source, name), errors in sorted(found.items()):
        if not name.endswith("P95"):
            within = sum(found[source, f"{name} P95"])
            print(
                f"| {source} | {name} | {len(errors)} | {100 * float(np.median(errors)):+.0f}% | {within:.0f} |"
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[], help="cases; all if none is given")
    parser.add_argument(
        "--set", dest="which", choices=SETS, default="first", help="networks, if none is named"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--measured", type=Path, default=Path("memory_measured.jsonl"), help="kept, and resumed from"
    )
    parser.add_argument("--solo", type=Path, help="solo_profiles.csv of the measured tables")
    parser.add_argument("--compare", action="store_true", help="measure nothing, compare what is there")
    asked = parser.parse_args()
    if asked.solo:
        compare_solo(asked.solo)
        return
    names = asked.names or list(SETS[asked.which])
    if not asked.compare:
        measure(names, ALL, asked.device, asked.measured)
    compare(asked.measured, names)


if __name__ == "__main__":
    main()
