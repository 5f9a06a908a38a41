"""Training a network of the zoo as its recipe says, on one batch of made-up data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cotenant.errors import ConfigError
from cotenant.profiles.jobs.included import JobOptions
from cotenant.profiles.jobs.networks import Cycle, TrainingStep
from cotenant.profiles.zoo.recipes import builder_of, find_recipe

__all__ = ["zoo_step"]


def zoo_step(options: JobOptions) -> TrainingStep:
    """The recipe's network, loss and optimiser.

    Raises
    ------
    ConfigError
        If the recipe names an optimiser that is not known here.
    """
    recipe = find_recipe(options.network)
    torch.manual_seed(options.seed)
    module, inputs = builder_of(recipe)(options.batch)
    module.to(options.device).train()
    batch = tuple(part.to(options.device) for part in inputs)

    def loss_of(*parts: Tensor) -> Tensor:
        loss: Tensor = module(*parts)
        return loss

    optimiser = _optimiser(recipe.optimiser, module.parameters())
    return TrainingStep(options, module, Cycle([batch]), loss_of, [optimiser])


def _optimiser(name: str, parameters: Any) -> Any:
    makers: dict[str, Callable[[Any], Any]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=1e-3),
        "momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
    }
    if name not in makers:
        raise ConfigError(f"no optimiser {name!r}; known: {', '.join(makers)}")
    return makers[name](parameters)
