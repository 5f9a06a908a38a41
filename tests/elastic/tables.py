"""Embedding tables, with sparse or dense gradients, under a small head; run as a script beside ``training.py``."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cotenant import elastic

_TRAINING = runpy.run_path(str(Path(__file__).with_name("training.py")))


class Dlrm(nn.Module):
    """Two bags of categories, or none, a table of single ones, and a head."""

    def __init__(self, sparse: bool, bags: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(40, 8, mode="sum", sparse=sparse) for _ in range(bags))
        self.single = nn.Embedding(40, 8, sparse=sparse)
        self.never = nn.Embedding(5, 2, sparse=sparse)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8 * bags + 8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        bags = [bag(x[:, 5 * n : 5 * n + 5]) for n, bag in enumerate(self.bags)]
        return self.head(torch.cat([*bags, self.single(x[:, 5 * len(bags) :]).sum(1)], 1))


def made(kind: str, model: Any) -> list[Any]:
    """Optimisers: of all parameters, or of tables and head."""
    if kind == "sgd":
        return [torch.optim.SGD(model.parameters(), lr=0.05)]
    tables = [*model.bags.parameters(), *model.single.parameters(), *model.never.parameters()]
    return [torch.optim.SparseAdam(tables, lr=0.01), torch.optim.Adam(model.head.parameters(), lr=0.01)]


def gradient(parameter: Any, *, whole: bool) -> Any:
    """What an optimiser would see of it: rows, or with ``whole`` the values that they stand for."""
    grad = parameter.grad
    if grad is None or not grad.is_sparse:
        return grad if grad is None else grad + 0.0  # +0 for -0, as the other way gives
    return grad.to_dense() + 0.0 if whole else [grad.is_coalesced(), grad._indices(), grad._values()]


def main(options: dict[str, Any]) -> None:
    """Train; the first process writes a line for each step."""
    torch.set_num_threads(1)
    _TRAINING["die_halfway"](options)
    order, most = options.get("order", "blocks"), options.get("most")
    run = elastic.Run(options.get("workers", 4), most, seed=3, order=order)
    model, loader = run.prepare(
        Dlrm(options.get("sparse", True), options.get("bags", 2)), _TRAINING["Words"](50), 3
    )
    optimizers = made(options["optimizer"], model)
    run.keep(optimizers)
    every = options.get("accumulate", 1)
    for step in run.steps(loader, epochs=2):
        for turned in [[one] for one in optimizers] if options.get("loops") else [optimizers]:
            for x, y in step.turn(*turned) if options.get("loops") else step:
                cross_entropy(model(x), y).backward()
                _TRAINING["die_if"](options, step.number, "turn")
            seen = [gradient(p, whole=options.get("whole", False)) for p in model.parameters()]
            if (step.number + 1) % every == 0:
                for one in turned:
                    one.step()
                    one.zero_grad()
        if run.first:
            states = [one.state_dict() for one in optimizers]
            text = _TRAINING["digest"]([dict(model.named_parameters()), states, seen])
            with Path(options["log"]).open("a") as file:
                file.write(f"{step.number} {text} {run.processes}\n")
    if options.get("weights") and run.first:
        torch.save(model.state_dict(), options["weights"])
