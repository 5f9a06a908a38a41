"""Solo runs beside the work of one of their steps: what estimators are fitted on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from cotenant.predictors.resources.roofline import DeviceRates, rates_of
from cotenant.predictors.resources.work import StepWork
from cotenant.profiles.runs import CoRun, JobConfig, SoloRun
from cotenant.profiles.zoo.recipes import RECIPES

__all__ = ["Observation", "WorkIndex", "doubted", "iteration_s", "observed", "works_key"]

WorkKey = tuple[str, int, str]
"""Name, batch size, precision."""

RunKey = tuple[str, str, JobConfig]
"""Campaign, device type, job."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One job alone on one device.

    Parameters
    ----------
    work : StepWork
    rates : DeviceRates
    family : str
        Jobs of one architecture: never split between fitting and judging.
    source : str
        Campaign.
    iteration_s : float or None
        Seconds of one step; None if that cannot be told.
    gpu_util, mem_util : float or None
        Per cent, as in ``SoloRun``.
    mem_mib : float or None
    busy_s : float or None
        Time in kernels of one step, where a profiler counted it.
    moved_bytes : float or None
        Through device memory in one step, where a profiler counted it.
    licence : str
    """

    work: StepWork
    rates: DeviceRates
    family: str
    source: str = ""
    iteration_s: float | None = None
    gpu_util: float | None = None
    mem_util: float | None = None
    mem_mib: float | None = None
    busy_s: float | None = None
    moved_bytes: float | None = None
    licence: str = ""


class WorkIndex:
    """Finds the work of a job in a table.

    Parameters
    ----------
    works : iterable of StepWork
        Of two with the same name, batch size and precision the later one counts.
    """

    def __init__(self, works: Iterable[StepWork]) -> None:
        self.by_key = {works_key(work): work for work in works}

    def find(self, job: JobConfig) -> StepWork | None:
        """The work of this job, or None if its graph is not known.

        The job is looked up as ``model@dataset`` or as ``model``, in 32 bits unless the table
        says mixed precision. Where the table does not record the batch size, the usual one of
        the network is taken.
        """
        precision = "amp" if job.amp == 1 else "fp32"
        for name in (f"{job.model}@{job.dataset}", job.model):
            usual = RECIPES[name].usual_batch if name in RECIPES else 0
            found = self.by_key.get((name, job.batch or usual, precision))
            if found is not None:
                return found
        return None


def works_key(work: StepWork) -> WorkKey:
    """What tells works apart."""
    return work.name, work.batch, work.precision


def iteration_s(run: SoloRun, batch: int) -> float | None:
    """Seconds of a step; None if the unit of the throughput does not tell.

    Examples
    --------
    >>> job = JobConfig(model="m", batch=32)
    >>> run = SoloRun(source="s", device_type="V100", job=job, throughput=64.0, unit="images/s")
    >>> iteration_s(run, 32)
    0.5
    """
    if not run.throughput:
        return None
    unit = run.unit.casefold()
    if "step" in unit or "iter" in unit:
        return 1.0 / run.throughput
    if ("sample" in unit or "image" in unit) and batch:
        return batch / run.throughput
    return None


def doubted(co_runs: Iterable[CoRun]) -> frozenset[RunKey]:
    """Runs alone that were too slow, as co-runs show: beside a nearly idle neighbour the job was faster.

    What slowed such a run kept its device idle, too, so that its utilisation says nothing of the job.
    """
    return frozenset(
        (run.source, run.device_type, side.job) for run in co_runs for side in run.sides if side.suspect
    )


def observed(
    runs: Iterable[SoloRun], works: Iterable[StepWork], *, doubted: Collection[RunKey] = ()
) -> tuple[list[Observation], list[tuple[str, str]]]:
    """Observations of a table.

    Runs on several devices and runs that did not fit are left out; of those that are doubted,
    memory alone is taken.

    Returns
    -------
    observations : list of Observation
    unknown : list of (source, job)
        Jobs whose graph is not among the works.
    """
    index = WorkIndex(works)
    rates: dict[str, DeviceRates] = {}
    found: list[Observation] = []
    unknown: dict[tuple[str, str], None] = {}
    for run in runs:
        if run.job.num_gpus != 1 or not run.fits:
            continue
        work = index.find(run.job)
        if work is None:
            unknown[(run.source, run.job.label)] = None
            continue
        if run.device_type not in rates:
            rates[run.device_type] = rates_of(run.device_type)
        seen = _observation(run, work, rates[run.device_type])
        if (run.source, run.device_type, run.job) in doubted:
            seen = msgspec.structs.replace(seen, iteration_s=None, gpu_util=None, mem_util=None)
        found.append(seen)
    return found, list(unknown)


def _observation(run: SoloRun, work: StepWork, rates: DeviceRates) -> Observation:
    return Observation(
        work=work,
        rates=rates,
        family=run.job.group,
        source=run.source,
        iteration_s=iteration_s(run, work.batch),
        gpu_util=run.gpu_util,
        mem_util=run.mem_util,
        mem_mib=run.mem_mib or None,
        licence=run.licence,
    )
