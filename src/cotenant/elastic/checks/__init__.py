"""Whether a training script is elastic: what in it stops equality, read from its text."""

from __future__ import annotations

from cotenant.elastic.checks.findings import Finding, Report
from cotenant.elastic.checks.script import check_script

__all__ = ["Finding", "Report", "check_script"]
