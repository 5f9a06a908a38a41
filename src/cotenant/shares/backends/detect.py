"""Which back ends work here: tried, never assumed."""

from __future__ import annotations

from cotenant.shares.backends.base import Backend
from cotenant.shares.backends.cgroup1 import CgroupV1
from cotenant.shares.backends.cgroup2 import CgroupV2
from cotenant.shares.backends.mps import Mps
from cotenant.shares.backends.plain import DutyCycleBackend, MemoryFraction, StepGate

__all__ = ["for_cores", "for_gpus"]


def for_cores(scope: str) -> list[Backend]:
    """What holds jobs on core sets.

    Parameters
    ----------
    scope : str
        Name of the folder of cgroups that this state folder's jobs get.
    """
    found: Backend | None = CgroupV2.detect(scope) or CgroupV1.detect(scope)
    return [found or DutyCycleBackend()]


def for_gpus(scope: str) -> list[Backend]:
    """What holds jobs on GPUs: their host part, and MPS or else the gate and the allocator's fraction."""
    host: Backend | None = CgroupV2.detect(scope) or CgroupV1.detect(scope)
    mps = Mps.detect()
    device: list[Backend] = [mps] if mps is not None else [StepGate()]
    return [*([host] if host is not None else []), *device, MemoryFraction()]
