"""How the cost of a job grows with the number of jobs and of devices.

::

    python -m bench.scaling --out results.jsonl

runs what the file does not hold yet and prints ratios of CPU time per job: the largest number
of jobs against the smallest, the largest cluster against the smallest. The loop alone is
judged, since building the cluster and the summary is paid once, whatever the number of jobs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from bench.measure import append
from bench.speed import DEVICES, JOBS, available, grid, measure_cells, options

__all__ = ["GROWTH_BUDGET", "growth", "main"]

Row = dict[str, Any]

GROWTH_BUDGET = 1.5


def growth(rows: Sequence[Row], along: str) -> list[Row]:
    """Cost per job of the largest cell against the smallest one, all else equal.

    Parameters
    ----------
    rows : sequence of dict
        Measured cells.
    along : {"jobs", "devices"}

    Returns
    -------
    list of dict
        ``policy``, ``load``, the other dimension, ``from``, ``to``, ``us_from``, ``us_to``
        (microseconds of the loop per job) and ``ratio``.
    """
    other = "devices" if along == "jobs" else "jobs"
    lines: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["status"] == "ok" and row["shape"] == "poisson":
            lines.setdefault((row["policy"], row["load"], row[other]), []).append(row)
    found = []
    for (policy, load, fixed), line in lines.items():
        small, large = (pick(line, key=lambda row: int(row[along])) for pick in (min, max))
        if small[along] == large[along]:
            continue
        costs = [1e6 * row["loop_cpu_s"] / row["jobs"] for row in (small, large)]
        found.append(
            {
                "kind": "scaling",
                "along": along,
                "policy": policy,
                "load": load,
                other: fixed,
                "from": small[along],
                "to": large[along],
                "us_from": costs[0],
                "us_to": costs[1],
                "pending_from": small["most_pending"],
                "pending_to": large["most_pending"],
                "ratio": costs[1] / costs[0],
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the corners of the grid and print the ratios."""
    parser = options(argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--policies", nargs="+", metavar="NAME", help="all registered, if left out")
    parser.add_argument("--jobs", nargs="+", type=int, default=(JOBS[0], JOBS[-1]))
    parser.add_argument("--devices", nargs="+", type=int, default=(DEVICES[0], DEVICES[-1]))
    parser.add_argument("--load", nargs="+", type=float, help="for all policies, in place of their own")
    given = parser.parse_args(arguments)
    cells = list(grid(given.policies or available(), given.jobs, given.devices, given.load, seed=given.seed))
    rows = measure_cells(cells, given.out, repeat=given.repeat, budget_s=given.budget_s)
    found = growth(rows, "jobs") + growth(rows, "devices")
    append(given.out, found)
    for row in found:
        fixed = "devices" if row["along"] == "jobs" else "jobs"
        verdict = "within" if row["ratio"] < GROWTH_BUDGET else "OVER"
        print(
            f"{row['policy']:>12} load {row['load']:g}, {row[fixed]:,} {fixed}: {row['from']:,} to {row['to']:,} "
            f"{row['along']}: {row['us_from']:.1f} to {row['us_to']:.1f} us per job, x{row['ratio']:.2f} "
            f"({verdict} {GROWTH_BUDGET}); at most {row['pending_from']:,} and {row['pending_to']:,} pending"
        )


if __name__ == "__main__":
    main()
