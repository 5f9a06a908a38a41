"""The roofline on this machine's cores against steps that were really taken.

::

    python -m bench.cpu_roofline              # held-out networks of the zoo: nothing was set on them
    python -m bench.cpu_roofline factors      # fit HOST to the campaign that comes with the package, and print it

Rates of the core are those of ``cotenant devices --here``. Each network takes training steps in this
process, bound to one core, and the smallest time of a step by the core's own time is compared.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from cotenant.predictors.resources.calibration import calibrate
from cotenant.predictors.resources.observations import Observation, observed
from cotenant.predictors.resources.roofline import HOST, Efficiency, rates_of, step_times
from cotenant.predictors.resources.work import work_of, zoo_works
from cotenant.profiles.catalogue import add_types
from cotenant.profiles.corerates import core_sets, core_sheet
from cotenant.profiles.graph.ir import Options
from cotenant.profiles.graph.torchreader import read_builder
from cotenant.profiles.shipped import shipped_campaign
from cotenant.profiles.zoo.recipes import builder_of, find_recipe

HELD_OUT = {
    "VGG@CIFAR-10": 8,
    "ResNet-18@CIFAR-10": 8,
    "MobileNetV2@CIFAR-10": 8,
    "EfficientNet@CIFAR-10": 4,
    "LM-PTB-small@PTB": 20,
    "Transformer@Multi30k": 4,
    "VAE@MNIST": 64,
    "DCGAN@LSUN": 4,
    "TD3@BipedalWalker": 128,
    "NeuMF@MovieLens": 128,
    "A3C@PongDeterministic-v4": 2,
    "AlexNet@ImageNet": 2,
}
STEPS = 4


def step_s(name: str, batch: int) -> float:
    """Seconds of the core's own time for a training step, the least of some."""
    import torch

    from bench.memory_error import _optimiser

    recipe = find_recipe(name)
    module, inputs = builder_of(recipe)(batch)
    optimiser = _optimiser(recipe.optimiser, module.parameters())
    found = []
    for _ in range(STEPS):
        start = time.process_time()
        optimiser.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimiser.step()
        found.append(time.process_time() - start)
    assert isinstance(loss, torch.Tensor)
    return min(found[1:])


def held_out(device_type: str) -> None:
    """Print predicted against measured."""
    rates, errors = rates_of(device_type), []
    print("| network | batch | measured, ms | predicted, ms | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, batch in HELD_OUT.items():
        recipe = find_recipe(name)
        options = Options(batch=batch, optimiser=recipe.optimiser, device="cpu")
        work = work_of(read_builder(builder_of(recipe), options))
        said, true = float(step_times([work], [rates], HOST).iteration_s[0]), step_s(name, batch)
        errors.append(np.log(said / true))
        print(f"| {name} | {batch} | {1e3 * true:.1f} | {1e3 * said:.1f} | {said / true:.2f} |", flush=True)
    print(
        f"median ratio {np.exp(np.median(errors)):.2f}, median error a factor of "
        f"{np.exp(np.median(np.abs(errors))):.2f}, worst {np.exp(np.max(np.abs(errors))):.2f}"
    )


def factors(rows: list[Observation]) -> Efficiency:
    """Fitted on the campaign on a core."""
    return calibrate(rows)


def main() -> None:
    """Read the command line."""
    import torch

    torch.set_num_threads(1)
    core = core_sets()[0]
    os.sched_setaffinity(0, core)
    sheet = core_sheet(core)
    add_types(sheet)
    print(f"{sheet.name}: {sheet.bandwidth_gbs} GB/s, {sheet.tflops} TFLOP/s; {sheet.source}")
    if sys.argv[1:] == ["factors"]:
        runs = [run for run in shipped_campaign("cpu")[1] if run.device_type == sheet.name]
        if not runs:
            raise SystemExit(
                f"the campaign was not measured on {sheet.name}; its rates cannot be measured here"
            )
        print(factors(observed(runs, zoo_works())[0]))
        return
    held_out(sheet.name)


if __name__ == "__main__":
    main()
