"""What the simulator promises about its speed, and whether results keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bench.decide import P99_BUDGET_MS, WORST_BUDGET_MS
from bench.scaling import GROWTH_BUDGET, growth
from bench.startup import BUDGET_S

__all__ = ["CELL_BUDGETS", "CellBudget", "Verdict", "budget_cells", "verdicts"]

Row = dict[str, Any]
MIB = 2**20


class CellBudget(NamedTuple):
    """A bound on one cell of the grid: ``measure`` of it at least or at most ``bound``."""

    policy: str
    load: float
    jobs: int
    devices: int
    measure: str
    bound: float

    @property
    def cell(self) -> Row:
        """The cell as ``bench.speed`` describes it."""
        names = ("policy", "jobs", "devices", "load")
        return {name: getattr(self, name) for name in names} | {"shape": "poisson", "seed": 0}


_MEASURES: dict[str, tuple[Callable[[Row], float], str]] = {
    "jobs/s": (lambda row: row["jobs"] / row["cpu_s"], "at least"),
    "CPU s": (lambda row: row["cpu_s"], "at most"),
    "MiB": (lambda row: row["peak_bytes"] / MIB, "at most"),
}
CELL_BUDGETS = (
    CellBudget("fifo", 0.95, 100_000, 10_000, "jobs/s", 80_000),
    CellBudget("backfill", 1.6, 100_000, 10_000, "jobs/s", 30_000),
    CellBudget("colocate", 2.0, 100_000, 10_000, "jobs/s", 30_000),
    CellBudget("srtf", 1.6, 100_000, 10_000, "jobs/s", 12_000),
    CellBudget("las", 1.6, 100_000, 10_000, "jobs/s", 12_000),
    CellBudget("fifo", 0.95, 1_000_000, 10_000, "CPU s", 20),
    CellBudget("colocate", 2.0, 1_000_000, 10_000, "CPU s", 45),
    CellBudget("fifo", 0.95, 1_000_000, 10_000, "MiB", 512),
    CellBudget("colocate", 2.0, 1_000_000, 10_000, "MiB", 512),
)


class Verdict(NamedTuple):
    """One line of the table of budgets; ``met`` is None where nothing was measured."""

    what: str
    bound: str
    measured: str
    met: bool | None


def budget_cells(most_jobs: int | None = None) -> list[Row]:
    """Cells that a budget speaks of, each once."""
    cells: list[Row] = []
    for budget in CELL_BUDGETS:
        if budget.cell not in cells and (most_jobs is None or budget.jobs <= most_jobs):
            cells.append(budget.cell)
    return cells


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Each budget, what was measured, and whether it is met."""
    return [*_cells(rows), *_growth(rows), *_decide(rows), *_startup(rows)]


def _cells(rows: Sequence[Row]) -> Iterator[Verdict]:
    for budget in CELL_BUDGETS:
        value_of, side = _MEASURES[budget.measure]
        what = f"{budget.policy}, load {budget.load:g}, {budget.jobs:,} jobs on {budget.devices:,} devices"
        bound = f"{side} {budget.bound:,} {budget.measure}"
        row = next((r for r in rows if budget.cell.items() <= r.items()), None)
        if row is None:
            yield Verdict(what, bound, "not measured", None)
        elif row["status"] != "ok":
            yield Verdict(what, bound, f"{row['status']}: {row.get('error') or 'out of time'}", None)
        else:
            value = value_of(row)
            met = value >= budget.bound if side == "at least" else value <= budget.bound
            places = 1 if budget.measure == "CPU s" else 0
            yield Verdict(what, bound, f"{value:,.{places}f} {budget.measure}", met)


def _growth(rows: Sequence[Row]) -> Iterator[Verdict]:
    cells = [row for row in rows if "kind" not in row]
    for along in ("jobs", "devices"):
        worst = max(growth(cells, along), key=lambda row: float(row["ratio"]), default=None)
        what = f"cost of a job, smallest to largest number of {along}, the worst policy"
        bound = f"grows less than {GROWTH_BUDGET}x"
        if worst is None:
            yield Verdict(what, bound, "not measured", None)
        else:
            fixed = "devices" if along == "jobs" else "jobs"
            text = (
                f"{worst['ratio']:.2f}x ({worst['policy']}, load {worst['load']:g}, {worst['from']:,} to "
                f"{worst['to']:,} {along}, {worst[fixed]:,} {fixed})"
            )
            yield Verdict(what, bound, text, worst["ratio"] < GROWTH_BUDGET)


def _decide(rows: Sequence[Row]) -> Iterator[Verdict]:
    timed = [row for row in rows if row.get("kind") == "decide" and row.get("p99_ms") is not None]
    for measure, bound_ms in (("p99_ms", P99_BUDGET_MS), ("worst_ms", WORST_BUDGET_MS)):
        what = f"one decision, 10,000 waiting, 4,000 devices: {measure.removesuffix('_ms')}, the worst policy"
        bound = f"under {bound_ms:g} ms"
        full = [row for row in timed if row["pending"] >= 10_000 and row["devices"] >= 4_000]
        row = max(full, key=lambda r: float(r[measure]), default=None)
        if row is None:
            yield Verdict(what, bound, "not measured", None)
        else:
            yield Verdict(what, bound, f"{row[measure]:.3g} ms ({row['policy']})", row[measure] < bound_ms)


def _startup(rows: Sequence[Row]) -> Iterator[Verdict]:
    row = next((row for row in reversed(rows) if row.get("kind") == "startup"), None)
    bound = f"under {BUDGET_S} s"
    if row is None:
        yield Verdict("`cotenant --help`", bound, "not measured", None)
    else:
        yield Verdict("`cotenant --help`", bound, f"{row['best_s']:.3f} s", row["best_s"] < BUDGET_S)
