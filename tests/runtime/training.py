"""A small training that has everything a resumed run can get wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from cotenant import runtime
from cotenant.runtime import SUSPENDED, StatusFile


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Augments each sample with all three generators."""

    def __init__(self, size: int = 50) -> None:
        drawn = torch.Generator().manual_seed(5)
        self.x = torch.randn(size, 6, generator=drawn)
        self.y = torch.randint(3, (size,), generator=drawn)
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.loaded.append(index)
        x = self.x[index] + 0.1 * torch.randn(6)
        x = x * (1 + 0.1 * random.random()) + 0.1 * float(np.random.randn())
        return x, self.y[index]


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Can only be read from the front."""

    def __iter__(self) -> Any:
        whole = Noisy()
        drawn = torch.Generator().manual_seed(9)
        for place in torch.randperm(len(whole), generator=drawn).tolist():
            yield whole.x[place], whole.y[place]


class Network(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def interrupted(status: StatusFile, state: Path, stops: list[int], /, **options: Any) -> Job:
    """The job, suspended after each of these steps and resumed by a new process, to its end."""
    losses: list[float] = []
    changes = options.pop("changes", {})
    for life, stop in enumerate([*stops, 0]):
        job = Job(state, seed=100 * life, **(options | changes.get(life, {})))
        if life:
            assert job.run.done == stops[life - 1]
            assert job.run.resumed
        if not stop:
            job.train()
            break
        with pytest.raises(SystemExit) as left:
            job.train(lambda step, stop=stop: status.give_order(step == stop - 1))  # type: ignore[misc]
        assert left.value.code == SUSPENDED
        status.give_order(0)
        losses += job.losses
    job.losses = losses + job.losses
    return job


class Job:
    """Everything built afresh, as a new process would; ``train`` goes on from where the run is."""

    def __init__(
        self,
        state: Path | None,
        *,
        seed: int = 0,
        workers: int = 0,
        optimizer: str = "sgd",
        total: int = 30,
        source: str = "map",
        accumulate: int = 1,
        persistent: bool = False,
        **options: Any,
    ) -> None:
        # A resumed process comes with other random states and other first weights: all must be put back.
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = Network(options.pop("width", 12))
        made = {
            "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
        }
        self.optimizer = made[optimizer](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.2, total_steps=total)
        self.accumulate = accumulate
        if source == "map":
            self.data = Noisy()
            self.loader: Any = DataLoader(
                self.data, batch_size=8, shuffle=True, num_workers=workers, persistent_workers=persistent
            )
        else:
            self.loader = DataLoader(Stream(), batch_size=8, num_workers=workers)
        self.losses: list[float] = []
        self.run = runtime.attach(
            self.model,
            self.optimizer,
            self.scheduler,
            data=self.loader,
            total_steps=total,
            state=state,
            **options,
        )

    def train(self, during: Callable[[int], None] = lambda step: None) -> Job:
        for step, (x, y) in self.run.steps():
            during(step)
            loss = nn.functional.cross_entropy(self.model(x), y) + 0.01 * random.random()
            loss.backward()
            if (step + 1) % self.accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.scheduler.step()
            self.losses.append(loss.item())
        return self

    def weights(self) -> list[bytes]:
        """Bits of all parameters and buffers, then of the optimiser's state."""
        tensors = list(self.model.state_dict().values())
        for state in self.optimizer.state_dict()["state"].values():
            tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
        return [tensor.numpy().tobytes() for tensor in tensors]
