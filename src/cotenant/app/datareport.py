"""A reader's findings, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cotenant.traces.base import DataReport, Finding

__all__ = ["report_lines"]


def report_lines(report: DataReport | None, jobs: int) -> list[str]:
    """Lines that say what was read, what was done to it, and what was assumed."""
    if report is None:
        return [f"{jobs:,} jobs"]
    dropped = sum(finding.rows for finding in report.dropped)
    lines = [
        f"{report.path}: format {report.format}, {report.rows_read:,} rows read, {report.rows_kept:,} kept, "
        f"{dropped:,} dropped, {jobs:,} jobs to simulate"
    ]
    for title, findings in _groups(report):
        lines += [f"  {title} {_finding(finding)}" for finding in findings]
    lines.append(f"  times in {report.units}; zone: {report.time_zone}")
    lines += [f"  {line}" for line in _demand(report.oversubscription)]
    lines += [f"  assumed: {sentence}" for sentence in report.assumptions]
    return lines


def _groups(report: DataReport) -> Iterable[tuple[str, list[Finding]]]:
    known = (
        ("dropped", "dropped"),
        ("repaired", "repaired"),
        ("flagged", "note"),
        ("not_simulated", "not simulated"),
    )
    for field, title in known:
        yield title, getattr(report, field)


def _finding(finding: Finding) -> str:
    text = f"{finding.rows:,}: {finding.reason}"
    if finding.example_line is not None:
        text += f" (first at line {finding.example_line}{': ' + finding.example if finding.example else ''})"
    return text


def _demand(found: dict[str, Any]) -> list[str]:
    """One line for each type: the most that was wanted at one time, and what there is."""
    lines = []
    for kind, numbers in found.items():
        peak, have, unit = (numbers.get(key) for key in ("peak", "capacity", "unit"))
        share = numbers.get("percent")
        of = f" ({share:,.1f} %)" if share is not None else ""
        lines.append(f"most wanted at one time, {kind}: {peak:,.0f} of {have:,.0f} {unit}{of}")
    return lines
