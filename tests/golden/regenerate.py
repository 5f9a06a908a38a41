"""Writes the golden logs anew: ``python tests/golden/regenerate.py [policy ...]``.

Only this writes them. A change of theirs is a change of what users see: look at the difference and
say in the commit why it is meant.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cotenant import registry
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.ports import Policy
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.testing import FixedForecast, FixedTruth, Harness

FOLDER = Path(__file__).resolve().parent

SPEEDS = {
    ("light", ("light",)): 0.96,
    ("light", ("heavy",)): 0.82,
    ("heavy", ("light",)): 0.9,
    ("heavy", ("heavy",)): 0.5,
}


def golden_day(policy: Policy) -> Harness:
    """Thirty jobs on two kinds of nodes: bursts, gangs, fractions, failures, quotas, a drain.

    Everything is written out or counted, nothing is drawn, so the day never changes by itself.
    """
    types = (
        DeviceType(name="old", memory_bytes=16 * GIB, speed=0.5),
        DeviceType(name="new", memory_bytes=32 * GIB, speed=1.0),
    )
    nodes = (
        Node(name="n0", gpus=(("new", 4),), cpu_milli=16000),
        Node(name="n1", gpus=(("old", 4),)),
    )
    tenants = (Tenant(name="a", weight=2.0, quota_gpus=4), Tenant(name="b", quota_gpus=2, limit_gpus=5))
    harness = Harness(
        Cluster(nodes=nodes, types=types, tenants=tenants),
        policy,
        settings=Settings(restore_s=5.0, state_bytes_per_s=float(GIB), checkpoint_s=60.0),
        truth=FixedTruth(SPEEDS, default=0.4),
        forecast=FixedForecast({k: v - 0.02 for k, v in SPEEDS.items()}, default=0.42, spread=0.05),
        seed=11,
    )
    for i in range(30):
        burst, place = divmod(i, 6)
        fields = {
            "gpus": (1, 2, 1, 4, 1, 8)[(i * 5 + burst) % 6],
            "model": "light" if i % 3 else "heavy",
            "memory_bytes": (2, 6, 10, 14)[i % 4] * GIB,
            "tenant": "ab"[i % 2],
            "priority": 5 if i == 17 else 0,
            "job_class": "opportunistic" if i % 7 == 3 else "guaranteed",
        }
        if i in (4, 21):
            fields |= {"gpus": 1, "compute_milli": 400}
        elif i == 9:
            fields |= {"gpus": 1, "failed_after_s": [30.0]}
        elif i == 13:
            fields |= {"gpus": 0, "cpu_milli": 4000}
        elif i == 25:
            fields |= {"leave_s": 900.0}
        at_s = 150.0 * burst + (7.0 * place if burst % 2 else 0.0)
        harness.submit(f"job{i:02}", at_s=at_s, runs_s=float(40 + 37 * (i * 7 % 11)), **fields)
    for event in (
        ev.NodeDown(200.0, 1, "power"),
        ev.NodeUp(320.0, 1),
        ev.DeviceDown(410.0, 2, "fault"),
        ev.DeviceUp(600.0, 2),
        ev.Drained(700.0, 0),
        ev.Undrained(760.0, 0),
        ev.CancelRequested(500.0, 11),
        ev.PriorityChanged(505.0, 20, 7),
        ev.TenantLimitChanged(620.0, "b", 8),
    ):
        harness.happen(event)
    return harness


def main(names: list[str]) -> None:
    """Write the log of each policy named, or of all."""
    for name in names or registry.names("policy"):
        run = golden_day(registry.load("policy", name)()).run()
        path = FOLDER / f"{name}.jsonl"
        path.write_bytes(run.log)
        print(f"{path.name}: {len(run.events)} events, {len(run.log)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
