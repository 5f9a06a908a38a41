"""Families of demands: the first that fits, whatever the amounts of memory."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.records import JobRecord, Status, order_key
from cotenant.model.settings import Settings
from cotenant.model.shape import ShapeTable
from cotenant.policies.queues import demands
from cotenant.policies.queues.demands import Alike, Family, domain_of

GIB = 1 << 30
SHAPES = ShapeTable(Layout(Cluster.uniform(8)), Settings())


def record_of(number: int, memory_bytes: int, priority: int = 0) -> JobRecord:
    """A waiting job."""
    job = Job(id=number, name=str(number), submit_s=0.0, memory_bytes=memory_bytes, priority=priority)
    return JobRecord.of(job, SHAPES.of(job), 0.0, 0.0)


@given(
    st.lists(st.tuples(st.integers(1, 5 * GIB), st.integers(0, 2), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 6 * GIB),
    st.sampled_from([3, 64]),
)
@hyp(max_examples=150, deadline=None)
def test_first_is_the_first_that_fits(jobs: list[tuple[int, int, bool]], room: int, few: int) -> None:
    """Against a look at every job; some have left. With few amounts and with many."""
    with mock.patch.object(demands, "_FEW", few):
        _check_first(jobs, room)


def _check_first(jobs: list[tuple[int, int, bool]], room: int) -> None:
    records = [record_of(i, need, priority) for i, (need, priority, _) in enumerate(jobs)]
    family = Family(records[0].shape, ("any",))
    for record in records:
        family.push(record)
    for record, (_, _, gone) in zip(records, jobs, strict=True):
        if gone:
            record.status = Status.RUNNING
            family.left(record)
    waiting = sorted((r for r in records if not r.status), key=lambda r: r.key)
    assert bool(family) == bool(waiting)
    fitting = [r for r in waiting if r.shape.memory_bytes <= room]
    assert family.first(room) is (fitting[0] if fitting else None)
    if waiting:
        assert family.head() is waiting[0]
        least = min(r.shape.memory_bytes for r in waiting)
        assert family.smallest() is next(r for r in waiting if r.shape.memory_bytes == least)
        first_of_each = {r.shape.memory_bytes: r for r in reversed(waiting)}
        assert list(family.heads(room)) == sorted(
            (r for need, r in first_of_each.items() if need <= room), key=lambda r: r.key
        )


def test_entries_of_jobs_that_left_are_dropped() -> None:
    """A hundred thousand jobs pass through behind one that stays: the heap does not keep them."""
    alike, stays = Alike(), record_of(0, GIB)
    alike.push(stays, 0)
    for number in range(1, 100_001):
        record = record_of(number, GIB)
        alike.push(record, number)
        record.status = Status.RUNNING
        alike.left()
    assert len(alike.heap) < 200
    assert alike.head() is stays


def test_a_changed_priority_is_seen() -> None:
    """The entry under the old key is stale."""
    alike, one, two = Alike(), record_of(1, GIB), record_of(2, GIB)
    alike.push(one, 1)
    alike.push(two, 2)
    alike.left()
    two.priority, two.key = 5, order_key(2, 5)
    alike.push(two, 3)
    assert alike.head() is two
    two.status = Status.RUNNING
    alike.left()
    assert alike.head() is one


def test_domains() -> None:
    """Who shares with whom."""
    base = {"id": 0, "name": "j", "submit_s": 0.0, "memory_bytes": GIB, "tenant": "t", "user": "u"}
    assert domain_of(Job(**base)) == ("any",)  # type: ignore[arg-type]
    assert domain_of(Job(**base, sharing="trusted")) == ("trusted", "t")  # type: ignore[arg-type]
    assert domain_of(Job(**base, sharing="same-owner")) == ("same-owner", "t", "u")  # type: ignore[arg-type]
    assert domain_of(Job(**base, sharing="exclusive")) == ()  # type: ignore[arg-type]
    assert domain_of(Job(id=0, name="j", submit_s=0.0)) == ()


def test_amounts_nobody_waits_for_are_forgotten() -> None:
    """Ten thousand amounts, one job each, pass through: the family does not keep them."""
    family = Family(record_of(0, GIB).shape, ("any",))
    for number in range(10_000):
        record = record_of(number, GIB + number)
        family.push(record)
        record.status = Status.RUNNING
        family.left(record)
    assert not family
    assert len(family._classes) < 200
