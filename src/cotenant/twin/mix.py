"""A mix of training jobs: kinds to be measured, and jobs of these kinds with times of arrival."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import msgspec

from cotenant.profiles.measure.jobsfile import JobSpec, MeasureFile, MeasureSettings

__all__ = ["GANG", "PLAIN", "TORCH", "Mix", "Planned", "campaign_file", "draw", "words_of"]

_WAIT_MS = 8.0

TORCH = (
    JobSpec(name="conv-8", builtin="convolution", batch=8),
    JobSpec(name="inp-wait", builtin="input", batch=16, wait_ms=_WAIT_MS),
    JobSpec(name="rec-16", builtin="recurrent", batch=16),
    JobSpec(name="inp-slow", builtin="input", batch=16, wait_ms=3 * _WAIT_MS),
    JobSpec(name="att-8", builtin="attention", batch=8),
)
"""Included jobs: three that keep a core busy, and two that wait for a store that answers late, most of the time."""

_PLAIN_WORDS = [sys.executable, "-m", "cotenant.profiles.jobs.plain"]
PLAIN = (
    JobSpec(name="dense", command=_PLAIN_WORDS, model="dense", family="dense", batch=1024),
    JobSpec(
        name="loader",
        command=[*_PLAIN_WORDS, "--wait-ms", "8"],
        model="loader",
        family="dense",
        batch=64,
    ),
)
"""The same contrast with nothing but NumPy: for machines without PyTorch."""

GANG = "gang"


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the mix.

    Parameters
    ----------
    name : str
        Unique.
    kind : str
        Name of its ``JobSpec``.
    work_s : float
        How long it is to train alone, start-up apart; makes its number of steps, once a step was measured.
    arrives_s : float
        After the first one.
    gpus : int
        2: a gang on all cores of the machine, which shares with nobody.
    """

    name: str
    kind: str
    work_s: float
    arrives_s: float
    gpus: int = 1


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds, and jobs of them in order of arrival."""

    kinds: tuple[JobSpec, ...]
    jobs: tuple[Planned, ...]

    def kind(self, name: str) -> JobSpec:
        """A kind by its name."""
        return next(kind for kind in self.kinds if kind.name == name)


def draw(
    kinds: Sequence[JobSpec],
    count: int,
    *,
    seed: int = 1,
    work_s: tuple[float, float] = (4.0, 9.0),
    gap_s: float = 1.5,
    gang: bool = False,
) -> Mix:
    """Draw a mix: kinds in turn, so that busy and waiting ones alternate; work uniform, gaps exponential.

    Parameters
    ----------
    work_s : tuple of float
        Least and most.
    gap_s : float
        Mean time between arrivals.
    gang : bool
        One more job, of the first kind, on two devices, after two thirds of the others.
    """
    random_ = random.Random(seed)
    jobs, at = list[Planned](), 0.0
    for i in range(count):
        kind = kinds[i % len(kinds)]
        jobs.append(
            Planned(
                name=f"{kind.name}-{i:02d}",
                kind=kind.name,
                work_s=round(random_.uniform(*work_s), 2),
                arrives_s=round(at, 2),
            )
        )
        if gang and i == 2 * count // 3:
            at += 0.5
            jobs.append(
                Planned(name=GANG, kind=kinds[0].name, work_s=work_s[0], arrives_s=round(at, 2), gpus=2)
            )
        at += random_.expovariate(1.0 / gap_s)
    return Mix(kinds=tuple(kinds), jobs=tuple(jobs))


def words_of(kind: JobSpec, steps: int, threads: int = 1) -> tuple[str, ...]:
    """The command that trains so many steps of a kind."""
    if kind.command:
        return (*kind.command, "--steps", str(steps))
    words = [sys.executable, "-m", "cotenant.profiles.jobs", kind.builtin, "--batch", str(kind.config.batch)]
    if kind.wait_ms:
        words += ["--wait-ms", f"{kind.wait_ms:g}"]
    if threads != 1:
        words += ["--threads", str(threads)]
    return (*words, "--steps", str(steps))


def campaign_file(kinds: Sequence[JobSpec], device: str, *, budget_s: float, window_s: float) -> MeasureFile:
    """What ``cotenant measure`` is to do: all kinds alone, and all pairs of them, copies included."""
    settings = MeasureSettings(
        source="twin",
        device=device,
        budget=f"{budget_s:g}s",
        window=f"{window_s:g}s",
        min_repeats=2,
        max_repeats=4,
        target_pct=2.0,
        solo_every="60s",
    )
    return MeasureFile(settings=settings, jobs=tuple(kinds))
