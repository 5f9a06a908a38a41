"""From cleaned rows to a workload: the rules that are the same for every format."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from cotenant.errors import InputError
from cotenant.model.cluster import Cluster
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.traces.options import ReadOptions, Window
from cotenant.traces.table import Rows

__all__ = ["clock_text", "finish", "interval_rules", "within"]

_SPAN_FACTOR = 1000.0
_DAY_S = 86_400.0
_MODERN_S = 1e9  # as seconds since 1970, 2001
_NEVER_SECONDS = 1e11  # as seconds since 1970 this is the year 5138; as milliseconds, 1973


def interval_rules(rows: Rows, start: str = "start_s", end: str = "end_s") -> None:
    """Turn start and end, in seconds of the trace's own clock, into ``duration_s``.

    Time 0 is the start of the observed window (alibaba/clusterdata issues 29 and 167). Ended by
    then: outside, dropped. Began before and ended after: kept, as running at 0 with the rest left.
    No end, or end 0 after a start: not known, set aside. End before start: an error row, dropped.
    No running time at all: kept. A start at the beginning of 1970 with an end after 2001 is an
    empty date that some tool wrote as 0: not known, set aside. No start: set aside, unless dropped before by the caller.
    """
    begin, stop = pl.col(start), pl.col(end)
    rows.drop((begin < 0) & (stop <= 0), "outside the trace's window: ended before time 0", column=start)
    rows.set_aside(begin.is_null(), "never started: running time unknown")
    rows.set_aside(stop.is_null() | ((stop == 0) & (begin > 0)), "end unknown: running time censored")
    rows.set_aside(
        (begin < _DAY_S) & (stop > _MODERN_S), "started in 1970, ended decades later: start unknown"
    )
    rows.drop(stop < begin, "ends before it starts", column=end)
    rows.flag((begin < 0) & (stop > 0), "began before the trace: kept as running at 0 with the time left")
    rows.add(**{start: pl.when(begin < 0).then(0.0).otherwise(begin)})
    rows.add(duration_s=stop - begin)


def finish(
    rows: Rows,
    options: ReadOptions,
    *,
    keep: Sequence[str],
    zero: Literal["first", "trace"] = "first",
    clock: Literal["epoch", "local", "trace"] = "epoch",
    cluster: Cluster | None = None,
    folded: int = 0,
) -> Workload:
    """Apply window and CPU options, shift the clock, check the span and balance the report.

    Parameters
    ----------
    keep : sequence of str
        Columns of ``rows.frame`` that go into the workload, beside ``name``, ``submit_s`` and
        ``duration_s``; names and units as in ``model.workload.JOB_SCHEMA``.
    zero : {"first", "trace"}
        Time 0 is the first submission, or the trace's own.
    clock : {"epoch", "local", "trace"}
        What ``submit_s`` counts from: 1970 UTC, 1970 on the file's own clock, or the trace's own origin.
    folded : int
        Rows of the file that were summed up in others (telemetry), kept all the same.

    Returns
    -------
    Workload
        ``len(workload) == report.rows_kept - sum(not_simulated) - folded``.
    """
    report = rows.report
    columns = ["name", "submit_s", "duration_s", *(c for c in keep if c in JOB_SCHEMA)]
    if clock != "trace" and rows.frame.height:
        modern = pl.col("submit_s").max() > _MODERN_S
        rows.set_aside((pl.col("submit_s") < _DAY_S) & modern, "submitted in 1970: no submission time")
    if options.window is not None:
        first = rows.frame["submit_s"].min() if zero == "first" and rows.frame.height else 0.0
        inside, words = within(
            options.window, "submit_s", first, dates=clock != "trace", format_name=report.format
        )
        rows.exclude(~inside, f"submitted outside the asked window {words}")
    if "gpus" in keep:
        _cpu_jobs(rows, options)
    _check_span(rows)
    report.time_zero_s = 0.0
    if zero == "first":
        _shift(rows, columns, clock)
    rows.flag(pl.col("duration_s") == 0, "no running time at all (0 s), kept")
    frame = rows.frame.select(columns)
    report.rows_kept = frame.height + sum(f.rows for f in report.not_simulated) + folded
    report.check()
    return Workload(
        frame,
        name=Path(report.path).name,
        cluster=cluster,
        report=report,
        assumptions=tuple(report.assumptions),
    )


def within(
    window: Window, column: str, zero_s: object, *, dates: bool, format_name: str
) -> tuple[pl.Expr, str]:
    """Whether a time lies in the window, and the window in words.

    Raises
    ------
    InputError
        If the window is given as dates and the trace has none.
    """
    if window.dates and not dates:
        raise InputError(f'trace format "{format_name}" has no dates; give the window in seconds from time 0')
    start = 0.0 if window.dates or not isinstance(zero_s, int | float) else float(zero_s)
    low, high = start + window.low, start + window.high
    words = f"[{window.low:.15g}, {window.high:.15g}) s from time 0"
    if window.dates:
        words = f"[{clock_text(low)}, {clock_text(high)})".replace(" UTC", "")
    return (pl.col(column) >= low) & (pl.col(column) < high), words


def _cpu_jobs(rows: Rows, options: ReadOptions) -> None:
    none = pl.col("gpus") == 0
    if options.cpu_jobs == "drop":
        rows.exclude(none, "CPU-only job (asks for no GPU)")
    else:
        rows.flag(none, "CPU-only job (asks for no GPU), kept with gpus=0")


def _shift(rows: Rows, columns: Sequence[str], clock: str) -> None:
    first = rows.frame["submit_s"].min() if rows.frame.height else None
    if not isinstance(first, int | float):
        return
    rows.report.time_zero_s = float(first)
    rows.add(submit_s=pl.col("submit_s") - first)
    for column in ("leave_s", "deadline_s"):
        if column in columns:
            later = pl.col(column)
            rows.add(**{column: pl.when(later > 0).then(later - first).otherwise(0.0)})
    where = f"{first:.15g} s of the trace's own clock"
    if clock != "trace":
        where = clock_text(first)
    if clock == "local":
        where = where.removesuffix(" UTC") + " as written, zone unknown"
    rows.report.assumptions.append(f"Time 0 is the first submission, {where}.")


def clock_text(epoch_s: float) -> str:
    """Seconds since 1970 as text.

    >>> clock_text(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{epoch_s:g} s after 1970-01-01 UTC"


def _check_span(rows: Rows) -> None:
    """Remark on arrivals so thin, against running times, that they may be milliseconds."""
    if not rows.frame.height:
        return
    submit = np.sort(rows.frame["submit_s"].to_numpy())
    gaps = np.diff(submit)
    gaps = gaps[gaps > 0]
    total = float(rows.frame["duration_s"].sum())
    # The median, so that one long pause does not count.
    typical = float(np.median(gaps)) * gaps.size if gaps.size >= 2 else 0.0
    if submit[0] > _NEVER_SECONDS or (total > 0 and typical > _SPAN_FACTOR * total):
        rows.flag(
            pl.lit(True),
            "submission times span 1,000x longer than the running times suggest: milliseconds?",
        )
