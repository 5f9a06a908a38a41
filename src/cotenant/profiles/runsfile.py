"""Tables of measured runs: reading and writing them.

CSV in UTF-8 with a header. One format for published collections and what ``cotenant measure``
writes, and a short one for pairs measured by other means:

- pairs in short: ``device_type, a, b, a_speed, b_speed`` and optionally ``source``, jobs named
  ``model/bBATCH``, as ``tablefile`` reads them;
- co-runs: ``row_id, source, gpu_type, status``, for each job a prefix ``a_``, ``b_``, ``c_`` ...
  with ``model, family, dataset, batch, amp, num_gpus, parallel, norm, label_ok`` and optionally
  throughputs and solo utilisations, and flags ``flag_eq_solo_a``, ``flag_solo_suspect_a``,
  ``flag_solo_disputed_a``, ``flag_placeholder_a``;
- solo runs: ``source, gpu_type, model`` and optionally the rest of ``SoloRun``; columns that
  begin with ``counter_`` are counters.

A missing column is the same as empty cells; an empty cell is missing, not zero.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from cotenant.errors import ConfigError, TraceError
from cotenant.profiles.kinds import canonical_model
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun, Status

__all__ = ["config_of", "read_co_runs", "read_counters", "read_solo_runs", "write_co_runs", "write_solo_runs"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LONG = ("source", "gpu_type", "a_model", "b_model")
_SHORT = ("device_type", "a", "b", "a_speed", "b_speed")
_STATUSES = ("ok", "failed", "failed_one_side", "unmeasured")
_COUNTER = "counter_"
_T = TypeVar("_T")


class _Row:
    """One line, whose complaints say where it is."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, Any]) -> None:
        self.path, self.line, self.cells = path, line, cells

    def text(self, column: str, default: str = "") -> str:
        value = self.cells.get(column)
        return (value.strip() or default) if isinstance(value, str) else default

    def need(self, column: str) -> str:
        value = self.text(column)
        if not value:
            raise self.error("is empty; every row needs it", column)
        return value

    def number(self, column: str) -> float | None:
        value = self.text(column)
        if not value:
            return None
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise self.error(f"{value!r} is not a finite number; leave the cell empty if unknown", column)
        return found

    def integer(self, column: str, default: int) -> int:
        found = self.number(column)
        if found is None:
            return default
        if found != int(found):
            raise self.error(f"{self.text(column)!r} is not a whole number", column)
        return int(found)

    def flag(self, column: str, default: bool = False) -> bool:
        return bool(self.integer(column, int(default)))

    def error(self, message: str, column: str) -> TraceError:
        return TraceError(message, path=self.path, line=self.line, column=column)


def read_co_runs(path: Path | str) -> list[CoRun]:
    """Read a table of co-runs, in the long format or in the short one.

    Parameters
    ----------
    path : Path or str
        A file, or a folder with ``pairs.csv``.

    Raises
    ------
    ConfigError
        If there is no such file, or columns without which a row means nothing are missing.
    TraceError
        For a cell that cannot be read, with file, line and column.
    """
    return _read(_file(path, "pairs.csv"), _LONG, _co_run, short=_short_co_run)


def read_solo_runs(path: Path | str) -> list[SoloRun]:
    """Read a table of solo runs; a folder stands for its ``solo_profiles.csv``.

    Raises
    ------
    ConfigError, TraceError
        As ``read_co_runs``.
    """
    return _read(_file(path, "solo_profiles.csv"), ("source", "gpu_type", "model"), _solo_run)


def read_counters(path: Path | str) -> dict[tuple[str, str, str, int], dict[str, float]]:
    """Hardware counters of jobs alone, from a table that keeps them apart.

    Returns
    -------
    dict
        (source, device type, model, batch) to counter values; cells that are empty are absent.

    Raises
    ------
    ConfigError, TraceError
        As ``read_co_runs``.
    """
    file = _file(path, "solo_counters_nvprof.csv")
    skipped = ("matches_source", "gpu_type", "device", "model", "batch", "upstream_name", "campaign")

    def one(row: _Row) -> tuple[tuple[str, str, str, int], dict[str, float]]:
        key = (row.need("matches_source"), row.need("gpu_type"), row.need("model"), row.integer("batch", 0))
        values = {c: row.number(c) for c in row.cells if c and c not in skipped}
        return key, {c: v for c, v in values.items() if v is not None}

    return dict(_read(file, ("matches_source", "gpu_type", "model"), one))


def _file(path: Path | str, name: str) -> Path:
    found = Path(path)
    if found.is_dir():
        found = found / name
    if not found.is_file():
        raise ConfigError(f"{found}: no such file; give a table of measured runs, or a folder with {name}")
    return found


def _read(
    path: Path,
    needed: Sequence[str],
    convert: Callable[[_Row], _T],
    short: Callable[[_Row], _T] | None = None,
) -> list[_T]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or []
            missing = [column for column in needed if column not in header]
            if missing and short is not None and all(column in header for column in _SHORT):
                missing, convert = [], short
            if missing:
                other = f"; or have {','.join(_SHORT)}" if short is not None else ""
                raise ConfigError(
                    f"{path}:1: columns {', '.join(missing)} are missing "
                    f"(found: {', '.join(header) or 'nothing'}){other}"
                )
            return [convert(_Row(path, reader.line_num, cells)) for cells in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: is not a CSV file in UTF-8: {error}") from error


def _job(row: _Row, prefix: str) -> JobConfig:
    return JobConfig(
        model=row.need(prefix + "model"),
        family=row.text(prefix + "family"),
        dataset=row.text(prefix + "dataset"),
        batch=row.integer(prefix + "batch", 0),
        amp=row.integer(prefix + "amp", -1),
        num_gpus=row.integer(prefix + "num_gpus", 1),
        parallel=row.text(prefix + "parallel"),
    )


def _side(row: _Row, letter: str) -> CoSide:
    prefix = letter + "_"
    speed = row.number(prefix + "norm")
    if speed is not None and speed < 0:
        raise row.error(f"speed {speed} is negative; leave the cell empty if unknown", prefix + "norm")
    return CoSide(
        job=_job(row, prefix),
        speed=speed,
        label_ok=row.flag(prefix + "label_ok", default=speed is not None),
        censored=row.flag(f"flag_eq_solo_{letter}"),
        suspect=row.flag(f"flag_solo_suspect_{letter}"),
        disputed=row.flag(f"flag_solo_disputed_{letter}"),
        placeholder=row.flag(f"flag_placeholder_{letter}"),
        throughput_solo=row.number(prefix + "tput_solo"),
        throughput_co=row.number(prefix + "tput_co"),
        unit=row.text(prefix + "tput_unit"),
        gpu_util=row.number(prefix + "gpu_util_solo"),
        mem_util=row.number(prefix + "mem_util_solo"),
        mem_mib=row.number(prefix + "mem_mib_solo"),
    )


def _co_run(row: _Row) -> CoRun:
    letters = [c for i, c in enumerate(_LETTERS) if i < 2 or row.text(c + "_model")]
    status = row.text("status", "ok")
    if status not in _STATUSES:
        raise row.error(f'no status "{status}"; known: {", ".join(_STATUSES)}', "status")
    return CoRun(
        row_id=row.text("row_id", f"line{row.line}"),
        source=row.need("source"),
        device_type=row.need("gpu_type"),
        sides=tuple(_side(row, letter) for letter in letters),
        status=cast("Status", status),
        device_mem_mib=row.number("gpu_mem_mib"),
        framework=row.text("framework"),
        total_gpu_util=row.number("pair_gpu_util"),
        total_mem_util=row.number("pair_mem_util"),
        total_mem_mib=row.number("pair_mem_mib"),
        licence=row.text("licence"),
    )


def config_of(name: str) -> JobConfig:
    """The configuration that a model's name stands for.

    >>> config_of("ResNet-50 (batch size 64)").batch, config_of("my-net").batch
    (64, 0)
    """
    base, _, batch = canonical_model(name).rpartition("/b")
    if base and batch.isdigit():
        return JobConfig(model=base, family=base, batch=int(batch))
    return JobConfig(model=canonical_model(name), family=canonical_model(name))


def _short_side(row: _Row, letter: str) -> CoSide:
    column = letter + "_speed"
    speed = row.number(column)
    if speed is not None and speed <= 0:
        raise row.error(
            f"speed {row.text(column)!r} is not a positive number; write speed while sharing over speed "
            "alone, for example 0.72, or nothing if it was not measured",
            column,
        )
    return CoSide(job=config_of(row.need(letter)), speed=speed, label_ok=speed is not None)


def _short_co_run(row: _Row) -> CoRun:
    sides = (_short_side(row, "a"), _short_side(row, "b"))
    return CoRun(
        row_id=row.text("row_id", f"line{row.line}"),
        source=row.text("source", "own"),
        device_type=row.need("device_type"),
        sides=sides,
        status="ok" if any(side.speed is not None for side in sides) else "unmeasured",
    )


def _solo_run(row: _Row) -> SoloRun:
    throughput = row.number("throughput")
    counters = {c.removeprefix(_COUNTER): row.number(c) for c in row.cells if c and c.startswith(_COUNTER)}
    return SoloRun(
        source=row.need("source"),
        device_type=row.need("gpu_type"),
        job=_job(row, ""),
        framework=row.text("framework"),
        throughput=throughput,
        unit=row.text("tput_unit"),
        gpu_util=row.number("gpu_util"),
        mem_util=row.number("mem_util"),
        mem_mib=row.number("mem_mib"),
        fits=not row.flag("flag_zero") and throughput != 0,
        counters={name: value for name, value in counters.items() if value is not None},
        placement=row.text("placement"),
        note=row.text("note"),
        licence=row.text("licence"),
    )


def write_co_runs(path: Path | str, runs: Iterable[CoRun]) -> None:
    """Write a table that ``read_co_runs`` gives back unchanged.

    Numbers are written in the shortest form that reads back as the same number.
    """
    rows = [dict(_co_cells(run)) for run in runs]
    _write(path, rows, ("row_id", "source", "gpu_type", "a_model", "b_model", "a_norm", "b_norm", "status"))


def write_solo_runs(path: Path | str, runs: Iterable[SoloRun]) -> None:
    """Write a table that ``read_solo_runs`` gives back unchanged."""
    _write(path, [dict(_solo_cells(run)) for run in runs], ("source", "gpu_type", "model", "throughput"))


def _write(path: Path | str, rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    names = dict.fromkeys(name for row in rows for name in row) or dict.fromkeys(columns)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(names), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _job_cells(job: JobConfig, prefix: str) -> Iterator[tuple[str, str]]:
    yield prefix + "model", job.model
    yield prefix + "family", job.family
    yield prefix + "dataset", job.dataset
    yield prefix + "batch", str(job.batch) if job.batch else ""
    yield prefix + "amp", str(job.amp) if job.amp >= 0 else ""
    yield prefix + "num_gpus", str(job.num_gpus)
    yield prefix + "parallel", job.parallel


def _co_cells(run: CoRun) -> Iterator[tuple[str, str]]:
    yield "row_id", run.row_id
    yield "source", run.source
    yield "gpu_type", run.device_type
    yield "gpu_mem_mib", _shown(run.device_mem_mib)
    yield "framework", run.framework
    letters = _LETTERS[: len(run.sides)]
    for letter, side in zip(letters, run.sides, strict=True):
        yield from _job_cells(side.job, letter + "_")
    yield "status", run.status
    for letter, side in zip(letters, run.sides, strict=True):
        yield letter + "_norm", _shown(side.speed)
        yield letter + "_label_ok", str(int(side.label_ok))
        yield letter + "_tput_unit", side.unit
        yield letter + "_tput_solo", _shown(side.throughput_solo)
        yield letter + "_tput_co", _shown(side.throughput_co)
        yield letter + "_gpu_util_solo", _shown(side.gpu_util)
        yield letter + "_mem_util_solo", _shown(side.mem_util)
        yield letter + "_mem_mib_solo", _shown(side.mem_mib)
        yield f"flag_eq_solo_{letter}", str(int(side.censored))
        yield f"flag_solo_suspect_{letter}", str(int(side.suspect))
        yield f"flag_solo_disputed_{letter}", str(int(side.disputed))
        yield f"flag_placeholder_{letter}", str(int(side.placeholder))
    yield "pair_gpu_util", _shown(run.total_gpu_util)
    yield "pair_mem_util", _shown(run.total_mem_util)
    yield "pair_mem_mib", _shown(run.total_mem_mib)
    yield "usable", str(int(all(side.usable for side in run.sides)))
    yield "licence", run.licence


def _solo_cells(run: SoloRun) -> Iterator[tuple[str, str]]:
    yield "source", run.source
    yield "gpu_type", run.device_type
    yield "framework", run.framework
    yield from _job_cells(run.job, "")
    yield "placement", run.placement
    yield "throughput", _shown(run.throughput)
    yield "tput_unit", run.unit
    yield "gpu_util", _shown(run.gpu_util)
    yield "mem_util", _shown(run.mem_util)
    yield "mem_mib", _shown(run.mem_mib)
    yield "flag_zero", str(int(not run.fits))
    for name, value in sorted(run.counters.items()):
        yield _COUNTER + name, _shown(value)
    yield "note", run.note
    yield "licence", run.licence
