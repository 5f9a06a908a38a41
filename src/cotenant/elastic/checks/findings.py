"""What a check of a script finds, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = [
    "D0_CHANGED",
    "D0_ROUNDED",
    "D1_CHANGED",
    "D1_ROUNDED",
    "D2_CHANGED",
    "D2_ROUNDED",
    "REMARK",
    "Finding",
    "Left",
    "Loses",
    "Report",
    "Stops",
]

Stops = Literal["D0", "D1", "D2", ""]
Left = Literal["statistical", "changed", ""]
Loses = tuple[Stops, Left]
"""Which grade is lost, and what is left; see ``Finding``."""
REMARK: Loses = ("", "")
D0_CHANGED: Loses = ("D0", "changed")
D0_ROUNDED: Loses = ("D0", "statistical")
D1_CHANGED: Loses = ("D1", "changed")
D1_ROUNDED: Loses = ("D1", "statistical")
D2_CHANGED: Loses = ("D2", "changed")
D2_ROUNDED: Loses = ("D2", "statistical")


class Finding(NamedTuple):
    """A place of a script, and what it does to equality.

    Attributes
    ----------
    file : Path
    line, column : int
        From 1.
    rule : str
        Its name, the same in all versions.
    stops : "D0", "D1", "D2" or ""
        The weakest grade that is lost: who loses D0 (the same again on the same devices) loses D1 (any number
        of equal devices) and D2 (other kinds of devices) with it. Empty: a remark.
    left : "statistical", "changed" or ""
        What is left: the same training rounded otherwise, or another training.
    what, why, instead : str
        What it is, why it stops the grade, what to do.
    """

    file: Path
    line: int
    column: int
    rule: str
    stops: Stops
    left: Left
    what: str
    why: str
    instead: str

    @property
    def stops_d1(self) -> bool:
        """Whether parameters may differ with the number of processes, or from one time to the next."""
        return self.stops in ("D0", "D1")

    def grade(self) -> str:
        """In words."""
        return f"stops {self.stops}, {self.left} is left" if self.stops else "remark"


class Report(NamedTuple):
    """What was found in a script and in the modules beside it that it imports.

    Attributes
    ----------
    script : Path
    files : sequence of Path
        All that were read.
    findings : sequence of Finding
        In the order of files and lines.
    accepted : int
        Findings on lines that say ``# elastic: ok``.
    moved : bool
        Whether the script uses ``cotenant.elastic`` already.
    trains : bool
        Whether anything in it calls ``backward()``.
    """

    script: Path
    files: Sequence[Path]
    findings: Sequence[Finding]
    accepted: int
    moved: bool
    trains: bool

    def joined(self, heard: Sequence[Finding]) -> Report:
        """With what was heard when it ran, but for operators that are in it already, at that line."""
        known = {(one.file, one.line) for one in self.findings if one.rule == "operator" and one.stops}
        more = [one for one in heard if (one.file, one.line) not in known]
        return self._replace(findings=[*self.findings, *more])

    @property
    def stopping(self) -> list[Finding]:
        """Those that stop D1."""
        return [one for one in self.findings if one.stops_d1]

    @property
    def left(self) -> str:
        """What is left with another number of processes: bitwise, statistical or changed."""
        kinds = {one.left for one in self.stopping}
        return "changed" if "changed" in kinds else "statistical" if kinds else "bitwise"
