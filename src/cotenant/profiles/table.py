"""Measured co-run speeds: reading them, refusing what is no label, splitting into halves.

Two formats, told apart by their header:

- a published collection with the columns of ``pairs.csv`` (``source``, ``gpu_type``, ``a_model``,
  ``a_norm``, ``a_label_ok``, flags); each side of a pair is used only if it is a trustworthy label;
- one's own measurements: ``device_type,a,b,a_speed,b_speed`` and optionally ``source``. Speeds are
  speed while sharing over speed alone; an empty cell means not measured.

A speed that upstream clipped at the solo speed means "at least 1" and is kept as 1, which is
what a speed that cannot exceed 1 has to become anyway. Speeds above 1.05 come from a solo run
that was measured too slow; the side is not used. Campaigns are never averaged: where several
hold the same pair on the same device, the first one named wins.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError, TraceError
from cotenant.profiles.catalogue import canonical_type
from cotenant.profiles.draws import uniform
from cotenant.profiles.kinds import canonical_model
from cotenant.profiles.physics import MIN_SPEED

__all__ = ["DEFAULT_CAMPAIGNS", "CoRunTable", "PairRow", "Side"]

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


class Side(msgspec.Struct, frozen=True, gc=False):
    """One job of a measured pair."""

    device_type: str
    model: str
    other: str
    speed: float


class CoRunTable:
    """Measured pairs.

    Parameters
    ----------
    rows : sequence of PairRow
    name : str
        For logs.
    campaigns : sequence of str
        In order of precedence.
    sides : mapping of str to int, optional
        Sides read, by what became of them; the values add up to twice the rows read.
    """

    def __init__(
        self,
        rows: Sequence[PairRow],
        *,
        name: str = "table",
        campaigns: Sequence[str] | None = None,
        sides: Mapping[str, int] | None = None,
    ) -> None:
        self.rows = tuple(rows)
        self.name = name
        self.campaigns = tuple(campaigns or sorted({row.campaign for row in rows}))
        self.sides_read = dict(sides or {})
        self._speeds = _index(self.rows, self.campaigns)

    @classmethod
    def load(cls, path: Path | str, *, campaigns: Sequence[str] | None = None) -> CoRunTable:
        """Read a file of either format.

        Parameters
        ----------
        path : Path or str
        campaigns : sequence of str, optional
            Which campaigns, in order of precedence. Default: of a published collection
            ``DEFAULT_CAMPAIGNS``, of one's own file all, alphabetically.

        Raises
        ------
        ConfigError
            If there is no such file, or it has the columns of neither format.
        TraceError
            For a cell that cannot be read, with file, line and column.
        """
        path = Path(path)
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; --profiles takes a table of measured pairs")
        sides: Counter[str] = Counter()
        rows: list[PairRow] = []
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file)
                convert, wanted = _format(path, reader.fieldnames or [], campaigns)
                for cells in reader:
                    row = convert(_Cells(path, reader.line_num, cells), wanted, sides)
                    if row is not None:
                        rows.append(row)
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: is not UTF-8 text: {error}") from error
        if not any(row.a_speed is not None or row.b_speed is not None for row in rows):
            told = ", ".join(f"{n} {why}" for why, n in sorted(sides.items())) or "no rows"
            raise ConfigError(f"{path}: holds no usable measurement ({told})")
        found = {row.campaign for row in rows}
        order = [c for c in (wanted or sorted(found)) if c in found]
        return cls(rows, name=path.name, campaigns=order, sides=sides)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def device_types(self) -> tuple[str, ...]:
        """Device types with at least one usable speed, sorted."""
        return tuple(sorted({key[0] for key in self._speeds}))

    def lookup(self, model: str, other: str, device_type: str) -> float | None:
        """Measured speed of a model beside another; None where there is none."""
        return self._speeds.get((device_type, model, other))

    def sides(self) -> Iterator[Side]:
        """Usable speeds, in a fixed order."""
        for (device_type, model, other), speed in sorted(self._speeds.items()):
            yield Side(device_type, model, other, speed)

    def only(self, *campaigns: str) -> CoRunTable:
        """The rows of these campaigns, in this order of precedence.

        Raises
        ------
        ConfigError
            If one of them has no rows here.
        """
        for campaign in campaigns:
            if campaign not in self.campaigns:
                raise ConfigError(
                    f'{self.name}: no campaign "{campaign}"; it has: {", ".join(self.campaigns)}'
                )
        kept = [row for row in self.rows if row.campaign in campaigns]
        return CoRunTable(kept, name=self.name, campaigns=campaigns)

    def split(self, seed: int, fraction: float = 0.5) -> tuple[CoRunTable, CoRunTable]:
        """Two tables that share no pair of models, whatever the device or campaign.

        Which half a pair falls into belongs to the pair and the seed, not to the other rows.

        Parameters
        ----------
        seed : int
        fraction : float
            Share of the pairs in the first table, in (0, 1).

        Returns
        -------
        fit, truth : CoRunTable

        Raises
        ------
        ConfigError
            If the fraction is out of range or a half stays empty.
        """
        if not 0 < fraction < 1:
            raise ConfigError(f"share of pairs for fitting must lie in (0, 1), found {fraction}")
        return self._parted(lambda row: uniform(seed, "split", *row.pair) < fraction, f"seed {seed}")

    def by_campaign(self, fit: str, truth: str) -> tuple[CoRunTable, CoRunTable]:
        """Two tables from two measurement campaigns, over the same jobs perhaps."""
        if fit == truth:
            raise ConfigError(f'campaign "{fit}" cannot be both fitted and truth')
        first, second = self.only(fit), self.only(truth)
        first.name, second.name = f"{self.name} {fit}", f"{self.name} {truth}"
        return first, second

    def describe(self) -> dict[str, Any]:
        """Plain JSON for logs."""
        return {
            "table": self.name,
            "campaigns": list(self.campaigns),
            "pairs": len({row.pair for row in self.rows}),
            "speeds": len(self._speeds),
            "device_types": list(self.device_types),
        }

    def _parted(self, first: Callable[[PairRow], bool], how: str) -> tuple[CoRunTable, CoRunTable]:
        parts: tuple[list[PairRow], list[PairRow]] = ([], [])
        for row in self.rows:
            parts[not first(row)].append(row)
        halves = []
        for part, label in zip(parts, ("fit", "truth"), strict=True):
            half = CoRunTable(part, name=f"{self.name} {label} half, {how}", campaigns=self.campaigns)
            if not half._speeds:
                raise ConfigError(f"{self.name}: too few pairs to split ({len(self.rows)}); measure more")
            halves.append(half)
        return halves[0], halves[1]


def _index(rows: Sequence[PairRow], campaigns: Sequence[str]) -> dict[tuple[str, str, str], float]:
    found: dict[tuple[str, str, str], tuple[int, list[float]]] = {}
    rank = {campaign: i for i, campaign in enumerate(campaigns)}
    for row in rows:
        for model, other, speed in ((row.a, row.b, row.a_speed), (row.b, row.a, row.b_speed)):
            if speed is None:
                continue
            key = (row.device_type, model, other)
            place = rank[row.campaign]
            best = found.get(key)
            if best is None or place < best[0]:
                found[key] = (place, [speed])
            elif place == best[0]:
                # Repeats within one campaign, and the two sides of a pair of equals.
                best[1].append(speed)
    return {key: sum(speeds) / len(speeds) for key, (_, speeds) in found.items()}


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


def _format(
    path: Path, header: Sequence[str], campaigns: Sequence[str] | None
) -> tuple[_Convert, Sequence[str] | None]:
    if all(column in header for column in _OWN):
        return _own_row, campaigns
    if all(column in header for column in _PUBLISHED):
        return _published_row, campaigns or DEFAULT_CAMPAIGNS
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
