"""Runs a set of jobs side by side on the device, and reads them in their steady state."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cotenant.profiles.measure.cores import CoreUse, TaskUse, core_use, taken_by_others, task_use
from cotenant.profiles.measure.jobsfile import JobSpec, MeasureFile
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.measure.target import Target
from cotenant.profiles.measure.window import Pace, pace, settled_at
from cotenant.profiles.measure.worker import JobFailedError, JobFailure, Worker
from cotenant.profiles.samplers.dcgm import DcgmSampler
from cotenant.profiles.samplers.readings import METERS, Sampler
from cotenant.profiles.samplers.series import Series

__all__ = ["Fleet"]

_POLL_S = 0.02
_SAMPLE_S = 0.25
_GRACE_S = 0.5
_LEAST_START_S = 1.0
_MIB = 1024 * 1024
Key = tuple[str, int]
"""A job's name, and which copy of it."""


class Fleet:
    """The processes of a campaign.

    Parameters
    ----------
    file : MeasureFile
    target : Target
    folder : Path
        For the jobs' outputs and steps.
    clock : {"available", "wall"}
    resident : bool
        Keep jobs loaded and suspended between measurements.
    until_s : float
        Monotonic time at which the budget ends; a job that is being started then is given up.
    remark : callable, optional
        Told of a job that reports no step.
    """

    def __init__(
        self,
        file: MeasureFile,
        target: Target,
        folder: Path,
        clock: str,
        resident: bool,
        *,
        until_s: float = float("inf"),
        remark: Callable[[str], None] | None = None,
    ) -> None:
        self._until_s, self._remark = until_s, remark
        self._stepped: set[str] = set()
        self._file, self._target, self._clock, self._resident = file, target, clock, resident
        self._logs, self._steps = folder / "logs", folder / "steps"
        for place in (self._logs, self._steps):
            place.mkdir(parents=True, exist_ok=True)
        self._workers: dict[Key, Worker] = {}
        self._dead: tuple[JobFailure, ...] = ()
        self._sampler: Sampler = target.sampler()
        self._exporter = DcgmSampler(file.settings.dcgm) if file.settings.dcgm else None
        self._baseline_mib = self._device_memory()

    def measure(self, jobs: Sequence[str], *, session: int, epoch_ns: int) -> Repeat:
        """Measure one set once.

        Parameters
        ----------
        jobs : sequence of str
            Names; a job that is there twice runs twice.
        session : int
        epoch_ns : int
            Monotonic time at which the session began.

        Returns
        -------
        Repeat
            With failures in place of members if a job failed.
        """
        names = tuple(sorted(jobs))
        failures: tuple[JobFailure, ...] = ()
        for attempt in (1, 2):
            self._dead = ()
            crowded = len(self._workers) > 0
            try:
                return self._once(names, session, epoch_ns)
            except JobFailedError as error:
                failures = self._dead or (error.failure,)
            ended = failures[0].what == "ended"
            if failures[0].what == "out of memory" and crowded and self._resident:
                self.close_jobs()  # suspended jobs hold memory; the set must have the device to itself
            elif not ended or attempt == 2:
                break
        at_s = (time.monotonic_ns() - epoch_ns) / 1e9
        return Repeat(session=session, at_s=at_s, jobs=names, failures=failures)

    def _once(self, names: tuple[str, ...], session: int, epoch_ns: int) -> Repeat:
        keys = _keys(names)
        try:
            workers = self._ready(keys)
            resumed_ns = time.monotonic_ns()
            for worker in workers:
                worker.forget_steps()
                worker.go()
            return self._read(names, workers, resumed_ns, session, epoch_ns)
        except JobFailedError:
            self._dead = self._dead or self._find_dead(keys)
            raise
        finally:
            self._rest(keys)

    def _ready(self, keys: Sequence[Key]) -> list[Worker]:
        """The jobs' processes: loaded, warm, and (where jobs are resident) suspended."""
        fresh = [key for key in keys if key not in self._workers]
        try:
            for key in fresh:
                self._workers[key] = self._start(key)
                if self._resident:
                    self._warm(self._workers[key])
                    self._workers[key].stop()
            if not self._resident:
                for key in fresh:
                    self._warm(self._workers[key])
        except JobFailedError:
            self._dead = self._find_dead(fresh)
            for key in fresh:  # what did not get warm is not kept as if it had
                if key in self._workers:
                    self._workers.pop(key).close()
            raise
        return [self._workers[key] for key in keys]

    def _warm(self, worker: Worker) -> None:
        """Wait for a job; half of the budget's rest is kept from one that was never seen to step."""
        settings = self._file.settings
        timeout_s, shortened = settings.seconds("start_timeout"), ""
        left_s = max(self._until_s - time.monotonic(), _LEAST_START_S)
        words = "all that the budget left"
        if worker.name not in self._stepped:
            left_s, words = max(left_s / 2, _LEAST_START_S), "half of what the budget left"
        if left_s < timeout_s:
            timeout_s, shortened = left_s, words
        worker.wait_warm(
            settings.warmup_steps,
            settings.seconds("warmup"),
            timeout_s,
            shortened=shortened,
            remark=self._remark,
        )
        self._stepped.add(worker.name)

    def _start(self, key: Key) -> Worker:
        name, copy = key
        job, settings = self._file.job(name), self._file.settings
        folder = str(Path(self._file.base) / job.folder) if job.folder else self._file.base
        label = f"{name}-{copy + 1}"
        return Worker(
            name,
            _command(job, settings.seed + copy, settings.threads),
            {**_inherited(), **self._target.environment(settings.threads), **job.env},
            steps=(self._steps / f"{label}.steps").absolute(),
            log=(self._logs / f"{label}.log").absolute(),
            cores=self._target.cores,
            memory_bytes=job.memory_bytes,
            folder=folder,
        )

    def _rest(self, keys: Sequence[Key]) -> None:
        """Suspend the jobs, or end them if they are not kept."""
        for key in keys:
            worker = self._workers.get(key)
            if worker is None:
                continue
            if self._resident:
                try:
                    worker.stop()
                    continue
                except JobFailedError:
                    pass  # it is started anew when it is needed again
            self._workers.pop(key).close()

    def _find_dead(self, keys: Sequence[Key]) -> tuple[JobFailure, ...]:
        """Who of a failed set has died, once those that are about to have done so."""
        time.sleep(_GRACE_S if len(keys) > 1 else 0.0)
        dead: list[JobFailure] = []
        for key in keys:
            worker = self._workers.get(key)
            if worker is None:
                continue
            try:
                worker.check()
            except JobFailedError as error:
                dead.append(error.failure)
                self._workers.pop(key).close()
        return tuple(dead)

    def _read(
        self, names: tuple[str, ...], workers: list[Worker], resumed_ns: int, session: int, epoch_ns: int
    ) -> Repeat:
        settings = self._file.settings
        self._settle(workers, resumed_ns)
        series = Series()
        self._sampler.read([worker.pid for worker in workers])  # shares are since the last reading
        cores, tasks = core_use(self._target.cores), [task_use(worker.pid) for worker in workers]
        from_ns = time.monotonic_ns()
        exported = Series()
        paces = self._watch(workers, from_ns, series, exported)
        to_ns = time.monotonic_ns()
        cores_after, tasks_after = core_use(self._target.cores), [task_use(w.pid) for w in workers]
        series.add(self._sampler.read([worker.pid for worker in workers]))
        for worker in workers:
            worker.check()
        taken = self._taken(cores, cores_after, tasks, tasks_after, settings.threads)
        seconds = (to_ns - from_ns) / 1e9
        members = tuple(
            self._member(
                name=name,
                worker=worker,
                at=paces[i],
                taken=taken[i],
                seconds=seconds,
                use=(tasks[i], tasks_after[i]),
                series=series,
            )
            for i, (name, worker) in enumerate(zip(names, workers, strict=True))
        )
        return Repeat(
            session=session,
            at_s=((from_ns + to_ns) / 2 - epoch_ns) / 1e9,
            jobs=names,
            window_s=seconds,
            members=members,
            device={**_means(exported, self._name_of(series)), **_means(series)},
        )

    def _settle(self, workers: Sequence[Worker], resumed_ns: int) -> None:
        settings = self._file.settings
        until = time.monotonic() + settings.seconds("longest_window") + settings.seconds("settle")
        time.sleep(settings.seconds("settle"))
        while settled_at([w.read_steps() for w in workers], resumed_ns, settings.seconds("settle")) is None:
            for worker in workers:
                worker.check()
            if time.monotonic() > until:
                slowest = min(workers, key=lambda w: len(w.history))
                raise JobFailedError(_too_slow(slowest, len(slowest.history)))
            time.sleep(_POLL_S)

    def _watch(self, workers: Sequence[Worker], from_ns: int, series: Series, exported: Series) -> list[Pace]:
        """Wait out the window; returns each job's pace in it."""
        settings = self._file.settings
        end = time.monotonic() + settings.seconds("window")
        longest = time.monotonic() + settings.seconds("longest_window")
        pids = [worker.pid for worker in workers]
        while True:
            left = end - time.monotonic()
            if self._target.kind == "cpu":
                time.sleep(max(left, 0.0))  # nothing of ours runs in the window
            else:
                while left > 0:
                    time.sleep(min(left, _SAMPLE_S))
                    series.add(self._sampler.read(pids))
                    if self._exporter is not None:
                        exported.add(self._exporter.read())
                    left = end - time.monotonic()
            now = time.monotonic_ns()
            paces = [pace(worker.read_steps(), from_ns, now) for worker in workers]
            few = [i for i, p in enumerate(paces) if p is None or p.steps < settings.min_steps]
            if not few:
                return [p for p in paces if p is not None]
            for worker in workers:
                worker.check()
            if time.monotonic() >= longest:
                slow = workers[few[0]]
                raise JobFailedError(_too_slow(slow, len([s for s in slow.history if s.end_ns > from_ns])))
            end = min(time.monotonic() + settings.seconds("window") / 4, longest)

    def _taken(
        self,
        cores: CoreUse,
        cores_after: CoreUse,
        tasks: Sequence[TaskUse],
        tasks_after: Sequence[TaskUse],
        threads: int,
    ) -> Sequence[float | None]:
        found = taken_by_others(self._target.cores, cores, cores_after, tasks, tasks_after, threads=threads)
        return [None] * len(tasks) if found is None else found

    def _member(
        self,
        *,
        name: str,
        worker: Worker,
        at: Pace,
        taken: float | None,
        seconds: float,
        use: tuple[TaskUse, TaskUse],
        series: Series,
    ) -> Member:
        first, last = use
        free = 1.0 - taken if self._clock == "available" and taken is not None else 1.0
        ran = None if first.ran_s is None or last.ran_s is None else (last.ran_s - first.ran_s) / seconds
        steps_in_window = at.steps * seconds / at.seconds
        process = series.process(worker.pid) if self._target.kind == "cuda" else None
        return Member(
            job=name,
            steps=at.steps,
            seconds=at.seconds,
            speed=at.speed / free,
            taken=taken,
            ran_share=None if ran is None else ran / free,
            cpu_s_per_step=None if at.cpu_s is None else at.cpu_s / at.steps,
            memory_mib=self._memory(last, series, worker.pid),
            device_busy_pct=None if process is None else process.mean("busy_pct"),
            switches_per_s=(last.switches - first.switches) / seconds,
            faults_per_step=(last.faults - first.faults) / steps_in_window,
        )

    def _memory(self, use: TaskUse, series: Series, pid: int) -> float | None:
        if self._target.kind == "cpu":
            return use.resident_bytes / _MIB or None
        process = series.process(pid)
        if process is not None and process.peak("memory_used_mib") is not None:
            return process.peak("memory_used_mib")
        if len(self._workers) > 1 or self._baseline_mib is None:
            return None  # whose it is cannot be told
        # Inside a container the driver's process numbers are not ours; alone, the rest is the job's.
        used = max((d.peak("memory_used_mib") or 0.0 for d in series.devices()), default=0.0)
        return max(used - self._baseline_mib, 0.0) or None

    @staticmethod
    def _name_of(series: Series) -> str:
        """The UUID under which the exporter knows the device, too."""
        devices = series.devices()
        return devices[0].device if devices else ""

    def _device_memory(self) -> float | None:
        devices = self._sampler.read().devices
        return devices[0].memory_used_mib if devices else None

    def close_jobs(self) -> None:
        """End all jobs."""
        while self._workers:
            self._workers.popitem()[1].close()

    def close(self) -> None:
        """End all jobs and let go of the device; may be called twice."""
        self.close_jobs()
        self._sampler.close()


def _keys(names: tuple[str, ...]) -> list[Key]:
    seen: Counter[str] = Counter()
    keys: list[Key] = []
    for name in names:
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def _too_slow(worker: Worker, steps: int) -> JobFailure:
    return JobFailure(
        job=worker.name,
        what="too slow",
        detail=f"{steps} steps in the longest window; raise longest_window or lower min_steps",
    )


def _command(job: JobSpec, seed: int, threads: int) -> list[str]:
    if not job.builtin:
        return list(job.command)
    command = [sys.executable, "-P", "-m", "cotenant.profiles.jobs", job.builtin]
    command += ["--batch", str(job.config.batch), "--scale", str(job.scale), "--seed", str(seed)]
    command += ["--threads", str(threads), "--wait-ms", str(job.wait_ms)]
    return [*command, "--amp"] if job.amp else command


def _means(series: Series, device: str = "") -> dict[str, float]:
    """Means of the meters of a device; of the first if none is named."""
    devices = [found for found in series.devices() if device in ("", found.device)]
    if not devices:
        return {}
    found: Mapping[str, float | None] = {meter: devices[0].mean(meter) for meter in METERS}
    return {meter: round(value, 3) for meter, value in found.items() if value is not None}


def _inherited() -> dict[str, str]:
    """Our own environment, but not the words by which a scheduler that runs us hears from its job: they are ours."""
    own = ("COTENANT_STATUS", "COTENANT_STATE", "COTENANT_STEPS", "COTENANT_RESUME")
    return {name: value for name, value in os.environ.items() if name not in own}
