"""Which worlds can learn from each other: those that share jobs under one framework."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from cotenant.predictors.interference.jobs import World
from cotenant.profiles.runs import CoRun

__all__ = ["linked_worlds"]

_SHARED = 3


def linked_worlds(runs: Sequence[CoRun]) -> list[list[World]]:
    """Groups of worlds; two are linked if they measured at least three models in common.

    Returns
    -------
    list of list
        Worlds sorted within groups, groups by their first world.
    """
    models: dict[World, set[tuple[str, str, str]]] = defaultdict(set)
    for run in runs:
        if any(side.usable for side in run.sides):
            world = (run.source, run.device_type)
            models[world].update((run.framework, side.job.model, side.job.dataset) for side in run.sides)
    groups: list[set[World]] = []
    for world in sorted(models):
        near = [g for g in groups if any(len(models[world] & models[w]) >= _SHARED for w in g)]
        joined = {world}.union(*near)
        groups = [g for g in groups if g not in near]
        groups.append(joined)
    return sorted(sorted(group) for group in groups)
