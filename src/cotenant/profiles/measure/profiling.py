"""Profile of one run: its steps, and what it and its devices read meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

import msgspec
import psutil

from cotenant.errors import ConfigError
from cotenant.profiles.jobs.steps import STEPS_VARIABLE, Step, StepReader
from cotenant.profiles.measure.target import Target, parse_target
from cotenant.profiles.runs import JobConfig, SoloRun
from cotenant.profiles.samplers.cpu import CpuSampler
from cotenant.profiles.samplers.readings import ProcessReading, Sampler, Snapshot
from cotenant.profiles.samplers.series import Series, Summary

__all__ = ["RunProfile", "StepProfile", "open_samplers", "profile_run", "solo_of", "step_profile"]

_PATIENCE_S = 10.0


class StepProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A run's steps after the warm-up.

    Parameters
    ----------
    warmup : int
        Steps left out.
    steps : int
        Steps counted.
    per_s : float
    median_ms, p10_ms, p90_ms : float
    cpu_ms : float or None
        Mean CPU time of a step, if reported.
    """

    warmup: int
    steps: int
    per_s: float
    median_ms: float
    p10_ms: float
    p90_ms: float
    cpu_ms: float | None


class RunProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was seen to do.

    Parameters
    ----------
    command : tuple of str
    seconds : float
    exit_code : int or None
        None if it was stopped: the time asked for was over, or somebody interrupted.
    samples : int
    devices : dict
        Source (``cpu``, ``nvml``, ``dcgm``) to a summary for each of its devices.
    job : dict
        Device to the summary of the run's own processes on it.
    failures : dict
        What could not be read, with counts.
    steps : StepProfile or None
        None if it reported fewer than three after the warm-up.
    steps_seen : int
    interrupted : bool
        Ctrl-C ended it.
    """

    command: tuple[str, ...]
    seconds: float
    exit_code: int | None
    samples: int
    devices: dict[str, list[Summary]]
    job: dict[str, Summary]
    failures: dict[str, int]
    steps: StepProfile | None
    steps_seen: int
    interrupted: bool = False


def open_samplers(device: str = "", dcgm: str = "") -> tuple[dict[str, Sampler], Target | None]:
    """What to read: the device asked for, else all cores and all NVIDIA devices that are there.

    Returns
    -------
    samplers : dict
    target : Target or None
        The device that the run is to be bound to, if one was asked for.

    Raises
    ------
    ConfigError
        If a device or an exporter that was asked for cannot be used.
    """
    samplers: dict[str, Sampler] = {}
    target = parse_target(device) if device else None
    if target is not None:
        samplers["cpu" if target.kind == "cpu" else "nvml"] = target.sampler()
    else:
        usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        samplers["cpu"] = CpuSampler(sorted(usable))
        try:
            from cotenant.profiles.samplers.nvml import NvmlSampler

            samplers["nvml"] = NvmlSampler()
        except ConfigError:
            pass  # no NVIDIA driver here, which nobody asked for
    if dcgm:
        from cotenant.profiles.samplers.dcgm import DcgmSampler

        samplers["dcgm"] = DcgmSampler(dcgm)
    return samplers, target


def step_profile(steps: Sequence[Step], warmup: int) -> StepProfile | None:
    """Speed and spread of the steps after the first ``warmup``; None for fewer than three."""
    kept = steps[warmup:]
    if len(kept) < 3:
        return None
    times = [(b.end_ns - a.end_ns) / 1e6 for a, b in pairwise(kept)]
    cuts = quantiles(times, n=10, method="inclusive")
    seconds = (kept[-1].end_ns - kept[0].end_ns) / 1e9
    cpu = None
    if kept[0].cpu_ns is not None and kept[-1].cpu_ns is not None:
        cpu = (kept[-1].cpu_ns - kept[0].cpu_ns) / 1e6 / len(times)
    return StepProfile(
        warmup=warmup,
        steps=len(times),
        per_s=len(times) / seconds if seconds else float("inf"),
        median_ms=cuts[4],
        p10_ms=cuts[0],
        p90_ms=cuts[8],
        cpu_ms=cpu,
    )


def profile_run(
    command: Sequence[str],
    samplers: Mapping[str, Sampler],
    *,
    target: Target | None = None,
    every_s: float = 0.5,
    limit_s: float | None = None,
    warmup: int = 5,
    environment: Mapping[str, str] | None = None,
) -> RunProfile:
    """Run a command to its end, or for a time, and watch it.

    Its input and output stay the terminal's. Ctrl-C ends it, and what was seen so far counts.

    Parameters
    ----------
    command : sequence of str
    samplers : mapping
        Closed at the end.
    target : Target, optional
        Device to which the run is bound.
    every_s : float
        Between samples.
    limit_s : float, optional
        When to end the run.
    warmup : int
        Steps, and samples before them, that are left out.
    environment : mapping, optional
        Additional environment.

    Raises
    ------
    ConfigError
        If the command cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="cotenant-profile-") as folder:
        reader = StepReader(Path(folder) / "steps")
        added = {STEPS_VARIABLE: str(Path(folder) / "steps"), **(environment or {})}
        if target is not None and target.kind == "cuda":
            added |= {"CUDA_VISIBLE_DEVICES": target.visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        process = _start(command, {**os.environ, **added}, target)
        watch = _Watch(process, samplers, reader, warmup)
        try:
            exit_code = watch.until_end(every_s, limit_s)
        finally:
            _end(process)
            for sampler in samplers.values():
                sampler.close()
        return watch.result(tuple(command), exit_code)


def _start(
    command: Sequence[str], environment: Mapping[str, str], target: Target | None
) -> subprocess.Popen[bytes]:
    before = None
    if target is not None and target.cores and hasattr(os, "sched_setaffinity"):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, target.cores)  # the child inherits it
    try:
        return subprocess.Popen(list(command), env=dict(environment))  # noqa: S603 - the user's own command
    except OSError as error:
        raise ConfigError(f"cannot start {command[0]!r}: {error.strerror or error}") from None
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Watch:
    """Samples a process and its devices."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        samplers: Mapping[str, Sampler],
        reader: StepReader,
        warmup: int,
    ) -> None:
        self._process, self._samplers, self._reader, self._warmup = process, samplers, reader, warmup
        self._steps: list[Step] = []
        self._taken: list[tuple[int, str, Snapshot]] = []
        self._began = time.monotonic()
        self._pids: set[int] = {process.pid}
        self._interrupted = False

    def until_end(self, every_s: float, limit_s: float | None) -> int | None:
        """Sample until the run ends; returns its exit code, None if it was stopped."""
        self._sample(keep=False)  # shares are since the last reading
        try:
            while True:
                left = None if limit_s is None else self._began + limit_s - time.monotonic()
                if left is not None and left <= 0:
                    return None
                try:
                    return self._process.wait(every_s if left is None else min(every_s, left))
                except subprocess.TimeoutExpired:
                    self._sample(keep=True)
        except KeyboardInterrupt:
            self._interrupted = True
            return None

    def _sample(self, *, keep: bool) -> None:
        self._pids |= _tree(self._process.pid)
        self._steps += self._reader.read()
        for name, sampler in self._samplers.items():
            snapshot = sampler.read([self._process.pid])
            if keep:
                self._taken.append((len(self._steps), name, snapshot))

    def _series(self) -> tuple[dict[str, Series], dict[str, Series]]:
        """Of the devices, and of the run's own processes; without the warm-up, if it got beyond that."""
        devices: dict[str, Series] = {name: Series() for name in self._samplers}
        job: dict[str, Series] = {name: Series() for name in self._samplers}
        warm = self._warmup if len(self._steps) > self._warmup else -1
        for steps, name, snapshot in self._taken:
            if steps > warm:
                devices[name].add(snapshot)
                job[name].add(_own(snapshot, self._pids, self._process.pid))
        return devices, job

    def result(self, command: tuple[str, ...], exit_code: int | None) -> RunProfile:
        """Everything together."""
        self._steps += self._reader.read()
        of_devices, of_job = self._series()
        failures: dict[str, int] = {}
        for name, series in of_devices.items():
            for (device, reason), count in series.failures.items():
                failures[": ".join(part for part in (name, device, reason) if part)] = count
        job: dict[str, Summary] = {}
        for name, series in of_job.items():
            for summary in of_devices[name].devices():
                own = series.process(self._process.pid, summary.device)
                if own is not None:
                    job[summary.device] = own
        return RunProfile(
            command=command,
            seconds=time.monotonic() - self._began,
            exit_code=exit_code,
            samples=max((series.snapshots for series in of_devices.values()), default=0),
            devices={name: series.devices() for name, series in of_devices.items()},
            job=job,
            failures=failures,
            steps=step_profile(self._steps, self._warmup),
            steps_seen=len(self._steps),
            interrupted=self._interrupted,
        )


def _tree(pid: int) -> set[int]:
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.Error:
        return set()


def _own(snapshot: Snapshot, pids: set[int], root: int) -> Snapshot:
    """The run's processes on each device as one; what one of them lacks is lacking."""
    by_device: dict[str, list[ProcessReading]] = {}
    for process in snapshot.processes:
        if process.pid in pids:
            by_device.setdefault(process.device, []).append(process)
    processes = tuple(
        ProcessReading(
            device=device,
            pid=root,
            busy_pct=_sum([p.busy_pct for p in found]),
            memory_used_mib=_sum([p.memory_used_mib for p in found]),
        )
        for device, found in by_device.items()
    )
    return Snapshot(time_ns=snapshot.time_ns, processes=processes, devices=snapshot.devices)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def solo_of(profile: RunProfile, job: JobConfig, *, source: str, device_type: str, framework: str) -> SoloRun:
    """The profile as a row of solo runs. On several devices, the one that the run used most.

    Raises
    ------
    ConfigError
        If no device was read.
    """
    summaries = [s for name in ("nvml", "dcgm", "cpu") for s in profile.devices.get(name, ())]
    if not summaries:
        raise ConfigError("no device could be read; there is nothing to write")
    used = [s for s in summaries if s.device in profile.job]
    device = max(used or summaries, key=lambda s: "cpu:" not in s.device)
    own = profile.job.get(device.device)
    cpu = device.device.startswith("cpu:")
    return SoloRun(
        source=source,
        device_type=device_type or device.model,
        job=job,
        framework=framework,
        throughput=None if profile.steps is None else profile.steps.per_s,
        unit="steps/s",
        gpu_util=own.mean("busy_pct") if cpu and own is not None else device.mean("busy_pct"),
        mem_util=device.mean("memory_busy_pct"),
        mem_mib=None if own is None else own.peak("memory_used_mib"),
        counters={
            name: value
            for name in ("sm_active_pct", "sm_occupancy_pct", "dram_active_pct", "power_w")
            if (value := device.mean(name)) is not None
        },
    )
