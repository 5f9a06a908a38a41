"""Jobs made from a frame: what they say, and that they share what they say alike."""

from __future__ import annotations

import polars as pl

from cotenant.model.workload import Behaviour, Workload


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
