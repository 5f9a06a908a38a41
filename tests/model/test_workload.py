"""Jobs made from a frame: what they say, and that they share what they say alike."""

from __future__ import annotations

import polars as pl

from cotenant.model.workload import Behaviour, Behaviours, Workload


def test_equal_labels_are_one_string_however_many_jobs_bear_them() -> None:
    # 20,000 rows are built in chunks of 8,192; across all of them there are two models and three tenants.
    count = 20_000
    frame = pl.DataFrame(
        {
            "name": [f"j{i}" for i in range(count)],
            "submit_s": [float(i) for i in range(count)],
            "duration_s": [10.0] * count,
            "model": [f"kind-{i % 2}" for i in range(count)],
            "tenant": [f"team-{i % 3}" for i in range(count)],
        }
    )
    jobs = list(Workload(frame).jobs())
    assert [(j.name, j.model, j.tenant) for j in jobs[:3]] == [
        ("j0", "kind-0", "team-0"),
        ("j1", "kind-1", "team-1"),
        ("j2", "kind-0", "team-2"),
    ]
    assert len({id(job.model) for job in jobs}) == 2
    assert len({id(job.tenant) for job in jobs}) == 3


def test_pairs_hold_the_declared_and_the_true_half() -> None:
    frame = pl.DataFrame({"name": ["b", "a"], "submit_s": [5.0, 5.0], "duration_s": [1.0, 2.0]})
    pairs = list(Workload(frame).pairs())
    assert [(job.id, job.name) for job, _ in pairs] == [(0, "a"), (1, "b")]
    assert [behaviour for _, behaviour in pairs] == [Behaviour(2.0), Behaviour(1.0)]


def test_what_a_job_does_is_found_by_its_id() -> None:
    frame = pl.DataFrame(
        {
            "name": ["c", "b", "a"],
            "submit_s": [9.0, 5.0, 5.0],
            "duration_s": [1.0, 2.0, 3.0],
            "outcome": ["failed", "done", "cancelled"],
            "failed_after_s": [[], [4.0, 5.0], []],
        }
    )
    workload = Workload(frame)
    does = Behaviours(workload.frame)
    assert [does[i] for i in range(3)] == [
        Behaviour(3.0, "cancelled"),
        Behaviour(2.0, "done", (4.0, 5.0)),
        Behaviour(1.0, "failed"),
    ]
    assert [behaviour for _, behaviour in workload.pairs()] == [does[i] for i in range(3)]
    plain = Behaviours(Workload(frame.select("name", "submit_s", "duration_s")).frame)
    assert [plain[i] for i in range(3)] == [Behaviour(3.0), Behaviour(2.0), Behaviour(1.0)]


def test_large_numbers_that_are_alike_are_one_object_for_all_jobs_of_a_chunk() -> None:
    count = 1000
    frame = pl.DataFrame(
        {
            "name": [f"j{i}" for i in range(count)],
            "submit_s": [float(i) for i in range(count)],
            "duration_s": [10.0] * count,
            "memory_bytes": [(1 + i % 3) << 30 for i in range(count)],
            "leave_s": [0.0] * count,
        }
    )
    jobs = list(Workload(frame).jobs())
    assert [job.memory_bytes for job in jobs[:4]] == [1 << 30, 2 << 30, 3 << 30, 1 << 30]
    assert len({id(job.memory_bytes) for job in jobs}) == 3
    assert len({id(job.leave_s) for job in jobs}) == 1
