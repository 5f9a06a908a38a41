"""From a launch to a shepherd: the folder of the attempt, its files, its limits."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cotenant.executors.local import layout, shepherd
from cotenant.executors.local.attempts import Attempt, make_status
from cotenant.executors.local.devices import Device
from cotenant.executors.local.environment import environment, ranks, words
from cotenant.executors.local.holding import Holding
from cotenant.executors.local.outputs import LOG_BYTES, LOG_KEEP
from cotenant.model.liveports import Launch

__all__ = ["Limits", "prepare", "spawn", "spawn_nursery"]


OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""Limit of open files as this process was started with: the host raises its own."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Times and sizes that hold for every job.

    Parameters
    ----------
    suspend_s : float
        Least time that a job is given to save its state (``stopping.grace_s``).
    term_s : float
        Between TERM and KILL.
    log_bytes, log_keep : int
        Size of an output file, and how many full ones are kept.
    """

    suspend_s: float = 10.0
    term_s: float = 5.0
    log_bytes: int = LOG_BYTES
    log_keep: int = LOG_KEEP


def prepare(  # noqa: PLR0917
    launch: Launch,
    attempt: Attempt,
    holding: Holding,
    devices: Mapping[int, Device],
    state_dir: str,
    limits: Limits,
    base: Mapping[str, str],
) -> None:
    """Write everything that the shepherd needs.

    Raises
    ------
    OSError
        If a device is not there, a back end cannot hold the share, or the disk does not take it.
    """
    folder, job = Path(attempt.folder), Path(layout.job_folder(state_dir, launch.id))
    for path in (job, folder, job / "state", job / "work"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(state_dir, "live", attempt.marker).touch()
    if missing := [n for n in launch.devices if n not in devices]:
        raise OSError(19, f"device {missing[0]} is not on this machine")
    held = [devices[n] for n in launch.devices]
    attempt.devices, attempt.share = launch.devices, launch.share
    # What back ends look up before the whole is known.
    attempt.spec = {"cpu_milli": launch.cpu_milli, "host_memory_bytes": launch.host_memory_bytes}
    applied = holding.apply(attempt)
    env = environment(launch, held, state_dir, applied.env, base)
    attempt.spec = {
        **_words(launch, limits, state_dir),
        "command": words(launch, held, attempt.folder),
        "places": launch.processes == "elastic",
        "cwd": launch.cwd or str(job / "work"),
        "env": env,
        "port": 0 if "MASTER_PORT" in launch.env else int(env.get("MASTER_PORT", 0)),
        "ranks": ranks(launch, held),
        "cores": sorted({core for device in held for core in device.cores}),
        "procs": list(applied.procs),
        "freezer": applied.freezer,
        "kill_file": applied.kill_file,
        "oom_files": list(applied.oom_files),
        "remove": list(applied.remove),
        "duty": applied.duty,
        "data_bytes": applied.data_bytes,
        "stop_commands": list(applied.stop_commands),
        **(_earlier(state_dir, launch) if launch.resume else {}),
    }
    make_status(f"{folder}/status")
    for name in ("control", "steps"):
        with contextlib.suppress(FileExistsError):
            os.mkfifo(folder / name, 0o600)
    layout.write_json(f"{folder}/spec.json", attempt.spec)
    if attempt.seized:
        (folder / "claim").unlink()


def _words(launch: Launch, limits: Limits, state_dir: str) -> dict[str, Any]:
    return {
        "id": launch.id,
        "attempt": launch.attempt,
        "serial": launch.serial,
        "epoch": launch.epoch,
        "state_dir": state_dir,
        "devices": list(launch.devices),
        "share": msgspec.to_builtins(launch.share),
        "cpu_milli": launch.cpu_milli,
        "host_memory_bytes": launch.host_memory_bytes,
        "suspend_s": limits.suspend_s,
        "term_s": limits.term_s,
        "log_bytes": limits.log_bytes,
        "log_keep": limits.log_keep,
        "open_files": OPEN_FILES,
    }


def _earlier(state_dir: str, launch: Launch) -> dict[str, Any]:
    """What the last start of the job left: steps that are saved, and how long saving took."""
    for serial in range(launch.serial - 1, max(launch.serial - 10, -1), -1):
        found: dict[str, Any] = layout.read_json(
            f"{layout.attempt_folder(state_dir, launch.id, serial)}/exit.json"
        )
        if found.get("state_step") or found.get("save_s"):
            return {
                "base_steps": int(found.get("state_step", 0)),
                "base_total": layout.total_steps(
                    f"{layout.attempt_folder(state_dir, launch.id, serial)}/status"
                ),
                "save_s": float(found.get("save_s", 0.0)),
            }
    return {}


def spawn(folder: str) -> int:
    """Start a shepherd in a session of its own; returns its pid.

    Raises
    ------
    OSError
        If no process can be made.
    """
    log = f"{folder}/shepherd.log"
    create = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, create, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return _begin([folder], actions)


def spawn_nursery(end: int) -> int:
    """Start a nursery (``nursery.serve``) that takes orders from a descriptor; returns its pid.

    Raises
    ------
    OSError
        If no process can be made.
    """
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_DUP2, end, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return _begin([], actions)


def _begin(told: list[str], actions: list[tuple[Any, ...]]) -> int:
    words = [sys.executable, "-I", "-S", shepherd.__file__, *told]
    env = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    try:
        return os.posix_spawn(words[0], words, env, file_actions=actions, setsid=True, setsigmask=[])
    except NotImplementedError:
        # An old C library; it makes its session itself, a few milliseconds later.
        return os.posix_spawn(words[0], words, env, file_actions=actions, setsigmask=[])
