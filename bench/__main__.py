"""All benchmarks in one command.

::

    python -m bench                                quick: minutes
    python -m bench --full --out results.jsonl     the whole grid: hours; goes on where it stopped
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import common_trace, decide, scaling, speed, startup
from bench.budgets import budget_cells, verdicts
from bench.measure import ROOT, read

__all__ = ["main"]

_QUICK = ("fifo", "backfill", "colocate", "srtf", "las")


def quick(out: Path, budget_s: float) -> None:
    """All policies on 10,000 jobs, then the cells of up to 100,000 jobs that budgets speak of."""
    common = ["--out", str(out), "--budget-s", str(budget_s)]
    startup.main(["--out", str(out)])
    speed.main(["--jobs", "10000", "--devices", "64", "512", *common])
    speed.measure_cells(budget_cells(100_000), out, budget_s=budget_s)
    decide.main(["--policies", *_QUICK, "--calls", "5000", *common])


def full(out: Path, budget_s: float, repeat: int) -> None:
    """The whole grid, cells of budgets first."""
    common = ["--out", str(out), "--budget-s", str(budget_s), "--repeat", str(repeat)]
    startup.main(["--out", str(out)])
    speed.measure_cells(budget_cells(), out, repeat=repeat, budget_s=budget_s)
    decide.main(common)
    folder = ROOT / os.environ.get("COTENANT_DATA", "../shared/data")
    if (folder / "traces" / "common").is_dir():
        common_trace.main([str(folder), *common])
    else:
        print(f"no common traces in {folder}: left out; set COTENANT_DATA to have them")
    speed.main(["--blocked", *common])
    speed.main(["--zero", "--jobs", "100000", "--devices", "10000", *common])
    speed.main(common)
    scaling.main(common)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, then say which budgets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--out", type=Path, help="file of results; quick: a temporary one, if left out")
    parser.add_argument("--budget-s", type=float, default=180.0, help="most wall-clock seconds of a cell")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="best of N, for --full")
    given = parser.parse_args(arguments)
    if given.full and given.out is None:
        parser.error("--full needs --out FILE, so that it can go on where it stopped")
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder) / "results.jsonl"
        if given.full:
            full(out, given.budget_s, given.repeat)
        else:
            quick(out, given.budget_s)
        print("\nBudgets:")
        words = {True: "met", False: "NOT MET", None: "-"}
        for what, bound, measured, met in verdicts(read(out)):
            print(f"  {words[met]:>7}  {what}: {bound}; {measured}")


if __name__ == "__main__":
    main()
