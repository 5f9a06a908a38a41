"""The tables of a campaign: the format of published collections, and the intervals beside it."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from cotenant.profiles.measure.estimate import SetEstimate, SideEstimate, estimate, least_disturbed
from cotenant.profiles.measure.jobsfile import MeasureFile
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.measure.schedule import all_sets
from cotenant.profiles.measure.target import Target
from cotenant.profiles.runs import CoRun, CoSide, SoloRun, Status
from cotenant.profiles.runsfile import write_co_runs, write_solo_runs

__all__ = ["INTERVALS", "PAIRS", "SOLOS", "Tables", "make_tables", "write_tables"]

PAIRS, SOLOS, INTERVALS = "pairs.csv", "solo_profiles.csv", "intervals.csv"
_UNIT = "steps/s"
_FAILED = ("out of memory", "crashed")
_DIGITS = 6
_DEVICE_COUNTERS = ("sm_active_pct", "sm_occupancy_pct", "dram_active_pct", "power_w")


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign found.

    Parameters
    ----------
    co_runs : tuple of CoRun
    solo_runs : tuple of SoloRun
    sets : tuple
        Jobs of each co-run, by their names in the file.
    estimates : dict
        Jobs of a set to its estimate.
    """

    co_runs: tuple[CoRun, ...]
    sets: tuple[tuple[str, ...], ...]
    solo_runs: tuple[SoloRun, ...]
    estimates: dict[tuple[str, ...], SetEstimate]


def make_tables(file: MeasureFile, target: Target, repeats: Sequence[Repeat]) -> Tables:
    """Put the repeats together."""
    found = estimate(repeats, disturbed_pct=file.settings.disturbed_pct)
    maker = _Maker(file, target, repeats)
    solos = {job.name: maker.solo(job.name) for job in file.jobs}
    sets = tuple(all_sets(file))
    return Tables(
        co_runs=tuple(
            maker.co_run(f"m{count:04d}", jobs, found.get(jobs), solos) for count, jobs in enumerate(sets, 1)
        ),
        sets=sets,
        solo_runs=tuple(run for run in solos.values() if run is not None),
        estimates=found,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), _DIGITS) if known else None


class _Maker:
    """Rows of the tables from the repeats of one campaign."""

    def __init__(self, file: MeasureFile, target: Target, repeats: Sequence[Repeat]) -> None:
        self._file, self._target, self._repeats = file, target, repeats
        self._limit = file.settings.disturbed_pct / 100.0

    def _tried(self, jobs: tuple[str, ...]) -> list[Repeat]:
        return [r for r in self._repeats if r.jobs == jobs]

    def _framework(self, jobs: Iterable[str]) -> str:
        return "PyTorch" if all(self._file.job(name).builtin for name in jobs) else ""

    def solo(self, name: str) -> SoloRun | None:
        """A job alone; None if it was never tried."""
        tried = self._tried((name,))
        ran = [r for r in tried if r.members]
        used = least_disturbed(ran, self._limit)
        failed = [r.failures[0] for r in tried if r.failures]
        if not used and not failed:
            return None
        members = [r.members[0] for r in used]
        memory = [m.memory_mib for m in members if m.memory_mib is not None]
        return SoloRun(
            source=self._file.settings.source,
            device_type=self._target.device_type,
            job=self._file.job(name).config,
            framework=self._framework([name]),
            throughput=round(median(m.speed for m in members), _DIGITS) if members else None,
            unit=_UNIT,
            gpu_util=self._busy(used),
            mem_util=_mean(r.device.get("memory_busy_pct") for r in used),
            mem_mib=round(max(memory), 1) if memory else None,
            fits=bool(used) or failed[-1].what not in _FAILED,
            counters=_counters(members, used),
            note="" if used else f"{failed[-1].what}: {failed[-1].detail}",
        )

    def _busy(self, used: Sequence[Repeat]) -> float | None:
        """Busy time: the job's own where it can be told, as on CPUs, else the device's."""
        if self._target.kind == "cuda":
            return _mean(r.device.get("busy_pct") for r in used)
        cores = max(len(self._target.cores), 1)
        shares = [r.members[0].ran_share for r in used]
        return _mean(None if share is None else 100.0 * share / cores for share in shares)

    def co_run(
        self,
        row_id: str,
        jobs: tuple[str, ...],
        found: SetEstimate | None,
        solos: Mapping[str, SoloRun | None],
    ) -> CoRun:
        """A set of jobs, measured or not."""
        tried = self._tried(jobs)
        ran = [r for r in tried if r.members]
        memory = [total for r in ran if (total := _total_memory(r)) is not None]
        estimates = found.sides if found is not None else ()
        sides = tuple(
            self._side(name, estimates[i] if estimates else None, solos[name]) for i, name in enumerate(jobs)
        )
        mem_mib = self._target.memory_mib
        return CoRun(
            row_id=row_id,
            source=self._file.settings.source,
            device_type=self._target.device_type,
            device_mem_mib=None if mem_mib is None else float(round(mem_mib)),
            framework=self._framework(jobs),
            sides=sides,
            status=_status(tried, bool(estimates)),
            total_gpu_util=_mean(r.device.get("busy_pct") for r in ran),
            total_mem_util=_mean(r.device.get("memory_busy_pct") for r in ran),
            total_mem_mib=round(max(memory), 1) if memory else None,
        )

    def _side(self, name: str, found: SideEstimate | None, alone: SoloRun | None) -> CoSide:
        return CoSide(
            job=self._file.job(name).config,
            speed=None if found is None else round(found.norm, _DIGITS),
            label_ok=found is not None,
            throughput_solo=None if found is None else round(found.solo, _DIGITS),
            throughput_co=None if found is None else round(found.speed, _DIGITS),
            unit=_UNIT,
            gpu_util=None if alone is None else alone.gpu_util,
            mem_util=None if alone is None else alone.mem_util,
            mem_mib=None if alone is None else alone.mem_mib,
        )


def _counters(members: Sequence[Member], used: Sequence[Repeat]) -> dict[str, float]:
    speeds = [math.log(m.speed) for m in members]
    values: dict[str, float | None] = {
        "step_cpu_ms": _mean(None if m.cpu_s_per_step is None else 1e3 * m.cpu_s_per_step for m in members),
        "step_wall_ms": _mean(1e3 / m.speed for m in members),
        "switches_per_s": _mean(m.switches_per_s for m in members),
        "faults_per_step": _mean(m.faults_per_step for m in members),
        **{meter: _mean(r.device.get(meter) for r in used) for meter in _DEVICE_COUNTERS},
        "repeats": float(len(members)) if members else None,
    }
    if len(speeds) > 1:
        middle = fmean(speeds)
        spread = math.sqrt(math.fsum((s - middle) ** 2 for s in speeds) / (len(speeds) - 1))
        values["spread_pct"] = round(100.0 * spread, 3)
    return {name: value for name, value in values.items() if value is not None}


def _total_memory(repeat: Repeat) -> float | None:
    values = [m.memory_mib for m in repeat.members]
    if not values or any(value is None for value in values):
        return None
    return math.fsum(value or 0.0 for value in values)


def _status(tried: Sequence[Repeat], measured: bool) -> Status:
    """What became of a set: a failure counts only if the jobs' own, and no repeat ran."""
    if measured:
        return "ok"
    deaths = [r for r in tried if r.failures and r.failures[0].what in _FAILED]
    if not deaths:
        return "unmeasured"
    last = deaths[-1]
    return "failed" if len(last.failures) >= len(last.jobs) else "failed_one_side"


def write_tables(folder: Path, tables: Tables) -> None:
    """Write ``pairs.csv``, ``solo_profiles.csv`` and ``intervals.csv``, each whole or not at all."""
    _whole(folder / PAIRS, lambda path: write_co_runs(path, tables.co_runs))
    _whole(folder / SOLOS, lambda path: write_solo_runs(path, tables.solo_runs))
    _whole(folder / INTERVALS, lambda path: _write_intervals(path, tables))


def _whole(path: Path, write: Callable[[Path], Any]) -> None:
    beside = path.with_name(path.name + ".part")
    write(beside)
    beside.replace(path)


def _write_intervals(path: Path, tables: Tables) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row_id", "side", "job", "norm", "low", "high", "repeats", "set_aside", "failed"])
        for run, jobs in zip(tables.co_runs, tables.sets, strict=True):
            found = tables.estimates.get(jobs)
            for letter, side in zip("abc", () if found is None else found.sides, strict=False):
                numbers = [f"{value:.6f}" for value in (side.norm, side.low, side.high)]
                counts = () if found is None else (found.repeats, found.set_aside, found.failed)
                writer.writerow([run.row_id, letter, side.job, *numbers, *counts])
