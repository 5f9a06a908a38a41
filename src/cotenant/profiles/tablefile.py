"""Files of measured co-run speeds: reading them, and refusing what is no label.

Two formats, told apart by their header:

- the columns of ``pairs.csv`` (``source``, ``gpu_type``, ``a_model``, ``a_norm``, ``a_label_ok``,
  flags), in which collections are published and ``cotenant measure`` writes; each side of a pair
  is used only if it is a trustworthy label. Of a file that holds one of ``DEFAULT_CAMPAIGNS`` only
  these are taken unless others are asked for; of any other file, every campaign;
- one's own measurements: ``device_type,a,b,a_speed,b_speed`` and optionally ``source``. Speeds are
  speed while sharing over speed alone; an empty cell means not measured.

A speed that upstream clipped at the solo speed means "at least 1" and is kept as 1, which is
what a speed that cannot exceed 1 has to become anyway. Speeds above 1.05 come from a solo run
that was measured too slow; the side is not used.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError, TraceError
from cotenant.profiles.catalogue import canonical_type
from cotenant.profiles.kinds import canonical_model
from cotenant.profiles.physics import MIN_SPEED

__all__ = ["DEFAULT_CAMPAIGNS", "PairRow", "read_pairs"]

DEFAULT_CAMPAIGNS = ("gavel-2020", "gavel-2019-08", "blox-2023-12")
"""Campaigns taken from a published collection: those that name models and batch sizes and may
be used for any purpose (MIT). Others have to be asked for."""

_OWN = ("device_type", "a", "b", "a_speed", "b_speed")
_PUBLISHED = (
    "source",
    "gpu_type",
    "a_model",
    "b_model",
    "a_norm",
    "b_norm",
    "a_label_ok",
    "b_label_ok",
    "status",
)
_IMPLAUSIBLE = 1.05


class PairRow(msgspec.Struct, frozen=True, gc=False):
    """Two jobs on one device.

    Parameters
    ----------
    campaign, device_type : str
    a, b : str
        Models; their order carries no meaning.
    a_speed, b_speed : float or None
        Speed while sharing over speed alone, in [0.02, 1]; None where not usable.
    failed : bool
        The pair did not run, as a rule for lack of memory: it has no speed at all.
    line : int
        Where it was read.
    """

    campaign: str
    device_type: str
    a: str
    b: str
    a_speed: float | None
    b_speed: float | None
    failed: bool = False
    line: int = 0

    @property
    def pair(self) -> tuple[str, str]:
        """The two models, sorted."""
        return (self.a, self.b) if self.a <= self.b else (self.b, self.a)


def read_pairs(
    path: Path, campaigns: Sequence[str] | None = None
) -> tuple[list[PairRow], list[str], Counter[str]]:
    """Read a file of either format; ``CoRunTable.load`` says what is raised.

    Returns
    -------
    rows : list of PairRow
    campaigns : list of str
        Those with rows, in order of precedence.
    sides : Counter
        Sides of pairs by what became of them; they add up to twice the rows of the file.
    """
    if path.is_dir():
        path = path / "pairs.csv"
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; --profiles takes a table of measured pairs, or a folder with pairs.csv"
        )
    sides: Counter[str] = Counter()
    rows: list[PairRow] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            convert = _format(path, reader.fieldnames or [])
            lines = [_Cells(path, reader.line_num, cells) for cells in reader]
            wanted = campaigns or _default(convert, lines)
            for cells in lines:
                row = convert(cells, wanted, sides)
                if row is not None:
                    rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: is not a CSV file in UTF-8: {error}") from error
    if not any(row.a_speed is not None or row.b_speed is not None for row in rows):
        told = ", ".join(f"{n} {why}" for why, n in sorted(sides.items())) or "no rows"
        raise ConfigError(f"{path}: holds no usable measurement ({told})")
    found = {row.campaign for row in rows}
    return rows, [c for c in (wanted or sorted(found)) if c in found], sides


class _Cells:
    """One line of a file, whose complaints say where it is."""

    def __init__(self, path: Path, line: int, cells: Mapping[str | None, Any]) -> None:
        self.path, self.line, self.cells = path, line, cells

    def text(self, column: str) -> str:
        value = self.cells.get(column)
        return value.strip() if isinstance(value, str) else ""

    def need(self, column: str) -> str:
        value = self.text(column)
        if not value:
            raise TraceError(
                "is empty; every measured pair needs it", path=self.path, line=self.line, column=column
            )
        return value

    def speed(self, column: str) -> float | None:
        value = self.text(column)
        if not value:
            return None
        try:
            speed = float(value)
        except ValueError:
            speed = float("nan")
        if not 0 < speed < float("inf"):
            raise TraceError(
                f"speed {value!r} is not a positive number; write speed while sharing over speed alone, "
                "for example 0.72, or nothing if it was not measured",
                path=self.path,
                line=self.line,
                column=column,
            )
        return speed


_Convert = Callable[[_Cells, Sequence[str] | None, Counter[str]], PairRow | None]


def _default(convert: _Convert, lines: Sequence[_Cells]) -> Sequence[str] | None:
    """Campaigns that are taken if none is asked for: all, unless the file is a published collection."""
    if convert is _own_row or not any(cells.text("source") in DEFAULT_CAMPAIGNS for cells in lines):
        return None
    return DEFAULT_CAMPAIGNS


def _format(path: Path, header: Sequence[str]) -> _Convert:
    if all(column in header for column in _OWN):
        return _own_row
    if all(column in header for column in _PUBLISHED):
        return _published_row
    missing = [column for column in _OWN if column not in header]
    raise ConfigError(
        f"{path}:1: columns {', '.join(missing)} are missing (found: {', '.join(header) or 'nothing'}); "
        "a table of measured pairs has device_type,a,b,a_speed,b_speed and optionally source"
    )


def _usable(speed: float | None, sides: Counter[str]) -> float | None:
    if speed is None:
        sides["unused: not measured"] += 1
        return None
    if speed > _IMPLAUSIBLE:
        sides["unused: faster than alone by over 5%, so the solo run was measured too slow"] += 1
        return None
    sides["used"] += 1
    return min(max(speed, MIN_SPEED), 1.0)


def _own_row(cells: _Cells, wanted: Sequence[str] | None, sides: Counter[str]) -> PairRow | None:
    campaign = cells.text("source") or "own"
    if wanted and campaign not in wanted:
        sides["unused: campaign not asked for"] += 2
        return None
    device = cells.need("device_type")
    return PairRow(
        campaign,
        canonical_type(device) or device,
        canonical_model(cells.need("a")),
        canonical_model(cells.need("b")),
        _usable(cells.speed("a_speed"), sides),
        _usable(cells.speed("b_speed"), sides),
        line=cells.line,
    )


def _published_row(cells: _Cells, wanted: Sequence[str] | None, sides: Counter[str]) -> PairRow | None:
    campaign = cells.need("source")
    if wanted and campaign not in wanted:
        sides["unused: campaign not asked for"] += 2
        return None
    if any(cells.text(side + "_num_gpus") not in ("", "1") for side in "ab"):
        sides["unused: jobs on several devices"] += 2
        return None
    if cells.text("c_model"):
        sides["unused: more than two jobs"] += 2
        return None
    status = cells.need("status")
    device = cells.need("gpu_type")
    speeds = [_published_speed(cells, side, status, sides) for side in "ab"]
    failed = status.startswith("failed")
    if speeds == [None, None] and not failed:
        return None
    return PairRow(
        campaign,
        canonical_type(device) or device,
        _published_model(cells, "a"),
        _published_model(cells, "b"),
        speeds[0],
        speeds[1],
        failed=failed,
        line=cells.line,
    )


def _published_model(cells: _Cells, side: str) -> str:
    batch = cells.text(side + "_batch")
    name = canonical_model(cells.need(side + "_model") + (f"/b{batch}" if batch else ""))
    return f"{name}/amp" if cells.text(side + "_amp") == "1" else name


def _published_speed(cells: _Cells, side: str, status: str, sides: Counter[str]) -> float | None:
    if status != "ok":
        sides[f"unused: status {status}"] += 1
        return None
    for flag, why in (("placeholder", "placeholder, not measured"), ("solo_disputed", "solo speed disputed")):
        if cells.text(f"flag_{flag}_{side}") == "1":
            sides[f"unused: {why}"] += 1
            return None
    if cells.text(f"{side}_label_ok") != "1":
        sides["unused: not a trustworthy label"] += 1
        return None
    if cells.text(f"flag_solo_suspect_{side}") == "1":
        sides["unused: solo speed suspect"] += 1
        return None
    return _usable(cells.speed(f"{side}_norm"), sides)
