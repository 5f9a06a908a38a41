"""Run directories made by hand for the tests of the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason

HOSTILE = (
    "<script>alert(1)</script>",
    "=1+1",
    '"quoted" & <b>bold</b>',
    "\x1b[31mred\x1b[0m",
    "\u202eright to left\u202c",
    "</script><!--",
    "训练-01",
    "a|b",
)


def serial_log(
    policy: str, seed: int, waits: list[float], names: tuple[str, ...] = HOSTILE
) -> list[ev.Event]:
    """Jobs of 100 s of work that all arrive at 0, each on a device of its own, after the given waits."""
    cluster = Cluster.uniform(len(waits), gpus_per_node=4)
    out: list[ev.Event] = [ev.Opened(0.0, ev.SCHEMA, "0.1.0", seed, policy, {}, {}, cluster, {}, {}, {})]
    rest: list[ev.Event] = []
    for i, wait in enumerate(waits):
        tenant = "=team" if i % 2 else "<i>red</i>"
        out.append(ev.Submitted(0.0, Job(i, names[i % len(names)], 0.0, tenant=tenant, gpus=1)))
        if wait:
            rest.append(ev.Held(0.0, i, Reason.NO_CAPACITY, {"needs_gpus": 1}))
        rest.append(ev.Started(wait, i, 1, (i,)))
        rest.append(ev.Ended(wait + 100.0, i, 1, "done", 100.0))
    out += sorted(rest, key=lambda e: e.t)
    out.append(ev.Closed(out[-1].t, len(out), len(waits), len(waits)))
    return out


@pytest.fixture
def make_runs(tmp_path: Path) -> Callable[..., Path]:
    """Write runs given as {policy: {seed: waits}}, and a manifest."""

    def build(runs: dict[str, dict[int, list[float]]], **manifest: object) -> Path:
        for policy, seeds in runs.items():
            for seed, waits in seeds.items():
                folder = tmp_path / "runs" / policy / f"seed-{seed}"
                folder.mkdir(parents=True)
                lines = [ev.encode_event(e) + b"\n" for e in serial_log(policy, seed, waits)]
                (folder / "events.jsonl").write_bytes(b"".join(lines))
        whole = {"policies": list(runs), "command": "cotenant simulate jobs.csv", **manifest}
        (tmp_path / "manifest.json").write_text(json.dumps(whole))
        return tmp_path

    return build
