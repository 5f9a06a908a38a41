"""What must hold for every policy on any cluster, workload and series of incidents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant import registry
from cotenant.checks import check_invariants
from cotenant.engine.log import LogWriter
from cotenant.engine.loop import Loop
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.quantities import GIB
from cotenant.model.records import Status
from cotenant.model.settings import Settings
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.runs.spec import build_policy, parse_policy
from cotenant.testing import FixedForecast, FixedTruth, TrueRuntime

POLICIES = [*registry.names("policy"), "fifo:head_of_line=false"]
TYPES = (
    DeviceType(name="old", memory_bytes=8 * GIB, speed=0.5),
    DeviceType(name="new", memory_bytes=16 * GIB),
)
MODELS = ["light", "heavy"]
SPEEDS = {("heavy", ("heavy",)): 0.4, ("light", ("light",)): 0.95, ("light", ("heavy",)): 0.7}
DEFAULTS: dict[str, Any] = {
    "duration_s": 1.0,
    "gpus": 1,
    "model": "light",
    "memory_bytes": 0,
    "compute_milli": 1000,
    "tenant": "a",
    "priority": 0,
    "sharing": "any",
    "job_class": "guaranteed",
    "suspendable": True,
    "cpu_milli": 0,
    "failed_after_s": [],
    "leave_s": 0.0,
}
"""Rows of a day hold only what differs, so that a failing day is short to read."""
LAST_S = 5000.0
"""By then all that failed has returned and every ceiling is lifted."""


@dataclass(frozen=True)
class Day:
    """A scenario, as plain values, so that Hypothesis can shrink it."""

    nodes: tuple[Node, ...]
    limit: int
    rows: tuple[dict[str, Any], ...]
    predicted: dict[str, float]
    incidents: tuple[ev.Event, ...]
    rules: Settings

    @property
    def cluster(self) -> Cluster:
        tenants = (
            Tenant(name="a", weight=2.0, quota_gpus=2),
            Tenant(name="b", quota_gpus=1, limit_gpus=self.limit),
        )
        return Cluster(nodes=self.nodes, types=TYPES, tenants=tenants)


NODE = st.builds(
    lambda kinds, cpu: Node(name="", gpus=kinds, cpu_milli=cpu),
    st.sampled_from(
        [
            (("new", 1),),
            (("old", 2),),
            (("new", 4),),
            (("old", 1), ("new", 1)),
        ]
    ),
    st.sampled_from([0, 8000]),
)

RULES = st.builds(
    Settings,
    gang_span=st.sampled_from(["larger-than-node", "never", "any"]),
    type_order=st.sampled_from(["fastest", "slowest", "largest-memory", "declared"]),
    start_s=st.sampled_from([0.0, 5.0]),
    restore_s=st.sampled_from([0.0, 10.0]),
    state_bytes_per_s=st.sampled_from([1e15, 1e9]),
    min_quantum_s=st.sampled_from([0.0, 30.0]),
    checkpoint_s=st.sampled_from([0.0, 20.0]),
    max_sharers=st.integers(1, 4),
    starts_per_event=st.sampled_from([0, 1]),
    round_s=st.sampled_from([0.0, 60.0]),
    decision_latency_s=st.sampled_from([0.0, 1.0]),
)

JOB = st.fixed_dictionaries(
    {
        "gap_s": st.sampled_from([0.0, 1.0, 7.0, 40.0, 300.0]),
        "duration_s": st.sampled_from([1.0, 0.0, 33.0, 250.0]),
        "gpus": st.sampled_from([1, 1, 1, 2, 3, 4, 0]),
        "model": st.sampled_from(MODELS),
        "memory_bytes": st.sampled_from([0, 2 * GIB, 5 * GIB, 9 * GIB]),
        "compute_milli": st.sampled_from([1000, 0, 333]),
        "tenant": st.sampled_from(["a", "b", "c"]),
        "priority": st.sampled_from([0, 0, 5]),
        "sharing": st.sampled_from(["any", "any", "trusted", "exclusive"]),
        "job_class": st.sampled_from(["guaranteed", "opportunistic"]),
        "suspendable": st.sampled_from([True, True, False]),
        "cpu_milli": st.sampled_from([0, 0, 1500]),
        "failed_after_s": st.sampled_from([[], [], [4.0], [0.0, 20.0]]),
        "patience_s": st.sampled_from([0.0, 0.0, 50.0]),
        "guess": st.sampled_from([1.0, 0.3, 3.0]),
    }
)


@st.composite
def days(draw: st.DrawFn) -> Day:
    nodes = draw(st.lists(NODE, min_size=1, max_size=3))
    named = tuple(Node(name=f"n{i}", gpus=n.gpus, cpu_milli=n.cpu_milli) for i, n in enumerate(nodes))
    at, rows, predicted = 0.0, [], {}
    for number, job in enumerate(draw(st.lists(JOB, max_size=14))):
        row = dict(job)
        at += row.pop("gap_s")
        patience, name = row.pop("patience_s"), f"j{number:02}"
        predicted[name] = row["duration_s"] * row.pop("guess")
        if row["gpus"] != 1:
            row["compute_milli"] = 1000
        row["leave_s"] = at + patience if patience else 0.0
        rows.append({"name": name, "submit_s": at} | {k: v for k, v in row.items() if v != DEFAULTS[k]})
    devices = sum(count for n in named for _, count in n.gpus)
    incidents = draw(_incidents(len(named), devices, max(1, len(rows))))
    return Day(named, draw(st.integers(0, 4)), tuple(rows), predicted, incidents, draw(RULES))


@st.composite
def _incidents(draw: st.DrawFn, nodes: int, devices: int, jobs: int) -> tuple[ev.Event, ...]:
    found: list[ev.Event] = [ev.TenantLimitChanged(LAST_S, "b", None)]
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["node", "device", "drain", "set aside", "cancel", "priority", "limit"]))
        at, lasts = float(draw(st.integers(0, 400))), float(draw(st.integers(1, 300)))
        node, device = draw(st.integers(0, nodes - 1)), draw(st.integers(0, devices - 1))
        job = draw(st.integers(0, jobs - 1))
        found += {
            "node": [ev.NodeDown(at, node, "power"), ev.NodeUp(at + lasts, node)],
            "device": [ev.DeviceDown(at, device, "fault"), ev.DeviceUp(at + lasts, device)],
            "drain": [ev.Drained(at, node), ev.Undrained(at + lasts, node)],
            "set aside": [ev.Drained(at, node, device=device), ev.Undrained(at + lasts, node, device=device)],
            "cancel": [ev.CancelRequested(at, job)],
            "priority": [ev.PriorityChanged(at, job, draw(st.sampled_from([-3, 9])))],
            "limit": [ev.TenantLimitChanged(at, draw(st.sampled_from(["a", "c"])), 1)],
        }[kind]
    found += [ev.TenantLimitChanged(LAST_S, "a", None), ev.TenantLimitChanged(LAST_S, "c", None)]
    return tuple(found)


class Played:
    """A day played by a policy."""

    def __init__(
        self,
        policy: str,
        day: Day,
        *,
        rows: list[dict[str, Any]] | None = None,
        checked: bool = False,
        drop: bool = False,
        picture_at: int = 0,
    ) -> None:
        chosen = day.rows if rows is None else rows
        columns = {
            c: pl.Series(c, [r.get(c, DEFAULTS.get(c)) for r in chosen], dtype=JOB_SCHEMA[c])
            for c in ("name", "submit_s", *DEFAULTS)
        }
        self.picture_at = picture_at
        self.picture: dict[str, Any] = {}
        self.events: list[ev.Event] = []
        self.world = SimulatedExecutor(
            Workload(pl.DataFrame(columns)),
            day.cluster,
            truth=FixedTruth(SPEEDS, default=0.6),
            settings=day.rules,
            incidents=day.incidents,
        )
        self.log = LogWriter()
        self.state = Loop(
            cluster=day.cluster,
            policy=build_policy(parse_policy(policy)),
            executor=self.world,
            forecast=FixedForecast(SPEEDS, default=0.65, spread=0.05),
            runtime=TrueRuntime(day.predicted),
            settings=day.rules,
            log=self.log,
            observers=[self],
            drop_indexes=drop,
            on_event=check_invariants if checked else self._look,
        ).run()

    def _look(self, state: State, event: ev.Event) -> None:
        if state.version == self.picture_at:
            self.picture = picture(state)

    def see(self, events: list[ev.Event]) -> None:
        self.events += events


QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(day=days())
def test_the_books_balance_and_everything_ends(policy: str, day: Day) -> None:
    played = Played(policy, day, checked=True)
    state, ledger = played.state, played.state.ledger
    assert [e for e in played.events if isinstance(e, ev.Refused)] == []
    # Every job is accounted for, and ends exactly once.
    ends = [
        e.id for e in played.events if isinstance(e, ev.Rejected) or (isinstance(e, ev.Ended) and e.final)
    ]
    assert sorted(ends) == list(range(len(day.rows)))
    # Nothing of it is left: in the state, the books, or the world.
    assert (state.records, state.running, len(state.queue)) == ({}, {}, 0)
    fresh = State(day.cluster, day.rules).ledger
    for name in ("free_milli", "free_memory", "residents", "whole", "free_count", "free_cpu", "free_host"):
        assert getattr(ledger, name) == getattr(fresh, name), name
    assert (ledger.held, ledger.leaving, ledger.reserved) == ({}, {}, {})
    world = played.world
    assert world.running() == {}
    for name in ("_failed", "_left", "_patient", "_leaving"):
        assert not getattr(world, name), name
    assert not world._companies.on
    # Work is what was declared: nothing is done twice over or left out.
    true = {
        i: row.get("duration_s", DEFAULTS["duration_s"])
        for i, row in enumerate(sorted(day.rows, key=lambda r: (r["submit_s"], r["name"])))
    }
    for event in played.events:
        if isinstance(event, ev.Ended) and event.outcome == "done":
            assert event.work_s == pytest.approx(true[event.id])


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(day=days(), data=st.data())
def test_the_order_of_rows_and_a_second_run_change_no_byte(
    policy: str, day: Day, data: st.DataObject
) -> None:
    """C68. Nor does forgetting all that is derived, before each decision."""
    shuffled = data.draw(st.permutations(day.rows))
    digests = {
        Played(policy, day).log.sha256(),
        Played(policy, day, rows=list(shuffled)).log.sha256(),
        Played(policy, day, drop=True).log.sha256(),
    }
    assert len(digests) == 1


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(day=days(), data=st.data())
def test_the_state_at_any_moment_is_the_fold_of_the_log_so_far(
    policy: str, day: Day, data: st.DataObject
) -> None:
    events = Played(policy, day).events
    stop = data.draw(st.integers(1, len(events)))
    played = Played(policy, day, picture_at=stop)
    folded = State(day.cluster, day.rules)
    for event in events[:stop]:
        folded.apply(ev.decode_event(ev.encode_event(event)))
    assert picture(folded) == played.picture
    # Between events whoever lives waits, runs or stops.
    assert {r.status for r in folded.records.values()} <= {Status.PENDING, Status.RUNNING, Status.STOPPING}
    for event in events[stop:]:
        folded.apply(event)
    assert picture(folded) == picture(played.state)
