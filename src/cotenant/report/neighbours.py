"""Who shared devices with a job, and what that did to its speed."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from cotenant.report.phrases import at
from cotenant.report.tables import show
from cotenant.report.telling import now_telling

__all__ = ["MOST_TOLD", "Neighbour", "joined", "told_of"]

MOST_TOLD = 12
"""Of more meetings than so many, those at the lowest speeds are told, and how many others there were."""


class Neighbour(msgspec.Struct, frozen=True):
    """Another job on at least one of its devices, and the job's own lowest speed meanwhile.

    ``against`` is what that speed is a part of; ``real``: it was foretold until it was measured.
    """

    id: int
    name: str
    start_s: float
    end_s: float | None
    lowest_rate: float | None
    against: str = "the reference speed"
    real: bool = False

    @property
    def text(self) -> str:
        """Who it was, when, and at what speed."""
        end = "the end of the log" if now_telling() is None else "now"
        until = end if self.end_s is None else at(self.end_s)
        if self.lowest_rate is None:
            speed = "speed not logged"
        elif self.lowest_rate > 0:
            known = ", foretold until it was measured" if self.real else ""
            speed = f"slowest {self.lowest_rate:.2f} of {self.against} ({1 / self.lowest_rate:.2f}x){known}"
        else:
            speed = "no progress at times"
        return f"job {self.id} {show(self.name)!r} from {at(self.start_s)} to {until}, {speed}"


def joined(met: list[Neighbour]) -> tuple[Neighbour, ...]:
    """Meetings with one and the same job that touch are one, at the lowest speed of them."""
    out: list[Neighbour] = []
    ended: dict[tuple[int, float], int] = {}
    for n in met:
        index = ended.pop((n.id, n.start_s), -1)
        if index >= 0:
            rates = [r for r in (out[index].lowest_rate, n.lowest_rate) if r is not None]
            out[index] = replace(out[index], end_s=n.end_s, lowest_rate=min(rates, default=None))
        else:
            index = len(out)
            out.append(n)
        if n.end_s is not None:
            ended[n.id, n.end_s] = index
    return tuple(out)


def told_of(neighbours: tuple[Neighbour, ...]) -> list[str]:
    """A line for each meeting, in order; of many only the worst, and how many were not told."""
    if len(neighbours) <= MOST_TOLD:
        return [n.text for n in neighbours]
    by_harm = sorted(neighbours, key=lambda n: float("inf") if n.lowest_rate is None else n.lowest_rate)
    worst = {id(n) for n in by_harm[:MOST_TOLD]}
    lines = [n.text for n in neighbours if id(n) in worst]
    others = len(neighbours) - MOST_TOLD
    return [*lines, f"and {others:,} other meetings at higher speeds (all of them with --json)"]
