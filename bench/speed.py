"""Jobs per second and peak memory: policies x jobs x devices.

::

    python -m bench.speed --out results.jsonl

runs the whole grid; cells that the file holds already are skipped, so an interrupted run goes
on where it stopped. Each cell has a process of its own. See ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import append, machine, read, run_cell
from cotenant import registry

__all__ = ["DEVICES", "JOBS", "grid", "key_of", "loads_of", "main", "measure_cells"]

Row = dict[str, Any]

JOBS = (10_000, 100_000, 1_000_000)
DEVICES = (64, 512, 4096, 10_000)
YARDSTICK = "fifo"
_LOADS: dict[str, tuple[float, ...]] = {
    "backfill": (1.6,),
    "conservative": (1.6,),
    "best-fit": (2.0,),
    "first-fit": (2.0,),
    "fgd": (2.0,),
    "colocate": (2.0,),
    "time-slice": (2.0,),
    "srtf": (0.95, 1.6),
    "las": (0.95, 1.6),
    "lucid": (2.0,),
    "muri": (0.95, 2.0),
    "gittins": (0.95, 1.6),
    "gaiagpu": (2.0,),
    "horus": (2.0,),
    "tong": (0.95, 1.6),
    "cotenant": (0.95, 2.0),
}
_KEY = ("policy", "jobs", "devices", "load", "shape", "seed")


def loads_of(policy: str) -> tuple[float, ...]:
    """Loads at which a policy is measured unless told otherwise.

    Above 1 jobs pile up without sharing, which is what backfill and preemption are for;
    sharing policies get a load that needs sharing.
    """
    return _LOADS.get(policy.partition(":")[0], (0.95,))


def key_of(row: Row) -> tuple[Any, ...]:
    """What makes two rows the same cell."""
    return tuple(row.get(name) for name in _KEY)


def available() -> list[str]:
    """Registered policies that are there; first come, first served leads, as the yardstick."""
    found = []
    for name in registry.names("policy"):
        try:
            registry.load("policy", name)
        except ImportError:
            print(f"{name}: registered, but its module is not there; left out")
        else:
            found.append(name)
    return sorted(found, key=lambda name: (name != YARDSTICK, name))


def grid(
    policies: Sequence[str],
    jobs: Sequence[int],
    devices: Sequence[int],
    loads: Sequence[float] | None = None,
    shape: str = "poisson",
    seed: int = 0,
) -> Iterator[Row]:
    """Cells, small ones first, the yardstick's before the others of its size."""
    ordered = sorted(policies, key=lambda name: name != YARDSTICK)
    for count in sorted(jobs):
        for size in sorted(devices):
            for policy in ordered:
                # The load says nothing where arrivals are not spread over time.
                for load in (loads or loads_of(policy)) if shape == "poisson" else (0.0,):
                    yield dict(zip(_KEY, (policy, count, size, load, shape, seed), strict=True))


def measure_cells(
    cells: Sequence[Row], out: Path, *, repeat: int = 1, budget_s: float | None = None
) -> list[Row]:
    """Run the cells that ``out`` does not hold yet, add them to it, return all of ``cells``.

    Of ``repeat`` runs the one with the least CPU time is kept, with all times beside it. A
    cell that takes longer than ``budget_s`` is ended, and larger ones of the same kind are not begun.
    """
    known = {key_of(row): row for row in read(out) if "kind" not in row}
    facts, run_id = machine(), f"{int(time.time())}"
    rows = []
    for number, cell in enumerate(cells, 1):
        old = known.get(key_of(cell))
        row = old if old is not None and _stands(old, budget_s) else None
        said = " (from the file)"
        if row is None:
            smaller = _slow_smaller(cell, list(known.values()), budget_s)
            said = ""
            if smaller is not None:
                why = f"{smaller['jobs']:,} jobs on {smaller['devices']:,} devices took longer"
                row = {**cell, "status": "skipped", "budget_s": budget_s, "error": why}
            else:
                row = _best(cell, repeat, budget_s)
            row = {**row, "run": run_id, "machine": facts}
            append(out, [row])
            known[key_of(cell)] = row
        rows.append(row)
        print(f"[{number}/{len(cells)}] {describe(row)}{said}", flush=True)
    return rows


def _stands(row: Row, budget_s: float | None) -> bool:
    """Whether an earlier row need not be measured again; one that ran out of time does with more of it."""
    if row["status"] in ("over-budget", "skipped"):
        return budget_s is not None and budget_s <= row["budget_s"]
    return bool(row["status"] == "ok")


def _slow_smaller(cell: Row, rows: Sequence[Row], budget_s: float | None) -> Row | None:
    alike = ("policy", "load", "shape", "seed", "devices")
    for row in rows:
        if row["status"] != "over-budget" or budget_s is None or budget_s > row["budget_s"]:
            continue
        if all(row[name] == cell[name] for name in alike) and row["jobs"] < cell["jobs"]:
            return row
    return None


def _best(cell: Row, repeat: int, budget_s: float | None) -> Row:
    runs = []
    for _ in range(repeat):
        runs.append(run_cell(cell, budget_s))
        if runs[-1]["status"] != "ok":
            return runs[-1]
    best: Row = min(runs, key=lambda row: row["cpu_s"])
    times = [row["cpu_s"] for row in runs]
    spread = max(times) / min(times) - 1.0 if len(times) > 1 else None
    return {**best, "repeats": times, "spread": spread}


def describe(row: Row) -> str:
    """One line for a person."""
    load = f" load {row['load']:g}" if row["shape"] == "poisson" else f" {row['shape']}"
    name = f"{row['policy']:>12}{load}, {row['jobs']:>9,} jobs, {row['devices']:>6,} devices"
    if row["status"] != "ok":
        why = row.get("error") or f"more than {row['budget_s']} s"
        return f"{name}: {row['status']}: {why}"
    rate, whole = row["jobs"] / row["cpu_s"], row["jobs"] / (row["cpu_s"] + row["start_cpu_s"])
    return (
        f"{name}: {rate:>9,.0f} jobs/s ({whole:,.0f} with start-up), {row['peak_bytes'] / 2**20:,.0f} MiB, "
        f"{row['events'] / row['jobs']:.2f} events/job, {row['most_pending']:,} pending at most, "
        f"calibration {max(row['calibration_s']):.3f} s"
    )


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Options that several benchmarks share."""
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"), help="file of results, added to")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="best of N, spread stated")
    parser.add_argument("--budget-s", type=float, metavar="S", help="most wall-clock seconds of a cell")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the grid."""
    parser = options(argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--policies", nargs="+", metavar="NAME", help="all registered, if left out")
    parser.add_argument("--jobs", nargs="+", type=int, default=JOBS)
    parser.add_argument("--devices", nargs="+", type=int, default=DEVICES)
    parser.add_argument("--load", nargs="+", type=float, help="for all policies, in place of their own")
    parser.add_argument("--zero", action="store_true", help="all jobs at time 0")
    parser.add_argument("--blocked", action="store_true", help="100,000 jobs, most of them blocked")
    given = parser.parse_args(arguments)
    if given.zero and given.blocked:
        parser.error("--zero and --blocked are two workloads; ask for one of them")
    shape = "zero" if given.zero else "blocked" if given.blocked else "poisson"
    jobs, devices = given.jobs, given.devices
    if given.blocked:
        jobs, devices = (jobs, devices) if jobs is not JOBS else ((100_000,), (80,))
    policies = given.policies or available()
    if YARDSTICK not in policies:
        policies = [YARDSTICK, *policies]
    cells = list(grid(policies, jobs, devices, given.load, shape, given.seed))
    rows = measure_cells(cells, given.out, repeat=given.repeat, budget_s=given.budget_s)
    bad = [row for row in rows if row["status"] != "ok"]
    print(f"{len(rows) - len(bad)} cells in {given.out}; {len(bad)} not measured (said above)")


if __name__ == "__main__":
    main()
