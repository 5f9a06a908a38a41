"""Ways to hold a share that need nobody's permission: stopping and going on, the gate inside the job, memory fractions."""

from __future__ import annotations

from cotenant.model.placement import DEVICE_MILLI
from cotenant.shares.backends.base import Applied, Enforcement, Want

__all__ = ["DutyCycleBackend", "MemoryFraction", "StepGate", "WritableMemory"]

_TOUCHED_LATE_BYTES = 256 << 20


class _Plain:
    """Nothing to change outside the job, and nothing counted."""

    def adjust(self, want: Want) -> None:
        """The words in the status file are all that changes, and the host writes them."""

    def remove(self, key: str) -> None:
        """Nothing is kept."""

    def use_s(self, key: str) -> float | None:
        """Not counted here."""
        return None

    def memory_bytes(self, key: str) -> int | None:
        """Not counted here."""
        return None


class WritableMemory(_Plain):
    """Host memory by a limit of each process.

    The limit is one of private writable memory (RLIMIT_DATA): a quarter more than asked, and 256 MiB
    for what is reserved and touched late or never. It holds for each process of a job, not for all together, so it
    stops what runs away, and is not exact: advisory. Address space (RLIMIT_AS) would count libraries, several
    GiB of them with CUDA.
    """

    name = "writable memory"
    enforcement = Enforcement(
        memory="advisory",
        compute="none",
        fault_isolation=True,
        adjustable=False,
        note="memory is of each process",
    )

    def apply(self, want: Want) -> Applied:
        """A limit for the shepherd to set."""
        size = want.host_bytes
        return Applied(data_bytes=size * 5 // 4 + _TOUCHED_LATE_BYTES if size else 0)


class DutyCycleBackend(_Plain):
    """CPU time by SIGSTOP and SIGCONT, done by the shepherd, so that it outlives the daemon.

    Parameters
    ----------
    memory : bool
        Whether it limits memory, too, as ``WritableMemory`` does.
    """

    name = "duty cycle"

    def __init__(self, *, memory: bool = True) -> None:
        self._memory = WritableMemory() if memory else None
        self.enforcement = Enforcement(
            memory="advisory" if memory else "none",
            compute="averaged",
            fault_isolation=True,
            note="compute is exact over seconds" + (", memory is of each process" if memory else ""),
        )

    def apply(self, want: Want) -> Applied:
        """Words for the shepherd."""
        shared = want.on_cores and want.share.mode == "spatial"
        return Applied(
            duty=len(want.cores) if shared else 0,
            data_bytes=self._memory.apply(want).data_bytes if self._memory is not None else 0,
        )


class StepGate(_Plain):
    """Compute by a gate between steps, inside jobs that use our runtime; nothing for others."""

    name = "step gate"
    enforcement = Enforcement(
        memory="none",
        compute="averaged",
        fault_isolation=False,
        note="only jobs with the runtime in them are held; a step is never cut",
    )

    def apply(self, want: Want) -> Applied:
        """The share stands in the status file, which is there anyway."""
        del want
        return Applied()


class MemoryFraction(_Plain):
    """Device memory by PyTorch's own allocator: the runtime sets its fraction at the start."""

    name = "memory fraction"
    enforcement = Enforcement(
        memory="advisory",
        compute="none",
        fault_isolation=False,
        adjustable=False,
        note="PyTorch's caching allocator alone is held, in jobs with the runtime in them; contexts and libraries are not",
    )

    def apply(self, want: Want) -> Applied:
        """``COTENANT_MEMORY_BYTES`` and, where the device's size is known, ``COTENANT_MEMORY_FRACTION``."""
        if not want.share.memory_bytes:
            return Applied()
        env = {"COTENANT_MEMORY_BYTES": str(want.share.memory_bytes)}
        if want.device_bytes:
            fraction = min(want.share.memory_bytes / want.device_bytes, 1.0)
            env["COTENANT_MEMORY_FRACTION"] = (
                f"{int(fraction * DEVICE_MILLI * 1000) / (DEVICE_MILLI * 1000):.6f}"
            )
        return Applied(env=env)
