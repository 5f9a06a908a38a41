"""The queue's order against a sorted list."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord, Status, order_key
from cotenant.model.settings import Settings
from cotenant.model.shape import Shape

SHAPE = Shape(0, Job(0, "a", 0.0), Layout(Cluster.uniform(1)), Settings())


class Model:
    """The queue, and beside it the plain set of waiting jobs, sorted when asked."""

    def __init__(self) -> None:
        self.queue = PendingQueue()
        self.jobs: list[JobRecord] = []

    def waiting(self) -> list[JobRecord]:
        return [r for r in self.jobs if r.status == Status.PENDING]

    def submit(self, priority: int) -> None:
        job_id = len(self.jobs)
        record = JobRecord.of(Job(job_id, f"j{job_id}", 0.0, priority=priority), SHAPE, 0.0, 0.0)
        self.jobs.append(record)
        self.queue.push(record)

    def start(self, record: JobRecord) -> None:
        record.status = Status.RUNNING
        record.attempt += 1
        self.queue.left(record)

    def requeue(self, record: JobRecord) -> None:
        record.status = Status.PENDING
        self.queue.push(record)

    def end(self, record: JobRecord) -> None:
        record.status = Status.ENDED
        self.queue.left(record)

    def rank(self, record: JobRecord, priority: int) -> None:
        record.priority = priority
        record.key = order_key(record.id, priority)
        self.queue.reorder(record)

    def check(self) -> None:
        expected = sorted(self.waiting(), key=lambda r: (-r.priority, r.id))
        assert [r.id for r in self.queue] == [r.id for r in expected]
        assert self.queue.head() is (expected[0] if expected else None)
        assert len(self.queue) == len(expected)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "start", "requeue", "rank", "sweep", "end", "head"]),
        st.integers(0, 10**6),
        st.integers(-2, 2),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(OPERATIONS)
def test_order_equals_a_sorted_list(operations: list[tuple[str, int, int]]) -> None:
    model = Model()
    for what, pick, priority in operations:
        waiting = model.waiting()
        running = [r for r in model.jobs if r.status == Status.RUNNING]
        if what == "submit":
            model.submit(priority)
        elif what == "start" and waiting:
            model.start(waiting[pick % len(waiting)])
        elif what == "requeue" and running:
            model.requeue(running[pick % len(running)])
        elif what == "rank" and waiting + running:
            model.rank((waiting + running)[pick % len(waiting + running)], priority)
        elif what == "end" and waiting:
            model.end(waiting[pick % len(waiting)])
        elif what == "sweep":
            model.queue._sweep()
        elif what == "head":
            model.queue.head()
        if pick % 3 == 0:  # now and then only, as asking for the order cleans up too
            model.check()
    model.check()


def test_memory_follows_the_living() -> None:
    """100,000 jobs pass through while the head waits for ever: entries of the gone are swept."""
    model, rng = Model(), random.Random(3)
    model.submit(5)
    for _ in range(100_000):
        model.submit(rng.choice([0, 0, 1]))
        model.end(model.jobs.pop())
        model.jobs.append(model.jobs[0])  # keeps ids dense without keeping records
    entries = len(model.queue._line) + len(model.queue._late)
    assert len(model.queue) == 1
    assert entries <= 2 * 1 + 4096


def test_those_who_left_from_the_middle_are_at_most_an_eighth_of_those_who_wait() -> None:
    # The first waits for ever; of 40,000 after it, every other one starts out of order, and a tenth come back.
    model = Model()
    queue = model.queue
    for _ in range(40_001):
        model.submit(0)
    for number in range(1, 40_001, 2):
        model.start(model.jobs[number])
    for number in range(1, 40_001, 10):
        model.requeue(model.jobs[number])
    model.submit(0)
    waiting = 40_001 - 20_000 + 4_000 + 1
    assert len(queue) == waiting
    assert len(queue._line) + len(queue._late) <= waiting + waiting // 8 + 4096
    model.check()
    queue._sweep()
    assert len(queue._line) + len(queue._late) == waiting  # nobody is in it twice
    model.check()
