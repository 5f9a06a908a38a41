"""Each refusal of the rules, provoked by the smallest scenario that has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.model import beside, rules
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.jobs import Job
from cotenant.model.placement import WHOLE, Share
from cotenant.model.plan import Reason, Refusal
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings

CLUSTER = Cluster(
    types=(DeviceType(name="x", memory_bytes=16 * GIB), DeviceType(name="y")),  # y: memory unknown
    nodes=(
        Node(name="n0", gpus=(("x", 2), ("y", 1)), cpu_milli=8000, host_memory_bytes=64 * GIB),
        Node(name="n1", gpus=(("x", 2),)),
    ),
    tenants=(Tenant(name="small", limit_gpus=1), Tenant(name="none", limit_gpus=0)),
)
"""Devices 0, 1 are x and 2 is y on node 0; 3, 4 are x on node 1."""
HALF = Share("spatial", 8 * GIB, 500)
FREE = Share("spatial", 8 * GIB, 0)
SLICED = Share("time-sliced", 16 * GIB, 0)

Make = Callable[["Scene"], Refusal | None]


class Scene:
    """A state, built by events."""

    def __init__(self, **settings: Any) -> None:
        self.state = State(CLUSTER, Settings(**settings))
        self.count = 0

    def foreign(self, device: int, memory_bytes: int) -> Scene:
        self.state.apply(ev.ForeignUse(0.0, device, memory_bytes, (77,)))
        return self

    def real(self) -> Scene:
        self.state.go_live()
        return self

    def job(self, **fields: Any) -> int:
        number = self.count
        self.count += 1
        fields = {"memory_bytes": 8 * GIB, **fields}
        self.state.apply(ev.Submitted(0.0, Job(number, f"j{number}", 0.0, **fields)))
        return number

    def running(self, *devices: int, share: Share | None = None, **fields: Any) -> int:
        number = self.job(gpus=len(devices), **fields)
        self.state.apply(ev.Started(0.0, number, 1, devices, share))
        return number

    def suspended(self, *devices: int, **fields: Any) -> int:
        """A job that has saved its state on these devices."""
        job = self.running(*devices, **fields)
        self.with_(ev.Stopping(10.0, job, 1), ev.Suspended(10.0, job, 1, 9.0))
        return job

    def failed(self, work_s: float, *devices: int, **fields: Any) -> int:
        """A job whose attempt failed, or was lost with something saved, and that is tried again."""
        job = self.running(*devices, **fields)
        outcome = "lost" if work_s else "failed"
        self.with_(ev.Ended(10.0, job, 1, outcome, work_s, 1.0, final=False))
        return job

    def settling(self) -> int:
        """A job that is on device 0, and goes to 0 and 1 without a restart."""
        job = self.running(0, min_gpus=1, max_gpus=2)
        self.with_(ev.Launched(1.0, job, 1, 1, 40, 7), ev.Resized(2.0, job, 1, (0, 1), in_place=True))
        return job

    def start(self, job: int, *devices: int, share: Share = WHOLE, node: int = -1) -> Refusal | None:
        return rules.check_start(self.state.books, self.state.records.get(job), devices, share, node)

    def stop(self, job: int, suspend: bool = True, now: float = 100.0) -> Refusal | None:
        return rules.check_stop(self.state.books, self.state.records.get(job), suspend, now)

    def move(self, job: int, *devices: int, now: float = 100.0) -> Refusal | None:
        return rules.check_move(self.state.books, self.state.records.get(job), devices, WHOLE, now)

    def resize(self, job: int, *devices: int, share: Share = WHOLE, now: float = 100.0) -> Refusal | None:
        return rules.check_resize(self.state.books, self.state.records.get(job), devices, share, now)

    def reserve(self, job: int, *devices: int) -> Refusal | None:
        return rules.check_reserve(self.state.books, self.state.records.get(job), devices)

    def with_(self, *events: ev.Event) -> Scene:
        for event in events:
            self.state.apply(event)
        return self


def _moving() -> tuple[Scene, int]:
    s = Scene()
    job = s.running(0)
    return s.with_(ev.Moved(5.0, job, 1, (3,))), job


def _beside(share: Share, other: Share = HALF, mine: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A job with ``share`` wants device 0, where one with ``other`` runs."""

    def make() -> Refusal | None:
        s = Scene()
        s.running(0, share=other, **fields)
        return s.start(s.job(**(mine or {})), 0, share=share)

    return make


def _one(act: Callable[[Scene], Refusal | None], **settings: Any) -> Callable[[], Refusal | None]:
    return lambda: act(Scene(**settings))


CASES: list[tuple[str, Reason, Callable[[], Refusal | None]]] = [
    # who
    (
        "a device used from outside",
        Reason.FOREIGN_USE,
        _one(lambda s: s.foreign(0, GIB + 1).start(s.job(), 0)),
    ),
    (
        "beside whom the outside leaves too little",
        Reason.FOREIGN_USE,
        _one(lambda s: s.foreign(0, 9 * GIB).start(s.job(), 0, share=HALF)),
    ),
    (
        "a real process that is not known to run yet",
        Reason.STILL_STARTING,
        _one(lambda s: s.real().move(s.running(0), 1)),
    ),
    (
        "a real process that is still on its way to other devices",
        Reason.STILL_RESIZING,
        _one(lambda s: s.real().resize(s.settling(), 0)),
    ),
    (
        "a real process to other devices, that cannot save its state",
        Reason.NOT_SUSPENDABLE,
        _one(lambda s: s.real().resize(s.running(0, suspendable=False, min_gpus=1, max_gpus=2), 0, 1)),
    ),
    ("unknown job", Reason.NOT_PENDING, _one(lambda s: s.start(7, 0))),
    ("running job", Reason.NOT_PENDING, _one(lambda s: s.start(s.running(0), 1))),
    ("reserve for a running job", Reason.NOT_PENDING, _one(lambda s: s.reserve(s.running(0), 1))),
    # the placement itself
    ("too few devices", Reason.MALFORMED, _one(lambda s: s.start(s.job(gpus=2), 0))),
    ("too many devices", Reason.MALFORMED, _one(lambda s: s.start(s.job(), 0, 1))),
    ("the same device twice", Reason.MALFORMED, _one(lambda s: s.start(s.job(gpus=2), 0, 0))),
    ("not ascending", Reason.MALFORMED, _one(lambda s: s.start(s.job(gpus=2), 1, 0))),
    ("no such device", Reason.MALFORMED, _one(lambda s: s.start(s.job(), 5))),
    ("a negative device", Reason.MALFORMED, _one(lambda s: s.start(s.job(), -1))),
    ("no devices for a GPU job", Reason.MALFORMED, _one(lambda s: s.start(s.job(), node=0))),
    ("no such node", Reason.MALFORMED, _one(lambda s: s.start(s.job(gpus=0), node=2))),
    ("move onto itself", Reason.MALFORMED, _one(lambda s: s.move(s.running(0), 0))),
    (
        "grow beyond the elastic range",
        Reason.MALFORMED,
        _one(lambda s: s.resize(s.running(0, min_gpus=1, max_gpus=2), 0, 1, 3)),
    ),
    ("reserve too few", Reason.MALFORMED, _one(lambda s: s.reserve(s.job(gpus=2), 0))),
    ("reserve out of order", Reason.MALFORMED, _one(lambda s: s.reserve(s.job(gpus=2), 1, 0))),
    # types and gangs
    ("another type", Reason.DEVICE_TYPE, _one(lambda s: s.start(s.job(device_types=("y",)), 0))),
    ("too little memory", Reason.DEVICE_TYPE, _one(lambda s: s.start(s.job(memory_bytes=17 * GIB), 0))),
    ("mixed types", Reason.DEVICE_TYPE, _one(lambda s: s.start(s.job(gpus=2), 1, 2))),
    (
        "a gang with one wrong device",
        Reason.DEVICE_TYPE,
        _one(lambda s: s.start(s.job(gpus=2, device_types=("x",)), 1, 2), mixed_types=True),
    ),
    (
        "reserve another type",
        Reason.DEVICE_TYPE,
        _one(lambda s: s.reserve(s.job(device_types=("y",)), 0)),
    ),
    (
        "mixed types at a grade that forbids them",
        Reason.DETERMINISM,
        _one(lambda s: s.start(s.job(gpus=2, determinism="D1"), 1, 2), mixed_types=True),
    ),
    (
        "another type than it runs on, at a grade that forbids it",
        Reason.DETERMINISM,
        _one(lambda s: s.resize(s.running(0, min_gpus=1, max_gpus=2, determinism="D0"), 2), mixed_types=True),
    ),
    (
        "move to another type, at a grade that forbids it",
        Reason.DETERMINISM,
        _one(lambda s: s.move(s.running(0, determinism="D1"), 2)),
    ),
    (
        "another type than that of its saved state, at a grade that forbids it",
        Reason.DETERMINISM,
        _one(lambda s: s.start(s.suspended(0, determinism="D1"), 2)),
    ),
    (
        "the same in a gang over nodes",
        Reason.DETERMINISM,
        _one(lambda s: s.start(s.suspended(0, 1, determinism="D0"), 2, 3), mixed_types=True, gang_span="any"),
    ),
    (
        "reserve another type than that of its saved state",
        Reason.DETERMINISM,
        _one(lambda s: s.reserve(s.suspended(0, determinism="D1"), 2)),
    ),
    ("span that is not needed", Reason.SPAN, _one(lambda s: s.start(s.job(gpus=2), 1, 3))),
    (
        "span that is never allowed",
        Reason.SPAN,
        _one(lambda s: s.start(s.job(gpus=3), 0, 1, 3), gang_span="never"),
    ),
    # tenants
    ("ceiling reached", Reason.TENANT_LIMIT, _one(lambda s: s.start(s.job(gpus=2, tenant="small"), 0, 1))),
    ("ceiling of none", Reason.TENANT_CAPACITY_ZERO, _one(lambda s: s.start(s.job(tenant="none"), 0))),
    # devices
    (
        "device is down",
        Reason.DEVICE_UNAVAILABLE,
        _one(lambda s: s.with_(ev.DeviceDown(1.0, 0)).start(s.job(), 0)),
    ),
    (
        "node is down",
        Reason.DEVICE_UNAVAILABLE,
        _one(lambda s: s.with_(ev.NodeDown(1.0, 1)).start(s.job(), 3)),
    ),
    (
        "node is draining",
        Reason.DEVICE_UNAVAILABLE,
        _one(lambda s: s.with_(ev.Drained(1.0, 0)).start(s.job(), 0)),
    ),
    (
        "CPU job on a draining node",
        Reason.DEVICE_UNAVAILABLE,
        _one(lambda s: s.with_(ev.Drained(1.0, 0)).start(s.job(gpus=0, cpu_milli=1), node=0)),
    ),
    (
        "reserve a device that is down",
        Reason.DEVICE_UNAVAILABLE,
        _one(lambda s: s.with_(ev.DeviceDown(1.0, 0)).reserve(s.job(), 0)),
    ),
    (
        "kept for another",
        Reason.RESERVED,
        _one(lambda s: s.with_(ev.Reserved(1.0, s.job(), (0,))).start(s.job(), 0)),
    ),
    (
        "reserve what is kept for another",
        Reason.RESERVED,
        _one(lambda s: s.with_(ev.Reserved(1.0, s.job(), (0,))).reserve(s.job(), 0)),
    ),
    ("taken", Reason.NO_CAPACITY, _beside(WHOLE, WHOLE)),
    ("taken in part", Reason.NO_CAPACITY, _beside(WHOLE, HALF)),
    (
        "move onto a taken device",
        Reason.NO_CAPACITY,
        _one(lambda s: s.move(s.running(0) or s.running(1) - 1, 1)),
    ),
    # sharing
    (
        "an exclusive job shared",
        Reason.ISOLATION,
        _one(lambda s: s.start(s.job(sharing="exclusive"), 0, share=HALF)),
    ),
    ("beside whole-device work", Reason.ISOLATION, _beside(HALF, WHOLE)),
    ("beside another mode", Reason.ISOLATION, _beside(HALF, SLICED)),
    ("beside another tenant", Reason.ISOLATION, _beside(HALF, tenant="b", mine={"sharing": "trusted"})),
    (
        "the neighbour does not agree",
        Reason.ISOLATION,
        _beside(HALF, sharing="same-owner", user="u", mine={"user": "v"}),
    ),
    (
        "one sharer too many",
        Reason.SHARERS,
        _one(lambda s: s.start(s.running(0, share=FREE) + s.job(), 0, share=FREE), max_sharers=1),
    ),
    ("compute guaranteed already", Reason.COMPUTE, _beside(Share("spatial", 8 * GIB, 501))),
    ("memory unknown", Reason.MEMORY, _one(lambda s: s.start(s.job(), 2, share=HALF))),
    (
        "a share below the need",
        Reason.MEMORY,
        _one(lambda s: s.start(s.job(), 0, share=Share("spatial", GIB, 0))),
    ),
    (
        "a share of nothing",
        Reason.MEMORY,
        _one(lambda s: s.start(s.job(memory_bytes=0), 0, share=Share("spatial", 0, 0))),
    ),
    ("no room beside", Reason.MEMORY, _beside(Share("spatial", 8 * GIB + 1, 0), HALF)),
    (
        "a slice larger than the device",
        Reason.MEMORY,
        _one(lambda s: s.start(s.job(), 0, share=Share("time-sliced", 17 * GIB, 0))),
    ),
    # host
    ("CPU of the node", Reason.HOST, _one(lambda s: s.start(s.job(cpu_milli=8001), 0))),
    ("host memory of the node", Reason.HOST, _one(lambda s: s.start(s.job(host_memory_bytes=65 * GIB), 0))),
    ("CPU job without room", Reason.HOST, _one(lambda s: s.start(s.job(gpus=0, cpu_milli=8001), node=0))),
    # stops, moves, changes
    ("stop what waits", Reason.NOT_RUNNING, _one(lambda s: s.stop(s.job()))),
    ("stop what is unknown", Reason.NOT_RUNNING, _one(lambda s: s.stop(3))),
    ("move what waits", Reason.NOT_RUNNING, _one(lambda s: s.move(s.job(), 1))),
    ("resize what waits", Reason.NOT_RUNNING, _one(lambda s: s.resize(s.job(), 1))),
    ("suspend what cannot", Reason.NOT_SUSPENDABLE, _one(lambda s: s.stop(s.running(0, suspendable=False)))),
    ("move what cannot", Reason.NOT_SUSPENDABLE, _one(lambda s: s.move(s.running(0, suspendable=False), 1))),
    ("stop too soon", Reason.MIN_QUANTUM, _one(lambda s: s.stop(s.running(0), now=9.0), min_quantum_s=10.0)),
    (
        "move too soon",
        Reason.MIN_QUANTUM,
        _one(lambda s: s.move(s.running(0), 1, now=9.0), min_quantum_s=10.0),
    ),
    (
        "shrink too soon",
        Reason.MIN_QUANTUM,
        _one(lambda s: s.resize(s.running(0, 1, min_gpus=1, max_gpus=2), 0, now=9.0), min_quantum_s=10.0),
    ),
    ("move while moving", Reason.MIN_QUANTUM, lambda: _moving()[0].move(0, 4)),
    ("resize while moving", Reason.MIN_QUANTUM, lambda: _moving()[0].resize(0, 3)),
]


@pytest.mark.parametrize(("what", "reason", "provoke"), CASES, ids=[c[0] for c in CASES])
def test_refused_with_its_reason(what: str, reason: Reason, provoke: Callable[[], Refusal | None]) -> None:
    refusal = provoke()
    assert refusal is not None, what
    assert refusal.reason is reason


def test_every_reason_of_the_rules_is_provoked_above() -> None:
    assert rules.__file__ is not None
    texts = [Path(m.__file__).read_text(encoding="utf-8") for m in (rules, beside)]  # type: ignore[arg-type]
    named = set(re.findall(r"Reason\.([A-Z_]+)", "".join(texts)))
    assert {reason.name for _, reason, _ in CASES} == named


@pytest.mark.parametrize(
    ("live", "work_s", "fields", "tied"),
    [
        (False, 0.0, {"min_gpus": 1, "max_gpus": 1}, False),
        (False, 5.0, {}, True),
        # real elastic jobs go on from what stands in their folder, however they ended
        (True, 0.0, {"min_gpus": 1, "max_gpus": 1}, True),
        (True, 0.0, {}, False),
    ],
)
def test_what_ties_a_job_to_a_type_after_a_failure(
    live: bool, work_s: float, fields: dict[str, int], tied: bool
) -> None:
    scene = Scene()
    if live:
        scene.real()
    job = scene.failed(work_s, 0, determinism="D1", **fields)
    refusal = scene.start(job, 2)
    assert (refusal is not None) is tied
    if refusal is not None:
        assert refusal.facts == {"grade": "D1", "types": ["x", "y"]}
    assert scene.start(job, 1) is None


def test_a_tie_outlives_what_its_owner_asks() -> None:
    scene = Scene().real()
    job = scene.suspended(0, determinism="D1", min_gpus=1, max_gpus=2)
    scene.with_(ev.ResizeRequested(20.0, job, gpus=2))
    refusal = scene.start(job, 2)
    assert refusal is not None and refusal.reason is Reason.DETERMINISM
    assert scene.start(job, 0, 1) is None


ALLOWED: list[tuple[str, Callable[[], Refusal | None]]] = [
    ("a free device", _one(lambda s: s.start(s.job(), 0))),
    ("a gang on one node", _one(lambda s: s.start(s.job(gpus=2), 0, 1))),
    ("a gang over nodes where any is allowed", _one(lambda s: s.start(s.job(gpus=2), 1, 3), gang_span="any")),
    ("a gang larger than a node", _one(lambda s: s.start(s.job(gpus=3), 0, 1, 3))),
    ("mixed types where allowed", _one(lambda s: s.start(s.job(gpus=2), 1, 2), mixed_types=True)),
    (
        "mixed types at the grade for them",
        _one(lambda s: s.start(s.job(gpus=2, determinism="D2"), 1, 2), mixed_types=True),
    ),
    ("its saved state's type", _one(lambda s: s.start(s.suspended(0, determinism="D1"), 3))),
    ("another type at the grade for it", _one(lambda s: s.start(s.suspended(0, determinism="D2"), 2))),
    ("another type without a grade", _one(lambda s: s.start(s.suspended(0), 2))),
    (
        "another type for one that begins anew",
        _one(lambda s: s.start(s.failed(0.0, 0, determinism="D1", max_gpus=1, min_gpus=1), 2)),
    ),
    ("one's own reservation", _one(lambda s: s.with_(ev.Reserved(1.0, s.job(), (0,))).start(0, 0))),
    ("dropping a reservation", _one(lambda s: s.reserve(s.job()))),
    ("the last of a tenant's devices", _one(lambda s: s.start(s.job(tenant="small"), 0))),
    ("exactly the rest of the compute and memory", _beside(HALF)),
    (
        "beside the same tenant",
        _beside(HALF, tenant="t", sharing="trusted", mine={"tenant": "t", "sharing": "trusted"}),
    ),
    ("beside the same user", _beside(HALF, user="u", sharing="same-owner", mine={"user": "u"})),
    ("slices whose memory does not fit at once", _beside(SLICED, SLICED)),
    ("exactly the host's CPU", _one(lambda s: s.start(s.job(cpu_milli=8000), 0))),
    ("undeclared host", _one(lambda s: s.start(s.job(cpu_milli=10**9, host_memory_bytes=10**15), 3))),
    ("a CPU job on an undeclared node", _one(lambda s: s.start(s.job(gpus=0, cpu_milli=10**9), node=1))),
    ("stop at the quantum", _one(lambda s: s.stop(s.running(0), now=10.0), min_quantum_s=10.0)),
    ("kill what cannot be suspended", _one(lambda s: s.stop(s.running(0, suspendable=False), suspend=False))),
    ("grow within the range", _one(lambda s: s.resize(s.running(0, min_gpus=1, max_gpus=2), 0, 1))),
    (
        "a tenant at its ceiling moves",
        _one(lambda s: s.move(s.running(0, tenant="small"), 1)),
    ),
    (
        "raising one's own share into what one holds",
        _one(lambda s: s.resize(s.running(0, share=HALF), 0, share=Share("spatial", 16 * GIB, 1000))),
    ),
]


@pytest.mark.parametrize(("what", "act"), ALLOWED, ids=[c[0] for c in ALLOWED])
def test_allowed_up_to_the_very_limit(what: str, act: Callable[[], Refusal | None]) -> None:
    assert act() is None, what


def test_checking_a_move_or_a_resize_leaves_the_books_as_they_were() -> None:
    s = Scene()
    job = s.running(0, share=HALF, tenant="t")
    before = picture(s.state)
    s.move(job, 1)
    s.resize(job, 0, share=Share("spatial", 99 * GIB, 0))
    assert picture(s.state) == before


def test_refusals_say_whether_waiting_or_preempting_can_help() -> None:
    assert Reason.NEVER_FITS.hopeless
    assert Reason.SPAN.hopeless
    assert not Reason.NO_CAPACITY.hopeless
    assert Reason.NO_CAPACITY.preemption_helps
    assert not Reason.TENANT_LIMIT.preemption_helps


def test_a_refusal_carries_the_numbers_behind_it() -> None:
    """C15: "needs 12,288 MiB, free 4,096 MiB" in bytes."""
    s = Scene()
    s.running(0, share=Share("spatial", 12 * GIB, 0), memory_bytes=12 * GIB)
    refusal = s.start(s.job(memory_bytes=12 * GIB), 0, share=Share("spatial", 12 * GIB, 0))
    assert refusal == Refusal(Reason.MEMORY, {"device": 0, "needs_bytes": 12 * GIB, "free_bytes": 4 * GIB})
    s = Scene()
    refusal = s.start(s.job(gpus=2, tenant="small"), 0, 1)
    assert refusal is not None
    assert refusal.facts == {"tenant": "small", "limit_gpus": 1, "used_gpus": 0, "needs_gpus": 2}
