"""Make ``src/cotenant/data/zoo_steps.jsonl`` anew: graphs of the networks in the measured tables.

    python -m bench.zoo_steps [OUTPUT]

Takes about six minutes on one core and needs the extra ``torch``. All batch sizes of a recipe
in 32-bit precision, those that a table has in mixed precision in that too, and the included jobs that
``cotenant measure`` runs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.predictors.resources.work import StepWork, work_of, write_works
from cotenant.profiles.graph.ir import Graph, Options, Precision
from cotenant.profiles.graph.torchreader import read_builder, read_module
from cotenant.profiles.jobs import networks
from cotenant.profiles.jobs.included import INCLUDED, IncludedJob, JobOptions
from cotenant.profiles.zoo.recipes import RECIPES, Recipe, builder_of

OUTPUT = Path("src/cotenant/data/zoo_steps.jsonl")
MIXED = frozenset(
    (
        *("BERT@SQuAD", "DCGAN@LSUN", "EfficientNet@CIFAR-10", "LM-LSTM@Wikitext-2", "MobileNetV2@CIFAR-10"),
        *("MobileNetV3@ImageNet", "NeuMF@MovieLens", "PointNet@ShapeNet", "ResNet-18@CIFAR-10"),
        *("ResNet-50@ImageNet", "VGG@CIFAR-10"),
    )
)
"""Networks that a table has in mixed precision too, at these batch sizes:"""
MIXED_BATCHES = (32, 64, 128)


def _settings(recipe: Recipe) -> Iterator[tuple[int, Precision]]:
    for batch in sorted({*recipe.batches, recipe.usual_batch}):
        yield batch, "fp32"
        if batch in MIXED_BATCHES and recipe.name in MIXED:
            yield batch, "amp"


def works() -> Iterator[StepWork]:
    """One after the other."""
    for recipe in RECIPES.values():
        build = builder_of(recipe)
        for batch, precision in _settings(recipe):
            options = Options(batch=batch, precision=precision, optimiser=recipe.optimiser)
            print(recipe.name, batch, precision, file=sys.stderr, flush=True)
            yield work_of(read_builder(build, options, name=recipe.name))


def included() -> Iterator[StepWork]:
    """Steps of the included jobs at the batch sizes of the examples."""
    for job in INCLUDED.values():
        if job.name == "input":
            continue  # what it waits for is not in its network
        for batch in sorted({max(round(job.batch * factor), 1) for factor in (0.25, 0.5, 1, 2, 3, 4)}):
            print(job.name, batch, file=sys.stderr, flush=True)
            yield work_of(_graph(job, batch))


def _graph(job: IncludedJob, batch: int) -> Graph:
    """The graph of a job whose network is known to its step alone."""
    import torch
    from torch import nn

    class Caught(nn.Module):
        def __init__(self, loss_of: Any) -> None:
            super().__init__()
            held = inspect.getclosurevars(loss_of).nonlocals
            self.parts = nn.ModuleList(part for part in held.values() if isinstance(part, nn.Module))
            self.loss_of = loss_of

        def forward(self, *batch: torch.Tensor) -> torch.Tensor:
            return self.loss_of(*batch)

    step = getattr(networks, job.name)(JobOptions(batch=batch))
    optimiser = type(step.optimisers[0]).__name__.lower()
    if optimiser == "sgd" and step.optimisers[0].defaults["momentum"]:
        optimiser = "momentum"
    options = Options(batch=batch, optimiser=optimiser, device="gpu")
    return read_module(
        Caught(step.loss_of), next(step.batches), options=options, name=f"{job.name}@{job.dataset}"
    )


def main() -> None:
    """Write the file."""
    found = sorted((*included(), *works()), key=lambda w: (w.name, w.batch, w.precision))
    write_works(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT, found)


if __name__ == "__main__":
    main()
