"""Cases of real users, played in the simulator. ``docs/cases.md`` says where each case is held."""

from __future__ import annotations

from pathlib import Path

import pytest

import cotenant
from cotenant import registry
from cotenant.errors import QuantityError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.plan import Plan, Reason
from cotenant.model.quantities import GIB, MIB, format_bytes, parse_bytes
from cotenant.model.view import View
from cotenant.model.workload import Workload
from cotenant.policies.fifo import Fifo
from cotenant.policies.packing import BestFit
from cotenant.testing import FixedForecast, Harness, HarnessRun

HOUR = 3600.0
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time\n"
)


class Played(Harness):
    """A harness whose jobs come from a workload that a reader made."""

    def __init__(self, workload: Workload, cluster: Cluster | str, policy: object) -> None:
        super().__init__(cluster, policy)  # type: ignore[arg-type]
        self._workload = workload

    def workload(self) -> Workload:
        return self._workload


def read(tmp_path: Path, name: str, text: str) -> Workload:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return cotenant.load(path)


def test_c04_a_pod_that_was_never_placed_is_demand_until_it_leaves(tmp_path: Path) -> None:
    """C04: p1 is offered from 100 and leaves at 220, as p0 holds the only GPU until 500."""
    text = (
        PODS
        + "p0,12000,16384,1,1000,,LS,Running,0,500,0\n"
        + "p1,4000,8192,1,470,,BE,Pending,100,220,\n"
        + "p2,4000,8192,0,0,,LS,Succeeded,120,300,121\n"
    )
    run = Played(read(tmp_path, "openb_pod_list_x.csv", text), "1x1", Fifo(head_of_line=False)).run()
    assert (run.start_s("p0"), run.end_s("p0")) == (0.0, 500.0)
    assert [(e.t, e.reason) for e in run.of("p1", ev.Rejected)] == [(220.0, "left")]
    # p2 wants no device: it runs beside, its 179 s from 120 on.
    assert (run.start_s("p2"), run.end_s("p2"), run.devices("p2")) == (120.0, 299.0, ())
    assert run.state.counts["submitted"] == 3
    # With a second GPU p1 does start, though the original cluster never placed it.
    run = Played(read(tmp_path, "openb_pod_list_x.csv", text), "2x1", Fifo()).run()
    assert run.start_s("p1") == 100.0


def test_c05_two_halves_are_two_devices() -> None:
    """C05: (2, 500) takes half of two devices, never one whole."""
    h = Harness("1x2", BestFit(), memory_bytes=16 * GIB)
    h.submit("a", gpus=2, compute_milli=500, memory_bytes=GIB)
    h.submit("b", gpus=2, compute_milli=500, memory_bytes=GIB)
    h.submit("c", gpus=1, compute_milli=1, memory_bytes=GIB)
    run = h.run()
    assert run.devices("a") == run.devices("b") == (0, 1)
    assert run.start_s("c") == 1.0


def test_c07_jobs_without_length_end_at_once_and_the_run_terminates() -> None:
    """C07: a zero-length job is kept; it starts and ends in its turn. Half a second is half a second."""
    h = Harness("1x1", Fifo())
    h.submit("a", runs_s=0.0)
    h.submit("b", runs_s=10.0)
    h.submit("c", at_s=1.0, runs_s=0.0)
    h.submit("d", at_s=1.0, runs_s=0.5)
    run = h.run()
    assert [(run.start_s(n), run.end_s(n)) for n in "abcd"] == [
        (0.0, 0.0),
        (0.0, 10.0),
        (10.0, 10.0),
        (10.0, 10.5),
    ]


def test_c11_alternatives_and_absent_models_on_the_cluster(tmp_path: Path) -> None:
    """C11: a and e only on V100M32, c on G2, b anywhere, d nowhere, with the reason."""
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,8192,1,V100M32\nn2,8000,8192,1,G2\nn3,8000,8192,1,T4\n",
        encoding="utf-8",
    )
    specs = {"a": "V100M16|V100M32", "b": "", "c": "G2", "d": "P100", "e": "V100M32|"}
    text = PODS + "".join(f"{n},1000,1024,1,1000,{s},LS,Running,0,10,0\n" for n, s in specs.items())
    workload = read(tmp_path, "openb_pod_list_x.csv", text)
    assert workload.cluster is not None
    run = Played(workload, workload.cluster, Fifo(head_of_line=False)).run()
    kinds = {
        name: workload.cluster.nodes[run.devices(name)[0]].gpus[0][0]
        for name in "abce"  # one device a node, so devices and nodes have one numbering
    }
    assert (kinds["a"], kinds["c"], kinds["e"]) == ("V100M32", "G2", "V100M32")
    assert run.end_s("b") is not None
    (turned_away,) = run.of("d", ev.Rejected)
    assert turned_away.reason == "device-type"
    assert turned_away.facts["needs_types"] == ["P100"]
    assert "V100M32" in turned_away.facts["cluster_types"]


def test_c11_nothing_is_decided_on_memory_that_nobody_knows() -> None:
    """C11: on a device of unknown memory a job runs, alone; sharing is not offered."""
    h = Harness("1x1", BestFit(), memory_bytes=0)
    for name in "ab":
        h.submit(name, memory_bytes=1000 * GIB, compute_milli=100, runs_s=10.0)
    run = h.run()
    assert (run.start_s("a"), run.start_s("b")) == (0.0, 10.0)


def test_c12_a_tenant_without_capacity_today_waits_for_midnight() -> None:
    """C12: y waits for vB's first devices; x runs on when vA shrinks (the rule: finish)."""
    midnight = 24 * HOUR
    tenants = (Tenant(name="vA", limit_gpus=8), Tenant(name="vB", limit_gpus=0))
    cluster = Cluster.uniform(12, gpus_per_node=12, tenants=tenants)
    h = Harness(cluster, Fifo(head_of_line=False))
    h.submit("y", tenant="vB", gpus=4, at_s=12 * HOUR, runs_s=HOUR)
    h.submit("x", tenant="vA", gpus=8, at_s=23 * HOUR, runs_s=2 * HOUR)
    h.submit("w", tenant="vA", gpus=4, at_s=24.5 * HOUR, runs_s=HOUR)
    h.happen(ev.TenantLimitChanged(midnight, "vA", 4))
    h.happen(ev.TenantLimitChanged(midnight, "vB", 4))
    run = h.run()
    assert run.reasons("y") == [Reason.TENANT_CAPACITY_ZERO]
    assert run.start_s("y") == midnight
    assert (run.start_s("x"), run.end_s("x")) == (23 * HOUR, 25 * HOUR)
    # vA may hold 4 from midnight on and holds 8 until 25 h.
    assert run.reasons("w") == [Reason.TENANT_LIMIT]
    assert run.start_s("w") == 25 * HOUR


def test_c16_80_gb_is_not_80_gib() -> None:
    """C16: each request against a device of 81,559 MiB, with the one echo used everywhere."""
    device = 81_559 * MIB
    requests = {"80GiB": 81_920 * MIB, "80GB": 80 * 10**9, "79.6GiB": 85_469_849_191, "81559MiB": device}
    for text, size in requests.items():
        assert parse_bytes(text) == size
    assert [format_bytes(parse_bytes(t)) for t in requests] == [
        "81,920 MiB",
        "76,294 MiB",
        "81,511 MiB",
        "81,559 MiB",
    ]
    with pytest.raises(QuantityError, match="has no unit; write 81559MiB"):
        parse_bytes("81559")
    assert parse_bytes("81559", unit="MiB") == device
    assert parse_bytes("80g") == parse_bytes("80GiB")
    h = Harness("1x1", Fifo(), memory_bytes=device)
    for name, size in requests.items():
        h.submit(name, memory_bytes=size, runs_s=1.0)
    run = h.run()
    (never,) = run.of("80GiB", ev.Rejected)
    assert (never.reason, never.facts) == (
        "never-fits",
        {"needs_bytes": 81_920 * MIB, "largest_device_bytes": device},
    )
    assert {n for n in requests if run.end_s(n) is not None} == set(requests) - {"80GiB"}


ONE_AT_A_TIME = ("backfill", "best-fit", "colocate", "fifo", "first-fit", "sjf", "srtf")


@pytest.mark.parametrize("policy", registry.names("policy"))
def test_c30_two_gangs_never_hold_a_part_each(policy: str) -> None:
    """C30: one gang runs whole, then the other; the waiting one holds nothing (invariants)."""
    h = Harness("4x1", registry.load("policy", policy)(), forecast=FixedForecast())
    h.submit("one", gpus=4, runs_s=600.0)
    h.submit("two", gpus=4, runs_s=600.0)
    run = h.run()
    ends = sorted([run.end_s("one"), run.end_s("two")])  # type: ignore[type-var]
    assert len(ends) == 2
    if policy in ONE_AT_A_TIME:
        assert ends == [600.0, 1200.0]
    assert ends[1] >= 1200.0  # type: ignore[operator]
    for event in run.events:
        if isinstance(event, ev.Started):
            assert event.devices == (0, 1, 2, 3)


@pytest.mark.parametrize("policy", registry.names("policy"))
def test_c32_a_gang_larger_than_the_cluster_is_turned_away_at_once(policy: str) -> None:
    """C32 (a), by every policy: never fits, said at submission, and nobody else waits for it."""
    h = Harness("1x4", registry.load("policy", policy)(), forecast=FixedForecast())
    h.submit("big", gpus=5, runs_s=10.0)
    h.submit("next", gpus=4, runs_s=10.0)
    run = h.run()
    (turned_away,) = run.of("big", ev.Rejected)
    assert (turned_away.t, turned_away.reason) == (0.0, "never-fits")
    assert turned_away.facts == {"needs_gpus": 5, "cluster_gpus": 4}
    assert (run.start_s("next"), run.end_s("next")) == (0.0, 10.0)


def test_c43_failed_devices_are_offered_to_nobody_and_a_refresh_changes_nothing() -> None:
    """C43: a job keeps the six good devices, two fail; draining and undraining frees nothing."""
    h = Harness("1x8", Fifo())
    h.submit("p0", gpus=6, runs_s=100.0)
    h.submit("p1", gpus=6, at_s=20.0, runs_s=10.0)
    h.happen(ev.DeviceDown(10.0, 6))
    h.happen(ev.DeviceDown(10.0, 7))
    h.happen(ev.Drained(30.0, 0))
    h.happen(ev.Undrained(31.0, 0))
    run = h.run()
    assert run.end_s("p0") == 100.0
    (held,) = run.of("p1", ev.Held)
    assert held.facts == {"needs_gpus": 6, "free_gpus": 0, "largest_block_gpus": 0}
    assert (run.start_s("p1"), run.devices("p1")) == (100.0, (0, 1, 2, 3, 4, 5))
    # The other rule: a job that held a failed device loses its attempt and waits for eight.
    h = Harness("1x8", Fifo(head_of_line=False))
    h.submit("p0", gpus=8, runs_s=100.0)
    h.submit("p1", gpus=6, at_s=20.0, runs_s=10.0)
    h.happen(ev.DeviceDown(10.0, 6))
    h.happen(ev.DeviceUp(200.0, 6))
    run = h.run()
    assert [(e.t, e.outcome, e.final) for e in run.of("p0", ev.Ended)] == [
        (10.0, "lost", False),
        (300.0, "done", True),
    ]
    assert run.start_s("p1") == 20.0


def test_a_device_that_is_set_aside_takes_nobody_new_and_disturbs_nobody() -> None:
    h = Harness("1x2", Fifo(head_of_line=False))
    h.submit("there", runs_s=100.0)
    h.submit("beside", runs_s=10.0)
    h.submit("next", at_s=15.0, runs_s=10.0)
    h.submit("both", gpus=2, at_s=16.0, runs_s=10.0)
    h.happen(ev.Drained(5.0, 0, device=1))
    h.happen(ev.DeviceDown(120.0, 1))
    h.happen(ev.DeviceUp(130.0, 1))
    h.happen(ev.Drained(140.0, 0))
    h.happen(ev.Undrained(200.0, 0, device=1))
    h.happen(ev.Undrained(210.0, 0))
    run = h.run()
    assert (run.devices("there"), run.devices("beside"), run.end_s("beside")) == ((0,), (1,), 10.0)
    assert (run.start_s("next"), run.devices("next")) == (100.0, (0,)), "the other device is free from 10 on"
    # Neither its return after a failure nor its own undraining opens it: both must be over.
    assert (run.start_s("both"), run.devices("both")) == (210.0, (0, 1))


class _Counted:
    """Counts how often a policy is asked."""

    def __init__(self, policy: object) -> None:
        self.policy, self.calls = policy, 0

    def decide(self, view: View) -> Plan:
        self.calls += 1
        return self.policy.decide(view)  # type: ignore[attr-defined, no-any-return]


def _crowd(policy: object, jobs: int) -> tuple[Harness, _Counted]:
    """Nodes of X are full for 1,000 s and all but one of the waiting jobs want X."""
    types = (DeviceType(name="x", memory_bytes=16 * GIB), DeviceType(name="y", memory_bytes=16 * GIB))
    nodes = tuple(Node(name=f"n{i}", gpus=(("xy"[i % 2], 8),)) for i in range(10))
    counted = _Counted(policy)
    h = Harness(Cluster(nodes=nodes, types=types), counted)
    for i in range(40):
        h.submit(f"{i:07}", device_types=["x"], runs_s=1000.0)
    for i in range(40, jobs):
        kind = "y" if i == jobs // 2 else "x"
        h.submit(f"{i:07}", at_s=1.0, device_types=[kind], runs_s=0.0, gpus=1 if kind == "y" else 8)
    return h, counted


PASSING = ("backfill", "best-fit", "first-fit", "fifo:head_of_line=false")


@pytest.mark.parametrize("policy", PASSING)
def test_c72_a_job_that_fits_starts_at_once_behind_thousands_that_do_not(policy: str) -> None:
    """C72, with 5,000 waiting: the one in the middle starts the moment it is known, and the policy is
    asked once for each event or start, not once for each waiting job."""
    from cotenant.runs.spec import build_policy, parse_policy

    h, counted = _crowd(build_policy(parse_policy(policy)), 5000)
    run = h.run(invariants=False)
    middle = f"{2500:07}"
    assert run.start_s(middle) == 1.0
    assert run.start_s(f"{41:07}") == 1000.0
    assert run.state.counts["done"] == 5000
    instants = len({e.t for e in run.events})
    starts = sum(isinstance(e, ev.Started) for e in run.events)
    # Each start may be followed by one more call, and zero-length jobs make instants of their own.
    assert counted.calls <= 2 * (starts + instants) + 1000


def test_c72_cancelling_all_of_thousands_leaves_an_empty_queue() -> None:
    """C72: cancel all, with 20,000 waiting."""
    h, _ = _crowd(Fifo(), 20_000)
    for i in range(20_000):
        h.happen(ev.CancelRequested(10.0, i))
    run = h.run(invariants=False)
    assert run.state.counts["cancelled"] == 20_000
    assert (len(run.state.queue), len(run.state.records), run.state.now) == (0, 0, 10.0)


def _run_nothing(cluster: Cluster, *, jobs: int) -> HarnessRun:
    h = Harness(cluster, Fifo())
    for i in range(jobs):
        h.submit(f"j{i}", gpus=i)
    return h.run()


def test_c73_nothing_at_all_is_a_valid_run() -> None:
    """C73: no jobs, no nodes, no GPUs; CPU jobs alone."""
    run = _run_nothing(Cluster.uniform(1), jobs=0)
    assert [type(e) for e in run.events] == [ev.Opened, ev.Closed]
    run = _run_nothing(Cluster(nodes=(), types=()), jobs=3)
    assert [e.reason for e in run.events if isinstance(e, ev.Rejected)] == ["never-fits"] * 3
    assert run.state.counts["rejected"] == 3
    run = _run_nothing(Cluster(nodes=(Node(name="n"),), types=()), jobs=3)
    assert run.end_s("j0") == 1.0  # a CPU job, and the node declares no limit
    assert run.state.counts["rejected"] == 2


@pytest.mark.parametrize("policy", registry.names("policy"))
def test_c69_time_before_the_first_arrival_and_gaps_cost_no_events(policy: str) -> None:
    """C69 (a, c): shifted by a day and with a month between, the same waits and no stepping."""
    h = Harness("1x2", registry.load("policy", policy)(), forecast=FixedForecast())
    month = 30 * 24 * HOUR
    for i, at in enumerate((86_400.0, 86_400.0, 86_400.0, 86_400.0 + month)):
        h.submit(f"j{i}", at_s=at, gpus=1, runs_s=100.0)
    run = h.run()
    assert run.end_s("j3") == 86_500.0 + month
    assert max(run.end_s(f"j{i}") or 0.0 for i in range(3)) <= 86_400.0 + 400.0
    assert len(run.events) < 120
