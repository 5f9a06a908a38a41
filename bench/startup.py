"""How long ``cotenant --help`` takes, and what it imports.

::

    python -m bench.startup --out results.jsonl
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.measure import ROOT, append, calibrate, machine
from bench.speed import options

__all__ = ["BUDGET_S", "HEAVY", "imports", "main", "measure_help"]

Row = dict[str, Any]

BUDGET_S = 0.3
HEAVY = ("altair", "numpy", "polars", "psutil", "scipy", "sklearn", "vl_convert", "yaml")
"""Packages that printing help has no need of."""

_HELP = (sys.executable, "-m", "cotenant", "--help")
_LINE = re.compile(r"^import time:\s+(\d+) \|\s+(\d+) \|\s*(\S+)$", re.MULTILINE)


def measure_help(times: int) -> list[float]:
    """Wall-clock seconds of each of several calls."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        subprocess.run(_HELP, cwd=ROOT, capture_output=True, check=True)
        found.append(time.perf_counter() - begun)
    return found


def imports() -> list[tuple[str, int]]:
    """Modules that ``--help`` imports, and microseconds of each with all that it imports."""
    command = (_HELP[0], "-X", "importtime", *_HELP[1:])
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [(name, int(total)) for _, total, name in _LINE.findall(done.stderr)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = options(argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(repeat=10)
    given = parser.parse_args(arguments)
    loop_s, times, found = calibrate(), measure_help(given.repeat), imports()
    packages: dict[str, int] = {}
    for name, total in found:
        top = name.partition(".")[0]
        packages[top] = max(packages.get(top, 0), total)
    slowest = sorted(packages.items(), key=lambda item: -item[1])[:8]
    row: Row = {
        "kind": "startup",
        "best_s": min(times),
        "times_s": times,
        "modules": len(found),
        "heavy": [name for name in HEAVY if name in packages],
        "slowest_us": dict(slowest),
        "calibration_s": [loop_s],
        "machine": machine(),
    }
    append(given.out, [row])
    verdict = "within" if row["best_s"] < BUDGET_S else "OVER"
    print(f"cotenant --help: {row['best_s']:.3f} s, best of {len(times)} ({verdict} {BUDGET_S} s)")
    print(f"{row['modules']} modules; heavy ones: {', '.join(row['heavy']) or 'none'}")
    for name, total in slowest:
        print(f"  {total / 1e3:>7.1f} ms  {name} and what it imports")


if __name__ == "__main__":
    main()
