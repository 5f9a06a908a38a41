"""What all readers share: the data report, and the rules for repairing or refusing.

A reader counts every row exactly once: kept, or dropped for a reason. Repairs and
remarks are counted beside that, each with an example line.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.errors import TraceError

__all__ = ["DataReport", "Finding"]


class Finding(msgspec.Struct, kw_only=True):
    """Rows that share one reason."""

    reason: str
    rows: int = 0
    example_line: int | None = None
    example: str = ""


class DataReport(msgspec.Struct, kw_only=True):
    """What a reader found in a file, in numbers that add up.

    ``rows_read == rows_kept + sum(dropped)`` always; ``check`` enforces it. ``repaired``,
    ``flagged`` (kept, but remarkable) and ``not_simulated`` (kept as demand, but without
    a known running time) count rows among the kept ones.

    Parameters
    ----------
    time_zero_s : float or None
        Where time 0 of the workload lies on the trace's own clock: seconds since 1970 for
        dates, else seconds of that clock; None if not known.
    strict : bool
        Refuse what would otherwise be repaired or dropped.
    """

    format: str
    path: str
    rows_read: int = 0
    rows_kept: int = 0
    dropped: list[Finding] = []
    repaired: list[Finding] = []
    flagged: list[Finding] = []
    not_simulated: list[Finding] = []
    time_zone: str = "none in file, assumed UTC"
    units: str = "seconds"
    time_zero_s: float | None = None
    assumptions: list[str] = []
    oversubscription: dict[str, Any] = {}
    strict: bool = False

    def drop(self, reason: str, line: int | None = None, example: str = "", rows: int = 1) -> None:
        """Count rows that are not used. Under ``strict``, raise TraceError."""
        self._refuse(reason, line, example, rows)
        _count(self.dropped, reason, line, example, rows)

    def repair(self, reason: str, line: int | None = None, example: str = "", rows: int = 1) -> None:
        """Count rows that were mended and kept. Under ``strict``, raise TraceError."""
        self._refuse(reason, line, example, rows)
        _count(self.repaired, reason, line, example, rows)

    def flag(self, reason: str, line: int | None = None, example: str = "", rows: int = 1) -> None:
        """Count kept rows that a reader should know about."""
        _count(self.flagged, reason, line, example, rows)

    def exclude(self, reason: str, line: int | None = None, example: str = "", rows: int = 1) -> None:
        """Count rows left out because an option asked for it; never refused, not even under ``strict``."""
        _count(self.dropped, reason, line, example, rows)

    def set_aside(self, reason: str, line: int | None = None, example: str = "", rows: int = 1) -> None:
        """Count kept rows that cannot be simulated (no running time, no submission time)."""
        _count(self.not_simulated, reason, line, example, rows)

    def check(self) -> DataReport:
        """Return self if the books balance.

        Raises
        ------
        TraceError
            If rows read differ from rows kept and dropped; that is a bug of the reader.
        """
        dropped = sum(f.rows for f in self.dropped)
        if self.rows_read != self.rows_kept + dropped:
            raise TraceError(
                f"data report does not add up: {self.rows_read} read, {self.rows_kept} kept, {dropped} dropped",
                path=self.path,
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, for manifests and ``--json``."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    def _refuse(self, reason: str, line: int | None, example: str, rows: int) -> None:
        if self.strict and rows:
            raise TraceError(
                f"{reason} (--strict refuses what the default repairs) {example}".rstrip(),
                path=self.path,
                line=line,
            )


def _count(findings: list[Finding], reason: str, line: int | None, example: str, rows: int) -> None:
    if rows <= 0:
        return
    for finding in findings:
        if finding.reason == reason:
            finding.rows += rows
            return
    findings.append(Finding(reason=reason, rows=rows, example_line=line, example=example[:200]))
