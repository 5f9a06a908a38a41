"""Which back ends work here: tried, never assumed."""

from __future__ import annotations

from pathlib import Path

from cotenant.shares.backends.base import Backend
from cotenant.shares.backends.cgroup1 import CgroupV1
from cotenant.shares.backends.cgroup2 import CgroupV2
from cotenant.shares.backends.mig import Mig
from cotenant.shares.backends.mps import Mps
from cotenant.shares.backends.plain import DutyCycleBackend, MemoryFraction, StepGate, WritableMemory

__all__ = ["for_cores", "for_gpus"]


def for_cores(scope: str) -> list[Backend]:
    """What holds jobs on core sets.

    Parameters
    ----------
    scope : str
        Name of the folder of cgroups that this state folder's jobs get.
    """
    group = _group(scope)
    if group is None:
        return [DutyCycleBackend()]
    found: list[Backend] = [group]
    if group.enforcement.compute == "none":
        found.append(DutyCycleBackend(memory=group.enforcement.memory == "none"))
    elif group.enforcement.memory == "none":
        found.append(WritableMemory())
    return found


def _group(scope: str) -> CgroupV1 | CgroupV2 | None:
    """The version that holds more; the newer one where they hold the same."""
    found = [group for group in (CgroupV2.detect(scope), CgroupV1.detect(scope)) if group is not None]
    return max(found, key=_held, default=None)


def _held(group: CgroupV1 | CgroupV2) -> int:
    table = group.enforcement
    return 2 * (table.compute != "none") + (table.memory != "none")


def for_gpus(scope: str, state_dir: str) -> list[Backend]:
    """What holds jobs on GPUs.

    Their host part by cgroups; devices in MIG mode by instances; else MPS where its daemon answers, else the gate;
    and the allocator's fraction everywhere.

    Parameters
    ----------
    scope : str
        As of ``for_cores``.
    state_dir : str
        Where it is noted which job has which instance.
    """
    host = _group(scope)
    mps = Mps.detect()
    mig = Mig.detect(Path(state_dir, "mig.json"))
    device: list[Backend] = [mps] if mps is not None else [StepGate()]
    found: list[Backend | None] = [host, mig, *device, MemoryFraction()]
    return [backend for backend in found if backend is not None]
