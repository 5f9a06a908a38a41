"""A small training on streams, in a sampler's order, or by a schedule, with averaged weights; run as ``training.py`` is."""

from __future__ import annotations

import copy
import os
import random
import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import lr_scheduler, swa_utils
from torch.utils import data

from cotenant import elastic
from cotenant.errors import CotenantError

_TRAINING = runpy.run_path(str(Path(__file__).with_name("training.py")))


def sample(number: int) -> Any:
    """Features and target, with noise from all three generators."""
    x = torch.arange(6) * 0.1 + number % 7
    x = x + torch.randn(6) * 0.1 + random.random() * 0.1 + float(np.random.rand()) * 0.1
    return x, torch.tensor([number % 3 - 1.0])


class Counted(data.IterableDataset[Any]):
    """Has no state; shuffles in a buffer, with Python's generator."""

    def __init__(self, worker: int, size: int) -> None:
        self.worker, self.size, self.epoch = worker, size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        buffer: list[int] = []
        for number in range(self.size):
            buffer.append(self.worker * 1000 + self.epoch * 100 + number)
            if len(buffer) == 4:
                yield sample(buffer.pop(random.randrange(4)))
        while buffer:
            yield sample(buffer.pop())


class Stateful(data.IterableDataset[Any]):
    """Shuffles in a buffer by a generator of its own; says how far it is."""

    opened = 0

    def __init__(self, worker: int, size: int) -> None:
        self.worker, self.size = worker, size
        self.done, self.buffer, self.random = 0, list[int](), random.Random(worker)

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "buffer": self.buffer, "random": self.random.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done, self.buffer = state["done"], list(state["buffer"])
        version, words, gauss = state["random"]
        self.random.setstate((version, tuple(words), gauss))

    def __iter__(self) -> Iterator[Any]:
        while self.done < self.size or self.buffer:
            while self.done < self.size and len(self.buffer) < 4:
                self.buffer.append(self.worker * 1000 + self.done)
                self.done += 1
            yield sample(self.buffer.pop(self.random.randrange(len(self.buffer))))


class Pictures(data.Dataset[Any]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return sample(index)


class Drawn(data.Sampler[int]):
    """Has a generator of its own that goes on from epoch to epoch; ``odd`` makes it differ between processes."""

    def __init__(self, size: int, odd: bool = False) -> None:
        self.size, self.random, self.odd, self.epochs = size, random.Random(7), odd, 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        order = self.random.sample(range(self.size), self.size)
        if self.odd and self.epochs > 1:
            order.sort(key=lambda index: (index * os.getpid()) % 101)
        return iter(order)


class Buckets(data.Sampler[list[int]]):
    """Batches of unequal sizes, more of them in later epochs."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 9 + self.epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = random.Random(self.epoch)
        return iter([[order.randrange(50) for _ in range(1 + n % 3)] for n in range(len(self))])


def prepared(run: Any, model: Any, kind: str, options: dict[str, Any]) -> Any:
    """The loader of the model that the options name."""
    more = {"num_workers": options.get("loaders", 0), "last": options.get("last", "short")}
    if kind in ("counted", "stateful"):
        made = {"counted": Counted, "stateful": Stateful}[kind]
        sizes = options.get("sizes", [14, 11, 5, 12])
        return run.prepare(model, lambda worker: made(worker, sizes[worker]), 3, **more)[1]
    pictures = Pictures(50)
    if kind == "buckets":
        return run.prepare(model, pictures, batch_sampler=Buckets(), **more)[1]
    samplers = {
        "weighted": lambda: data.WeightedRandomSampler(torch.arange(50) + 1.0, 43),
        "again": lambda: data.RandomSampler(pictures, True, 43, torch.Generator().manual_seed(os.getpid())),
        "drawn": lambda: Drawn(43),
        "odd": lambda: Drawn(43, True),
        "plain": lambda: None,
    }
    return run.prepare(model, pictures, 3, sampler=samplers[kind](), **more)[1]


def schedule(kind: str, optimizer: Any) -> Any:
    if kind == "one cycle":
        return lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
    if kind == "plateau":
        return lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=0)
    if kind == "swa":
        return swa_utils.SWALR(optimizer, 0.05, anneal_epochs=3)
    if kind == "chain":
        parts = [
            lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
            lr_scheduler.ExponentialLR(optimizer, 0.9),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, [3])
    return lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2)


class Ema:
    """Written by hand."""

    def __init__(self, model: Any) -> None:
        self.kept = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.updates = 0

    def update(self, model: Any) -> None:
        self.updates += 1
        rate = min(0.9, (1 + self.updates) / (10 + self.updates))
        for name, parameter in model.named_parameters():
            self.kept[name].lerp_(parameter.detach(), 1 - rate)

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = {name: tensor.clone() for name, tensor in state["kept"].items()}
        self.updates = state["updates"]


def main(options: dict[str, Any]) -> None:
    """Train; what was wrong goes into the file that ``error`` names."""
    try:
        train(options)
    except CotenantError as error:
        if "error" in options:
            Path(options["error"]).write_text(str(error))
        raise


def train(options: dict[str, Any]) -> None:
    """The first process writes a line for each step."""
    digest, die_if = _TRAINING["digest"], _TRAINING["die_if"]
    torch.set_num_threads(1)
    run = elastic.Run(4, seed=3, state=options.get("state"), every_steps=options.get("every", 0))
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=True), nn.Dropout(0.2), nn.Linear(8, 1)
    )
    model[1].eval()  # a batch may have one sample
    loader = prepared(run, model, options.get("data", "plain"), options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = schedule(options.get("schedule", ""), optimizer)
    averaged = swa_utils.AveragedModel(
        model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    ema = Ema(model)
    run.keep(optimizer, scheduler, extra={"averaged": averaged, "ema": ema})
    for step in run.steps(loader, options.get("epochs"), steps=options.get("steps")):
        twice = [step] if "turns" not in options else (step.turn(optimizer) for _ in range(options["turns"]))
        for loop in twice:
            for x, y in loop:
                loss = mse_loss(model(x), y)
                loss.backward()
                step.note(loss=loss.item(), samples=len(x))
                die_if(options, step.number, "turn")
                time.sleep(options.get("sleep", 0.0))
            optimizer.step()
            optimizer.zero_grad()
        averaged.update_parameters(model)
        ema.update(model)
        plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        scheduler.step(step.mean("loss")) if plateau else scheduler.step()
        if run.first:
            state = [model.state_dict(), optimizer.state_dict(), averaged.state_dict(), ema.state_dict()]
            state += [
                copy.deepcopy(scheduler.state_dict()),
                step.mean("loss"),
                step.mean("samples"),
                step.last,
            ]
            rate = optimizer.param_groups[0]["lr"]
            with Path(options["log"]).open("a") as file:
                text = digest(state)
                file.write(f"{step.number} {text} {run.processes} {step.epoch} {rate:.6f} {step.last}\n")
