"""Plays the same mix in the simulator, with what was measured as its truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from cotenant.engine.loop import Loop
from cotenant.executors.attempt import Attempt
from cotenant.executors.progress import READY
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.live.options import LIVE_SETTINGS
from cotenant.model.cluster import Cluster
from cotenant.model.events import Event, Opened, Submitted
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.predictors.forecast import build_runtime
from cotenant.predictors.lookup import LookupForecast
from cotenant.profiles.table import CoRunTable
from cotenant.profiles.truth import MeasuredTruth
from cotenant.runs.spec import build_policy, parse_policy

__all__ = ["mirror"]


class _World(SimulatedExecutor):
    """The simulated world, where starting takes as long as was measured for the kind.

    A process that starts does nothing but compute: it is to its neighbours what the first of the kinds is, which
    does so, too, and beside them takes as much longer as that kind's steps do.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        *,
        truth: Truth,
        settings: Settings,
        starts_s: Mapping[str, float],
    ) -> None:
        super().__init__(workload, cluster, truth=truth, settings=settings)
        self._own_truth, self._starts_s = truth, starts_s
        self._busy = next(iter(starts_s))
        self._starting: dict[int, Job] = {}

    def start(self, job: Job, place: Placement, attempt: int, resumed: bool) -> bool:
        """Begin or go on."""
        worst = 1.0
        for device in place.devices:
            kind = self.layout.types[self.layout.device_type[device]].name
            there = [run.job.model for run in self._runs.values() if device in run.place.devices]
            worst = min(worst, self._own_truth.co_speed(self._busy, tuple(sorted(there)), kind))
        self._delay_s = self._starts_s.get(job.model, self.settings.start_s) / worst
        self._starting[job.id] = job
        return super().start(msgspec.structs.replace(job, model=self._busy), place, attempt, resumed)

    def _due(self, kind: int, run: Attempt) -> None:
        if kind != READY or (job := self._starting.pop(run.job.id, None)) is None:
            super()._due(kind, run)
            return
        if run.shared:
            self._companies.part(run, run.place)
        run.job = job
        if run.shared:
            self._companies.join(run, run.place)
        super()._due(kind, run)
        if run.shared:
            self._rerate_devices(run.place.devices, run)


class _Kept:
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def see(self, events: Sequence[Event]) -> None:
        """Keep them."""
        self.events += events


def mirror(
    events: Sequence[Event],
    policy: str,
    *,
    table: CoRunTable,
    starts_s: Mapping[str, float],
    work_s: Mapping[str, float],
    settings: Mapping[str, Any],
) -> list[Event]:
    """Simulate the jobs of a live log, with the arrivals that it tells.

    Parameters
    ----------
    events : sequence of Event
        Of the live run: its cluster, its jobs and when they came are taken from it, nothing else.
    table : CoRunTable
        What was measured: the truth, and what the policy looks up.
    starts_s : mapping of str to float
        By model: what a job takes beside its steps; that of a kind which keeps a core busy first.
    work_s : mapping of str to float
        By job: steps times the time of one alone.
    settings : mapping
        On top of those of a live cluster; the same as live.

    Returns
    -------
    list of Event
    """
    opened = next(event for event in events if isinstance(event, Opened))
    jobs = [event.job for event in events if isinstance(event, Submitted)]
    cluster = opened.cluster
    mean_s = sum(starts_s.values()) / len(starts_s)
    chosen = Settings(**{**LIVE_SETTINGS, **settings, "start_s": mean_s}).check()
    workload = _workload(jobs, work_s, cluster)
    kept = _Kept()
    truth = MeasuredTruth(table, noise=0.0, cluster=cluster)
    executor = _World(workload, cluster, truth=truth, settings=chosen, starts_s=starts_s)
    Loop(
        cluster=cluster,
        policy=build_policy(parse_policy(policy)),
        executor=executor,
        forecast=LookupForecast(table, cluster=cluster),
        runtime=build_runtime("recent", workload),
        settings=chosen,
        seed=0,
        observers=[kept],
        header={"policy": policy},
    ).run()
    return kept.events


def _workload(jobs: Sequence[Job], work_s: Mapping[str, float], cluster: Cluster) -> Workload:
    rows = []
    for job in jobs:
        row = {name: getattr(job, name) for name in JOB_SCHEMA if hasattr(job, name)}
        rows.append({**row, "device_types": list(job.device_types), "duration_s": work_s[job.name]})
    frame = pl.DataFrame(rows, schema={name: JOB_SCHEMA[name] for name in rows[0]}, orient="row")
    return Workload(frame, name="twin", cluster=cluster)
