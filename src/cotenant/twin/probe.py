"""What a job costs beside its steps: the start of its process, loading of libraries, its end."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cotenant.errors import InputError
from cotenant.profiles.jobs.steps import STEPS_VARIABLE, Step, StepReader
from cotenant.profiles.measure.target import parse_target

__all__ = ["Probe", "probe_run"]

_PATIENCE_S = 120.0


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job from its start to its end.

    Parameters
    ----------
    extra_s : float
        Processor seconds that were no steps. Starting is work of the processor but for some milliseconds, and
        its time counts the same whoever else is on the core, as in a campaign.
    step_s : float
        A step by the wall clock: the quickest tenth, as others take from the rest.
    least_s : float
        The quickest of all.
    """

    extra_s: float
    step_s: float
    least_s: float


def probe_run(words: Sequence[str], device: str) -> Probe:
    """Run a job to its end on a core set.

    Raises
    ------
    InputError
        If it fails or tells of no steps, with what it wrote.
    """
    with tempfile.TemporaryDirectory(prefix="cotenant-probe-") as folder:
        steps = Path(folder, "steps")
        pid = _start(words, device, steps, folder)
        code, used_s = _wait(pid)
        found = StepReader(steps).read()
        if code or len(found) < 2 or found[0].cpu_ns is None:
            told = Path(folder, "output").read_text(encoding="utf-8", errors="replace").strip()
            raise InputError(
                f"{' '.join(words)} ended with exit code {code} after {len(found)} steps: {told[-500:]}"
            )
    in_steps_s = _cpu_s(found) / (len(found) - 1) * len(found)
    # The first step warms up, too: what it takes longer than a usual one is part of starting.
    each = sorted((b.end_ns - a.end_ns) / 1e9 for a, b in itertools.pairwise(found))
    return Probe(extra_s=max(used_s - in_steps_s, 0.0), step_s=each[len(each) // 10], least_s=each[0])


def _cpu_s(steps: Sequence[Step]) -> float:
    return ((steps[-1].cpu_ns or 0) - (steps[0].cpu_ns or 0)) / 1e9


def _start(words: Sequence[str], device: str, steps: Path, folder: str) -> int:
    target = parse_target(device)
    env = {**os.environ, **target.environment(len(target.cores)), STEPS_VARIABLE: str(steps)}
    before = os.sched_getaffinity(0)
    # The child takes over the cores of the thread that makes it.
    os.sched_setaffinity(0, target.cores)
    try:
        with Path(folder, "output").open("wb") as output:
            return subprocess.Popen(  # noqa: S603
                list(words),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                start_new_session=True,
            ).pid
    finally:
        os.sched_setaffinity(0, before)


def _wait(pid: int) -> tuple[int, float]:
    """Exit code and processor seconds of a child; it is ended if it takes too long."""
    until = time.monotonic() + _PATIENCE_S
    try:
        while True:
            done, status, used = os.wait4(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
            if time.monotonic() > until:
                raise InputError(f"process {pid} has not ended after {_PATIENCE_S:g} s")
            time.sleep(0.02)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise
