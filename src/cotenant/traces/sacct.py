"""Exports of Slurm's accounting, as ``sacct --parsable2`` writes them, with a header line.

    sacct --allusers --parsable2 --starttime ... --format=JobID,JobName,State,Submit,Start,End,\
Elapsed,Timelimit,ReqTRES,ReqMem,User,Account

Steps are not jobs. A job name may hold the delimiter: the row is put right where exactly one reading
makes sense, and otherwise reported by its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import InputError, QuantityError, TraceError
from cotenant.model.quantities import GIB, parse_duration
from cotenant.model.workload import Workload
from cotenant.profiles.catalogue import canonical_type
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines, read_text
from cotenant.traces.finish import finish
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.sacctfields import (
    OUTCOMES,
    WAITING,
    Asked,
    array_tasks,
    parse_limit,
    parse_memory,
    parse_state,
    parse_tres,
)
from cotenant.traces.table import LINE, Rows, as_seconds

__all__ = ["SacctReader", "sacct_jobs"]

_NEEDED = ("JobID", "State", "Submit", "Start", "End")
_RESOURCES = ("ReqTRES", "AllocTRES", "ReqGRES", "AllocGRES")
_OPTIONAL = (
    "JobName",
    "Elapsed",
    "ElapsedRaw",
    "Timelimit",
    "ReqMem",
    "User",
    "Account",
    "ReqCPUS",
    "ReqNodes",
)
_FORMAT = "sacct --parsable2 --format=JobID,JobName,State,Submit,Start,End,Elapsed,Timelimit,ReqTRES,ReqMem"
_TIMES = ("Submit", "Start", "End")
_ABSENT = {"", "none", "unknown"}


class SacctReader:
    """Reads ``sacct --parsable2`` (or ``--parsable``) output with a header.

    Option ``delimiter`` (default ``|``) is that of ``sacct --delimiter``.
    """

    format: ClassVar[str] = "sacct"
    title: ClassVar[str] = "Slurm accounting (sacct --parsable2)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the needed fields between bars."""
        lines = first_lines(head, 1)
        cells = lines[0].split("|") if lines else []
        return 0.95 if {"JobID", "State"} <= set(cells) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; options as in the class and in ``traces.options.ReadOptions``.

        Jobs that never started or have not ended are set aside, with the reason. ``sacct_jobs``
        lists them all.

        Raises
        ------
        TraceError
            If the file cannot be read, or under ``strict`` at the first bad row.
        """
        rows, common = _open(path, options)
        _fields(rows, common)
        report = rows.report
        for state, reason in WAITING.items():
            rows.set_aside(pl.col("state") == state, reason)
        rows.set_aside(pl.col("start_s").is_null(), "never started (ended while waiting)")
        rows.set_aside(pl.col("duration_s").is_null(), "no end and no elapsed time: running time unknown")
        rows.drop(pl.col("submit_s").is_null(), "Submit is not a time", column="Submit")
        rows.drop(pl.col("duration_s") < 0, "ends before it starts", column="End")
        rows.flag(pl.col("start_s") < pl.col("submit_s"), "starts before it is submitted; start is not used")
        rows.add(outcome=pl.col("state").replace_strict(OUTCOMES, default="failed", return_dtype=pl.String))
        rows.add(base=pl.col("JobID").str.strip_chars())
        rows.unique_names("base", ("submit_s", "start_s", "duration_s", "gpus"))
        report.time_zone = common.time_zone or "none in file: local time read as written"
        keep = (
            "gpus", "outcome", "estimate_s", "cpu_milli", "host_memory_bytes", "tenant", "user", "device_types",
            "memory_bytes", "compute_milli", "sharing",
        )  # fmt: skip
        return finish(rows, common, keep=keep, clock="epoch" if common.time_zone else "local")


def sacct_jobs(path: str | Path, **options: Any) -> pl.DataFrame:
    """Every job of an export, those that cannot be replayed included.

    Returns
    -------
    polars.DataFrame
        Columns ``job_id``, ``name``, ``state``, ``tasks`` and ``at_once`` (of a waiting array; 0: no bound),
        ``submit_s``, ``start_s``, ``end_s`` (since 1970, null if not known), ``duration_s``, ``limit_s``,
        ``limit_kind`` (``set``, ``none``, ``inherited``, ``not given``), ``gpus``, ``gpu_type``,
        ``cpu_milli``, ``host_memory_bytes``.

    Raises
    ------
    TraceError
        As ``SacctReader.read``.
    """
    rows, common = _open(Path(path), options)
    _fields(rows, common)
    arrays = [array_tasks(job) or (1, 0) for job in rows.frame["JobID"]]
    return rows.frame.select(
        pl.col("JobID").str.strip_chars().alias("job_id"),
        pl.col("JobName").alias("name"),
        "state",
        pl.Series("tasks", [a[0] for a in arrays], dtype=pl.Int64),
        pl.Series("at_once", [a[1] for a in arrays], dtype=pl.Int64),
        "submit_s",
        "start_s",
        "end_s",
        "duration_s",
        pl.col("estimate_s").alias("limit_s"),
        "limit_kind",
        "gpus",
        "gpu_type",
        "cpu_milli",
        "host_memory_bytes",
    )


def _open(path: Path, options: dict[str, Any]) -> tuple[Rows, ReadOptions]:
    common, own = take_options("sacct", options, {"delimiter": "|"})
    delimiter = str(own["delimiter"])
    if not delimiter or "\n" in delimiter:
        raise InputError(f"option delimiter must be a character or more, found {delimiter!r}")
    report = DataReport(format="sacct", path=str(path), strict=common.strict)
    text = read_text(path, encoding=common.encoding, progress=common.progress)
    if "\n" not in text:
        text = text.replace("\r", "\n")
    lines = [(n, line.removesuffix("\r")) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise TraceError(f"holds no line; write it with {_FORMAT}", path=path)
    header = [cell.strip() for cell in lines[0][1].split(delimiter)]
    # --parsable ends each line with the delimiter, --parsable2 does not.
    width = len(header) - (1 if header[-1] == "" else 0)
    missing = [name for name in _NEEDED if name not in header]
    if missing or not set(_RESOURCES) & set(header):
        wanted = ", ".join(missing) or "ReqTRES"
        raise TraceError(f"missing field(s) {wanted}; write it with {_FORMAT}", path=path, line=lines[0][0])
    twice = [name for name in header[:width] if header.count(name) > 1]
    if twice:
        raise TraceError(f'field "{twice[0]}" appears twice in the header', path=path, line=lines[0][0])
    return _split(lines, header, width, delimiter, report), common


def _split(
    lines: Sequence[tuple[int, str]], header: list[str], width: int, delimiter: str, report: DataReport
) -> Rows:
    kept: list[list[str]] = []
    numbers: list[int] = []
    report.rows_read = len(lines) - 1
    if report.rows_read == 0:
        report.assumptions.append("The file holds a header and no rows: 0 jobs.")
    for number, line in lines[1:]:
        cells = line.split(delimiter)
        if len(cells) != len(header):
            mended = _mend(cells, header, delimiter)
            if mended is None:
                report.drop(f"not {width} fields", number, f"{len(cells)} fields: {line}")
                continue
            report.repair("delimiter inside JobName, put right", number, line)
            cells = mended
        kept.append(cells)
        numbers.append(number)
    names = [name for name in (*_NEEDED, *_RESOURCES, *_OPTIONAL) if name in header]
    made: dict[str, Any] = {LINE: pl.Series(numbers, dtype=pl.Int64)}
    for name in (*_NEEDED, *_RESOURCES, *_OPTIONAL):
        at = header.index(name) if name in header else None
        made[name] = pl.Series(["" if at is None else row[at] for row in kept], dtype=pl.String)
        if name in _TIMES:
            # "Unknown" is Slurm's word for a time that is still to come.
            made[name] = made[name].replace("Unknown", "")
    return Rows(pl.DataFrame(made), report, frozenset(names))


def _mend(cells: list[str], header: list[str], delimiter: str) -> list[str] | None:
    """Join the surplus fields at the job's name, if everything else then reads as it should."""
    surplus = len(cells) - len(header)
    if surplus < 1 or "JobName" not in header:
        return None
    at = header.index("JobName")
    row = [*cells[:at], delimiter.join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]
    named = dict(zip(header, row, strict=True))
    if not named["JobID"].strip()[:1].isdigit() or not parse_state(named["State"]):
        return None
    times = pl.Series([named[t] for t in _TIMES if named[t].strip().lower() not in _ABSENT], dtype=pl.String)
    return None if pl.select(as_seconds(pl.lit(times))).to_series().null_count() else row


def _fields(rows: Rows, common: ReadOptions) -> None:
    rows.exclude(pl.col("JobID").str.contains(".", literal=True), "step of a job, not a job")
    rows.drop(~pl.col("JobID").str.contains(r"^\s*\d"), "JobID does not begin with a number", column="JobID")
    states = {text: parse_state(text) for text in rows.frame["State"].unique()}
    rows.add(state=pl.col("State").replace_strict(states, default="", return_dtype=pl.String))
    rows.drop(pl.col("state") == "", "State is not known", column="State")
    for column in _TIMES:
        rows.time(column, zone=common.time_zone, empty="null", into=f"{column.lower()}_s")
    _elapsed(rows)
    _limits(rows)
    _resources(rows)
    arrays = [array_tasks(job) for job in rows.frame["JobID"]]
    for line, job, array in zip(rows.frame[LINE], rows.frame["JobID"], arrays, strict=True):
        if array:
            most = f", at most {array[1]} at once" if array[1] else ""
            rows.report.flag(
                "array that has not started, one row for all its tasks",
                line,
                f"{job}: {array[0]} tasks{most}",
            )
    rows.add(tenant=pl.col("Account").str.strip_chars(), user=pl.col("User").str.strip_chars())


def _cells(rows: Rows, column: str, parse: Any, reason: str) -> dict[str, Any]:
    """Parse each different text once; rows with one that cannot be read are dropped."""
    made: dict[str, Any] = {}
    wrong: list[str] = []
    for text in rows.frame[column].unique().sort():
        try:
            made[text] = parse(text)
        except QuantityError:
            wrong.append(text)
    rows.drop(pl.col(column).is_in(wrong), reason, column=column)
    return made


def _elapsed(rows: Rows) -> None:
    def seconds(text: str) -> float | None:
        return None if text.strip().lower() in _ABSENT else parse_duration(text)

    source = "ElapsedRaw" if "ElapsedRaw" in rows.present else "Elapsed"
    made = _cells(
        rows,
        source,
        (lambda t: seconds(t and f"{t}s")) if source == "ElapsedRaw" else seconds,
        f"{source} is not a duration",
    )
    ran = pl.col(source).replace_strict(made, default=None, return_dtype=pl.Float64)
    between = pl.col("end_s") - pl.col("start_s")
    started = pl.col("start_s").is_not_null()
    rows.add(duration_s=pl.when(started).then(pl.coalesce(ran, between)).otherwise(None))
    ended = pl.col("state").is_in(list(OUTCOMES))
    rows.flag(
        ended & ((pl.col("duration_s") - between).abs() > 1),
        "Elapsed differs from End - Start (suspended?); Elapsed is used",
    )


def _limits(rows: Rows) -> None:
    made = _cells(rows, "Timelimit", parse_limit, "Timelimit is not a duration")
    seconds = {text: limit.seconds for text, limit in made.items()}
    kinds = {text: limit.kind for text, limit in made.items()}
    limit = pl.col("Timelimit")
    rows.add(
        estimate_s=limit.replace_strict(seconds, default=0.0, return_dtype=pl.Float64),
        limit_kind=limit.replace_strict(kinds, default="not given", return_dtype=pl.String),
    )
    rows.flag(pl.col("limit_kind") == "inherited", "time limit inherited from the partition, not in the file")


def _resources(rows: Rows) -> None:
    source = next(name for name in _RESOURCES if name in rows.present)
    asked: dict[str, Asked] = _cells(rows, source, parse_tres, f"{source} cannot be read")
    if source.startswith("Alloc"):
        rows.report.assumptions.append(
            f"Requests are taken from {source}: what was given, not what was asked for."
        )
    memory: list[int] = []
    cpus: list[int] = []
    keep: list[bool] = []
    columns = (LINE, source, "ReqMem", "ReqCPUS", "ReqNodes")
    for line, tres, req, cores, nodes in rows.frame.select(columns).iter_rows():
        need = asked[tres]
        cpu = need.cpus if need.cpus is not None else _number(cores)
        size, note, good = need.memory_bytes, "", True
        if size is None:
            try:
                size, note = parse_memory(req, cpu, need.nodes if need.nodes is not None else _number(nodes))
            except QuantityError:
                size, good = 0, False
        if note:
            rows.report.flag(note, line, req)
        memory.append(size)
        cpus.append((cpu or 0) * 1000)
        keep.append(good)
    kind = {text: canonical_type(need.gpu_type) or need.gpu_type for text, need in asked.items()}
    gpus = {text: need.gpus for text, need in asked.items()}
    rows.frame = rows.frame.with_columns(
        pl.Series("host_memory_bytes", memory, dtype=pl.Int64),
        pl.Series("cpu_milli", cpus, dtype=pl.Int64),
        pl.Series("_good", keep, dtype=pl.Boolean),
        pl.col(source).replace_strict(gpus, default=0, return_dtype=pl.Int64).alias("gpus"),
        pl.col(source).replace_strict(kind, default="", return_dtype=pl.String).alias("gpu_type"),
    )
    empty = pl.lit([], dtype=pl.List(pl.String))
    named = pl.when(pl.col("gpu_type") != "").then(pl.concat_list("gpu_type")).otherwise(empty)
    rows.add(device_types=named)
    rows.drop(~pl.col("_good"), "ReqMem is not a size", column="ReqMem")
    _parts(rows, source, asked)


def _parts(rows: Rows, source: str, asked: dict[str, Asked]) -> None:
    """Jobs that asked for a part of a device: what is known of it, and that they share."""

    def each(value: Any, kind: Any) -> pl.Expr:
        made = {text: value(need) for text, need in asked.items()}
        return pl.col(source).replace_strict(made, default=None, return_dtype=kind)

    rows.add(
        shared=each(lambda need: need.shared, pl.String).fill_null(""),
        memory_bytes=each(lambda need: need.slice_gib * GIB, pl.Int64).fill_null(0),
        compute_milli=each(lambda need: need.slice_sevenths * 1000 // 7 or 1000, pl.Int64).fill_null(1000),
    )
    rows.add(sharing=pl.when(pl.col("shared") == "").then(pl.lit("same-owner")).otherwise(pl.lit("any")))
    rows.flag(
        pl.col("shared") == "shard",
        "asks for shards of a GPU (gres/shard): size unknown, kept as one GPU that may be shared with any job",
    )
    rows.flag(
        pl.col("shared") == "slice",
        "asks for MIG slices: kept as parts of GPUs, with memory and compute of the slice, shared with any job",
    )


def _number(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) < 8 else None
