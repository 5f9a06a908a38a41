"""Our own format: the columns of ``model.workload.JOB_SCHEMA`` as Parquet, CSV or JSON lines.

``docs/workloads.md`` lists columns and the other names that are understood. Any name of a job,
tenant or model survives a round trip exactly; nothing is altered for spreadsheets here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import polars as pl

from cotenant.errors import TraceError
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.traces.base import DataReport
from cotenant.traces.fastcsv import read_regular
from cotenant.traces.files import first_lines, plain_name, read_text
from cotenant.traces.finish import finish
from cotenant.traces.nativecolumns import column_names, list_text, tidy
from cotenant.traces.nativewrite import write_workload
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.table import LINE, Rows, read_rows

__all__ = ["NativeReader", "write_workload"]

_BLOCK = 50_000
_PARQUET = b"PAR1"
_MAX_ROWS = 50_000_000


class NativeReader:
    """Reads our own format; needs ``submit_s`` and ``duration_s``.

    Option ``extra``: ``error`` (default) refuses unknown columns, ``ignore`` counts on their
    being of no interest. Times are kept as they are: the first job need not come at 0.
    """

    format: ClassVar[str] = "native"
    title: ClassVar[str] = "cotenant workload (Parquet, CSV, JSON lines)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure of Parquet; else by the columns: 0.9 with our own names, 0.6 with others understood."""
        if head.startswith(_PARQUET):
            return 0.9
        lines = first_lines(head, 1)
        if not lines:
            return 0.0
        if lines[0].startswith("{"):
            # The head may end inside the first line, so its keys are only looked for.
            cells = [part.rpartition('"')[2] for part in lines[0].split('":')[:-1]]
        else:
            cells = [cell.strip().strip('"') for cell in lines[0].split(",")]
        if {"submit_s", "duration_s"} <= set(cells):
            return 0.9 if "name" in cells and set(cells) <= set(JOB_SCHEMA) else 0.6
        known = column_names(cells)
        return 0.6 if {"submit_s", "duration_s"} <= set(known) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; options as in the class and in ``traces.options.ReadOptions``.

        Raises
        ------
        TraceError
            With file, line and column, if the table cannot be read, has unknown columns, or
            under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"extra": "error"})
        report = DataReport(format=self.format, path=str(path), strict=common.strict, time_zone="none")
        name = plain_name(path)
        if name.endswith((".parquet", ".pq")):
            rows = _parquet(path, report)
        elif name.endswith((".jsonl", ".ndjson", ".json")):
            rows = _json_lines(path, report, common)
        else:
            rows = _csv(path, report, common)
        keep = tidy(rows, ignore=own["extra"] == "ignore")
        _name(rows, keep, common)
        rest = [column for column in keep if column not in {"name", "submit_s", "duration_s"}]
        return finish(rows, common, keep=rest, zero="trace", clock="trace")


def _name(rows: Rows, keep: Sequence[str], common: ReadOptions) -> None:
    """Unique names; rows without any are named by their place among rows sorted by content."""
    lists = [column for column in keep if isinstance(JOB_SCHEMA[column], pl.List)]
    rows.add(**{f"_{column}": pl.col(column).cast(pl.List(pl.String)).list.join("|") for column in lists})
    content = [f"_{column}" if column in lists else column for column in keep]
    if "name" not in keep:
        rows.duplicates(content, common.duplicates, "keep")
        rows.frame = rows.frame.sort("submit_s", *content, maintain_order=True)
        rows.add(name=pl.format("job-{}", pl.int_range(pl.len())))
    elif rows.frame["name"].n_unique() < rows.frame.height:
        rows.duplicates(content, common.duplicates, "drop")
        rows.unique_names("name", [column for column in content if column != "name"])


def _csv(path: Path, report: DataReport, common: ReadOptions) -> Rows:
    columns = _header(path, common)
    return read_regular(path, report, common, columns) or read_rows(path, report, common, needed=columns)


def _header(path: Path, common: ReadOptions) -> list[str]:
    """All column names of a CSV file, so that none is read past unseen."""
    import csv

    from cotenant.traces.files import read_head

    head = read_head(path, 1 << 20)
    if common.encoding or head[:2] in {b"\xff\xfe", b"\xfe\xff"} or b"\0" in head:
        text = read_text(path, encoding=common.encoding)[: 1 << 20]
    else:
        text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n").split("\n", 1)
    try:
        cells = next(csv.reader(lines[:1]), [])
    except csv.Error as error:
        raise TraceError(f"the header cannot be read: {error}", path=path, line=1) from None
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise TraceError("no header line with column names", path=path, line=1)
    return names


def _parquet(path: Path, report: DataReport) -> Rows:
    from cotenant.traces.files import check_file

    place = check_file(path)
    try:
        frame = pl.read_parquet(place, n_rows=_MAX_ROWS + 1, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TraceError(f"cannot be read as Parquet: {reason}", path=path) from None
    if frame.height > _MAX_ROWS:
        raise TraceError(f"more than {_MAX_ROWS:,} rows; split the file", path=path)
    report.rows_read += frame.height
    names = [column.strip() for column in frame.columns]
    if LINE in names:
        raise TraceError(f'column "{LINE}" is reserved', path=path)
    numbered = frame.select(pl.int_range(1, frame.height + 1).alias(LINE), pl.all())
    return Rows(numbered, report, frozenset(names))


def _json_lines(path: Path, report: DataReport, common: ReadOptions) -> Rows:
    """JSON lines as text cells, as a CSV file would hold them; blocks keep memory small."""
    text = read_text(path, encoding=common.encoding, progress=common.progress)
    blocks: list[pl.DataFrame] = []
    objects: list[tuple[int, dict[str, Any]]] = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    # Only "\n" ends a line: names may hold other line separators.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        report.rows_read += 1
        try:
            objects.append((number, decode(line)))
        except (msgspec.MsgspecError, RecursionError) as error:
            report.drop("not a JSON object", number, str(error))
        if len(objects) == _BLOCK:
            blocks.append(_block(objects))
            objects = []
    blocks.append(_block(objects))
    frame = pl.concat(blocks, how="diagonal") if len(blocks) > 1 else blocks[0]
    names = [column for column in frame.columns if column != LINE]
    frame = frame.with_columns(pl.col(column).fill_null("") for column in names)
    return Rows(frame, report, frozenset(names))


def _block(objects: list[tuple[int, dict[str, Any]]]) -> pl.DataFrame:
    keys = list(dict.fromkeys(key for _, row in objects for key in row if key != LINE))
    made: dict[str, Any] = {LINE: pl.Series([number for number, _ in objects], dtype=pl.Int64)}
    for key in keys:
        made[key] = pl.Series([_cell(row.get(key)) for _, row in objects], dtype=pl.String)
    return pl.DataFrame(made)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return list_text([_cell(item) for item in value])
    return value if isinstance(value, str) else repr(value)
