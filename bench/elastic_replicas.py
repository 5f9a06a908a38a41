"""Processor time of the look at parameters and buffers that goes with each exchange, and of one worker's turn and update.

Between two looks other memory is written, as a step does, so that the parameters are not in the caches. Told are medians.

Run with ``python -m bench.elastic_replicas``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.elastic_models import MODELS
from cotenant.elastic.contexts import Buffers
from cotenant.elastic.replicas import Replicas

_LOOKS, _TURNS, _ELEMENTS = 200, 5, 1 << 23


def _spent_ms(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return 1e3 * (time.process_time() - begun)


def _told(name: str) -> str:
    training = MODELS[name]
    model = training.model()
    both, other = (Replicas(model), Replicas(model, Buffers(model))), torch.ones(_ELEMENTS)
    looks: list[list[float]] = [[], []]
    for step in range(_LOOKS):
        for which in (0, 1) if step % 2 else (1, 0):
            other.add_(1.0)
            looks[which].append(_spent_ms(partial(both[which].prints, step)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = (torch.stack(part) for part in zip(*training.data(training.batch), strict=True))

    def turn() -> None:
        training.loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    turns = [_spent_ms(turn) for _ in range(_TURNS)]
    (alone, look), whole = map(statistics.median, looks), statistics.median(turns)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    told = f"{look:.3f} ms ({alone:.3f} without buffers)"
    return f"{name}: {size:.1f} M parameters, look {told}, turn and update {whole:.0f} ms: {look / whole:.3%}"


def main() -> None:
    """All models."""
    torch.set_num_threads(1)
    for name in MODELS:
        print(_told(name))


if __name__ == "__main__":
    main()
