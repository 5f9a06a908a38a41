"""Holds one job on a leash: whoever measures may be killed, and the job still ends.

Run as a file of its own (``python -I -S leash.py``), so that it starts in a few milliseconds. It
reads one JSON line with what to start, then one word a line, and answers each with one line:

=========  ================================================  ====================
word       what it does                                      answer
=========  ================================================  ====================
``stop``   suspends the job and its process group            ``stopped``
``go``     lets it run                                       ``going``
``look``   nothing                                           ``alive``
=========  ================================================  ====================

Once the job has ended, every answer is ``ended CODE`` (negative: the signal). When its standard
input closes, the leash kills the job and everything that the job started, and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from typing import Any

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere a job outlives a leash that is killed itself."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _become(asked: dict[str, Any], leash: int) -> None:
    """Turn this fresh child into the job; never returns."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != leash:
            os._exit(1)
        if asked.get("cores") and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, asked["cores"])
        if asked.get("memory_bytes"):
            resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"], asked["memory_bytes"]))
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if asked.get("folder"):
            os.chdir(asked["folder"])
        os.execvpe(asked["command"][0], asked["command"], asked["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot start {asked['command'][0]!r}: {error}\n".encode())
    finally:
        os._exit(127)


def _children() -> list[int]:
    """Processes whose parent is this one."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and int(fields[1]) == os.getpid():
            found.append(int(name))
    return found


def _kill_all(job: int, ended: bool) -> None:
    if not ended:
        with contextlib.suppress(OSError):
            os.killpg(job, signal.SIGKILL)
    # Descendants in sessions of their own fall to us once their parents are dead.
    for _ in range(100):
        with contextlib.suppress(OSError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = _children() if os.path.isdir("/proc/self") else []  # noqa: PTH112
        if not left:
            return
        for child in left:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], 0.05)


def main() -> None:
    """Start what the first line asks for, and serve until the input closes."""
    # Ctrl-C goes to the whole foreground group; whoever holds the leash decides what it means.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    asked = json.loads(sys.stdin.buffer.readline())
    leash, job = os.getpid(), os.fork()
    if job == 0:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        _become(asked, leash)
    _say(f"started {job}")
    code: int | None = None
    for line in iter(sys.stdin.buffer.readline, b""):
        code = _ended(job) if code is None else code
        _say(f"ended {code}" if code is not None else _obey(job, line.strip()))
    _kill_all(job, code is not None)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, text.encode() + b"\n")


def _ended(job: int) -> int | None:
    found, status = os.waitpid(job, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _obey(job: int, word: bytes) -> str:
    if word == b"stop":
        os.killpg(job, signal.SIGSTOP)
        return "stopped"
    if word == b"go":
        os.killpg(job, signal.SIGCONT)
        return "going"
    return "alive"


if __name__ == "__main__":
    main()
