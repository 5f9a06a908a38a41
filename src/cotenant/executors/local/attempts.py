"""The host's side of one attempt: its folder, its shepherd, and what was told of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import time
from pathlib import Path
from typing import Any

import msgspec

from cotenant.executors.local import layout
from cotenant.executors.local.nursery import Nursery
from cotenant.model.liveports import AttemptEnded
from cotenant.model.placement import Share

__all__ = ["Attempt", "Reading"]

_FRAME = re.compile(r"(frame )?#\d+\b")


class Reading(msgspec.Struct, frozen=True):
    """What the status file says of a job's progress."""

    steps: int
    total: int
    last_ns: int
    step_s: float
    flags: int
    state_bytes: int
    busy_ns: int
    slept_ns: int = 0


class Attempt:
    """One start of one job.

    Parameters
    ----------
    state_dir : str
    job_id, attempt, serial : int
    """

    def __init__(self, state_dir: str, job_id: int, attempt: int, serial: int) -> None:
        self.id, self.attempt, self.serial = job_id, attempt, serial
        self.folder = layout.attempt_folder(state_dir, job_id, serial)
        self.spec: dict[str, Any] = {}
        self.share = Share()
        self.devices: tuple[int, ...] = ()
        self.pid = self.start_ticks = 0
        self.paused = False
        self.started_told = False
        self.ended: AttemptEnded | None = None
        self.shepherd = self.shepherd_ticks = 0
        self.pidfd = -1
        self.ours = False
        self.nursery: Nursery | None = None
        self.gone = False
        self.allowed = 1000
        self.epoch = 0
        self._status = -1

    @property
    def key(self) -> tuple[int, int]:
        """Job and serial: what names it."""
        return self.id, self.serial

    @property
    def name(self) -> str:
        """The same for paths and back ends."""
        return f"{self.id}.{self.serial}"

    @property
    def marker(self) -> str:
        """Name of its file among those that are not forgotten."""
        return f"{self.id}.{self.serial}.{self.attempt}"

    def load(self) -> None:
        """Read what was asked for; a share that was changed since stands in the orders."""
        spec: dict[str, Any] = layout.read_json(f"{self.folder}/spec.json")
        self.spec = spec
        self.epoch = int(spec.get("epoch", 0))
        orders: dict[str, Any] = layout.read_json(f"{self.folder}/control.json")
        with contextlib.suppress(msgspec.ValidationError):
            self.share = msgspec.convert(orders.get("share") or self.spec.get("share"), Share)
        self.devices = tuple(orders.get("devices") or spec.get("devices", ()))

    def seize(self) -> bool:
        """Take an attempt that nobody began, lest a shepherd that is on its way still does; False if one did."""
        beside = f"{self.folder}/claim.{os.getpid()}"
        with contextlib.suppress(OSError):
            layout.write_json(beside, {"pid": 0})
            try:
                os.link(beside, f"{self.folder}/claim")
            except FileExistsError:
                return self.seized
            finally:
                os.unlink(beside)  # noqa: PTH108
        return True

    @property
    def seized(self) -> bool:
        """Whether it is held so that nobody begins it."""
        return self.claim().get("pid") == 0

    def claim(self) -> dict[str, Any]:
        """Who holds it; empty before anybody does."""
        return layout.read_json(f"{self.folder}/claim")

    def started(self) -> bool:
        """Read who runs; False before anybody does."""
        found: dict[str, Any] = layout.read_json(f"{self.folder}/started.json")
        if not found:
            return False
        self.pid, self.start_ticks = int(found["pid"]), int(found["start_ticks"])
        self.paused = bool(found.get("paused"))
        return True

    def exit(self) -> AttemptEnded | None:
        """How it ended, as its shepherd wrote; None before."""
        found: dict[str, Any] = layout.read_json(f"{self.folder}/exit.json")
        if not found:
            return None
        return AttemptEnded(
            id=self.id,
            attempt=self.attempt,
            serial=self.serial,
            outcome=str(found.get("outcome", "lost")),
            code=int(found.get("code", 0)),
            signal=int(found.get("signal", 0)),
            detail=self._detail(found),
            steps=max(int(found.get("steps", 0)) - int(self.spec.get("base_steps", 0)), 0),
            ago_s=self._ago_s(found),
            again=bool(found.get("again")),
        )

    def _detail(self, found: dict[str, Any]) -> str:
        """What is known of the end; of an elastic job its supervisor knows more than its exit code."""
        said = str(found.get("detail", ""))
        if not self.spec.get("places") or found.get("outcome") != "failed":
            return said
        if found.get("signal"):
            # Whatever its processes wrote after that is no reason: they lost their supervisor.
            return f"its supervisor was {said}"
        why = str(layout.read_json(f"{self.folder}/placed").get("why") or "")
        with contextlib.suppress(OSError):
            with open(f"{self.folder}/stderr.log", "rb") as file:  # noqa: PTH123
                file.seek(max(os.fstat(file.fileno()).st_size - 2048, 0))
                last = _message(file.read().decode(errors="replace"))
            why = why if "without a step" in why or not last else f"{why or said}: {last[:400]}"
        return why or said

    def _ago_s(self, found: dict[str, Any]) -> float:
        """How long ago that was, by a clock that nobody sets; before a restart of the machine nobody knows."""
        if "ended_boot_s" not in found or self.claim().get("boot_id") != layout.boot_id():
            return 0.0
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - float(found["ended_boot_s"]), 0.0)

    def write_exit(self, outcome: str, detail: str, *, again: bool = False) -> AttemptEnded:
        """Say for its shepherd how it ended; memory alone remembers it where the disk is full."""
        reading = self.reading()
        steps = reading.steps if reading else 0
        with contextlib.suppress(OSError):
            layout.write_json(
                f"{self.folder}/exit.json",
                {
                    "outcome": outcome,
                    "code": 0,
                    "signal": 0,
                    "detail": detail,
                    "steps": steps,
                    "again": again,
                },
                durable=True,
            )
        base = int(self.spec.get("base_steps", 0))
        return AttemptEnded(
            id=self.id,
            attempt=self.attempt,
            serial=self.serial,
            outcome=outcome,
            detail=detail,
            steps=max(steps - base, 0),
            again=again,
        )

    # -- its shepherd --------------------------------------------------------------------

    def watch(self, pid: int, ticks: int) -> bool:
        """Hold on to the shepherd, so that its end is noticed; False if that one is gone already."""
        try:
            self.pidfd = os.pidfd_open(pid)
        except OSError:
            self.pidfd = -1
            return False
        self.shepherd, self.shepherd_ticks = pid, ticks
        # The number may have passed to another between the claim and now.
        if ticks and not layout.alive(pid, ticks):
            self.unwatch()
            return False
        return True

    def unwatch(self) -> None:
        """Let go of the shepherd."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def reap(self) -> int:
        """Exit code of a shepherd of ours that has ended; 0 where it cannot be known."""
        if self.nursery is not None:
            nursery, self.nursery = self.nursery, None
            return nursery.code(self.shepherd)
        if not self.ours:
            return 0
        try:
            pid, status = os.waitpid(self.shepherd, os.WNOHANG)
        except ChildProcessError:
            self.ours = False
            return 0
        if pid:
            self.ours = False
            return os.waitstatus_to_exitcode(status)
        return 0

    def let_go(self) -> None:
        """Its shepherd has said all, and has left or is about to."""
        if self.nursery is not None:
            self.nursery.forget(self.shepherd)
            self.nursery = None
        self.reap()

    def poke(self) -> None:
        """Make the shepherd look at its orders; if nobody listens, it will look when it begins."""
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{self.folder}/control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, b".")
            finally:
                os.close(descriptor)

    def order(self, epoch: int, **changes: object) -> None:
        """Write orders that survive, and make the shepherd look.

        Raises
        ------
        OSError
            If they cannot be written.
        """
        found: dict[str, Any] = layout.read_json(f"{self.folder}/control.json")
        version = int(found.get("version", 0)) + 1
        layout.write_json(
            f"{self.folder}/control.json",
            {**found, **changes, "version": version, "epoch": epoch},
            durable=True,
        )
        self.poke()

    def kill_shepherd(self) -> None:
        """Last resort against one that must not go on."""
        if layout.alive(self.shepherd, self.shepherd_ticks):
            with contextlib.suppress(OSError):
                os.kill(self.shepherd, signal.SIGKILL)

    # -- the status file -----------------------------------------------------------------

    def status(self) -> int:
        """Descriptor of the status file, opened when first needed; -1 if there is none."""
        if self._status < 0:
            with contextlib.suppress(OSError):
                self._status = os.open(f"{self.folder}/status", os.O_RDWR | os.O_CLOEXEC)
        return self._status

    def reading(self) -> Reading | None:
        """Progress as the job tells it; None if there is no status file."""
        descriptor = self.status()
        if descriptor < 0:
            return None
        page = os.pread(descriptor, 128, 0).ljust(128, b"\0")
        steps, total, last_ns, step_s, flags, size = struct.unpack_from("<QQQdQQ", page, 8)
        slept_ns, busy_ns = struct.unpack_from("<QQ", page, layout.SLEPT_AT)
        return Reading(steps, total, last_ns, step_s, flags, size, busy_ns, slept_ns)

    def write_share(self, guaranteed: int, gate: int, duty: int) -> None:
        """Tell gate and duty cycle what is allowed now; 0 to the gate means that it has nothing to do."""
        descriptor = self.status()
        if descriptor < 0:
            return
        layout.write_word(descriptor, layout.GUARANTEED_AT, guaranteed, 4)
        layout.write_word(descriptor, layout.ALLOWED_AT, gate, 4)
        layout.write_word(descriptor, layout.DUTY_AT, duty, 4)
        version = layout.read_word(descriptor, layout.VERSION_AT)
        layout.write_word(descriptor, layout.VERSION_AT, version + 1)

    def close(self) -> None:
        """Let go of descriptors."""
        self.unwatch()
        if self._status >= 0:
            os.close(self._status)
            self._status = -1


def _message(text: str) -> str:
    """The last line that says something: of a traceback the error and what to do, no frame of a stack.

    >>> _message("Traceback:\\n  a()\\nKeyError: 'a'\\nframe #1: c10::run() + 0x1 (libc10.so)\\n#2 main\\n")
    "KeyError: 'a'"
    """
    lines = [line.rstrip() for line in text.splitlines()]
    said = [line for line in lines if line and not line[0].isspace() and not _FRAME.match(line)]
    return said[-1] if said else ""


def make_status(path: str) -> None:
    """An empty status file, whole from the first moment that anybody can see it; one that is there stays.

    A shepherd of an earlier host may have opened it already.
    """
    if Path(path).exists():
        return
    beside = Path(f"{path}.new")
    beside.write_bytes(layout.STATUS_MAGIC.ljust(layout.STATUS_BYTES, b"\0"))
    beside.chmod(0o600)
    beside.replace(path)
