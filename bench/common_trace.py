"""Jobs per CPU-second, start-up included, on the traces on which published simulators were run.

::

    python -m bench.common_trace ../shared/data --out results.jsonl

The folder (default: ``COTENANT_DATA``) holds ``traces/common/common-n<JOBS>-g<GPUS>.csv.gz``, nodes
of 8. CPU seconds are those of the whole process: Python, imports, reading, simulating, and
writing log and tables.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import ROOT, append, machine, read, run_cell
from bench.speed import options

__all__ = ["POLICIES", "PUBLISHED", "main", "published_for", "traces_in"]

Row = dict[str, Any]

POLICIES = ("fifo", "backfill", "colocate", "srtf")
PUBLISHED: dict[str, tuple[float, float]] = {
    "event-driven, no sharing": (1_100.0, 10_000.0),
    "round-based, no sharing": (240.0, 500.0),
    "with sharing": (40.0, 60.0),
}
"""Jobs per CPU-second, lowest and highest, reported for published simulators on these files.

The first falls from 10,000 to 1,100 at 4,096 GPUs. They were measured on another machine, so
ratios to them are rough; ratios within one run are not.
"""
_SHARING = ("colocate",)
_NAME = re.compile(r"common-n(\d+)-g(\d+)\.csv\.gz$")


def traces_in(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """File, jobs and GPUs of each common trace, small ones first."""
    found = []
    for path in (folder / "traces" / "common").glob("common-n*-g*.csv.gz"):
        match = _NAME.search(path.name)
        if match:
            found.append((int(match[1]), int(match[2]), path))
    for jobs, gpus, path in sorted(found):
        yield path, jobs, gpus


def published_for(policy: str, gpus: int) -> dict[str, tuple[float, float]]:
    """What a policy's rate is to be set against: simulators that model the same."""
    if policy in _SHARING:
        return {"with sharing": PUBLISHED["with sharing"]}
    low, high = PUBLISHED["event-driven, no sharing"]
    fast = (low, low) if gpus >= 4096 else (low, high)
    return {
        "event-driven, no sharing": fast,
        "round-based, no sharing": PUBLISHED["round-based, no sharing"],
    }


def _measure(path: Path, gpus: int, policy: str, given: argparse.Namespace) -> Row:
    spec = {"policy": policy, "trace": str(path), "devices": gpus, "seed": given.seed}
    runs = [run_cell(spec, given.budget_s) for _ in range(given.repeat)]
    good = [run for run in runs if run["status"] == "ok"]
    row: Row = min(good, key=lambda run: run["cpu_s"]) if good else runs[0]
    if good:
        rate = row["jobs"] / row["cpu_s"]
        row["jobs_per_cpu_s"] = rate
        row["repeats"] = [run["cpu_s"] for run in good]
        row["ratios"] = {
            name: [rate / high, rate / low] for name, (low, high) in published_for(policy, gpus).items()
        }
    return {**row, "kind": "common", "trace": path.name, "machine": machine()}


def _say(row: Row) -> str:
    name = f"{row['trace'].removesuffix('.csv.gz'):>20} {row['policy']:>9}"
    if row["status"] != "ok":
        return f"{name}: {row['status']}: {row.get('error', 'out of time')}"
    against = "; ".join(f"x{a:.1f} to x{b:.1f} {what}" for what, (a, b) in row["ratios"].items())
    return f"{name}: {row['jobs_per_cpu_s']:>7,.0f} jobs per CPU-second, {against}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each trace with each policy."""
    parser = options(argparse.ArgumentParser(prog="python -m bench.common_trace", description=__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", nargs="?", type=Path, help="data folder; default: COTENANT_DATA")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="traces whose name has one of these in it")
    given = parser.parse_args(arguments)
    folder = given.folder or ROOT / os.environ.get("COTENANT_DATA", "../shared/data")
    traces = [t for t in traces_in(folder) if not given.only or any(o in t[0].name for o in given.only)]
    if not traces:
        parser.exit(2, f"no common-n*-g*.csv.gz in {folder / 'traces' / 'common'}; set COTENANT_DATA\n")
    known = {
        (row["trace"], row["policy"], row["seed"])
        for row in read(given.out)
        if row.get("kind") == "common" and row["status"] == "ok"
    }
    for path, _, gpus in traces:
        for policy in given.policies:
            if (path.name, policy, given.seed) in known:
                print(f"{path.name} {policy}: in {given.out} already")
                continue
            row = _measure(path.resolve(), gpus, policy, given)
            append(given.out, [row])
            print(_say(row), flush=True)


if __name__ == "__main__":
    main()
