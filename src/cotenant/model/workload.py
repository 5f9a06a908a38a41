"""A workload: jobs as declared, and beside them what truly happens when each runs.

The declared half goes to the scheduler; the true half goes to the simulated world
alone, so no policy can read a running time it could not know.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import msgspec
import polars as pl

from cotenant.errors import InputError
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job

__all__ = ["JOB_SCHEMA", "Behaviour", "Behaviours", "Workload"]


class Behaviour(msgspec.Struct, frozen=True, gc=False):
    """What a job does when it runs alone on its reference device.

    Parameters
    ----------
    duration_s : float
        Seconds of work of the last attempt.
    outcome : {"done", "failed", "cancelled"}
        How the last attempt ends.
    failed_after_s : tuple of float
        Lengths of the attempts before it, each of which fails.
    """

    duration_s: float
    outcome: str = "done"
    failed_after_s: tuple[float, ...] = ()


class Behaviours:
    """What each job of a frame does, by id; as columns, so that jobs which wait need no objects for it.

    Parameters
    ----------
    frame : polars.DataFrame
        Of a ``Workload``.
    """

    __slots__ = ("_failed", "_outcomes", "_seconds")

    def __init__(self, frame: pl.DataFrame) -> None:
        self._seconds = frame["duration_s"].to_numpy().data
        # Only what is out of the ordinary is kept by job.
        self._outcomes = _unusual(frame, "outcome", pl.col("outcome") != "done")
        failed = _unusual(frame, "failed_after_s", pl.col("failed_after_s").list.len() > 0)
        self._failed = {job_id: tuple(lengths) for job_id, lengths in failed.items()}

    def __getitem__(self, job_id: int) -> Behaviour:
        """What a job does."""
        if self._outcomes or self._failed:
            outcome = self._outcomes.get(job_id, "done")
            return Behaviour(self._seconds[job_id], outcome, self._failed.get(job_id, ()))
        return Behaviour(self._seconds[job_id])


def _unusual(frame: pl.DataFrame, column: str, which: pl.Expr) -> dict[int, Any]:
    if column not in frame.columns:
        return {}
    found = frame.select(column).with_row_index("id").filter(which)
    values = found[column].to_list()
    if found.schema[column] == pl.String:
        values = list(map(sys.intern, values))
    return dict(zip(found["id"].to_list(), values, strict=True))


_JOB_FIELDS = Job.__struct_fields__
_JOB_DEFAULTS = dict(zip(_JOB_FIELDS[-len(Job.__struct_defaults__) :], Job.__struct_defaults__, strict=True))

JOB_SCHEMA: dict[str, Any] = {
    "name": pl.String,
    "submit_s": pl.Float64,
    "duration_s": pl.Float64,
    "gpus": pl.Int64,
    "model": pl.String,
    "memory_bytes": pl.Int64,
    "compute_milli": pl.Int64,
    "sharing": pl.String,
    "tenant": pl.String,
    "user": pl.String,
    "priority": pl.Int64,
    "estimate_s": pl.Float64,
    "device_types": pl.List(pl.String),
    "cpu_milli": pl.Int64,
    "host_memory_bytes": pl.Int64,
    "min_gpus": pl.Int64,
    "max_gpus": pl.Int64,
    "job_class": pl.String,
    "state_bytes": pl.Int64,
    "leave_s": pl.Float64,
    "deadline_s": pl.Float64,
    "suspendable": pl.Boolean,
    "determinism": pl.String,
    "outcome": pl.String,
    "failed_after_s": pl.List(pl.Float64),
}
"""Columns a workload frame may have; only name, submit_s and duration_s must be there.

Absent columns take the defaults of ``Job`` and ``Behaviour``. No cell may be null.
"""

_SHARED = frozenset({"model", "tenant", "user"})
_ALIKE = frozenset(
    {
        "memory_bytes",
        "compute_milli",
        "cpu_milli",
        "host_memory_bytes",
        "state_bytes",
        "leave_s",
        "deadline_s",
    }
)
_NEEDED = ("name", "submit_s", "duration_s")
_CHUNK = 8192


class Workload:
    """Jobs in submission order.

    Parameters
    ----------
    frame : polars.DataFrame
        One row for each job, columns from ``JOB_SCHEMA``, nothing null. Sorted here by
        ``submit_s``, ties by name (shorter first, so numbered ids keep their order): the
        result does not depend on the order of lines in a file.
    name : str
        For the log and reports.
    cluster : Cluster, optional
        The cluster, where the trace's format has one.
    report : object, optional
        The data report of the reader (``traces.report.DataReport``).
    assumptions : tuple of str
        Sentences that every report must print.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        *,
        name: str = "workload",
        cluster: Cluster | None = None,
        report: Any = None,
        assumptions: tuple[str, ...] = (),
    ) -> None:
        self.frame = _checked(frame)
        self.name = name
        self.cluster = cluster
        self.report = report
        self.assumptions = assumptions

    def __len__(self) -> int:
        return self.frame.height

    def with_frame(self, frame: pl.DataFrame, *assumptions: str) -> Workload:
        """A copy with another frame and further assumptions."""
        return Workload(
            frame,
            name=self.name,
            cluster=self.cluster,
            report=self.report,
            assumptions=self.assumptions + assumptions,
        )

    def pairs(self) -> Iterator[tuple[Job, Behaviour]]:
        """(Declared, true) for each job, built a few thousand at a time."""
        # Chained, not yielded one by one: then no step of it runs in Python for each job.
        return chain.from_iterable(self._chunks())

    def _chunks(self) -> Iterator[Iterator[tuple[Job, Behaviour]]]:
        for start in range(0, self.frame.height, _CHUNK):
            chunk = self.frame.slice(start, _CHUNK)
            yield zip(_jobs(chunk, start), _behaviours(chunk), strict=True)

    def jobs(self) -> Iterator[Job]:
        """The declared half only, built a few thousand at a time."""
        starts = range(0, self.frame.height, _CHUNK)
        return chain.from_iterable(_jobs(self.frame.slice(start, _CHUNK), start) for start in starts)


def _checked(frame: pl.DataFrame) -> pl.DataFrame:
    missing = [c for c in _NEEDED if c not in frame.columns]
    unknown = [c for c in frame.columns if c not in JOB_SCHEMA]
    if missing or unknown:
        raise InputError(f"workload columns: missing {missing or 'none'}, unknown {unknown or 'none'}")
    frame = frame.cast({c: JOB_SCHEMA[c] for c in frame.columns})
    nulls = [c for c in frame.columns if frame[c].null_count()]
    if nulls:
        raise InputError(f"workload columns with empty cells: {nulls}; readers must decide on each")
    for column, low in (("submit_s", None), ("duration_s", 0.0), ("gpus", 0)):
        if column in frame.columns and frame.height:
            bad = frame.filter(
                ~pl.col(column).cast(pl.Float64).is_finite()
                | (pl.lit(False) if low is None else pl.col(column) < low)
            )
            if bad.height:
                raise InputError(f'job "{bad["name"][0]}" has {column}={bad[column][0]}')
    if frame["name"].n_unique() != frame.height:
        twice = frame["name"].filter(frame["name"].is_duplicated())[0]
        raise InputError(f'job name "{twice}" appears more than once')
    return frame.sort("submit_s", pl.col("name").str.len_bytes(), "name", maintain_order=True)


def _jobs(chunk: pl.DataFrame, start: int) -> list[Job]:
    columns: list[Any] = [range(start, start + chunk.height)]
    given = {field for field in _JOB_FIELDS if field in chunk.columns}
    if "failed_after_s" in chunk.columns:
        given.add("retries")
    # What comes after the last column that is given takes its default by itself.
    last = max(i for i, field in enumerate(_JOB_FIELDS) if field in given)
    for field in _JOB_FIELDS[1 : last + 1]:
        if field not in given:
            columns.append(repeat(_JOB_DEFAULTS[field]))
        elif field == "retries":
            columns.append(chunk["failed_after_s"].list.len().to_list())
        elif field == "device_types":
            columns.append([tuple(row) for row in chunk[field].to_list()])
        elif field in _SHARED:
            # One string for all jobs that say the same, not one for each waiting job.
            columns.append(map(sys.intern, chunk[field].to_list()))
        elif field in _ALIKE:
            # Large numbers are objects, too, and few are different.
            values = chunk[field].to_list()
            columns.append(map(dict(zip(values, values, strict=True)).__getitem__, values))
        else:
            columns.append(chunk[field].to_list())
    return list(map(Job, *columns))


def _behaviours(chunk: pl.DataFrame) -> list[Behaviour]:
    columns: list[Any] = [chunk["duration_s"].to_list()]
    columns.append(chunk["outcome"].to_list() if "outcome" in chunk.columns else repeat("done"))
    if "failed_after_s" in chunk.columns:
        columns.append([tuple(row) for row in chunk["failed_after_s"].to_list()])
    else:
        columns.append(repeat(()))
    return list(map(Behaviour, *columns))
