"""The moment in which a fresh child becomes the job. Standard library alone."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

# The module typing would cost a fifth of the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["become_subreaper", "start"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_OOM_SCORE = b"300"
"""Where memory runs out, the kernel is to choose a job before the shepherd that could tell of it."""


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Orphans of the job come to this process, whatever session they moved to."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start(spec: dict[str, Any], env: dict[str, str], pipes: tuple[int, int]) -> tuple[int, str]:
    """Start one process of the job.

    Returns
    -------
    pid, problem : int, str
        Once the command runs, or has failed to: then a sentence, and for ``pid`` the error's number, negative or 0.
    """
    told, tell = os.pipe()
    shepherd = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(told)
        os.close(tell)
        return -(error.errno or 0), f"no process could be made: {error.strerror}"
    if pid == 0:
        _become(spec, env, pipes, tell, shepherd)
    os.close(tell)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    problem = b""
    while more := os.read(told, 4096):
        problem += more
    os.close(told)
    if problem:
        os.waitpid(pid, 0)
        number, _, words = problem.decode(errors="replace").partition("\n")
        return -int(number), words
    return pid, ""


def _become(
    spec: dict[str, Any], env: dict[str, str], pipes: tuple[int, int], tell: int, shepherd: int
) -> None:
    """Turn this child into the job; never returns."""
    doing = "could not be prepared"
    try:
        os.setpgid(0, 0)
        # Nobody would know how a job ended whose shepherd is gone: it ends with it.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shepherd:
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            _put("/proc/self/oom_score_adj", _OOM_SCORE)
        doing = "could not be put under its limits"
        _limit(spec)
        doing = "cannot run in its working folder"
        os.chdir(spec.get("cwd") or "/")
        doing = "cannot be run"
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        command = spec["command"]
        os.execvpe(command[0], command, env)  # noqa: S606
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        what = getattr(error, "strerror", None) or str(error)
        name = getattr(error, "filename", None)
        at = f" ({os.fsdecode(name)})" if name and doing != "cannot be run" else ""
        with contextlib.suppress(OSError):
            said = f"{spec.get('command', ['?'])[0]!r} {doing}: {what}{at}"
            os.write(tell, f"{_errno(error)}\n{said}".encode(errors="replace"))
    finally:
        os._exit(127)


def _limit(spec: dict[str, Any]) -> None:
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        # The scheduler may go before all others; a job may not, and no cgroup would take such a process.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for path in spec.get("procs", ()):
        _put(path, str(os.getpid()).encode())
    if spec.get("cores"):
        os.sched_setaffinity(0, spec["cores"])
    if spec.get("open_files"):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(spec["open_files"]), most))
    if spec.get("data_bytes"):
        size = int(spec["data_bytes"])
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def _errno(error: Exception) -> int:
    return getattr(error, "errno", None) or 0


def _put(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
