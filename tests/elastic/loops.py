"""A GAN with an inner loop for each of its two optimisers, run as a script beside ``training.py``."""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from cotenant import elastic
from cotenant.elastic.process import Process

_TRAINING = runpy.run_path(str(Path(__file__).with_name("training.py")))


class Pictures(torch.utils.data.Dataset[Any]):
    """40 real vectors, each with the noise of which a false one is made."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.real = torch.randn(40, 12, generator=generator)
        self.noise = torch.randn(40, 6, generator=generator)

    def __len__(self) -> int:
        return len(self.real)

    def __getitem__(self, index: int) -> Any:
        return self.real[index], self.noise[index]


class Stream(torch.utils.data.IterableDataset[Any]):
    """The same for one logical worker, endless, and it says how far it is."""

    def __init__(self, worker: int) -> None:
        self.next, self.pictures = worker * 7, Pictures()

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.next += 3
            yield self.pictures[self.next % 40]


class Gan(nn.Module):
    """Two networks; ``drop`` is the judge's dropout."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 12))
        self.judge = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(drop), nn.Linear(16, 1))

    def loss(self, number: int, real: Any, noise: Any) -> Any:
        """The judge's in the first loop, the maker's in the second."""
        fake = self.maker(noise)
        if number:
            return softplus(-self.judge(fake)).mean()
        return softplus(-self.judge(real)).mean() + softplus(self.judge(fake.detach())).mean()


def made(drop: float) -> tuple[Any, list[Any]]:
    """The model, and optimisers of the judge and of the maker."""
    model = Gan(drop)
    judge = torch.optim.Adam(model.judge.parameters(), lr=0.01)
    return model, [judge, torch.optim.SGD(model.maker.parameters(), lr=0.05, momentum=0.9)]


def digest(model: Any, optimizers: list[Any], more: Any = None) -> str:
    """Of parameters and of optimisers' state."""
    weights = dict(model.named_parameters())
    return str(_TRAINING["digest"]([weights, [one.state_dict() for one in optimizers], more]))


def plainly(workers: int, epochs: int) -> list[str]:
    """Without cotenant's turns: gradients accumulated over the workers' batches, in one process."""
    run = elastic.Run(workers, seed=3, order="sequence")
    model, optimizers = made(0.0)
    model, loader = run.prepare(model, Pictures(), 2)
    found = []
    for epoch in range(epochs):
        source = (batch for batch, _ in loader.open(epoch, 0, range(workers), []))
        for _ in range(loader.steps):
            batches = [next(source) for _ in range(workers)]
            for number, (one, part) in enumerate(zip(optimizers, (model.judge, model.maker), strict=True)):
                for real, noise in batches:
                    model.loss(number, real, noise).backward(inputs=list(part.parameters()))
                for parameter in part.parameters():
                    parameter.grad /= workers
                one.step()
                one.zero_grad()
            found.append(digest(model, optimizers))
    return found


def main(options: dict[str, Any]) -> None:
    """Train; the first process writes a line for each step."""
    torch.set_num_threads(1)
    _TRAINING["die_halfway"](options)
    watch_replays(options)
    run = elastic.Run(options.get("workers", 4), seed=3, order=options.get("order", "blocks"))
    model, optimizers = made(options.get("drop", 0.2))
    model, loader = run.prepare(model, Stream if options.get("stream") else Pictures(), 2)
    run.keep(optimizers)
    for step in run.steps(loader, steps=10):
        for number, one in enumerate(optimizers):
            for real, noise in step.turn(one):
                loss = model.loss(number, real, noise)
                loss.backward()
                step.note(**{f"loss{number}": loss.item()})
                noise.zero_()  # the next loop's batch is another copy
                die_if(options, run, step.number, f"turn {number}")
            one.step()
            if number:
                for another in optimizers:
                    another.zero_grad()
            die_if(options, run, step.number, f"after {number}")
        if run.first:
            losses = None if options.get("drop") == 0.0 else [step.mean(f"loss{n}") for n in range(2)]
            with Path(options["log"]).open("a") as file:
                file.write(f"{step.number} {digest(model, optimizers, losses)} {run.processes}\n")
    if options.get("ends") and run.first:
        Path(options["ends"]).write_text(digest(model, optimizers))


def die_if(options: dict[str, Any], run: Any, number: int, where: str) -> None:
    """Be killed at the place that the options name; if they say so, once a newcomer is expected."""
    mark = options.get("kill")
    process = run._process
    member = process._member
    if (
        not mark
        or member is None
        or (member.name, number, where) != (mark["name"], mark["step"], mark["where"])
    ):
        return
    end = time.monotonic() + 40
    while mark.get("newcomer") and member.newest() == member.generation and time.monotonic() < end:
        time.sleep(0.01)
    flag = Path(mark["flag"])
    if not flag.exists():
        flag.touch()
        _TRAINING["die"]("kill")


def watch_replays(options: dict[str, Any]) -> None:
    """Count, in a file, the loops that a newcomer did not take part in."""
    path, plain = options.get("replays"), Process.replayed
    if not path:
        return

    def watched(self: Any) -> bool:
        done = plain(self)
        if done:
            with Path(path).open("a") as file:
                file.write(f"{self.place.step}\n")
        return done

    Process.replayed = watched  # type: ignore[method-assign]
