"""Where things lie in the state folder, and the words that daemon, shepherd and job leave for each other.

Standard library alone: the shepherd, which must start in a few milliseconds, imports it too.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os

__all__ = [
    "ALLOWED_AT",
    "BUSY_AT",
    "CAN_SUSPEND",
    "DUTY_AT",
    "FLAGS_AT",
    "GUARANTEED_AT",
    "ORDER_AT",
    "ORDER_SUSPEND",
    "PASSING",
    "RUNTIME_ATTACHED",
    "SAVING_NOW",
    "SLEPT_AT",
    "STATE_BYTES_AT",
    "STATE_SAVED",
    "STATE_STEP_AT",
    "STATUS_BYTES",
    "STATUS_MAGIC",
    "STEPS_AT",
    "STEP_NS_AT",
    "STEP_S_AT",
    "SUSPENDED_CODE",
    "TOTAL_AT",
    "VERSION_AT",
    "alive",
    "attempt_folder",
    "boot_id",
    "identity",
    "job_folder",
    "keep_room",
    "read_epoch",
    "read_json",
    "read_word",
    "start_ticks",
    "stat_fields",
    "total_steps",
    "write_into_room",
    "write_json",
    "write_or_use_room",
    "write_word",
]

SUSPENDED_CODE = 85
STATUS_MAGIC, STATUS_BYTES = b"CTST0001", 4096
STEPS_AT, TOTAL_AT, STEP_NS_AT, STEP_S_AT, FLAGS_AT = 8, 16, 24, 32, 40
STATE_BYTES_AT, STATE_STEP_AT, ORDER_AT = 48, 56, 64
GUARANTEED_AT, ALLOWED_AT, VERSION_AT, SLEPT_AT, BUSY_AT = 72, 76, 80, 88, 96
DUTY_AT = 104
"""What the shepherd's duty cycle allows now, in thousandths: the gate's ceiling is another word, lest both throttle."""

RUNTIME_ATTACHED, CAN_SUSPEND, STATE_SAVED, SAVING_NOW = 1, 2, 4, 8
ORDER_SUSPEND = 1

PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR}
)
"""Errors of a start that are nobody's fault and pass: no space, memory, processes or files for now."""

_ROOM_BYTES = 4096


def job_folder(state_dir: str, job_id: int) -> str:
    """Everything of one job. Numbers alone make paths: names of jobs and tenants never do."""
    return f"{state_dir}/jobs/{int(job_id)}"


def attempt_folder(state_dir: str, job_id: int, serial: int) -> str:
    """Everything of one start of a job."""
    return f"{job_folder(state_dir, job_id)}/serial-{int(serial)}"


def total_steps(status: str) -> int:
    """Steps of the whole job, as one of its starts left it in its status file; 0 if it did not say, or the file is gone."""
    with contextlib.suppress(OSError), open(status, "rb") as file:  # noqa: PTH123
        return int.from_bytes(file.read(TOTAL_AT + 8)[TOTAL_AT:], "little")
    return 0


def boot_id() -> str:
    """Changes when the machine starts anew; empty where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return file.read().strip()
    return ""


def stat_fields(pid: int | str) -> list[bytes]:
    """Of ``/proc/PID/stat``, from the third on (the name before may hold anything); none if there is no process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def start_ticks(pid: int) -> int:
    """When a process started, in the kernel's ticks since boot; 0 if there is none, or it is a zombie."""
    fields = stat_fields(pid)
    return 0 if len(fields) < 20 or fields[0] in (b"Z", b"X") else int(fields[19])


def identity() -> dict[str, object]:
    """What tells this process from every other one, of this start of the machine and of others."""
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}


def alive(pid: int, ticks: int) -> bool:
    """Whether exactly that process runs: a number alone may have been given to another by now."""
    return pid > 0 and ticks > 0 and start_ticks(pid) == ticks


def read_json(path: str) -> dict[str, object]:
    """A file's object; empty where there is none or it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_epoch(state_dir: str) -> int:
    """The newest epoch that anybody wrote in a state folder; 0 if nobody did."""
    try:
        with open(f"{state_dir}/epoch", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read())
    except (OSError, ValueError):
        return 0


def write_json(path: str, value: dict[str, object], *, durable: bool = False) -> None:
    """Write beside and rename: a reader sees the old file or the new one, never a part.

    ``durable`` for what must outlive the machine: how an attempt ended. Of what runs nothing is left then anyway.
    """
    beside = f"{path}.{os.getpid()}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(value).encode()
        while data:
            data = data[os.write(descriptor, data) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(beside, path)  # noqa: PTH105


def keep_room(path: str) -> None:
    """Take room on the disk for a file that will have to be written even when the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b" " * _ROOM_BYTES)
    finally:
        os.close(descriptor)


def write_into_room(room: str, path: str, value: dict[str, object]) -> None:
    """Write a file, durably, onto room that was kept; blanks after an object are nothing.

    Raises
    ------
    OSError
        If there is no room, or it cannot be written after all.
    """
    data = json.dumps(value).encode().ljust(_ROOM_BYTES)
    descriptor = os.open(room, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(room, path)  # noqa: PTH105


def write_or_use_room(room: str, path: str, value: dict[str, object]) -> None:
    """Write a file; onto the room that was kept where the disk has no other. The room is gone then."""
    try:
        write_json(path, value)
    except OSError:
        write_into_room(room, path, value)
    with contextlib.suppress(OSError):
        os.unlink(room)  # noqa: PTH108


def read_word(descriptor: int, offset: int, size: int = 8) -> int:
    """A word of a status file; 0 where it is too short."""
    return int.from_bytes(os.pread(descriptor, size, offset), "little")


def write_word(descriptor: int, offset: int, value: int, size: int = 8) -> None:
    """Set a word of a status file, in one call: whoever maps the file sees all of it or nothing."""
    os.pwrite(descriptor, value.to_bytes(size, "little"), offset)
