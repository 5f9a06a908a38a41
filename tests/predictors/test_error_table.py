"""The errors printed in the documentation are those that the script measures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES = re.compile(r"(?<![\d.,])\d\.\d{3}(?!\d)")


def _rows(text: str) -> list[list[float]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [figures for line in lines if (figures := [float(x) for x in FIGURES.findall(line)])]


@pytest.mark.data
@pytest.mark.slow
def test_the_documented_errors_are_the_measured_ones(data_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "forecast_error.py"), str(data_dir / "interference")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    measured = _rows(done.stdout)
    documented = _rows((ROOT / "docs" / "interference.md").read_text(encoding="utf-8"))
    # Five device rows, six of campaigns, three of the contention model.
    assert len(measured) == len(documented) == 14
    assert sorted(documented) == [pytest.approx(row, abs=0.002) for row in sorted(measured)]
