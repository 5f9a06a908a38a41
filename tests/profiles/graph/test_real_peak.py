"""The predicted peak against the real one: every allocation of real training steps, as PyTorch's profiler saw it."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from cotenant.profiles.graph.ir import Options  # noqa: E402
from cotenant.profiles.graph.liveness import peak_of  # noqa: E402
from cotenant.profiles.graph.memory import forecast_memory  # noqa: E402
from cotenant.profiles.graph.source import read_graph  # noqa: E402
from cotenant.profiles.zoo.recipes import find_recipe  # noqa: E402

CHILD = """
import sys
import torch
from cotenant.profiles.zoo.recipes import builder_of, find_recipe

torch.set_num_threads(1)
recipe = find_recipe(sys.argv[1])
kinds = {"momentum": lambda w: torch.optim.SGD(w, 1e-4, momentum=0.9), "adam": lambda w: torch.optim.Adam(w, 1e-4)}
with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as found:
    module, inputs = builder_of(recipe)(int(sys.argv[2]))
    optimiser = kinds[recipe.optimiser](module.parameters())
    for _ in range(2):
        optimiser.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimiser.step()
events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
live = peak = 0
for event in sorted(events, key=lambda e: e.start_ns()):
    live += event.nbytes()
    peak = max(peak, live)
print(peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch"),
    [("ResNet-18@CIFAR-10", 4), ("EfficientNet@CIFAR-10", 2), ("DCGAN@LSUN", 4), ("TD3@BipedalWalker", 64)],
)
def test_the_peak_of_tensors_is_predicted_within_two_per_cent(name: str, batch: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name, str(batch)], capture_output=True, text=True, check=True
    )
    real = int(done.stdout.splitlines()[-1])
    graph = read_graph(name, Options(batch=batch, optimiser=find_recipe(name).optimiser, device="cpu"))
    assert peak_of(graph).total_bytes == pytest.approx(real, rel=0.02)
    parts = {part.name: part.p95_bytes for part in forecast_memory(graph).parts}
    assert sum(size for part, size in parts.items() if part not in {"reserve", "context"}) >= real
