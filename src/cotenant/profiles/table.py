"""Measured co-run speeds: looking them up, and splitting them into halves.

Reading and refusing is in ``profiles.tablefile``. Campaigns are never averaged: where several
hold the same pair on the same device, the first one named wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.draws import uniform
from cotenant.profiles.tablefile import DEFAULT_CAMPAIGNS, PairRow, read_pairs

__all__ = ["DEFAULT_CAMPAIGNS", "CoRunTable", "PairRow", "Side"]


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
            A file, or a folder with ``pairs.csv``.
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
        rows, order, sides = read_pairs(Path(path), campaigns)
        return cls(rows, name=Path(path).name, campaigns=order, sides=sides)

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

    def one_campaign_each(self) -> CoRunTable:
        """For each device type, only the rows of the first campaign that has a speed there."""
        first: dict[str, str] = {}
        for campaign in self.campaigns:
            for row in self.rows:
                if row.campaign == campaign and (row.a_speed is not None or row.b_speed is not None):
                    first.setdefault(row.device_type, campaign)
        kept = [row for row in self.rows if first.get(row.device_type) == row.campaign]
        return CoRunTable(kept, name=self.name, campaigns=self.campaigns)

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
