"""Best fit and first fit: published mistakes as cases, and an exhaustive reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.placement import WHOLE, Share
from cotenant.model.plan import EMPTY, Plan, Reason, Start
from cotenant.model.quantities import parse_milli
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_start
from cotenant.model.settings import Settings
from cotenant.model.shape import find_whole
from cotenant.model.view import View
from cotenant.policies.packing import BestFit, FirstFit
from cotenant.policies.queues.demands import domain_of
from cotenant.policies.space.sharing import Known
from cotenant.testing import FixedTruth, Harness, HarnessRun

from .sharing_jobs import GIB, MIB, check, clusters, jobs, play, settings

BOTH = pytest.mark.parametrize("policy", [BestFit(), FirstFit()], ids=["best-fit", "first-fit"])
GAPS = pytest.mark.parametrize("gap_s", [0.0, 1.0], ids=["together", "one-by-one"])


def started(run: HarnessRun, before_s: float) -> list[str]:
    """Names of jobs started before a time, in order."""
    names = {number: name for name, number in run.ids.items()}
    return [names[e.id] for e in run.events if isinstance(e, ev.Started) and e.t < before_s]


def free_at_end(run: HarnessRun) -> bool:
    """Every device as at the start."""
    ledger = run.state.ledger
    return ledger.free_milli == [1000] * len(ledger.free_milli) and ledger.free_memory == list(
        ledger.layout.device_memory
    )


@BOTH
@GAPS
def test_three_halves_on_one_card(policy: Any, gap_s: float) -> None:
    """C15: 24,576 MiB hold two jobs of 12,288; the third is told the largest hole: 0."""
    h = Harness("1x1", policy, memory_bytes=24_576 * MIB)
    for i in range(3):
        h.submit(f"j{i}", at_s=i * gap_s, memory_bytes=12_288 * MIB, runs_s=100.0)
    run = h.run()
    assert started(run, 50.0) == ["j0", "j1"]
    held = run.of("j2", ev.Held)[0]
    assert (held.reason, held.facts) == (
        Reason.MEMORY,
        {"needs_bytes": 12_288 * MIB, "largest_hole_bytes": 0},
    )
    assert run.start_s("j2") == 100.0
    assert free_at_end(run)


def test_two_different_cards_in_one_node() -> None:
    """C19: 20,000 and 16,000 on A, 15,000 on B, the second 15,000 waits for a hole of 10,068."""
    kinds = (DeviceType(name="A", memory_bytes=46_068 * MIB), DeviceType(name="B", memory_bytes=15_360 * MIB))
    node = Node(name="n1", gpus=(("A", 1), ("B", 1)))
    h = Harness(Cluster(nodes=(node,), types=kinds), BestFit())
    for name, need in (("a", 20_000), ("b", 16_000), ("c", 15_000), ("d", 15_000)):
        h.submit(name, memory_bytes=need * MIB, runs_s=100.0)
    run = h.run()
    assert [run.devices(n) for n in "abc"] == [(0,), (0,), (1,)]
    held = run.of("d", ev.Held)[0]
    assert held.facts == {"needs_bytes": 15_000 * MIB, "largest_hole_bytes": 10_068 * MIB}
    assert run.start_s("d") == 100.0


def tenths(milli: list[int], cluster: str = "1x1", sharers: int = 16) -> Harness:
    """Jobs of 1 GiB on devices of 80 GiB, so that compute alone decides."""
    h = Harness(cluster, BestFit(), settings=Settings(max_sharers=sharers), memory_bytes=80 * GIB)
    for i, m in enumerate(milli):
        h.submit(f"j{i}", memory_bytes=GIB, compute_milli=m, runs_s=100.0)
    return h


def test_ten_tenths_make_one() -> None:
    """C20 (a): ten of eleven run, and nothing is left over."""
    h = tenths([100] * 11)
    run = h.run()
    assert len(started(run, 50.0)) == 10
    held = run.of("j10", ev.Held)[0]
    assert (held.reason, held.facts) == (Reason.COMPUTE, {"needs_milli": 100, "most_free_milli": 0})
    assert run.start_s("j10") == 100.0
    assert free_at_end(run)


def test_thirds_and_a_crumb() -> None:
    """C20 (b) in thousandths: 333 + 333 + 333 + 1 = 1000."""
    run = tenths([333, 333, 333, 1]).run()
    assert len(started(run, 50.0)) == 4
    assert free_at_end(run)


def test_eighty_jobs_of_18_hundredths() -> None:
    """C20 (c): five per device (900 of 1000) on 16 devices; all eighty run at once."""
    run = tenths([180] * 80, "2x8").run()
    assert len(started(run, 50.0)) == 80
    per_device = [
        sum(1 for e in run.events if isinstance(e, ev.Started) and e.devices == (d,)) for d in range(16)
    ]
    assert per_device == [5] * 16
    assert free_at_end(run)


def test_a_share_below_the_smallest() -> None:
    """C20 (d): the error names the smallest share."""
    with pytest.raises(Exception, match=r"0\.001"):
        parse_milli("0.00001")


def test_a_tenth_two_tenths_seven_tenths() -> None:
    """C20 (e): 100 + 200 + 700 = 1000."""
    run = tenths([100, 200, 700]).run()
    assert len(started(run, 50.0)) == 3


def test_pack_and_spread() -> None:
    """C25: pack uses one device, spread three; the log says which decided."""
    used = {}
    for order in ("pack", "spread"):
        h = Harness("1x8", BestFit(order=order), memory_bytes=80 * GIB)  # type: ignore[arg-type]
        for i in range(3):
            h.submit(f"j{i}", memory_bytes=GIB, compute_milli=200, runs_s=10.0)
        run = h.run()
        used[order] = {run.devices(f"j{i}") for i in range(3)}
        rules = {e.why.rule for e in run.events if isinstance(e, ev.Started)}
        assert rules == {"least-memory-left" if order == "pack" else "fewest-sharers"}
    assert used == {"pack": {(0,)}, "spread": {(0,), (1,), (2,)}}


def test_an_unknown_order_is_refused() -> None:
    """C25: the valid words, and the one that was meant."""
    with pytest.raises(ConfigError, match=r'pack, spread, found "pakc"; did you mean "pack"'):
        BestFit(order="pakc")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r'pack, spread, found \'pakc\'; did you mean "pack"'):
        BestFit.from_strings({"order": "pakc"})


@BOTH
@GAPS
def test_five_tens_into_four_twenty_threes(policy: Any, gap_s: float) -> None:
    """C26: two per device, so five jobs use three devices; the same however they arrive."""
    h = Harness("1x4", policy, memory_bytes=23 * GIB)
    for i in range(5):
        h.submit(f"j{i}", at_s=i * gap_s, memory_bytes=10 * GIB, runs_s=100.0)
    run = h.run()
    assert len(started(run, 50.0)) == 5
    assert sorted(run.devices(f"j{i}") for i in range(5)) == [(0,), (0,), (1,), (1,), (2,)]


@BOTH
def test_two_shares_are_two_devices(policy: Any) -> None:
    """C28: a gang of two never gets one device twice.

    It shares only with gangs on the same devices, so beside a half-used device it waits for
    two free ones; a second gang of two halves then joins the first on both.
    """
    h = Harness("1x4", policy, memory_bytes=24 * GIB)
    h.submit("half", memory_bytes=GIB, compute_milli=500, runs_s=100.0)
    h.submit("gang", at_s=1.0, gpus=2, memory_bytes=GIB, compute_milli=500, runs_s=100.0)
    h.submit("gang2", at_s=2.0, gpus=2, memory_bytes=GIB, compute_milli=500, runs_s=100.0)
    h.submit("whole", at_s=3.0, gpus=1, sharing="exclusive", runs_s=10.0)
    run = h.run()
    assert run.devices("half") == (0,)
    assert run.devices("gang") == run.devices("gang2") == (1, 2)
    assert run.devices("whole") == (3,)
    assert run.start_s("gang2") == 2.0


def test_unknown_memory_and_exclusive_get_whole_devices() -> None:
    """Nobody joins them, and they join nobody."""
    h = Harness("1x3", BestFit(), memory_bytes=24 * GIB)
    h.submit("unknown", runs_s=100.0)
    h.submit("alone", at_s=1.0, memory_bytes=GIB, sharing="exclusive", runs_s=100.0)
    h.submit("a", at_s=2.0, memory_bytes=GIB, runs_s=100.0)
    h.submit("b", at_s=3.0, memory_bytes=GIB, runs_s=100.0)
    run = h.run()
    assert [run.devices(n) for n in ("unknown", "alone", "a", "b")] == [(0,), (1,), (2,), (2,)]
    assert [run.of(n, ev.Started)[0].share is None for n in ("unknown", "alone", "a", "b")] == [
        True,
        True,
        False,
        False,
    ]


def test_an_undeclared_share_guarantees_nothing_and_limits_nothing() -> None:
    """Beside each other both run at the measured speed 0.5 until the shorter ends."""
    h = Harness("1x1", BestFit(), memory_bytes=24 * GIB, truth=FixedTruth(default=0.5))
    h.submit("a", memory_bytes=GIB, model="m", runs_s=100.0)
    h.submit("b", memory_bytes=GIB, model="m", runs_s=50.0)
    run = h.run()
    share = run.of("a", ev.Started)[0].share
    assert (share.mode, share.memory_bytes, share.compute_milli, share.compute_limit_milli) == (
        "spatial",
        GIB,
        0,
        1000,
    )
    # b: 50 s of work at 0.5 ends at 100; a has done 50 of 100 and goes on alone.
    assert (run.end_s("b"), run.end_s("a")) == (100.0, 150.0)


def test_domains_do_not_mix() -> None:
    """Trusted jobs share within their tenant, same-owner jobs within their user."""
    h = Harness("1x4", BestFit(), memory_bytes=24 * GIB)
    for i, (sharing, tenant, user) in enumerate(
        [
            ("any", "t", "u"),
            ("trusted", "t", "u"),
            ("trusted", "t", "v"),
            ("same-owner", "t", "u"),
            ("same-owner", "t", "v"),
            ("any", "z", ""),
            ("same-owner", "t", "u"),
        ]
    ):
        h.submit(f"j{i}", memory_bytes=GIB, sharing=sharing, tenant=tenant, user=user, runs_s=100.0)
    run = h.run()
    assert [run.devices(f"j{i}")[0] for i in range(7)] == [0, 1, 1, 2, 3, 0, 2]


def test_a_blocked_demand_lets_others_pass_and_a_ceiling_blocks_its_tenant_alone() -> None:
    """20 GiB do not fit beside 8; 8 GiB do. The tenant at its ceiling waits, others go on."""
    kind = DeviceType(name="gpu", memory_bytes=24 * GIB)
    cluster = Cluster.uniform(1, gpu_type=kind, tenants=(Tenant(name="capped", limit_gpus=1),))
    h = Harness(cluster, BestFit())
    h.submit("a", memory_bytes=8 * GIB, tenant="capped", runs_s=100.0)
    h.submit("b", memory_bytes=8 * GIB, tenant="capped", at_s=1.0, runs_s=10.0)
    h.submit("c", memory_bytes=20 * GIB, at_s=2.0, runs_s=10.0)
    h.submit("d", memory_bytes=8 * GIB, at_s=3.0, runs_s=10.0)
    run = h.run()
    assert run.reasons("b") == [Reason.TENANT_LIMIT]
    assert run.start_s("d") == 3.0
    assert run.start_s("b") == 100.0
    assert run.start_s("c") == 110.0


# -- against a search of everything --------------------------------------------------------


class Reference:
    """Looks at every waiting job and every place, each time anew."""

    def __init__(self, order: str) -> None:
        self.order = order

    def decide(self, view: View) -> Plan:
        """Start the first job that has a place, at its best place."""
        for record in view.queue:
            if record.shape.never or view.limit_refusal(record):
                continue
            if record.shape.gpus == 0:
                node = view.find_node(record)
                if node >= 0:
                    return Plan((Start(record.id, (), node=node),), again=True)
                continue
            found = self.place(view, record)
            if found is not None:
                return Plan((Start(record.id, *found),), again=True)
        return EMPTY

    def place(self, view: View, record: JobRecord) -> Any:
        """Best shared place, else whole devices."""
        job, ledger = record.job, view.ledger
        if domain_of(job):
            milli = job.compute_milli if 0 < job.compute_milli < 1000 else 0
            share = Share(mode="spatial", memory_bytes=job.memory_bytes, compute_milli=milli)
            known = Known(view).of(record.shape)
            best = min(self.places(view, record, share, known), default=None)
            if best is not None:
                return best[1], share
        lowest = self.lowest_block(view, record.shape) if self.order == "first" else None
        devices = lowest or find_whole(ledger, record.shape)
        return None if devices is None else (devices, WHOLE)

    def places(self, view: View, record: JobRecord, share: Any, known: Any) -> Any:
        """Every place with its rank: groups in use, and the free devices that would be taken."""
        job, ledger, layout = record.job, view.ledger, view.layout
        if job.gpus == 1:
            groups = {(d,) for d in range(layout.device_count) if ledger.residents[d]}
        else:
            groups = {
                p.devices
                for p in ledger.held.values()
                if len(p.devices) == job.gpus and p.share.mode == "spatial"
            }
        for group in groups:
            beside = ledger.residents[group[0]]
            if any(ledger.residents[d] != beside for d in group):
                continue
            others = [view.records[j].job for j in beside]
            same_size = job.gpus == 1 or all(o.gpus == job.gpus for o in others)
            if not same_size or any(domain_of(o) != domain_of(job) for o in others):
                continue
            if check_start(view.books, record, group, share) is None:
                yield (
                    self.rank(ledger.free_memory[group[0]], ledger.free_milli[group[0]], len(beside), group),
                    group,
                )
        if known.types:
            free = self.free(view, known)
            if free is not None:
                yield self.rank(layout.device_memory[free[0]], 1000, 0, free), free

    def rank(self, memory: int, milli: int, sharers: int, group: tuple[int, ...]) -> tuple[int, ...]:
        """Smaller is better."""
        if self.order == "pack":
            return (memory, milli, group[0])
        if self.order == "spread":
            return (sharers, -memory, -milli, group[0])
        return (group[0],)

    def lowest_block(self, view: View, shape: Any) -> Any:
        """The first node with enough free devices."""
        if shape.cpu_milli or shape.host_bytes:
            return None
        ledger, layout = view.ledger, view.layout
        for bay in range(len(layout.bay_node)):
            if layout.bay_type[bay] in shape.types and ledger.whole[bay].bit_count() >= shape.gpus:
                first = layout.bay_first[bay]
                free = [first + i for i in range(layout.bay_size[bay]) if ledger.whole[bay] >> i & 1]
                return tuple(free[: shape.gpus])
        return None

    def free(self, view: View, known: Any) -> Any:
        """Free devices by the order's own rule."""
        ledger, layout = view.ledger, view.layout
        plain = not (known.cpu_milli or known.host_bytes)
        if self.order == "first" and (found := self.lowest_block(view, known)):
            return found
        if self.order == "spread" and plain and known.single:
            for kind in reversed(known.types):
                most = max((ledger.whole[b].bit_count() for b in layout.type_bays[kind]), default=0)
                if most >= known.gpus:
                    bay = next(b for b in layout.type_bays[kind] if ledger.whole[b].bit_count() == most)
                    first = layout.bay_first[bay]
                    free = [first + i for i in range(layout.bay_size[bay]) if ledger.whole[bay] >> i & 1]
                    return tuple(free[: known.gpus])
        return find_whole(ledger, known)


def moves(run: HarnessRun) -> list[tuple[Any, ...]]:
    """What was started where, when and how."""
    return [(e.t, e.id, e.devices, e.share, e.node) for e in run.events if isinstance(e, ev.Started)]


POLICIES = {"pack": BestFit(), "spread": BestFit(order="spread"), "first": FirstFit()}


@given(st.sampled_from(sorted(POLICIES)), clusters(), jobs(), settings())
@hyp(max_examples=120, deadline=None)
def test_as_an_exhaustive_search(
    order: str, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings
) -> None:
    """Same jobs, same places, same times; and the contract holds."""
    run = check(POLICIES[order], cluster, rows, rules)
    assert moves(run) == moves(play(Reference(order), cluster, rows, rules))


@given(st.sampled_from(sorted(POLICIES)), jobs(), settings())
@hyp(max_examples=40, deadline=None)
def test_all_at_zero(order: str, rows: list[dict[str, Any]], rules: Settings) -> None:
    """A burst: the same as the exhaustive search."""
    rows = [{**row, "at_s": 0.0} for row in rows]
    cluster = Cluster.uniform(6, gpus_per_node=4, gpu_type=DeviceType(name="g", memory_bytes=24 * GIB))
    run = check(POLICIES[order], cluster, rows, rules)
    assert moves(run) == moves(play(Reference(order), cluster, rows, rules))


@given(st.sampled_from(sorted(POLICIES)), clusters(), jobs(), settings(), st.integers(0, 2))
@hyp(max_examples=60, deadline=None)
def test_with_failures_and_changed_priorities(
    order: str, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings, which: int
) -> None:
    """Nodes fail, drain and return; priorities and ceilings change; indexes still tell the truth."""
    node = which % len(cluster.nodes)
    incidents = (
        ev.NodeDown(1.5, node),
        ev.PriorityChanged(2.0, 0, 5),
        ev.TenantLimitChanged(2.5, "t", 1),
        ev.NodeUp(4.0, node),
        ev.Drained(6.0, node),
        ev.TenantLimitChanged(6.5, "t", None),
        ev.Undrained(9.0, node),
    )
    run = play(POLICIES[order], cluster, rows, rules, incidents)
    assert run.refusals() == []
    assert moves(run) == moves(play(Reference(order), cluster, rows, rules, incidents))
    assert play(POLICIES[order], cluster, rows, rules, incidents, drop_indexes=True).log == run.log
