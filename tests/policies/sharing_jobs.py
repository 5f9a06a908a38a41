"""Random small workloads for the tests of sharing policies, and what must hold for each run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.ports import Policy
from cotenant.model.settings import Settings
from cotenant.testing import FixedTruth, Harness, HarnessRun

GIB = 1 << 30
MIB = 1 << 20

BIG = DeviceType(name="big", memory_bytes=24 * GIB, speed=1.0)
SMALL = DeviceType(name="small", memory_bytes=16 * GIB, speed=0.5)
UNKNOWN = DeviceType(name="unknown", speed=0.8)


def clusters() -> st.SearchStrategy[Cluster]:
    """A few nodes of two known device types and, seldom, one of unknown memory."""
    node = st.tuples(st.sampled_from(["big", "big", "small", "unknown"]), st.integers(1, 4), st.booleans())

    def build(parts: list[tuple[str, int, bool]]) -> Cluster:
        nodes = tuple(
            Node(name=f"n{i}", gpus=((kind, size),), cpu_milli=8000 if narrow else 0)
            for i, (kind, size, narrow) in enumerate(parts)
        )
        tenants = (Tenant(name="limited", limit_gpus=4),)
        return Cluster(nodes=nodes, types=(BIG, SMALL, UNKNOWN), tenants=tenants)

    return st.lists(node, min_size=1, max_size=4).map(build)


def jobs() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Up to sixteen jobs, many of which can never be alone in what they ask for."""
    one = st.fixed_dictionaries(
        {
            "at_s": st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0]),
            "runs_s": st.sampled_from([1.0, 3.0, 10.0]),
            "gpus": st.sampled_from([0, 1, 1, 1, 1, 2, 2, 4]),
            "memory_bytes": st.sampled_from([0, 3 * GIB, 5 * GIB, 8 * GIB, 12 * GIB, 20 * GIB, 40 * GIB]),
            "compute_milli": st.sampled_from([1000, 1000, 0, 300, 500]),
            "sharing": st.sampled_from(["any", "any", "any", "exclusive", "trusted", "same-owner"]),
            "tenant": st.sampled_from(["", "t", "limited"]),
            "user": st.sampled_from(["", "u"]),
            "cpu_milli": st.sampled_from([0, 0, 0, 3000]),
            "priority": st.sampled_from([0, 0, 1]),
        }
    )
    return st.lists(one, min_size=1, max_size=16)


def settings() -> st.SearchStrategy[Settings]:
    """Spans and numbers of sharers."""
    return st.builds(
        Settings,
        gang_span=st.sampled_from(["never", "larger-than-node", "any"]),
        max_sharers=st.integers(1, 4),
    )


def play(
    policy: Policy,
    cluster: Cluster,
    rows: list[dict[str, Any]],
    rules: Settings,
    incidents: tuple[ev.Event, ...] = (),
    **options: Any,
) -> HarnessRun:
    """Run jobs named by their place in the list."""
    harness = Harness(cluster, policy, settings=rules, truth=FixedTruth(default=0.7), **options)
    for number, row in enumerate(rows):
        harness.submit(f"j{number}", **row)
    for event in incidents:
        harness.happen(event)
    return harness.run()


def check(policy: Policy, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings) -> HarnessRun:
    """What must hold for every run: legal, repeatable without its indexes, and everybody ends."""
    run = play(policy, cluster, rows, rules)
    assert run.refusals() == []
    ended = {e.id for e in run.events if isinstance(e, ev.Ended) and e.final}
    rejected = {e.id for e in run.events if isinstance(e, ev.Rejected)}
    assert ended | rejected == set(run.ids.values())
    assert ended.isdisjoint(rejected)
    assert play(policy, cluster, rows, rules, drop_indexes=True).log == run.log
    return run
