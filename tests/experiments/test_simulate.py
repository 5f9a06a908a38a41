"""Runs for their numbers alone: what is left of them afterwards."""

from __future__ import annotations

import gc

from cotenant.engine.state import State
from cotenant.experiments.simulate import metrics_of
from cotenant.model.cluster import Cluster
from cotenant.model.settings import Settings
from cotenant.profiles.catalogue import device_type
from cotenant.runs.prepare import Prepared
from cotenant.traces.synthetic import generate


def _states() -> int:
    return sum(isinstance(found, State) for found in gc.get_objects())


def test_nothing_is_left_of_a_run_even_if_the_collector_never_comes() -> None:
    prepared = Prepared(
        workload=generate({"preset": "bursty", "jobs": 30, "seed": 0}),
        cluster=Cluster.uniform(8, gpu_type=device_type("V100-32GB")),
        settings=Settings(),
    )
    gc.collect()
    before = _states()
    gc.disable()
    try:
        assert metrics_of(prepared, "cotenant", 0).summary["jobs_finished"] == 30
        assert _states() == before
    finally:
        gc.enable()
