"""Jobs as their owners declare them: what is asked for, never what will happen.

The true running time is not here on purpose. It belongs to the simulated world
(``model.workload``), so no policy can read it by accident.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Determinism", "Job", "JobClass", "Sharing"]

Sharing = Literal["exclusive", "same-owner", "trusted", "any"]
JobClass = Literal["guaranteed", "opportunistic"]
Determinism = Literal["none", "D0", "D1", "D2"]


class Job(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One job, as submitted.

    Build it with keywords; readers use the field order to build many at once.

    Parameters
    ----------
    id : int
        Dense index in submission order; the key used everywhere inside.
    name : str
        The owner's label, unique in a workload; never used as a path.
    submit_s : float
        Seconds since the start of the trace (or of the live scheduler's epoch).
    gpus : int
        Gang size: devices needed at once, all or nothing. 0 is a CPU-only job.
    model : str
        Key of the job's profile, for example ``"ResNet-50/b32"``; empty if unknown.
    memory_bytes : int
        Peak memory on each device; 0 means unknown, hence not shareable.
    compute_milli : int
        Guaranteed compute on each device, in thousandths. 1000 on an exclusive job
        means whole devices; smaller values are fractions. 0 declares nothing.
    sharing : {"exclusive", "same-owner", "trusted", "any"}
        With whom the job may share a device.
    tenant, user : str
        Who pays, who asked.
    priority : int
        Larger goes first where a policy honours priorities.
    estimate_s : float
        The owner's own estimate or time limit in seconds; 0 if none was given.
    retries : int
        How many failed attempts are followed by another.
    device_types : tuple of str
        Device types that will do, any of them; empty means any.
    cpu_milli, host_memory_bytes : int
        Thousandths of a core and bytes of host memory, for the whole job; spread evenly
        over its devices.
    min_gpus, max_gpus : int
        Elastic range; 0 means fixed at ``gpus``.
    job_class : {"guaranteed", "opportunistic"}
        Opportunistic jobs give way first.
    state_bytes : int
        Size of the state saved at suspension, for each device; 0 lets the settings
        derive it from ``memory_bytes``.
    leave_s : float
        The job leaves at this time if it has not started; 0 means it waits for ever.
    deadline_s : float
        Absolute time by which it should end; 0 if none.
    suspendable : bool
        Whether it can save its state and go on later.
    determinism : {"none", "D0", "D1", "D2"}
        Grade of reproducibility asked for.
    compute_limit_milli : int
        Ceiling for its use of idle compute on each device it shares, whatever a policy allows.
    """

    id: int
    name: str
    submit_s: float
    gpus: int = 1
    model: str = ""
    memory_bytes: int = 0
    compute_milli: int = 1000
    sharing: Sharing = "any"
    tenant: str = ""
    user: str = ""
    priority: int = 0
    estimate_s: float = 0.0
    retries: int = 0
    device_types: tuple[str, ...] = ()
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    min_gpus: int = 0
    max_gpus: int = 0
    job_class: JobClass = "guaranteed"
    state_bytes: int = 0
    leave_s: float = 0.0
    deadline_s: float = 0.0
    suspendable: bool = True
    determinism: Determinism = "none"
    compute_limit_milli: int = 1000
