"""Stages of training iterations, and how well those of several jobs interleave.

After Zhao, Liu, Peng and others, "Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from functools import lru_cache

from cotenant.errors import ConfigError
from cotenant.model.ports import Forecast, shares_of

__all__ = ["RESOURCES", "Stages", "efficiency", "group_time", "read_stages", "stages_of"]

RESOURCES = 3
"""Input (storage and CPU), GPU, network."""

Stages = tuple[float, float, float]
"""Time of one iteration on each resource; only ratios matter."""

_SIZES = (1, 2, 4, 8, 16, 32)

# Milliseconds of input and GPU on one device, and of network by gang size 1 to 32: Muri's trace files
# (Rivendile/Muri, Apache-2.0), V100.
_PUBLISHED: dict[str, tuple[float, float, tuple[float, ...]]] = {
    "A3C/b64": (514.0, 14.0, (0.0, 0.5, 0.3, 0.4, 1.2, 2.0)),
    "BERT-base/b4": (0.5, 160.0, (0.0, 18.0, 18.0, 59.0, 86.0, 133.0)),
    "DQN/b128": (446.0, 8.0, (0.0, 0.6, 0.4, 0.5, 1.2, 1.6)),
    "GPT-2/b4": (0.6, 410.0, (0.0, 40.0, 20.0, 49.0, 137.0, 216.0)),
    "ResNet-18/b128": (711.0, 110.0, (0.0, 95.0, 73.0, 77.0, 93.0, 93.0)),
    "ShuffleNet-v2/b128": (706.0, 59.0, (0.0, 18.0, 17.0, 10.0, 21.0, 24.0)),
    "VGG-16/b16": (117.0, 68.0, (0.0, 40.0, 67.0, 66.0, 110.0, 131.0)),
    "VGG-19/b16": (114.0, 80.0, (0.0, 41.0, 73.0, 60.0, 123.0, 141.0)),
}


def read_stages(entries: tuple[str, ...]) -> dict[str, Stages]:
    """Stages by model.

    Raises
    ------
    ConfigError
        If an entry is not ``MODEL=INPUT/GPU/NETWORK``.
    """
    found: dict[str, Stages] = {}
    for entry in entries:
        model, _, times = entry.rpartition("=")
        try:
            own, gpu, network = (float(part) for part in times.split("/"))
        except ValueError:
            own = gpu = network = -1.0
        if not model or min(own, gpu, network) < 0.0 or not 0.0 < own + gpu + network < float("inf"):
            raise ConfigError(
                f'stages of muri: write MODEL=INPUT/GPU/NETWORK, times of one iteration, found "{entry}"'
            )
        found[model] = (own, gpu, network)
    return found


def stages_of(
    model: str, gpus: int, given: dict[str, Stages], forecast: Forecast | None, device_type: str
) -> Stages:
    """Stages of a model: as given, as published, else by the shares of a device that it uses alone."""
    if model in given:
        return given[model]
    known = _PUBLISHED.get(model)
    if known is not None:
        return known[0], known[1], known[2][max(bisect_right(_SIZES, gpus) - 1, 0)]
    compute, bandwidth, host = shares_of(forecast, model, device_type)
    return round(host, 3), round(max(compute, bandwidth, 0.001), 3), 0.0


@lru_cache(1 << 16)
def group_time(members: tuple[Stages, ...]) -> float:
    """Time in which each of a group does one iteration, the stages of all in turn on all resources.

    In each of as many steps as there are resources everybody is on one, the next in the next step; a
    step lasts as long as its busiest resource. The order is the best one.

    Parameters
    ----------
    members : tuple of Stages
        Sorted, so that equal groups are one.

    Examples
    --------
    >>> group_time(((3.0, 1.0, 0.0),)), group_time(((1.0, 3.0, 0.0), (3.0, 1.0, 0.0)))
    (4.0, 5.0)
    >>> group_time(((3.0, 1.0, 0.0), (3.0, 1.0, 0.0)))
    7.0
    """
    best = float("inf")
    # Only how they are shifted against each other matters: the first stays.
    for shifts in itertools.product(range(RESOURCES), repeat=len(members) - 1):
        total = 0.0
        for step in range(RESOURCES):
            busy = [0.0] * RESOURCES
            for member, shift in zip(members, (0, *shifts), strict=True):
                at = (step + shift) % RESOURCES
                busy[at] += member[at]
            total += max(busy)
        best = min(best, total)
    return best


def efficiency(members: tuple[Stages, ...]) -> float:
    """Part of the time for which resources are busy, in the mean over them.

    >>> round(efficiency(((1.0, 3.0, 0.0), (3.0, 1.0, 0.0))), 3)
    0.533
    """
    return sum([sum(member) for member in members]) / (RESOURCES * group_time(members))
