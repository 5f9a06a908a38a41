"""Runs for their numbers alone: what is left of them afterwards."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from cotenant.engine.state import State
from cotenant.experiments.simulate import metrics_of
from cotenant.model.cluster import Cluster
from cotenant.model.settings import Settings
from cotenant.profiles.catalogue import device_type
from cotenant.runs.prepare import Prepared
from cotenant.traces.synthetic import generate

gc.disable()
prepared = Prepared(
    workload=generate({"preset": "bursty", "jobs": 30, "seed": 0}),
    cluster=Cluster.uniform(8, gpu_type=device_type("V100-32GB")),
    settings=Settings(),
)
finished = metrics_of(prepared, "cotenant", 0).summary["jobs_finished"]
print(finished, sum(isinstance(found, State) for found in gc.get_objects()))
"""


def test_nothing_is_left_of_a_run_even_if_the_collector_never_comes() -> None:
    # In a process of its own: what other tests have left, or let go meanwhile, would be counted too.
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["30", "0"]
