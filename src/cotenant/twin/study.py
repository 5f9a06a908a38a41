"""The whole: measure the kinds, play the mix under each policy for real, simulate each, put them side by side."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from cotenant.errors import ConfigError
from cotenant.model.events import Event
from cotenant.profiles.measure.campaign import Campaign
from cotenant.profiles.measure.jobsfile import JobSpec
from cotenant.profiles.measure.target import parse_target
from cotenant.profiles.runsfile import read_solo_runs
from cotenant.profiles.table import CoRunTable
from cotenant.twin.compare import Course, Likeness, course_of, likeness
from cotenant.twin.mirror import mirror
from cotenant.twin.mix import Mix, Planned, campaign_file, words_of
from cotenant.twin.play import Ran, play
from cotenant.twin.probe import probe_run

__all__ = ["BASELINE", "Known", "Played", "Study", "device_names", "known_of", "study"]

BASELINE = "fifo"
_START_UPS = "starts.json"
_FEW, _PROBES = 30, 2
_DOUBTED = 0.7
_BUSY_PCT = 50.0


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured before anything is played.

    Parameters
    ----------
    step_s : dict of str to float
        Of each kind alone on one core set, by the kind's name; a gang's under ``KIND x2``.
    starts_s : dict of str to float
        What a job takes beside its steps, by model.
    """

    step_s: dict[str, float]
    starts_s: dict[str, float]


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, once: live and simulated."""

    policy: str
    repeat: int
    live: Course
    simulated: Course
    like: Likeness
    others: float


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that came of it."""

    mix: Mix
    devices: tuple[str, ...]
    known: Known
    pairs: list[tuple[str, str, float | None, float | None]]
    settings: dict[str, Any]
    policies: dict[str, str]
    played: list[Played]
    seconds: float


def device_names() -> tuple[str, ...]:
    """One core set for each of two cores, or one if there is no more."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return tuple(f"cpu:{core}" for core in cores[:2])


def known_of(
    mix: Mix,
    folder: Path,
    device: str,
    *,
    budget_s: float,
    window_s: float,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[Known, CoRunTable]:
    """Measure the kinds into a folder, or read what was measured there before.

    Raises
    ------
    ConfigError
        If the folder lacks a kind of the mix.
    """
    if not (folder / "pairs.csv").is_file():
        tell(
            f"measuring {len(mix.kinds)} kinds of jobs on {device}, alone and in pairs (at most {budget_s:g} s)"
        )
        if (busy := psutil.cpu_percent(1.0)) > _BUSY_PCT:
            tell(
                f"others use {busy:.0f} % of the cores: what is measured now, and what runs later, will be off"
            )
        file = campaign_file(mix.kinds, device, budget_s=budget_s, window_s=window_s)
        Campaign(file, parse_target(device), folder, remark=tell).run()
    table = CoRunTable.load(folder)
    step_s = _steps_alone(mix.kinds, folder)
    kept = folder / _START_UPS
    if kept.is_file():
        known = msgspec.json.decode(kept.read_bytes(), type=Known)
        needed = {*step_s, *(_step_name(job) for job in mix.jobs)}
        if needed <= set(known.step_s) and set(known.starts_s) >= {k.config.label for k in mix.kinds}:
            return known, table
    starts_s = _start_ups(mix, step_s, device, tell)
    known = Known(step_s=step_s, starts_s=starts_s)
    try:
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    except OSError as error:
        tell(f"{kept}: not kept: {error.strerror}")
    return known, table


def _start_ups(
    mix: Mix, step_s: dict[str, float], device: str, tell: Callable[[str], None]
) -> dict[str, float]:
    """What jobs take beside their steps, by model; the steps of gangs are measured on the way, and doubtful ones named."""
    tell("measuring how long jobs take to start")
    starts_s = {}
    for kind in mix.kinds:
        probes = [probe_run(words_of(kind, _FEW), device) for _ in range(_PROBES)]
        # What others leave in the caches only adds to it.
        starts_s[kind.config.label] = min(probe.extra_s for probe in probes)
        least_s = min(probe.least_s for probe in probes)
        if step_s[kind.name] < _DOUBTED * least_s:
            tell(
                f"{kind.name}: a step was measured as {1000 * step_s[kind.name]:.2f} ms, and no step of {_FEW} took less than "
                f"{1000 * least_s:.2f} ms by the clock: doubtful, as others use the cores"
            )
    for job in mix.jobs:
        if job.gpus > 1:
            kind = mix.kind(job.kind)
            every = f"cpu:{','.join(name.partition(':')[2] for name in device_names())}"
            steps = max(round(1.0 / step_s[kind.name]), 20)
            step_s[_step_name(job)] = probe_run(words_of(kind, steps, job.gpus), every).step_s
    return starts_s


def _steps_alone(kinds: Sequence[JobSpec], folder: Path) -> dict[str, float]:
    runs = {run.job.label: run for run in read_solo_runs(folder / "solo_profiles.csv")}
    found = {}
    for kind in kinds:
        run = runs.get(kind.config.label)
        if run is None or not run.throughput:
            raise ConfigError(
                f"{folder}: {kind.config.label} was not measured there; give a folder that has it, or leave it out"
            )
        found[kind.name] = 1.0 / run.throughput
    return found


def study(
    mix: Mix,
    policies: Mapping[str, str],
    folder: Path,
    *,
    repeats: int,
    settings: Mapping[str, Any],
    known: Known,
    table: CoRunTable,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[Study], None] = lambda study: None,
) -> Study:
    """Play the mix under every policy, several times, and simulate each of these runs.

    Parameters
    ----------
    policies : mapping of str to str
        Label to specification; the same live and simulated.
    folder : Path
        Of what was measured, which the live forecast reads.
    settings : mapping
        Of both sides.
    keep : callable, optional
        Given what there is after each repeat.

    Raises
    ------
    CotenantError
        If a job fails, or the scheduler does not start.
    """
    began = time.monotonic()
    steps = {job.name: max(round(job.work_s / _step_s(job, known)), 1) for job in mix.jobs}
    work_s = {job.name: steps[job.name] * _step_s(job, known) for job in mix.jobs}
    played = []
    for repeat in range(repeats):
        for label, policy in policies.items():
            ran = _played(mix, steps, policy, folder, settings, sum(work_s.values()))
            again = mirror(
                ran.events, policy, table=table, starts_s=known.starts_s, work_s=work_s, settings=settings
            )
            played.append(_side_by_side(label, repeat, ran, again))
            tell(_told(played[-1]))
        found = Study(
            mix=mix,
            devices=device_names(),
            known=known,
            pairs=[(row.a, row.b, row.a_speed, row.b_speed) for row in table.rows],
            settings=dict(settings),
            policies=dict(policies),
            played=list(played),
            seconds=time.monotonic() - began,
        )
        keep(found)
    return found


def _played(  # noqa: PLR0917
    mix: Mix,
    steps: Mapping[str, int],
    policy: str,
    measured: Path,
    settings: Mapping[str, Any],
    work_s: float,
) -> Ran:
    """One live run, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cotenant-twin-") as place:
        return play(
            mix,
            steps,
            Path(place) / "state",
            devices=device_names(),
            policy=policy,
            forecast=f"lookup:{measured}",
            settings=[f"{name}={value}" for name, value in settings.items()],
            patience_s=120.0 + 5.0 * work_s,
        )


def _side_by_side(label: str, repeat: int, ran: Ran, simulated: Sequence[Event]) -> Played:
    live, again = course_of(ran.events), course_of(simulated)
    return Played(
        policy=label,
        repeat=repeat,
        live=live,
        simulated=again,
        like=likeness(live, again),
        others=ran.others,
    )


def _told(one: Played) -> str:
    live, simulated = one.live, one.simulated
    return (
        f"{one.policy}, repeat {one.repeat + 1}: mean completion {live.jct_s:.1f} s live, {simulated.jct_s:.1f} s "
        f"simulated; makespan {live.makespan_s:.1f} s and {simulated.makespan_s:.1f} s; "
        f"others had {100 * one.others:.0f} % of the cores"
    )


def _step_s(job: Planned, known: Known) -> float:
    return known.step_s[_step_name(job)]


def _step_name(job: Planned) -> str:
    return job.kind if job.gpus == 1 else f"{job.kind} x{job.gpus}"
