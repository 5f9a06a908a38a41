"""HiveD: cells, the safety of quotas, preemption by hand, and the contract on random days."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.checks import check_policy
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.layout import Layout
from cotenant.model.plan import Reason
from cotenant.model.settings import Settings
from cotenant.policies.fifo import Fifo
from cotenant.policies.hived import Hived
from cotenant.policies.published.cells import Cell, carve, fitting, free_cells, quotas_of
from cotenant.testing import Harness, HarnessRun

FREE = Settings(restore_s=0.0, state_bytes_per_s=1e15)


def quotas(**gpus: int) -> tuple[Tenant, ...]:
    """Tenants with these quotas."""
    return tuple(Tenant(name=name, quota_gpus=count) for name, count in gpus.items())


def stops(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, victim, beneficiary) of every stop."""
    return [(e.t, e.id, e.beneficiary) for e in run.events if isinstance(e, ev.Stopping)]


# -- cells -------------------------------------------------------------------------------------


def test_buddies_split_and_merge_by_hand() -> None:
    layout = Layout(Cluster.uniform(8))
    # A single device of a node of eight leaves its buddy, a pair and a four.
    free = free_cells(layout, [Cell(0, 5, 1)])
    assert free == {(0, 4): [Cell(0, 0, 4)], (0, 1): [Cell(0, 4, 1)], (0, 2): [Cell(0, 6, 2)]}
    # A pair is taken from the pair that is there, before the four is split.
    assert next(fitting(free, 0, 2)) == [Cell(0, 6, 2)]
    assert list(fitting(free, 0, 1)) == [
        [Cell(0, 4, 1)],
        [Cell(0, 6, 1), Cell(0, 7, 1)],
        [Cell(0, 0, 1), Cell(0, 1, 1), Cell(0, 2, 1), Cell(0, 3, 1)],
    ]
    assert free_cells(layout, []) == {(0, 8): [Cell(0, 0, 8)]}
    assert free_cells(layout, [Cell(0, 0, 8)]) == {}


def test_parts_by_hand() -> None:
    kinds = (DeviceType(name="x"), DeviceType(name="y"))
    nodes = (Node(name="n0", gpus=(("x", 4),)), Node(name="n1", gpus=(("y", 8),)))
    layout = Layout(Cluster(nodes=nodes, types=kinds))
    # Of 12 devices a third are x. A quota of 6: two x and four y; one of 3: one x and two y. The rest is x and two y.
    assert carve(layout, [6, 3]) == [[(0, 2), (1, 4)], [(0, 1), (1, 2)], [(0, 1), (1, 2)]]
    assert quotas_of(quotas(a=3, b=0), 8) == [3, 0]
    assert quotas_of((Tenant(name="a", limit_gpus=6), Tenant(name="b")), 8) == [6, 0]
    assert quotas_of(quotas(a=0, b=0), 9) == [4, 4]
    # Twice as much promised as there is.
    assert quotas_of(quotas(a=12, b=4), 8) == [6, 2]


@hyp(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 4, 6, 8]), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(0, 1 << 30),
)
def test_every_cell_of_every_part_can_always_be_had(sizes: list[int], parts: list[int], seed: int) -> None:
    """Sharing safety: whatever came and went before, a cell that is not in use finds its place."""
    nodes = tuple(Node(name=f"n{i}", gpus=(("g", size),)) for i, size in enumerate(sizes))
    layout = Layout(Cluster(nodes=nodes, types=(DeviceType(name="g"),)))
    tenants = tuple(Tenant(name=f"t{i}", quota_gpus=q) for i, q in enumerate(parts))
    cells = [size for part in carve(layout, quotas_of(tenants, layout.device_count)) for _, size in part]
    assert sum(cells) == layout.device_count
    rng, bound = np.random.default_rng(seed), dict[int, Cell]()
    for _ in range(60):
        number = int(rng.integers(0, len(cells)))
        if number in bound:
            del bound[number]
            continue
        choices = next(fitting(free_cells(layout, bound.values()), 0, cells[number]), None)
        assert choices is not None
        bound[number] = choices[int(rng.integers(0, len(choices)))]


# -- the promise -----------------------------------------------------------------------------------

_JOB = st.fixed_dictionaries(
    {
        "at_s": st.integers(0, 25).map(float),
        "runs_s": st.sampled_from([3.0, 7.0, 20.0]),
        "gpus": st.sampled_from([8, 4, 1, 2, 3]),
        "tenant": st.sampled_from(["a", "b", "a", "b", "c"]),
        "job_class": st.sampled_from(["guaranteed", "guaranteed", "opportunistic"]),
        "suspendable": st.booleans(),
    }
)


@hyp(max_examples=60, deadline=None)
@given(st.lists(_JOB, min_size=6, max_size=20), st.sampled_from([(8, 4), (8, 2), (4, 4), (2, 5), (6, 6)]))
def test_who_stays_within_its_quota_waits_as_in_a_private_cluster(
    rows: list[dict[str, object]], parts: tuple[int, int]
) -> None:
    """Start times of each tenant's guaranteed jobs, against strict FIFO on nodes that are just its cells."""
    cluster = Cluster(
        nodes=(Node(name="n0", gpus=(("g", 8),)), Node(name="n1", gpus=(("g", 4),))),
        types=(DeviceType(name="g"),),
        tenants=quotas(a=parts[0], b=parts[1]),
    )
    shared = Harness(cluster, Hived(borrow=False), settings=FREE)
    for number, row in enumerate(rows):
        shared.submit(f"j{number:02}", **row)  # type: ignore[arg-type]
    run = shared.run()
    assert run.refusals() == []
    cells = carve(Layout(cluster), list(parts))
    for number, tenant in enumerate("ab"):
        sizes = [size for _, size in cells[number]]
        nodes = tuple(Node(name=f"n{i}", gpus=(("g", size),)) for i, size in enumerate(sizes))
        private = Harness(Cluster(nodes=nodes, types=cluster.types), Fifo(), settings=FREE)
        mine = [
            f"j{i:02}"
            for i, row in enumerate(rows)
            if row["tenant"] == tenant and row["job_class"] == "guaranteed" and row["gpus"] <= max(sizes)  # type: ignore[operator]
        ]
        for name in mine:
            private.submit(name, **rows[int(name[1:])])  # type: ignore[arg-type]
        if mine:
            alone = private.run()
            assert [run.starts(name) for name in mine] == [alone.starts(name) for name in mine]


def test_small_jobs_of_others_never_break_a_quota_into_pieces() -> None:
    cluster = Cluster.uniform(8, gpus_per_node=4, tenants=quotas(a=4, b=4))
    h = Harness(cluster, Hived(), settings=FREE)
    for i in range(4):
        h.submit(f"b{i}", tenant="b", at_s=float(i), runs_s=100.0)
    h.submit("a", tenant="a", at_s=10.0, gpus=4, runs_s=5.0)
    run = h.run()
    # b's four are one cell: all on one node, and a has the other at once.
    assert {run.devices(f"b{i}")[0] // 4 for i in range(4)} == {0}
    assert run.start_s("a") == 10.0
    assert run.devices("a") == (4, 5, 6, 7)


# -- who gives way -----------------------------------------------------------------------------------


def test_opportunistic_jobs_use_what_is_idle_and_give_way() -> None:
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=quotas(a=2, b=2))
    rules = Settings(restore_s=5.0, state_bytes_per_s=1e9)
    h = Harness(cluster, Hived(), settings=rules)
    h.submit("o", tenant="b", gpus=4, runs_s=100.0, job_class="opportunistic", state_bytes=3_000_000_000)
    h.submit("a", tenant="a", gpus=2, at_s=40.0, runs_s=10.0)
    run = h.run()
    # o saves for 3 s, a runs from 43 to 53, o loads for 5 + 3 s and has 60 left.
    assert stops(run) == [(40.0, 0, 1)]
    assert run.start_s("a") == 43.0
    assert run.end_s("o") == 53.0 + 8.0 + 60.0
    rules_told = [e.why.rule for e in run.events if isinstance(e, ev.Started)]
    assert rules_told == ["idle-cells", "own-cell-emptied", "idle-cells"]


def test_who_cannot_save_starts_again() -> None:
    cluster = Cluster.uniform(1, tenants=quotas(a=1))
    h = Harness(cluster, Hived(), settings=FREE)
    h.submit("o", runs_s=100.0, job_class="opportunistic", suspendable=False)
    h.submit("a", tenant="a", at_s=40.0, runs_s=10.0)
    run = h.run()
    assert (run.start_s("a"), run.end_s("o")) == (40.0, 150.0)


@pytest.mark.parametrize(("borrow", "second_s"), [(True, [0.0, 60.0]), (False, [60.0])])
def test_a_tenant_borrows_until_the_owner_comes(borrow: bool, second_s: list[float]) -> None:
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=quotas(a=2, b=2))
    h = Harness(cluster, Hived(borrow=borrow), settings=FREE)
    h.submit("a1", tenant="a", gpus=2, runs_s=60.0)
    h.submit("a2", tenant="a", gpus=2, runs_s=30.0)
    h.submit("b", tenant="b", gpus=2, at_s=20.0, runs_s=50.0)
    run = h.run()
    assert run.start_s("b") == 20.0
    assert run.starts("a2") == second_s
    assert stops(run) == ([(20.0, 1, 2)] if borrow else [])


def test_what_no_cell_could_hold_runs_where_it_is_idle() -> None:
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=quotas(a=2, b=2))
    h = Harness(cluster, Hived(borrow=False), settings=FREE)
    h.submit("big", tenant="a", gpus=4, runs_s=60.0)
    h.submit("b", tenant="b", at_s=20.0, runs_s=10.0)
    run = h.run()
    assert run.starts("big") == [0.0, 30.0]
    assert run.start_s("b") == 20.0


def test_a_minimum_quantum_delays_the_owner_by_no_more() -> None:
    cluster = Cluster.uniform(1, tenants=quotas(a=1))
    rules = Settings(restore_s=0.0, state_bytes_per_s=1e15, min_quantum_s=30.0)
    h = Harness(cluster, Hived(), settings=rules)
    h.submit("o", runs_s=100.0, job_class="opportunistic")
    h.submit("a", tenant="a", at_s=10.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("a") == 30.0
    assert run.refusals() == []


def test_a_cell_that_breaks_is_replaced() -> None:
    cluster = Cluster.uniform(4, gpus_per_node=2, tenants=quotas(a=2, b=2))
    rules = Settings(restore_s=0.0, state_bytes_per_s=1e9)
    h = Harness(cluster, Hived(), settings=rules)
    for name in ("o", "p"):
        h.submit(name, gpus=2, runs_s=500.0, job_class="opportunistic", state_bytes=20_000_000_000)
    h.submit("a", tenant="a", gpus=2, at_s=100.0, runs_s=10.0)
    h.happen(ev.DeviceDown(110.0, 0, "xid"))
    h.happen(ev.DeviceUp(1000.0, 0))
    run = h.run()
    # o saves from 100 on; at 110 its device fails. The other cell is kept instead, p saves until 130.
    assert stops(run) == [(100.0, 0, 2), (110.0, 1, 2)]
    assert run.start_s("a") == 130.0
    assert run.devices("a") == (2, 3)


def test_why_a_job_waits_for_its_cells() -> None:
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=quotas(a=2, b=2))
    h = Harness(cluster, Hived(borrow=False), settings=FREE)
    h.submit("a1", tenant="a", gpus=2, runs_s=60.0)
    h.submit("a2", tenant="a", gpus=1, runs_s=30.0)
    run = h.run()
    assert run.reasons("a2") == [Reason.NO_CAPACITY]
    assert run.of("a2", ev.Held)[0].facts == {"needs_gpus": 1, "cells_gpus": 2}


def test_a_ceiling_holds_back_nobody_else_in_a_shared_part() -> None:
    """Two tenants that the cluster file does not name share what no quota covers."""
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=quotas(a=2))
    h = Harness(cluster, Hived(borrow=False), settings=FREE)
    h.happen(ev.TenantLimitChanged(0.0, "x", 0))
    h.happen(ev.TenantLimitChanged(100.0, "x", 4))
    h.submit("x1", tenant="x", at_s=1.0, runs_s=10.0)
    h.submit("y1", tenant="y", at_s=2.0, runs_s=10.0)
    run = h.run()
    assert (run.start_s("y1"), run.start_s("x1")) == (2.0, 100.0)
    assert run.reasons("x1") == [Reason.TENANT_CAPACITY_ZERO]


def test_gangs_larger_than_a_node_take_several_cells() -> None:
    cluster = Cluster.uniform(6, gpus_per_node=2, tenants=quotas(a=4, b=2))
    h = Harness(cluster, Hived(), settings=FREE)
    for name in ("o", "p", "q"):
        h.submit(name, gpus=2, runs_s=100.0, job_class="opportunistic")
    h.submit("b", tenant="b", gpus=1, at_s=5.0, runs_s=100.0)
    h.submit("a", tenant="a", gpus=4, at_s=10.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("b") == 5.0
    assert run.start_s("a") == 10.0
    assert {d // 2 for d in run.devices("a")}.isdisjoint({d // 2 for d in run.devices("b")})


def test_contract_without_borrowing() -> None:
    check_policy(lambda: Hived(borrow=False), first=80, scenarios=6)


def test_contract() -> None:
    check_policy(Hived, first=90, scenarios=6)
