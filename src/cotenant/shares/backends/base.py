"""The interface of everything that holds a job to its share."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from cotenant.model.placement import DEVICE_MILLI, Share

__all__ = ["Applied", "Backend", "Enforcement", "Want", "merged"]

Memory = Literal["hard", "advisory", "none"]
Compute = Literal["hard", "averaged", "none"]


class Enforcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a back end really enforces.

    Parameters
    ----------
    memory : {"hard", "advisory", "none"}
        ``hard``: beyond its limit the job is refused memory or killed, and no neighbour notices.
        ``advisory``: it holds for jobs that allocate in the usual way.
    compute : {"hard", "averaged", "none"}
        ``hard``: at any moment. ``averaged``: over seconds; within them a job may run ahead.
    fault_isolation : bool
        Whether a job that faults leaves its neighbours unharmed.
    adjustable : bool
        Whether a running job's share can change.
    note : str
    """

    memory: Memory
    compute: Compute
    fault_isolation: bool
    adjustable: bool = True
    note: str = ""


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """A share to be held.

    Parameters
    ----------
    key : str
        Of the attempt, digits and dots: it becomes part of paths.
    share : Share
    devices : int
        How many devices the share is of, each.
    cores : tuple of int
        CPU cores that the share is of, or that the job may use beside its GPUs.
    cpu_milli, host_memory_bytes : int
        Limits of the job on the host; 0 none.
    on_cores : bool
        Whether the devices are core sets.
    uuids : tuple of str
        Of the devices, where they are GPUs.
    device_bytes : int
        Memory of one device; 0 unknown.
    counts_on_milli : int
        Compute that it may count on, in thousandths of each device; -1: what its share guarantees.
    """

    key: str
    share: Share = Share()
    devices: int = 1
    cores: tuple[int, ...] = ()
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    on_cores: bool = True
    uuids: tuple[str, ...] = ()
    device_bytes: int = 0
    counts_on_milli: int = -1

    @property
    def compute_cores(self) -> float | None:
        """CPU cores' worth of time at most; None: no limit."""
        if not self.on_cores:
            return self.cpu_milli / 1000.0 if self.cpu_milli else None
        limit = self.share.compute_limit_milli if self.share.mode == "spatial" else DEVICE_MILLI
        own = len(self.cores) * limit / 1000.0 if limit < DEVICE_MILLI else None
        declared = self.cpu_milli / 1000.0 if self.cpu_milli else None
        known = [most for most in (own, declared) if most is not None]
        return min(known) if known else None

    @property
    def weight_milli(self) -> int:
        """Claim on contended cores, in thousandths of a core."""
        if not self.on_cores:
            return max(self.cpu_milli, 1000)
        part = self.share.compute_milli if self.counts_on_milli < 0 else self.counts_on_milli
        part = part if self.share.mode == "spatial" else DEVICE_MILLI
        return max(part * max(len(self.cores), 1), 1)

    @property
    def host_bytes(self) -> int:
        """Host memory at most; 0: no limit. On core sets a device's memory is host memory."""
        own = self.share.memory_bytes * self.devices if self.on_cores else 0
        return own or self.host_memory_bytes


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What the job's shepherd must do so that the share holds from the first instruction on.

    Parameters
    ----------
    env : dict
        Variables of the job.
    procs : tuple of str
        Files into which the job's process writes its number before it becomes the job.
    freezer, kill_file : str
    oom_files : tuple of str
        Files with a counter ``oom_kill``.
    remove : tuple of str
        Folders to remove, in order, once nobody is left.
    duty : int
        Cores whose time is kept by stopping and going on; 0: not so.
    data_bytes : int
        Limit of each process's private writable memory; 0 none.
    stop_commands : tuple of dict
        ``argv`` and ``input``, run before a job is ended.
    """

    env: dict[str, str] = {}
    procs: tuple[str, ...] = ()
    freezer: str = ""
    kill_file: str = ""
    oom_files: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    duty: int = 0
    data_bytes: int = 0
    stop_commands: tuple[dict[str, Any], ...] = ()


class Backend(Protocol):
    """Holds jobs to their shares.

    ``apply`` raises ``OSError`` where the share cannot be held as the table says; nothing is left behind then.
    """

    name: str
    enforcement: Enforcement

    def apply(self, want: Want) -> Applied:
        """Make ready for a job that is about to start."""

    def adjust(self, want: Want) -> None:
        """Change the share of a job that runs."""

    def remove(self, key: str) -> None:
        """The job has ended; may be called twice."""

    def use_s(self, key: str) -> float | None:
        """CPU seconds that the job used in all; None where this back end does not count."""

    def memory_bytes(self, key: str) -> int | None:
        """Memory that the job holds; None where this back end does not count."""


def merged(parts: list[Applied]) -> Applied:
    """All of it together."""
    env: dict[str, str] = {}
    for part in parts:
        env.update(part.env)
    sizes = [part.data_bytes for part in parts if part.data_bytes]
    return Applied(
        env=env,
        procs=tuple(path for part in parts for path in part.procs),
        freezer=next((part.freezer for part in parts if part.freezer), ""),
        kill_file=next((part.kill_file for part in parts if part.kill_file), ""),
        oom_files=tuple(path for part in parts for path in part.oom_files),
        remove=tuple(path for part in parts for path in part.remove),
        duty=max((part.duty for part in parts), default=0),
        data_bytes=min(sizes, default=0),
        stop_commands=tuple(command for part in parts for command in part.stop_commands),
    )
