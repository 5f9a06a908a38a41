"""The environment that a job gets: exactly this, nothing of the daemon's own but a few words about the user.

From weak to strong: the user's (``PASSED``), what we suggest (thread counts), the job's own, and what names the
attempt and its devices, which nothing overrides: a job must not see a device that it does not hold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from cotenant.executors.local.devices import Device
from cotenant.executors.local.layout import attempt_folder, job_folder
from cotenant.executors.local.places import place_of
from cotenant.executors.local.ports import free_port
from cotenant.model.liveports import Launch

__all__ = ["PASSED", "THREADS", "environment", "ranks", "words"]

PASSED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def environment(
    launch: Launch,
    devices: Sequence[Device],
    state_dir: str,
    extra: Mapping[str, str],
    base: Mapping[str, str],
) -> dict[str, str]:
    """Every variable of the job.

    Parameters
    ----------
    launch : Launch
    devices : sequence of Device
        Those that it holds.
    state_dir : str
    extra : mapping
        Of the back ends that hold its share.
    base : mapping
        The daemon's environment, of which ``PASSED`` alone is taken.
    """
    folder = attempt_folder(state_dir, launch.id, launch.serial)
    env = {name: base[name] for name in PASSED if name in base}
    cores = sum(len(device.cores) for device in devices) or -(-launch.cpu_milli // 1000)
    if launch.processes == "elastic":
        # Threads are part of what the bits depend on: as many for any number of devices.
        cores = min((len(device.cores) for device in devices), default=0) or 1
    if cores:
        env.update(dict.fromkeys(THREADS, str(cores)))
    env.update(launch.env)
    cuda = [device.uuid for device in devices if device.kind != "cpu"]
    env.update(
        COTENANT_JOB_ID=str(launch.id),
        COTENANT_ATTEMPT=str(launch.attempt),
        COTENANT_SERIAL=str(launch.serial),
        COTENANT_STATE=f"{job_folder(state_dir, launch.id)}/state",
        COTENANT_STATUS=f"{folder}/status",
        COTENANT_STEPS=f"{folder}/steps",
        COTENANT_TORCH_DEVICE="cuda" if cuda else "cpu",
        CUDA_VISIBLE_DEVICES=",".join(cuda),
        CUDA_DEVICE_ORDER="PCI_BUS_ID",
    )
    env.pop("COTENANT_RESUME", None)
    if launch.resume:
        env["COTENANT_RESUME"] = "1"
    if launch.processes == "elastic" and launch.determinism in ("D0", "D1"):
        env["COTENANT_ELASTIC_LEAST"] = "bitwise"
    env.update(extra)
    if max(len(devices), launch.gpus) > 1:
        # No WORLD_SIZE here: one process would take itself for one rank of many. A launcher such as torchrun,
        # started as the command, counts its own.
        env["COTENANT_GPUS"] = str(max(len(devices), launch.gpus))
        env.setdefault("MASTER_ADDR", "127.0.0.1")
        env.setdefault("MASTER_PORT", str(free_port(folder)))
    return env


def ranks(launch: Launch, devices: Sequence[Device]) -> list[dict[str, str]]:
    """What each process of a job has for itself alone; one empty dict for a job of one process."""
    if launch.processes != "per-device" or len(devices) < 2:
        return [{}]
    size = str(len(devices))
    return [
        {
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "COTENANT_TORCH_DEVICE": "cpu" if device.kind == "cpu" else f"cuda:{rank}",
        }
        for rank, device in enumerate(devices)
    ]


def words(launch: Launch, devices: Sequence[Device], folder: str) -> list[str]:
    """The command; of an elastic job, that which starts a process of it on each device."""
    if launch.processes != "elastic":
        return list(launch.command)
    least, most = launch.least or len(devices), launch.most or len(devices)
    found = [sys.executable, "-m", "cotenant", "run", "--elastic", f"{least}:{most}", "--quiet"]
    found += ["--control", f"{folder}/places", "--account", f"{folder}/placed"]
    for device in devices:
        found += ["--place", place_of(device)]
    return [*found, "--", *launch.command]


def own_environment() -> Mapping[str, str]:
    """The daemon's."""
    return os.environ
