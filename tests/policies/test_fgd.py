"""Fragmentation gradient descent: the published measure, and the steepest descent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.policies.fgd import Fgd
from cotenant.policies.packing import BestFit
from cotenant.policies.queues.classwise import Offer
from cotenant.policies.queues.demands import Family, domain_of
from cotenant.policies.space.fragments import Device, Fragments, Task
from cotenant.testing import Harness

from .sharing_jobs import GIB, check, clusters, jobs, settings


def shared(milli: int, parts: int = 0) -> Device:
    """A device with a resident."""
    return Device(milli, parts, "any", 3)


EMPTY = Device(1000, 0, "", 4)


def test_a_node_that_lacks_cpu() -> None:
    """All 2,700 free thousandths are useless to 9.33 % of tasks: 251.91, as in the paper's code."""
    tasks = (Task(1, 465, 0, 9.33, cpu_milli=6000), Task(1, 0, 0, 90.67))
    node = (0, 1000, tuple(sorted([shared(200), EMPTY, EMPTY, shared(500)])))
    assert Fragments(tasks, (0,)).of(node) == pytest.approx(251.91)


def test_a_node_that_has_room() -> None:
    """With CPU enough only the 200 on the device too small count: 0.0933 * 200."""
    tasks = (Task(1, 465, 0, 9.33, cpu_milli=6000), Task(1, 0, 0, 90.67))
    node = (0, 6000, tuple(sorted([shared(200), EMPTY, EMPTY, shared(500)])))
    assert Fragments(tasks, (0,)).of(node) == pytest.approx(18.66)


def test_gangs_need_their_number() -> None:
    """Two whole devices: of one empty and one half nothing serves; of two empty only the half is lost."""
    pair = Fragments((Task(2, 1000, 0, 1.0),), (0,))
    assert pair.of((0, -1, tuple(sorted([EMPTY, shared(500)])))) == 1500.0
    assert pair.of((0, -1, tuple(sorted([EMPTY, EMPTY, shared(500)])))) == 500.0


def test_memory_bounds_what_is_free() -> None:
    """16 of 64 parts are 250 thousandths, whatever the compute; a task of half the memory wants more."""
    half = Fragments((Task(1, 0, 32 * GIB, 1.0),), (64 * GIB,))
    assert half.of((0, -1, (shared(900, 16),))) == 250.0
    assert half.of((0, -1, (shared(900, 32),))) == 0.0


def _naive(tasks: tuple[Task, ...], devices: list[Device], cpu: int, capacity: int) -> float:
    """The definition, task by task and device by device."""
    total = 0.0
    for task in tasks:
        free, fits = [], []
        for d in devices:
            free.append(min(d.milli, d.parts * 1000 // 64) if capacity else d.milli)
            if task.gpus > 1 or task.milli == 1000:
                fits.append(d.domain == "" and (not capacity or task.memory_bytes <= capacity))
            else:
                parts = -(-task.memory_bytes * 64 // capacity) if capacity else 65 * (task.memory_bytes > 0)
                fits.append(d.places > 0 and d.milli >= task.milli and d.parts >= parts)
        runs = sum(fits) >= task.gpus and not 0 <= cpu < task.cpu_milli
        lost = sum(f for f, fit in zip(free, fits, strict=True) if not (runs and fit))
        total += task.weight * lost / sum(t.weight for t in tasks)
    return total


DEVICES = st.lists(
    st.one_of(
        st.just(Device(1000, 64, "", 4)),
        st.just(Device(0, 0, "-", 0)),
        st.builds(
            Device,
            st.sampled_from([0, 300, 700, 1000]),
            st.integers(0, 64),
            st.just("any"),
            st.integers(0, 3),
        ),
    ),
    min_size=1,
    max_size=8,
)
TASKS = st.lists(
    st.builds(
        Task,
        st.sampled_from([1, 1, 1, 2, 4]),
        st.sampled_from([0, 300, 500, 1000]),
        st.sampled_from([0, GIB, 8 * GIB, 20 * GIB]),
        st.floats(0.1, 10),
        st.sampled_from([0, 0, 2000]),
        st.just(()),
    ),
    min_size=1,
    max_size=8,
).map(tuple)


@given(TASKS, DEVICES, st.sampled_from([-1, 0, 4000]), st.sampled_from([0, 24 * GIB]))
@hyp(max_examples=200, deadline=None)
def test_the_measure_is_the_definition(
    tasks: tuple[Task, ...], devices: list[Device], cpu: int, capacity: int
) -> None:
    """Bit masks and remembered sums change nothing."""
    found = Fragments(tasks, (capacity,)).of((0, cpu, tuple(sorted(devices))))
    assert found == pytest.approx(_naive(tasks, devices, cpu, capacity), abs=1e-6)


def test_descent_differs_from_best_fit() -> None:
    """All tasks want 0.9. Device 0 has 500 free, device 1 has 900 but less memory.

    A job of 0.4: on device 0, 500 useless become 100 (-400); on device 1, 500 useless become
    1000 (+500). Best fit goes to device 1, where least memory is left.
    """
    for policy, expected in ((Fgd(mix=("1x900x1:1",)), (0,)), (BestFit(), (1,))):
        h = Harness("1x2", policy, memory_bytes=64 * GIB)
        h.submit("a", compute_milli=500, memory_bytes=GIB, runs_s=100.0)
        h.submit("b", at_s=1.0, compute_milli=600, memory_bytes=GIB, runs_s=5.0)
        h.submit("c", at_s=2.0, compute_milli=100, memory_bytes=20 * GIB, runs_s=100.0)
        h.submit("d", at_s=10.0, compute_milli=400, memory_bytes=GIB, runs_s=10.0)
        run = h.run()
        assert (run.devices("a"), run.devices("b")) == ((0,), (1,))
        assert run.devices("c") == (1,)
        assert run.devices("d") == expected


def test_whole_devices_go_where_least_is_spoilt() -> None:
    """Pairs come. Node 0 has 3 free devices, node 1 has 2: a single whole job takes the third of node 0.

    Node 0: 1000 more or less useless? before 1000 of 3 (a pair fits, no device too small): 0.
    After: 2 left, a pair fits: 0. Node 1: after, 1 left, no pair fits: 1000.
    """
    h = Harness("2x3", Fgd(mix=("2x1000x0:1",)), memory_bytes=0)
    h.submit("a", gpus=1, runs_s=100.0)
    h.submit("b", at_s=1.0, gpus=1, runs_s=100.0)
    run = h.run()
    # a: both nodes alike, lowest number. b: node 0 (2 left) would lose a pair, node 1 (3) would not.
    assert (run.devices("a"), run.devices("b")) == ((0,), (3,))


def test_the_mix_is_learned_and_kept() -> None:
    """Remembered at 1, 2, 4 and 8 jobs seen; demands by frequency."""
    h = Harness("1x4", Fgd(popularity=1.0), memory_bytes=24 * GIB)
    for i in range(9):
        h.submit(f"j{i}", at_s=float(i), gpus=2 if i == 3 else 1, memory_bytes=GIB, runs_s=0.5)
    run = h.run()
    saved = [e.memo for e in run.events if isinstance(e, ev.MemoSaved)]
    assert [m["jobs"] for m in saved] == [1, 2, 4, 8]
    assert saved[2]["mix"] == [[1, 0, 1, 0, [0], 3], [2, 1000, 1, 0, [0], 1]]


def test_bad_parameters() -> None:
    """Errors say how to write it."""
    with pytest.raises(ConfigError, match="GPUSxMILLIxGIB:WEIGHT"):
        Fgd(mix=("1x300",))
    with pytest.raises(ConfigError, match="out of range"):
        Fgd(mix=("0x300x1:1",))
    with pytest.raises(ConfigError, match="popularity"):
        Fgd(popularity=0.0)
    given_mix = Fgd.from_strings({"mix": "1x300x8:5/2x1000x0:1"})
    assert given_mix.get_params()["mix"] == ("1x300x8:5", "2x1000x0:1")


class Checked(Fgd):
    """Holds every placement of a single sharing job against all devices there are."""

    def offer(self, view: View, family: Family, record: JobRecord) -> Offer | None:
        """The base's offer, after the check."""
        found = super().offer(view, family, record)
        if found is None or found.why.rule != "least-fragmentation-added" or len(found.devices) > 1:
            return found
        if not domain_of(record.job):
            return found
        growths = {
            d: g
            for d in range(view.layout.device_count)
            if (g := self._growth(view, family, record, d)) is not None
        }
        best = min(growths.values())
        assert growths[found.devices[0]] == pytest.approx(best, abs=1e-6)
        return found

    def _growth(self, view: View, family: Family, record: JobRecord, device: int) -> float | None:
        ledger, layout = view.ledger, view.layout
        bay = layout.device_bay[device]
        kind, machine = layout.bay_type[bay], layout.bay_node[bay]
        capacity = layout.types[kind].memory_bytes
        if not capacity or kind not in record.shape.types:
            return None
        need = -(-record.shape.memory_bytes * 64 // capacity)
        states = []
        for d in range(layout.bay_first[bay], layout.bay_first[bay] + layout.bay_size[bay]):
            residents = [view.records[j] for j in ledger.residents[d]]
            parts = ledger.free_memory[d] * 64 // capacity
            domains = {"/".join(domain_of(r.job)) for r in residents}
            if not residents:
                states.append(Device(1000, 64, "", view.settings.max_sharers))
            elif len(domains) > 1 or "" in domains or len(residents) >= view.settings.max_sharers:
                states.append(Device(ledger.free_milli[d], parts, "-", 0))
            else:
                places = view.settings.max_sharers - len(residents)
                states.append(Device(ledger.free_milli[d], parts, domains.pop(), places))
        at = device - layout.bay_first[bay]
        here, domain = states[at], "/".join(domain_of(record.job))
        cpu = ledger.free_cpu[machine] if ledger.has_cpu[machine] else -1
        if (
            here.domain not in ("", domain)
            or here.places < 1
            or here.milli < family.milli
            or here.parts < need
        ):
            return None
        if 0 <= cpu < record.job.cpu_milli:
            return None
        tasks = tuple(t for t in self._tasks(view) if not t.types or kind in t.types)
        useless = tuple(
            t._replace(gpus=1 << 20) for t in self._tasks(view) if t.types and kind not in t.types
        )
        before = _naive(tasks + useless, states, cpu, capacity)
        states[at] = Device(here.milli - family.milli, here.parts - need, domain, here.places - 1)
        left = cpu - record.job.cpu_milli if cpu >= 0 else cpu
        return _naive(tasks + useless, states, left, capacity) - before


@given(
    st.sampled_from([Checked(), Checked(mix=("1x300x8:5", "2x1000x0:1", "1x0x5:2"))]),
    clusters(),
    jobs(),
    settings(),
    st.booleans(),
)
@hyp(max_examples=120, deadline=None)
def test_any_run(
    policy: Fgd, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings, burst: bool
) -> None:
    """Every descent is the steepest; no refusals, no index needed, everybody ends."""
    rows = [{**row, "at_s": 0.0} for row in rows] if burst else rows
    check(policy, cluster, rows, rules)
