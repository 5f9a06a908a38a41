"""One run at a time in a state folder.

The processes of a run share a lock on a file in it, which says whose it is. The lock is the kernel's (POSIX
record locks): it ends with the process that holds it, however that ends, and loader workers do not inherit it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import time
from pathlib import Path

from cotenant.elastic.members import ADDRESS
from cotenant.errors import InputError

__all__ = ["FILE", "Use", "use_folder"]

FILE = "in-use"
_PATIENCE_S, _PATIENCE_SCHEDULED_S = 2.0, 30.0
_POLL_S = 0.02
_LACKING = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_Key = tuple[int, str]
_counts: dict[_Key, int] = {}
"""Uses of a folder in this process: closing a file gives up all of the process's locks on it. A process that is
forked has its own."""
_open: dict[_Key, int] = {}


class Use:
    """That this process uses a folder, until it is released or the process ends."""

    def __init__(self, key: _Key | None) -> None:
        self._key = key

    def __enter__(self) -> Use:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others use it; the last one out takes the file away."""
        key, self._key = self._key, None
        if key is None:
            return
        _counts[key] -= 1
        if not _counts[key]:
            del _counts[key]
            file = _open.pop(key)
            if _locked(file, fcntl.LOCK_EX):
                with contextlib.suppress(OSError):
                    Path(key[1], FILE).unlink()
            os.close(file)


def use_folder(folder: Path | None) -> Use:
    """Take a folder for this process's run.

    Under the scheduler the attempt before may still be ending: it is waited for.

    Raises
    ------
    InputError
        If another run uses it, or nothing can be written there.
    """
    if folder is None:
        return Use(None)
    path = os.path.realpath(folder)
    key = (os.getpid(), path)
    if key not in _open:
        scheduled = os.environ.get("COTENANT_STATE")
        patient = bool(scheduled) and os.path.realpath(scheduled or "") == path
        deadline = time.monotonic() + (_PATIENCE_SCHEDULED_S if patient else _PATIENCE_S)
        own = os.environ.get(ADDRESS, "").rpartition(":")[0] or f"{os.getpid()}-{secrets.token_hex(8)}"
        while key not in _open:
            owner = _try(key, own)
            if key not in _open and time.monotonic() > deadline:
                raise InputError(
                    f"state folder {folder} is in use by another run (process {owner} began it): two would overwrite"
                    " each other's checkpoints; end that one, or give another elastic.Run(state=...)"
                )
            time.sleep(0.0 if key in _open else _POLL_S)
    _counts[key] = _counts.get(key, 0) + 1
    return Use(key)


def _try(key: _Key, own: str) -> str:
    """Take the folder, if nobody or the same run has it; else who has it."""
    path = Path(key[1], FILE)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"state folder {path.parent}: {error.strerror}; it must be writable") from None
    owner: dict[str, object] = {}
    if _locked(file, fcntl.LOCK_EX) and _is_there(file, path):
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps({"run": own, "pid": os.getpid()}).encode(), 0)
        _locked(file, fcntl.LOCK_SH)
        owner["run"] = own
    elif _locked(file, fcntl.LOCK_SH) and _is_there(file, path):
        # Whoever writes has it alone, so what is there is whole.
        with contextlib.suppress(ValueError):
            owner = json.loads(os.pread(file, 4096, 0) or b"{}")
    if owner.get("run") == own:
        _open[key] = file
    else:
        os.close(file)
    return str(owner.get("pid", "unknown"))


def _is_there(file: int, path: Path) -> bool:
    """Whether the file is still the one in the folder: the last run may have taken it away."""
    try:
        return os.fstat(file).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _locked(file: int, kind: int) -> bool:
    """Whether the lock was got; where the file system has none, everybody gets it."""
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno not in _LACKING:
            raise
    return True
