"""The job log of Microsoft Philly as published: one JSON list of jobs with their attempts.

Data of M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019 (msr-fiddle/philly-traces).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import polars as pl

from cotenant.errors import InputError, TraceError
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines, plain_name, read_text
from cotenant.traces.finish import finish
from cotenant.traces.options import take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.table import LINE, Rows, as_seconds

__all__ = ["PhillyRawReader"]

_OUTCOMES = {"Pass": "done", "Killed": "cancelled", "Failed": "failed"}
_JOB_LOG = "give cluster_job_log as the trace"
_OTHERS: Others = {
    ("time", "machineId", "gpu0_util"): f"GPU utilisation per machine and minute; {_JOB_LOG}",
    ("time", "machine_id", "cpu_util"): f"CPU utilisation per machine and minute; {_JOB_LOG}",
    ("time", "machine_id", "mem_total"): f"memory per machine and minute; {_JOB_LOG}",
    ("machineId", "number of GPUs"): f"the machines; give it as the cluster, and {_JOB_LOG}",
    ("time", "active", "total"): f"active and total machines per minute; {_JOB_LOG}",
}
_MARKS = (b'"jobid"', b'"attempts"', b'"submitted_time"')
_ATTEMPTS = {
    "job": pl.Int64,
    "order": pl.Int64,
    "start": pl.String,
    "end": pl.String,
    "used_gpus": pl.Int64,
}


class PhillyRawReader:
    """Reads ``cluster_job_log``.

    GPUs are the devices that the last attempt of known running time held. Earlier attempts of
    known length become failed attempts. A job without attempts never started, and one whose
    last attempt has no end was still running: both are counted and not simulated, unless
    ``cut_off`` gives the time of the snapshot for the latter.
    """

    format: ClassVar[str] = "philly-raw"
    title: ClassVar[str] = "Microsoft Philly 2017, job log (JSON)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if a JSON list begins with jobs that have attempts, or at the trace's other tables."""
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            found = sum(mark in head for mark in _MARKS)
            return 0.95 if found == len(_MARKS) else 0.3 * ("cluster_job_log" in plain_name(path))
        return 0.9 if is_other(first_lines(head, 1), _OTHERS) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs.

        Parameters
        ----------
        cut_off : str
            Time of the snapshot, ``YYYY-MM-DD HH:MM:SS`` on the log's clock: jobs still running
            are taken to end then.

        Raises
        ------
        TraceError
            If it is not such a list, or under ``strict`` at the first bad job.
        """
        common, own = take_options(self.format, options, {"cut_off": ""})
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        refuse_other(path, _OTHERS)
        text = read_text(path, encoding=common.encoding, progress=common.progress)
        jobs, attempts = _frames(_entries(text, path), text, report)
        rows = Rows(jobs, report, frozenset(jobs.columns))
        report.time_zone = (
            common.time_zone or "none in file: local time read as written, without clock changes"
        )
        _with_attempts(rows, attempts, common.time_zone, _cut_off(str(own["cut_off"]), common.time_zone))
        rows.duplicates(
            ("jobid", "vc", "user", "status", "submitted_time", "tries"), common.duplicates, "drop"
        )
        rows.unique_names("jobid", ("vc", "user", "status", "submitted_time", "tries"))
        _set_aside(rows, cut=bool(own["cut_off"]), zone=common.time_zone)
        known = pl.col("status").replace_strict(_OUTCOMES, default=None, return_dtype=pl.String)
        rows.flag(
            known.is_null(), "status is not Pass, Killed or Failed; taken as done", show=pl.col("status")
        )
        rows.add(outcome=known.fill_null("done"), tenant=pl.col("vc"))
        return finish(
            rows,
            common,
            keep=("gpus", "tenant", "user", "outcome", "failed_after_s"),
            clock="epoch" if common.time_zone else "local",
        )


def _cut_off(text: str, zone: str) -> float | None:
    if not text.strip():
        return None
    found = pl.DataFrame({"t": [text]}).select(as_seconds(pl.col("t"), zone).alias("s"))["s"][0]
    if found is None:
        raise InputError(f'option cut_off={text!r}: write a time such as "2017-12-15 00:00:00"')
    return float(found)


def _entries(text: str, path: Path) -> list[Any]:
    try:
        entries = msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        place = re.search(r"byte (\d+)", str(error))
        line = text.encode()[: int(place.group(1))].count(b"\n") + 1 if place else None
        raise TraceError(f"not valid JSON: {error}", path=path, line=line) from error
    except (RecursionError, UnicodeError) as error:
        raise TraceError(f"JSON that cannot be read: {error}", path=path) from error
    if not isinstance(entries, list):
        raise TraceError(f"expected one JSON list of jobs, found {type(entries).__name__}", path=path)
    return entries


def _frames(entries: list[Any], text: str, report: DataReport) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Jobs, and their attempts by job index, as text; entries that are not jobs are dropped."""
    report.rows_read = len(entries)
    if not entries:
        report.assumptions.append("The list is empty: 0 jobs.")
    lines = _lines(text, len(entries))
    jobs: list[tuple[Any, ...]] = []
    tries: list[tuple[Any, ...]] = []
    for index, entry in enumerate(entries):
        line = lines[index] if lines else None
        if not isinstance(entry, dict) or not _word(entry.get("jobid")):
            report.drop("not a job: no object with a jobid", line, f"entry {index + 1} of the list")
            continue
        words = [_word(entry.get(k)) for k in ("jobid", "vc", "user", "status", "submitted_time")]
        attempts = entry.get("attempts")
        listed = [a for a in attempts if isinstance(a, dict)] if isinstance(attempts, list) else []
        jobs.append((index, line or 1, *words, len(listed)))
        for order, attempt in enumerate(listed):
            times = (_word(attempt.get("start_time")), _word(attempt.get("end_time")))
            tries.append((index, order, *times, _gpus(attempt.get("detail"))))
    schema: dict[str, Any] = {"job": pl.Int64, LINE: pl.Int64}
    schema |= dict.fromkeys(("jobid", "vc", "user", "status", "submitted_time"), pl.String)
    schema["attempts"] = pl.Int64
    return (
        pl.DataFrame(jobs, schema=schema, orient="row"),
        pl.DataFrame(tries, schema=dict(_ATTEMPTS), orient="row"),
    )


def _lines(text: str, count: int) -> list[int]:
    """Line of each ``"jobid"``; empty if they cannot be matched to the entries."""
    found: list[int] = []
    line, at = 1, 0
    for mark in re.finditer('"jobid"', text):
        line += text.count("\n", at, mark.start())
        at = mark.start()
        found.append(line)
    return found if len(found) == count else []


def _word(value: Any) -> str:
    if value is None or isinstance(value, list | dict):
        return ""
    text = str(value).strip()
    return "" if text.lower() in ("none", "null", "nan") else text.encode("utf-8", "replace").decode()


def _gpus(detail: Any) -> int:
    if not isinstance(detail, list):
        return 0
    held = [part.get("gpus") for part in detail if isinstance(part, dict)]
    return sum(len(gpus) for gpus in held if isinstance(gpus, list))


def _with_attempts(rows: Rows, attempts: pl.DataFrame, zone: str, cut_off: float | None) -> None:
    """Add to each job what its attempts say."""
    stop = as_seconds(pl.col("end"), zone)
    timed = attempts.with_columns(start_s=as_seconds(pl.col("start"), zone), end_s=stop).sort("job", "order")
    last = pl.col("order") == pl.col("order").max().over("job")
    timed = timed.with_columns(censored=last & pl.col("start_s").is_not_null() & pl.col("end_s").is_null())
    if cut_off is not None:
        cut = pl.when("censored").then(pl.lit(cut_off)).otherwise(pl.col("end_s"))
        timed = timed.with_columns(end_s=cut)
    timed = timed.with_columns(length_s=pl.col("end_s") - pl.col("start_s"))
    backward = pl.col("length_s") < 0
    known = pl.col("length_s") >= 0
    summed = timed.group_by("job", maintain_order=True).agg(
        pl.col("length_s").filter(known).alias("lengths_s"),
        pl.col("used_gpus").filter(known).last().alias("last_gpus"),
        pl.col("used_gpus").filter(known).n_unique().alias("sizes"),
        pl.col("start_s").min().alias("start_s"),
        pl.col("censored").any().alias("censored"),
        pl.col("used_gpus").max().alias("most_gpus"),
        (known.fill_null(False).not_() & ~backward.fill_null(False) & ~pl.col("censored"))
        .sum()
        .alias("unknown"),
        backward.fill_null(False).sum().alias("backward"),
        pl.format("{}/{}/{}", "start", "end", "used_gpus").str.join(";").alias("tries"),
    )
    rows.frame = rows.frame.join(summed, on="job", how="left", maintain_order="left").with_columns(
        pl.col("tries").fill_null("")
    )


def _set_aside(rows: Rows, *, cut: bool, zone: str) -> None:
    rows.set_aside(pl.col("attempts") == 0, "no attempts: never started, GPU need unknown")
    censored = pl.col("censored")
    if cut:
        rows.flag(censored, "last attempt has no end: taken to end at cut_off")
    else:
        rows.set_aside(
            censored,
            "last attempt has no end: still running, running time censored (cut_off gives it an end)",
            show=pl.format("{} GPUs", "most_gpus"),
        )
    rows.repair(pl.col("backward") > 0, "attempt ends before it starts, ignored")
    rows.flag(pl.col("unknown") > 0, "attempt with unknown running time, not replayed")
    rows.set_aside(pl.col("lengths_s").list.len() == 0, "no attempt with a known running time")
    rows.set_aside(pl.col("last_gpus") == 0, "attempts list no GPUs: GPU need unknown")
    rows.time("submitted_time", zone=zone, empty="null", into="submit_s")
    rows.set_aside(pl.col("submit_s").is_null(), "no submission time: arrivals cannot be replayed")
    rows.flag(pl.col("start_s") < pl.col("submit_s"), "starts before it was submitted; both times kept")
    rows.flag(pl.col("sizes") > 1, "attempts held different numbers of GPUs: the last number is used")
    lengths = pl.col("lengths_s")
    rows.add(duration_s=lengths.list.last(), failed_after_s=lengths.list.slice(0, lengths.list.len() - 1))
    rows.add(gpus=pl.col("last_gpus").cast(pl.Int64))
    rows.flag(lengths.list.len() > 1, "several attempts: all but the last are replayed as failures")
