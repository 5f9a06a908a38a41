"""Rows of minima, against plain lists; lines of waiting jobs, against a sorted list."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings
from cotenant.model.shape import Shape
from cotenant.policies.queues.lines import Line
from cotenant.policies.queues.minima import MinRow, MinTree

NUMBERS = st.one_of(st.integers(0, 6).map(float), st.just(math.inf))


def plain_first(values: list[float], limit: float) -> int:
    return next((i for i, value in enumerate(values) if value <= limit), -1)


def same(row: MinRow | MinTree, values: list[float]) -> None:
    for limit in (-1.0, 0.0, 2.0, 5.5, 6.0):
        assert row.first(limit) == plain_first(values, limit)
    assert row.least == min(values, default=math.inf)


@settings(max_examples=80, deadline=None)
@given(st.lists(NUMBERS, max_size=100), st.lists(st.tuples(st.integers(0, 150), NUMBERS), max_size=60))
def test_a_row_finds_what_a_walk_finds(start: list[float], steps: list[tuple[int, float]]) -> None:
    values, row = list(start), MinRow(start)
    same(row, values)
    for place, value in steps:
        if place < len(values):
            values[place] = value
            row.set(place, value)
        else:
            values.append(value)
            row.append(value)
        same(row, values)
    assert len(row) == len(values)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=2, max_size=100), st.data())
def test_numbers_move_one_place_on(values: list[float], data: st.DataObject) -> None:
    stop = data.draw(st.integers(1, len(values) - 1))
    start = data.draw(st.integers(0, stop - 1))
    row = MinRow(values)
    row.shift(start, stop)
    moved = [*values[: start + 1], *values[start:stop], *values[stop + 1 :]]
    same(row, moved)


@settings(max_examples=80, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=40), st.data())
def test_a_tree_finds_what_a_walk_finds(values: list[float], data: st.DataObject) -> None:
    tree = MinTree(values)
    for _ in range(10):
        place = data.draw(st.integers(0, len(values) - 1))
        values[place] = data.draw(NUMBERS)
        tree.set(place, values[place])
        assert tree[place] == values[place]
        same(tree, values)


def records(count: int) -> list[JobRecord]:
    layout = Layout(Cluster.uniform(8, gpus_per_node=8, gpu_type=DeviceType(name="V100")))
    made = []
    for i in range(count):
        job = Job(id=i, name=str(i), submit_s=0.0, priority=i % 3 // 2)
        made.append(JobRecord.of(job, Shape(0, job, layout, Settings()), 0.0, float(i * 7 % 11)))
    return made


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 199), min_size=1, max_size=400), st.booleans())
def test_a_line_keeps_queue_order_whoever_joins_leaves_and_returns(moves: list[int], asked: bool) -> None:
    # Each number joins if it does not wait and leaves if it does, in any order: those who return, too.
    jobs = records(200)
    line = Line(jobs[0].shape, "", lambda record, kind: record.predicted_s)
    waiting: set[int] = set()
    for number in moves:
        if number in waiting:
            waiting.remove(number)
            line.pop(jobs[number])
        else:
            waiting.add(number)
            line.push(jobs[number])
        assert line.count == len(waiting)
        if waiting:
            order = sorted(waiting, key=lambda i: (-jobs[i].priority, i))
            assert line.first().id == order[0]
            if asked:
                short = [i for i in order if jobs[i].predicted_s <= 3.0]
                found = line.first_within(0, 3.0)
                assert (None if found is None else found.id) == (short[0] if short else None)
                assert line.least(0) == min(jobs[i].predicted_s for i in order)
    assert [r.id for r in line.records()] == sorted(waiting, key=lambda i: (-jobs[i].priority, i))


def test_slots_of_those_who_left_do_not_pile_up() -> None:
    jobs = records(100)
    line = Line(jobs[0].shape, "", lambda record, kind: record.predicted_s)
    line.push(jobs[0])
    line.least(0)
    for turn in range(1, 5000):
        job = Job(id=100 + turn, name=f"x{turn}", submit_s=0.0)
        record = JobRecord.of(job, jobs[0].shape, 0.0, 1.0)
        line.push(record)
        line.pop(record)
    assert line.count == 1
    assert len(line._records) == len(line._keys) == len(line._row_of(0)) < 200
