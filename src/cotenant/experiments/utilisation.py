"""GPU utilisation as a device's own counter shows it, read off a run; and experiments that compare by it.

A device shows the sum of the compute shares that its residents would use alone, at most 100%; where they take
turns, their mean; nothing while they save or load. It says how busy a device looks, not how much work gets done:
two jobs that halve each other's speed show as one device at 100%.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from cotenant.experiments.base import Comparison, Measured, Place, Table
from cotenant.experiments.simulate import metrics_of
from cotenant.model import events as ev
from cotenant.profiles.kinds import usage_of
from cotenant.profiles.physics import on_device
from cotenant.report.metrics import RunMetrics
from cotenant.runs.prepare import Prepared
from cotenant.runs.world import build_world

__all__ = ["Compared", "Gauge", "Run"]


class Gauge:
    """Observer of one run: device-seconds of utilisation.

    Parameters
    ----------
    device_type : str
        What all devices are.

    Attributes
    ----------
    device_s : float
        Device-seconds of utilisation.
    held_s, paused_s : float
        Seconds that jobs were on devices, and of these without progress; a gang counts for each device.
    waited_s : dict of int to float
        The longest time at a stretch that each job was in the queue, before its first start or later.
    """

    def __init__(self, device_type: str) -> None:
        self._type = device_type
        self._share: dict[int, float] = {}
        self._on: dict[int, tuple[tuple[int, ...], bool]] = {}
        self._paused: set[int] = set()
        self._residents: dict[int, dict[int, None]] = {}
        self._levels: dict[int, float] = {}
        self._level = self._last_s = self.device_s = 0.0
        self._here = self._idle = 0
        self.held_s = self.paused_s = 0.0
        self._since: dict[int, float] = {}
        self.waited_s: dict[int, float] = {}

    def see(self, events: list[ev.Event]) -> None:
        """Take the next events."""
        for event in events:
            elapsed = event.t - self._last_s
            self.device_s += self._level * elapsed
            self.held_s += self._here * elapsed
            self.paused_s += self._idle * elapsed
            self._last_s = event.t
            if isinstance(event, ev.Submitted):
                self._share[event.job.id] = on_device(usage_of(event.job.model), self._type)[0]
                self._since[event.job.id] = event.t
            elif isinstance(event, ev.Started):
                waited_s = event.t - self._since[event.id]
                self.waited_s[event.id] = max(waited_s, self.waited_s.get(event.id, 0.0))
                turns = event.share is not None and event.share.mode == "time-sliced"
                self._put(event.id, event.devices, turns)
            elif isinstance(event, ev.Moved | ev.Resized):
                turns = event.share is not None and event.share.mode == "time-sliced"
                self._take(event.id)
                self._put(event.id, event.devices, turns)
            elif isinstance(event, ev.Rated):
                self._pause(event.id, event.rate <= 0)
            elif isinstance(event, ev.Suspended | ev.Ended):
                self._since[event.id] = event.t
                self._take(event.id)

    def _pause(self, job_id: int, paused: bool) -> None:
        devices = self._on[job_id][0] if job_id in self._on else ()
        if paused != (job_id in self._paused):
            (self._paused.add if paused else self._paused.discard)(job_id)
            self._idle += len(devices) if paused else -len(devices)
            self._show(devices)

    def _put(self, job_id: int, devices: tuple[int, ...], turns: bool) -> None:
        self._on[job_id] = (devices, turns)
        self._here += len(devices)
        for device in devices:
            self._residents.setdefault(device, {})[job_id] = None
        self._show(devices)

    def _take(self, job_id: int) -> None:
        self._pause(job_id, paused=False)
        devices, _ = self._on.pop(job_id, ((), False))
        self._here -= len(devices)
        for device in devices:
            del self._residents[device][job_id]
        self._show(devices)

    def _show(self, devices: tuple[int, ...]) -> None:
        for device in devices:
            shares = [self._share[j] for j in self._residents[device] if j not in self._paused]
            turns = any(self._on[j][1] for j in self._residents[device])
            level = min(sum(shares) / (len(shares) or 1) if turns else sum(shares), 1.0)
            self._level += level - self._levels.get(device, 0.0)
            self._levels[device] = level


class Run(msgspec.Struct, frozen=True):
    """One policy's run: its metrics, mean utilisation of all devices over its window, time without progress, waits at a stretch."""

    metrics: RunMetrics
    utilisation: float
    paused_share: float = 0.0
    waited_s: dict[int, float] = {}

    @property
    def summary(self) -> dict[str, Any]:
        """Summary of the metrics."""
        return self.metrics.summary


class Compared(Comparison):
    """Policies side by side, utilisation included: subclasses give ``cases`` and ``results``."""

    columns: ClassVar[tuple[str, ...]] = (
        "goodput_share",
        "makespan_s",
        "jct_s_mean",
        "jct_s_median",
        "queued_s_mean",
        "queued_s_median",
        "wait_s_p99",
        "corun_slowdown_mean",
        "preemptions",
        "jobs_finished",
    )

    def cases(self, seed: int, place: Place) -> dict[str, Prepared]:
        """What to run, by title; each with all policies."""
        raise NotImplementedError

    def policies_in(self, title: str) -> Mapping[str, str]:
        """The policies of one case; all, unless a subclass says otherwise."""
        return self.policies

    def results(self, runs: Mapping[str, Mapping[str, Run]]) -> dict[str, float | None]:
        """The claims' values, from the runs by case and label of ``policies``."""
        raise NotImplementedError

    def row(self, run: Run) -> dict[str, Any]:
        """What a table shows of a run."""
        own = {key: run.summary.get(key) for key in self.columns}
        longest_s = max(run.waited_s.values(), default=None)
        return {"utilisation_share": run.utilisation, **own, "longest_wait_at_a_stretch_s": longest_s}

    def measure(self, seed: int, place: Place) -> Measured:
        """Run every policy on every case."""
        runs: dict[str, dict[str, Run]] = {}
        tables = []
        for title, prepared in self.cases(seed, place).items():
            specs = self.policies_in(title)
            runs[title] = {label: _run(prepared, spec, seed) for label, spec in specs.items()}
            rows = [{"policy": label, **self.row(run)} for label, run in runs[title].items()]
            tables.append(Table(title=title, rows=rows))
        return Measured(values=self.results(runs), tables=tables)


def _run(prepared: Prepared, policy: str, seed: int) -> Run:
    (kind,) = {name for node in prepared.cluster.nodes for name, _ in node.gpus}
    gauge, world = Gauge(kind), build_world(prepared, seed)
    found = metrics_of(prepared, policy, seed, speeds=(world.truth, world.forecast), observers=[gauge])
    gpus, window_s = found.summary["gpus"], found.summary["window_s"]
    whole_s = gpus * window_s
    return Run(
        found,
        gauge.device_s / whole_s if whole_s else 0.0,
        gauge.paused_s / gauge.held_s if gauge.held_s else 0.0,
        gauge.waited_s,
    )
