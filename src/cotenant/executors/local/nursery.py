"""A process that has loaded what a shepherd needs, and forks into one in a millisecond or two.

To start Python and to import took longer than all else between a submission and the job's first instruction.
``shepherd.py`` without a folder is the nursery: it serves orders from a socket, one a message, until the other
end is closed, as it is when the daemon dies; the shepherds, in sessions of their own, live on.

``bFOLDER``
    Bear a shepherd. Answered by its pid, or by minus the number of the error.
``cPID``
    With which code did it leave? Answered by the code; 0 where it is not known.
``dPID``
    Nobody will ask.

A shepherd that has left stays a zombie until one of the last two comes, so its pid is not given away before.
The half that serves uses the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import sys
from collections.abc import Callable

__all__ = ["Nursery", "serve"]

_SWEEP_MS = 100
_PATIENCE_MS = 10_000
_ENDS_MS = 1000
_TRIES = 3


def serve(main: Callable[[str], int]) -> None:
    """Serve orders that come on standard input; in a child that was born ``main`` runs, and its code ends it."""
    import ctypes  # noqa: F401 - a shepherd will need it

    with contextlib.suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    orders = select.poll()
    orders.register(0, select.POLLIN)
    leaving: set[int] = set()
    while True:
        ready = orders.poll(_SWEEP_MS if leaving else None)
        leaving = {pid for pid in leaving if _left(pid) is None}
        if not ready:
            continue
        try:
            order = os.read(0, 1 << 16)
        except OSError:
            return
        if not order:
            return
        word, rest = order[:1], order[1:]
        if word == b"d":
            leaving.add(int(rest))
            continue
        answer = _bear(os.fsdecode(rest), main) if word == b"b" else _left(int(rest)) or 0
        try:
            os.write(0, b"%d" % answer)
        except OSError:
            return


def _left(pid: int) -> int | None:
    """The code with which a child left; None while it has not."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if found else None


def _bear(folder: str, main: Callable[[str], int]) -> int:
    """The pid of a new shepherd, or minus the number of the error; in the child it does not return."""
    try:
        log = os.open(f"{folder}/shepherd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return -(error.errno or errno.EIO)
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or errno.EAGAIN)
    if pid:
        os.close(log)
        return pid
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
        code = main(folder)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


class Nursery:
    """The daemon's end. Whatever goes wrong with the process, shepherds can still be started without it.

    Parameters
    ----------
    begin : callable
        Starts the process with that descriptor as its standard input, and returns its pid; raises ``OSError``.
    """

    def __init__(self, begin: Callable[[int], int]) -> None:
        self._begin, self._pid, self._end, self._left = begin, 0, -1, _TRIES

    def open(self) -> bool:
        """Have the process, or start it and wait for nothing; False if there is none to be had."""
        if self._pid:
            return True
        if not self._left:
            return False
        import socket

        self._left -= 1
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._pid = self._begin(its.fileno())
            self._end = ours.detach()
        except (OSError, NotImplementedError):
            ours.close()
            return False
        finally:
            its.close()
        return True

    def bear(self, folder: str) -> int:
        """Pid of a new shepherd; 0 if the process is not there, or was not in time: then it is gone.

        Raises
        ------
        OSError
            If no process can be made, or the disk does not take its log.
        """
        if not self.open():
            return 0
        found = self._ask(b"b" + os.fsencode(folder))
        if found is not None and found < 0:
            raise OSError(-found, os.strerror(-found))
        return found or 0

    def code(self, pid: int) -> int:
        """With which code a shepherd left; 0 where it cannot be known."""
        return self._ask(b"c%d" % pid) or 0

    def forget(self, pid: int) -> None:
        """Nobody will ask with which code it left."""
        with contextlib.suppress(OSError):
            os.write(self._end, b"d%d" % pid)

    def _ask(self, order: bytes) -> int | None:
        try:
            os.write(self._end, order)
            waits = select.poll()
            waits.register(self._end, select.POLLIN)
            if waits.poll(_PATIENCE_MS):
                return int(os.read(self._end, 64))
        except (OSError, ValueError):
            pass  # it is gone
        self._give_up()
        return None

    def _give_up(self) -> None:
        """It may still bear what it was asked for, but for this; of two shepherds of an attempt one starts the job."""
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let it end; the shepherds live on."""
        if self._end >= 0:
            os.close(self._end)
        pid, self._pid, self._end = self._pid, 0, -1
        if not pid:
            return
        with contextlib.suppress(OSError):
            gone = os.pidfd_open(pid)
            waits = select.poll()
            waits.register(gone, select.POLLIN)
            if not waits.poll(_ENDS_MS):
                os.kill(pid, signal.SIGKILL)
            os.close(gone)
            os.waitpid(pid, 0)
