"""The books and their index under random changes, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.ledger import Ledger, low_bits
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.model.shape import Shape, find_whole

BIG, SMALL = DeviceType(name="big", memory_bytes=40 * GIB), DeviceType(name="small", memory_bytes=16 * GIB)
CLUSTER = Cluster(
    types=(BIG, SMALL),
    nodes=(
        Node(name="n0", gpus=(("big", 4),), cpu_milli=64000, host_memory_bytes=100 * GIB),
        Node(name="n1", gpus=(("big", 1), ("small", 2))),
        Node(name="n2", gpus=(("small", 8),), cpu_milli=32000),
    ),
)


@dataclass
class Books:
    """A ledger, and beside it a plain account of the same changes."""

    ledger: Ledger
    held: dict[int, tuple[Placement, int, int]] = field(default_factory=dict)
    leaving: dict[int, Placement] = field(default_factory=dict)
    reserved: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def residents(self, device: int) -> list[int]:
        on = [j for j, (p, _, _) in self.held.items() if device in p.devices]
        return sorted(on + [j for j, p in self.leaving.items() if device in p.devices])

    def check(self) -> None:
        """The index agrees with the books, the books with the account."""
        ledger = self.ledger
        assert ledger.index_errors() == []
        for device, capacity in enumerate(ledger.layout.device_memory):
            on = self.residents(device)
            assert list(ledger.residents[device]) == on
            shares = [ledger.share_on(j, device) for j in on]
            if any(s.mode == "exclusive" for s in shares):
                assert (ledger.free_milli[device], ledger.free_memory[device]) == (0, 0)
                continue
            assert ledger.free_milli[device] == 1000 - sum(s.compute_milli for s in shares)
            if shares and shares[0].mode == "time-sliced":
                assert ledger.free_memory[device] == capacity - max(s.memory_bytes for s in shares)
            else:
                assert ledger.free_memory[device] == capacity - sum(s.memory_bytes for s in shares)
        self.check_index()

    def check_index(self) -> None:
        """What the index answers equals a walk over the devices."""
        ledger, layout = self.ledger, self.ledger.layout
        owned = {d for devices in self.reserved.values() for d in devices}
        free: dict[int, int] = {}
        for bay, (first, size) in enumerate(zip(layout.bay_first, layout.bay_size, strict=True)):
            free[bay] = sum(
                ledger.usable[d]
                and not ledger.draining[layout.bay_node[bay]]
                and not self.residents(d)
                and d not in owned
                for d in range(first, first + size)
            )
        for kind in range(2):
            bays = layout.type_bays[kind]
            assert ledger.free_count[kind] == sum(free[b] for b in bays)
            assert ledger.largest_block(kind) == max(free[b] for b in bays)
            roomy = [b for b in bays if free[b] > 0]
            assert list(ledger.bays_by_most_room(kind)) == sorted(roomy, key=lambda b: (-free[b], b))
            for gpus in range(1, 10):
                fitting = [b for b in bays if free[b] >= gpus]
                tightest = sorted(fitting, key=lambda b: (free[b], b))
                assert ledger.tightest_bay(kind, gpus) == (tightest[0] if fitting else -1)
                assert ledger.lowest_bay(kind, gpus) == (fitting[0] if fitting else -1)
                assert list(ledger.bays_by_room(kind, gpus)) == tightest


@st.composite
def changes(draw: st.DrawFn) -> Books:
    """Up to 30 random legal changes, each followed by the check."""
    books = Books(Ledger(Layout(CLUSTER)))
    ledger, count = books.ledger, books.ledger.layout.device_count
    kinds = ("whole", "whole", "spatial", "sliced", "vacate", "move", "moved", "reserve", "drain", "fail")
    for job in range(draw(st.integers(1, 30))):
        what = draw(st.sampled_from(kinds))
        devices = tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))))
        if what in ("whole", "spatial", "sliced"):
            place = Placement(devices, draw(_shares(what)))
            if _has_room(ledger, place):
                cpu, host = draw(st.sampled_from([(0, 0), (1000, 0), (777, 5 * GIB)]))
                ledger.occupy(job, place, cpu, host)
                books.held[job] = (place, cpu, host)
        elif what == "vacate" and books.held:
            victim = draw(st.sampled_from(sorted(books.held)))
            place, cpu, host = books.held.pop(victim)
            if victim in books.leaving:
                ledger.end_move(victim)
                del books.leaving[victim]
            assert ledger.vacate(victim, cpu, host) == place
        elif what == "move" and books.held:
            mover = draw(st.sampled_from(sorted(books.held)))
            old, cpu, host = books.held[mover]
            place = Placement(devices)
            if (
                mover not in books.leaving
                and _has_room(ledger, place)
                and not set(devices) & set(old.devices)
            ):
                ledger.begin_move(mover, place, cpu, host)
                books.held[mover], books.leaving[mover] = (place, cpu, host), old
        elif what == "moved" and books.leaving:
            mover = draw(st.sampled_from(sorted(books.leaving)))
            ledger.end_move(mover)
            del books.leaving[mover]
        elif what == "reserve":
            owner = 1000 + draw(st.integers(0, 2))
            others = {d for o, ds in books.reserved.items() if o != owner for d in ds}
            mine = () if draw(st.booleans()) else tuple(d for d in devices if d not in others)
            ledger.set_reserved(owner, mine, books.reserved.get(owner, ()))
            books.reserved[owner] = mine
        elif what == "drain":
            ledger.set_draining(draw(st.integers(0, 2)), draw(st.booleans()))
        elif what == "fail":
            ledger.set_usable(devices, draw(st.booleans()))
        books.check()
    return books


def _shares(what: str) -> st.SearchStrategy[Share]:
    if what == "whole":
        return st.just(WHOLE)
    mode = "spatial" if what == "spatial" else "time-sliced"
    return st.builds(
        lambda gib, milli: Share(mode, gib * GIB, milli),  # type: ignore[arg-type]
        st.integers(1, 16),
        st.sampled_from([0, 100, 333, 500]),
    )


def _has_room(ledger: Ledger, place: Placement) -> bool:
    """The rules in small: what may be written into the books at all."""
    for d in place.devices:
        modes = {ledger.share_on(j, d).mode for j in ledger.residents[d]}
        if modes and (place.share.mode == "exclusive" or modes != {place.share.mode}):
            return False
        if place.share.mode == "exclusive":
            continue
        if place.share.compute_milli > ledger.free_milli[d]:
            return False
        if place.share.mode == "spatial" and place.share.memory_bytes > ledger.free_memory[d]:
            return False
    return True


@settings(max_examples=100, deadline=None)
@given(changes())
def test_books_and_index_agree_after_every_change_and_are_whole_again_at_the_end(books: Books) -> None:
    ledger = books.ledger
    for mover in sorted(books.leaving):
        ledger.end_move(mover)
    for job, (_, cpu, host) in books.held.items():
        ledger.vacate(job, cpu, host)
    for owner, devices in books.reserved.items():
        ledger.set_reserved(owner, (), devices)
    ledger.set_usable(range(ledger.layout.device_count), True)
    for node in range(3):
        ledger.set_draining(node, False)
    fresh = Ledger(Layout(CLUSTER))
    for name in ("free_milli", "free_memory", "residents", "whole", "free_count", "free_cpu", "free_host"):
        assert getattr(ledger, name) == getattr(fresh, name), name
    assert ledger.index_errors() == []


@given(st.integers(1, 2**12 - 1), st.data())
def test_the_lowest_bits_are_the_lowest(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, mask.bit_count()))
    expected = [i for i in range(12) if mask >> i & 1][:count]
    assert low_bits(mask, count) == sum(1 << i for i in expected)


def test_the_index_check_finds_a_wrong_bit() -> None:
    ledger = Ledger(Layout(CLUSTER))
    ledger.whole[0] = 0b0111
    assert ledger.index_errors() == [
        "bay 0: index 111, books 1111",
        "type 0, count 3: bit sets differ",
        "type 0, count 4: bit sets differ",
        "type 0: free count 5",
    ]


def test_host_needs_are_split_in_proportion_and_rounded_up() -> None:
    """1,000 milli over 2 + 1 devices: 666.7 and 333.3, hence 667 and 334; giving back is the exact mirror."""
    ledger = Ledger(Layout(CLUSTER))
    place = Placement((2, 3, 4))
    assert list(ledger.host_parts(place, 1000, 10)) == [(0, 667, 7), (1, 334, 4)]
    assert list(ledger.host_parts(place, -1000, -10)) == [(0, -667, -7), (1, -334, -4)]
    assert list(ledger.host_parts(Placement((0, 1)), 1001, 3)) == [(0, 1001, 3)]
    assert list(ledger.host_parts(Placement((), node=2), 500, 9)) == [(2, 500, 9)]
    ledger.occupy(1, place, 1000, 10)
    assert ledger.free_cpu[0] == 64000 - 667
    ledger.vacate(1, 1000, 10)
    assert ledger.free_cpu == [64000, 0, 32000]
    assert ledger.free_host[0] == 100 * GIB


@given(st.integers(0, 10**9), st.sets(st.integers(0, 14), min_size=1, max_size=8))
def test_host_parts_cover_the_need_and_exceed_it_by_less_than_a_unit_a_node(
    cpu: int, devices: set[int]
) -> None:
    ledger = Ledger(Layout(CLUSTER))
    place = Placement(tuple(sorted(devices)))
    parts = list(ledger.host_parts(place, cpu, cpu))
    assert cpu <= sum(c for _, c, _ in parts) < cpu + max(1, len(parts))
    assert all(isinstance(c, int) for _, c, _ in parts)


def test_ten_tenths_make_exactly_one() -> None:
    """C20: ten shares of 0.1, and 3 x 0.3333 + 0.0001, leave exactly 0; 0.1 + 0.2 + 0.7 too."""
    for parts in ([100] * 10, [333, 333, 333, 1], [100, 200, 700]):
        ledger = Ledger(Layout(CLUSTER))
        for job, milli in enumerate(parts):
            ledger.occupy(job, Placement((0,), Share("spatial", GIB, milli)))
        assert ledger.free_milli[0] == 0
        for job in range(len(parts)):
            ledger.vacate(job)
        assert (ledger.free_milli[0], ledger.free_memory[0]) == (1000, 40 * GIB)


# -- the search for whole devices ------------------------------------------------------


def shape(span: str = "larger-than-node", **fields: object) -> Shape:
    job = Job(0, "a", 0.0, **fields)  # type: ignore[arg-type]
    return Shape(0, job, Layout(CLUSTER), Settings(gang_span=span))  # type: ignore[arg-type]


def taken(*devices: int) -> Ledger:
    ledger = Ledger(Layout(CLUSTER))
    for device in devices:
        ledger.occupy(device, Placement((device,)))
    return ledger


def test_the_tightest_node_is_chosen_and_in_it_the_lowest_devices() -> None:
    # Types are equally fast, so "big" (declared first) is tried first: bay 1 has 1, bay 0 has 4 free.
    assert find_whole(taken(), shape(gpus=1)) == (4,)
    assert find_whole(taken(0, 2, 4), shape(gpus=1)) == (1,)
    # Two do not fit on a big bay when three of node 0 are taken: node 1 has 2 small, node 2 has 8.
    assert find_whole(taken(0, 1, 2), shape(gpus=2)) == (5, 6)
    assert find_whole(taken(0, 1, 2, 5), shape(gpus=2)) == (7, 8)


def test_the_lowest_node_wins_among_equally_tight_ones() -> None:
    layout = Layout(Cluster.uniform(24, gpus_per_node=8))
    ledger = Ledger(layout)
    for device in (8, 16):
        ledger.occupy(device, Placement((device,)))
    wanted = Shape(0, Job(0, "a", 0.0, gpus=3), layout, Settings())
    assert find_whole(ledger, wanted) == (9, 10, 11)


def test_gangs_span_as_the_setting_says() -> None:
    # Big: 4 on node 0 and 1 on node 1; 5 fit no single node of big devices, but small has 8.
    assert find_whole(taken(), shape(gpus=5)) == (7, 8, 9, 10, 11)
    only_big = {"gpus": 5, "device_types": ("big",)}
    assert find_whole(taken(), shape("never", **only_big)) is None
    assert shape("never", **only_big).never is not None
    for span in ("larger-than-node", "any"):
        assert find_whole(taken(), shape(span, **only_big)) == (0, 1, 2, 3, 4)
    # 4 big fit node 0; while device 0 is taken only "any" goes to two nodes: 3 of node 0, 1 of node 1.
    four = {"gpus": 4, "device_types": ("big",)}
    assert find_whole(taken(0), shape("larger-than-node", **four)) is None
    assert find_whole(taken(0), shape("any", **four)) == (1, 2, 3, 4)


def test_a_spanning_gang_takes_the_roomiest_nodes_and_the_rest_in_the_tightest() -> None:
    layout = Layout(Cluster.uniform(24, gpus_per_node=8))
    ledger = Ledger(layout)
    for device in range(8, 14):  # node 1 has 2 left
        ledger.occupy(device, Placement((device,)))
    wanted = Shape(0, Job(0, "a", 0.0, gpus=10), layout, Settings())
    assert find_whole(ledger, wanted) == (*range(8), 14, 15)


def test_a_job_that_asks_for_much_memory_gets_the_large_card_of_a_mixed_node() -> None:
    """C19: capacity belongs to devices; 20 GiB fit the big card of node 1 only."""
    ledger = taken(0, 1, 2, 3)
    assert find_whole(ledger, shape(gpus=1, memory_bytes=20 * GIB)) == (4,)
    assert find_whole(taken(0, 1, 2, 3, 4), shape(gpus=1, memory_bytes=20 * GIB)) is None
    assert shape(gpus=1, memory_bytes=41 * GIB).never is not None


def test_nodes_without_the_host_share_are_passed_over() -> None:
    # 60 cores for 2 devices: node 2 declares 32, node 1 none, so nothing is decided on it there.
    wanted = shape(gpus=2, cpu_milli=60000, device_types=("small",))
    assert find_whole(taken(), wanted) == (5, 6)
    assert find_whole(taken(5), wanted) is None


def test_host_needs_that_no_node_can_meet_are_said_at_once() -> None:
    # Node 0 declares 64 cores and 100 GiB, node 2 declares 32 cores, node 1 nothing at all.
    asked = {"device_types": ("big",), "cpu_milli": 64001, "host_memory_bytes": 0}
    assert shape(gpus=1, **asked).never is None  # node 1 has a big card and declares no limit
    found = shape(gpus=2, **asked).never
    assert found is not None
    reason, facts = found
    assert reason.value == "never-fits"
    assert facts == {"needs_gpus": 2, "needs_cpu_milli": 64001, "largest_node_cpu_milli": 64000}
    assert shape(gpus=2, **{**asked, "cpu_milli": 64000}).never is None
    # Two devices over nodes 0 and 1: 32,001 on each (rounded up), which node 0 has.
    assert shape("any", gpus=2, **asked).never is None
    assert find_whole(taken(), shape("any", gpus=2, **asked)) == (0, 4)
    found = shape(gpus=0, host_memory_bytes=10**15, cpu_milli=0).never
    assert found is None  # a CPU-only job may go to nodes that declare no memory


def test_a_job_whose_host_needs_are_never_met_blocks_nobody() -> None:
    from cotenant.policies.fifo import Fifo
    from cotenant.testing import Harness

    cluster = Cluster(types=(BIG,), nodes=(Node(name="n", gpus=(("big", 2),), cpu_milli=8000),))
    h = Harness(cluster, Fifo())
    h.submit("a", cpu_milli=8001)
    h.submit("b", cpu_milli=8000, runs_s=5.0)
    run = h.run()
    assert (run.end_s("a"), run.end_s("b")) == (None, 5.0)
    assert run.state.counts["rejected"] == 1
