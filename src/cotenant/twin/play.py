"""Plays a mix for real: a scheduler in a state folder of its own, real processes, its log when all have ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from cotenant.errors import LiveError
from cotenant.live.client import Client, connect, new_key
from cotenant.live.detached import detach
from cotenant.live.options import UpOptions
from cotenant.live.statedir import DaemonFile
from cotenant.live.store import open_store
from cotenant.model.events import Event
from cotenant.profiles.stopping import stoppable
from cotenant.twin.mix import Mix, words_of

__all__ = ["Ran", "play"]

_START_S = 180.0
_END_S = 30.0
_POLL_S = 0.5
_LOOK_S = 1.0
_MEMORY = "1GiB"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    Parameters
    ----------
    events : tuple of Event
        The log.
    others : float
        How busy others kept the machine, as a share of all its cores: the mean of the second before the run and
        of that after it.
    """

    events: tuple[Event, ...]
    others: float


def play(
    mix: Mix,
    steps: Mapping[str, int],
    state: Path,
    *,
    devices: Sequence[str],
    policy: str,
    forecast: str,
    settings: Sequence[str],
    patience_s: float,
    tell: Callable[[str], None] = lambda text: None,
) -> Ran:
    """Run it to its end; the scheduler and all its jobs are gone afterwards, whatever happened.

    Parameters
    ----------
    steps : mapping of str to int
        By job.
    state : Path
        A folder that does not exist yet.
    patience_s : float
        After which it is given up.

    Raises
    ------
    LiveError
        If a job fails, or does not end in time.
    """
    before = psutil.cpu_percent(_LOOK_S)
    options = UpOptions(
        state=state,
        devices=tuple(devices),
        policy=policy,
        forecast=forecast,
        settings=tuple(settings),
        quiet=True,
    )
    with stoppable(), _scheduler(options) as client:
        _submit(client, mix, steps, tell)
        _await(client, len(mix.jobs), patience_s)
    store = open_store(state / "cotenant.db", create=False)
    try:
        others = (before + psutil.cpu_percent(_LOOK_S)) / 200.0
        return Ran(events=tuple(event for _, event in store.read()), others=others)
    finally:
        store.close()


@contextlib.contextmanager
def _scheduler(options: UpOptions) -> Iterator[Client]:
    told = detach(options, _START_S)
    try:
        with Client(lambda: connect(options.state)) as client:
            try:
                client.devices()  # the first answer takes longest: nobody should wait for it later
                yield client
            finally:
                _cancel_all(client)
    finally:
        _end(told)


def _cancel_all(client: Client) -> None:
    """Nothing of ours is to outlive us."""
    left = client.jobs(live=True)
    for job in left:
        with contextlib.suppress(LiveError):
            client.command(job.id, "cancel", new_key())
    until = time.monotonic() + _END_S
    while left and client.jobs(live=True) and time.monotonic() < until:
        time.sleep(0.1)


def _end(told: DaemonFile) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(told.pid, signal.SIGTERM)
    until = time.monotonic() + _END_S
    while _runs(told):
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.kill(told.pid, signal.SIGKILL)
        time.sleep(0.02)


def _runs(told: DaemonFile) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(told.pid, os.WNOHANG)  # it is our child: a zombie is none that runs
    return told.alive


def _submit(client: Client, mix: Mix, steps: Mapping[str, int], tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    for job in mix.jobs:
        time.sleep(max(began + job.arrives_s - time.monotonic(), 0.0))
        kind = mix.kind(job.kind)
        body: dict[str, Any] = {
            "name": job.name,
            "command": list(words_of(kind, steps[job.name], job.gpus)),
            "gpus": job.gpus,
            "gpu_memory": _MEMORY,
            "model": kind.config.label,
            "sharing": "exclusive" if job.gpus > 1 else "any",
            "env": dict(kind.env),
        }
        (answer,) = client.submit([(new_key(), body)])
        if answer.error is not None:
            raise answer.error
    tell(f"{len(mix.jobs)} jobs submitted")


def _await(client: Client, count: int, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while left := client.jobs(live=True):
        if time.monotonic() > until:
            names = ", ".join(f"{job.name} ({job.status})" for job in left[:5])
            raise LiveError(f"{len(left)} of {count} jobs have not ended after {patience_s:g} s: {names}")
        time.sleep(_POLL_S)
    failed = [job for job in client.jobs() if job.status != "done"]
    if failed:
        wrote = client.output(failed[0].id, stream="stderr", offset=-500)[1].decode(errors="replace")
        raise LiveError(f"job {failed[0].name} is {failed[0].status}: {failed[0].reason} {wrote.strip()}")
