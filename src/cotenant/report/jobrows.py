"""The table of jobs, made from the accumulators when and as far as it is asked for.

A table of a million jobs with all that follows from the accumulators is twice as large as they
are; numbers over all jobs need one column at a time, and the file is written a part at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cotenant.report.columns import Codes
from cotenant.report.jobtable import EXPECTED, WORDS, JobTable, Outcomes

__all__ = ["JobRows"]

Ints = npt.NDArray[Any]
Floats = npt.NDArray[Any]

PART = 65536
"""Rows made at once."""


class JobRows:
    """Rows of the jobs that were submitted, by id, as of one moment.

    Parameters
    ----------
    table : JobTable
        It must stay as it is; see ``detach``.
    end_s : float
        The moment.
    capacity : int
        Devices of the cluster.
    """

    def __init__(self, table: JobTable, end_s: float, capacity: int) -> None:
        self._table, self._end_s, self._capacity = table, end_s, max(capacity, 1)
        self.ids: Ints = np.flatnonzero(~np.isnan(table.submit_s[: table.size])).astype(np.int32)

    @property
    def height(self) -> int:
        """Number of jobs."""
        return int(self.ids.size)

    @property
    def foretold(self) -> bool:
        """Whether the running time of any job was predicted."""
        return bool(self._table.expected_s.any())

    def detach(self) -> None:
        """Go on with a copy, since the table is about to change."""
        self._table = self._table.copy()

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers for all jobs; NaN where it does not apply. Outcomes and words are codes."""
        out = np.empty(self.height, dtype=self._value(name, self.ids[:0]).dtype)
        for part in self._parts():
            out[part] = self._value(name, self.ids[part])
        return out

    def words(self, name: str) -> list[str]:
        """Words of a column by their codes."""
        return self._table.codes[name].words

    def frame(self) -> pl.DataFrame:
        """All rows; null where a value does not apply."""
        parts = list(self.frames())
        return pl.concat(parts, rechunk=True) if len(parts) > 1 else parts[0]

    def frames(self) -> Iterator[pl.DataFrame]:
        """All rows, a part at a time."""
        names = self._table.names(self.ids)
        for part in self._parts() or [slice(0, 0)]:
            yield self._frame(self.ids[part], names[part])

    def some(self, ids: Ints) -> pl.DataFrame:
        """Rows of these jobs only."""
        return self._frame(ids, self._table.names(self.ids).gather(np.searchsorted(self.ids, ids)))

    def write_parquet(self, path: Path) -> None:
        """Write all rows."""
        write_parts(self.frames(), self._frame(self.ids[:0], pl.Series([], dtype=pl.String)).schema, path)

    def _parts(self) -> list[slice]:
        return [slice(begin, begin + PART) for begin in range(0, self.height, PART)]

    def _frame(self, ids: Ints, names: pl.Series) -> pl.DataFrame:
        table = self._table
        columns: dict[str, Any] = {"id": ids.astype(np.int64), "name": names}
        columns |= {name: _words(table.codes[name], self._value(name, ids)) for name in WORDS}
        columns |= {name: self._value(name, ids) for name in _NUMBERS}
        outcomes = pl.Series(Outcomes.NAMES, dtype=pl.String).gather(self._value("outcome", ids))
        frame = pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))
        return frame.insert_column(frame.columns.index("end_s") + 1, outcomes.alias("outcome"))

    def _value(self, name: str, ids: Ints) -> npt.NDArray[Any]:
        table, end_s, value = self._table, self._end_s, self._value
        found: npt.NDArray[Any]
        match name:
            case "outcome":
                found = table.outcome[ids].astype(np.int64)
                found[(table.width[ids] >= 0) & (found == 0)] = Outcomes.RUNNING
            case "wait_s":
                found = table.first_s[ids] - table.submit_s[ids]
            case "queued_s":
                found = _clean(table.queued_s[ids] + (table.reason[ids] >= 0) * end_s)
            case "run_s":
                found = _clean(table.run_s[ids] + (table.width[ids] >= 0) * end_s)
            case "gpu_s":
                found = _clean(table.gpu_s[ids] + np.maximum(table.width[ids], 0) * end_s)
            case "jct_s":
                whole = ~np.isnan(table.first_s[ids]) & (table.outcome[ids] != Outcomes.REJECTED)
                found = np.where(whole, table.end_s[ids] - table.submit_s[ids], np.nan)
            case "work_s":
                found = value("kept_s", ids) + table.of("failed_work_s", ids)
            case "kept_s":  # what failed attempts did is lost, so it is in no sum of useful work
                found = table.work_s[ids] + table.open_work_s[ids]
            case "happened_s":
                judged = (table.of("expected_s", ids) > 0) & (table.outcome[ids] == Outcomes.DONE)
                found = np.where(judged, table.work_s[ids], np.nan)
            case "expected_s" | "expected_low_s" | "expected_high_s":
                found = np.where(table.of("expected_s", ids) > 0, table.of(name, ids), np.nan)
            case "ideal_s":
                work, over = value("work_s", ids), np.isin(table.outcome[ids], _OVER)
                found = np.where(over & ~np.isnan(table.first_s[ids]) & (work > 0), work, np.nan)
            case "slowdown" | "corun_slowdown":
                found = value("jct_s" if name == "slowdown" else "run_s", ids) / value("ideal_s", ids)
            case "rho":
                jct = value("jct_s", ids)
                contention = table.demand[ids] / (np.where(jct > 0, jct, np.nan) * self._capacity)
                found = jct / (value("ideal_s", ids) * np.maximum(1.0, contention))
            case _:
                found = table.stored(name)[ids]
        return found


_NUMBERS = (
    "gpus",
    "priority",
    "submit_s",
    "first_start_s",
    "end_s",
    "wait_s",
    "queued_s",
    "run_s",
    "gpu_s",
    "jct_s",
    "work_s",
    "slowdown",
    "corun_slowdown",
    "rho",
    "attempts",
    "preemptions",
    "moves",
    "lost_s",
    "nodes",
    *EXPECTED,
    "happened_s",
)
_OVER = (Outcomes.DONE, Outcomes.FAILED, Outcomes.CANCELLED)


def write_parts(parts: Iterator[pl.DataFrame], schema: pl.Schema, path: Path) -> None:
    """Write a frame that is never whole in memory to Parquet."""
    from polars.io.plugins import register_io_source

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        # Nothing stands between this and the file, so nothing is ever asked of it but all rows.
        yield from parts

    register_io_source(source, schema=schema).sink_parquet(path, compression="zstd", row_group_size=PART)


def _words(codes: Codes, chosen: Ints) -> pl.Series:
    return pl.Series(codes.words, dtype=pl.String).gather(chosen)


def _clean(seconds: Floats) -> Floats:
    # Sums of large times of both signs leave rounding dust behind; a microsecond is nothing here.
    return np.round(seconds, 6) + 0.0
