"""One simulation for its numbers alone: nothing is written, the log is folded as it is made."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

from cotenant.report.metrics import RunMetrics
from cotenant.runs.prepare import Prepared

__all__ = ["metrics_of"]


def metrics_of(
    prepared: Prepared,
    policy: str,
    seed: int,
    *,
    speeds: tuple[Any, Any] | None = None,
    observers: Sequence[Any] = (),
    wrap: Callable[[Any], Any] | None = None,
) -> RunMetrics:
    """Run a policy in one seed's world.

    Parameters
    ----------
    policy : str
        As on the command line: ``"las"``, ``"colocate:least_gain=0.2"``, ``"mine.py:Mine"``.
    speeds : tuple of (Truth, Forecast), optional
        Built already for this seed and cluster; else they are built from ``prepared``.
    observers : sequence of Observer
        See every event, too.
    wrap : callable, optional
        Makes another executor of the simulated one (``executors.sweep.Sweep``).

    Raises
    ------
    CotenantError
        For a policy or forecast that does not exist or cannot be used.
    """
    from cotenant.engine.loop import Loop
    from cotenant.executors.simulated import SimulatedExecutor
    from cotenant.report.fold import MetricFold
    from cotenant.runs.spec import build_policy, parse_policy
    from cotenant.runs.world import build_world

    built = build_policy(parse_policy(policy))
    world = build_world(prepared, seed, speeds=speeds)
    executor = SimulatedExecutor(
        world.workload,
        prepared.cluster,
        truth=world.truth,
        settings=prepared.settings,
        incidents=prepared.incidents,
    )
    fold = MetricFold()
    Loop(
        cluster=prepared.cluster,
        policy=built,
        executor=executor if wrap is None else wrap(executor),
        forecast=world.forecast,
        runtime=world.runtime,
        settings=prepared.settings,
        seed=seed,
        observers=[fold, *observers],
        header={"policy": policy},
    ).run()
    result = fold.result(executor.source_hours)
    # A state and the indexes of its view refer to each other. The collector counts objects, not the tables of a
    # forecast that hang on them: left to itself it kept some 10 MiB of each of hundreds of runs.
    del world, executor, fold, built
    gc.collect()
    return result
