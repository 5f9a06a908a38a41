"""Saved states between two lives of a job: in the registry, in host memory if there is room, and on disk.

Until a job is launched again its state lies either in its folder or in the registry, never partly in one: it
is published before the folder is emptied, in one rename, and put back whole before the registry forgets it.
So whatever dies in between, one of them holds all of it, and what the registry holds is put back first.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from cotenant.errors import CotenantError, NotFoundError
from cotenant.executors.local.layout import job_folder
from cotenant.pools.blocks import Tier
from cotenant.pools.registry import StateRegistry
from cotenant.pools.states import absorb, restore
from cotenant.pools.stats import Stats

__all__ = ["SavedStates", "tiers_of"]

_log = logging.getLogger("cotenant.live")
_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own, and only a folder of ours in it
_CLOSE_S = 10.0


def tiers_of(state: Path, memory_bytes: int, disk_bytes: int | None) -> list[Tier]:
    """Host memory, if any is given and the system has such a place, and the state folder's disk."""
    disk = Tier(name="disk", path=state / "saved" / "disk", limit_bytes=disk_bytes)
    memory = _memory_folder(state) if memory_bytes else None
    if memory is None:
        return [disk]
    return [Tier(name="memory", path=memory, limit_bytes=memory_bytes, durable=False), disk]


def _memory_folder(state: Path) -> Path | None:
    """A folder of ours alone; None if there is none to be had."""
    name = hashlib.blake2b(str(state.absolute()).encode(), digest_size=8).hexdigest()
    path = _MEMORY / f"cotenant-{os.geteuid()}-{name}"
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    except OSError:
        return None
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or not path.is_dir() or path.is_symlink():
        _log.warning("%s is not ours alone: saved states are kept on disk", path)
        return None
    return path


class SavedStates:
    """Puts saved states away and back, in a thread of its own.

    Parameters
    ----------
    state : Path
        The state folder.
    epoch : int
    memory_bytes : int
        Most that lies in host memory; 0: none.
    disk_bytes : int or None
        Most that lies on disk; None: no limit. A state that finds no room stays in its job's folder.
    wake : callable
        Called, from that thread, when a state is back.

    Raises
    ------
    CotenantError
        If the registry cannot be opened.
    """

    def __init__(
        self,
        state: Path,
        epoch: int,
        *,
        memory_bytes: int,
        disk_bytes: int | None,
        wake: Callable[[], None],
    ) -> None:
        self._state, self._epoch, self._wake = state, epoch, wake
        self._registry = StateRegistry(state / "saved", tiers_of(state, memory_bytes, disk_bytes))
        books, _ = self._registry.books_of()
        self._away = {int(job) for (job,) in books.rows("SELECT DISTINCT job FROM versions")}
        self._lock = threading.Lock()
        self._back: dict[int, str] = {}
        self.stats: Stats = self._registry.stats()
        self._work: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="cotenant-states", daemon=True)
        self._thread.start()

    def away(self, job: int) -> bool:
        """Whether a job's state is in the registry, or about to be: it is to be fetched before a launch."""
        with self._lock:
            return job in self._away

    def put(self, job: int, step: int) -> None:
        """Put the state of a job that has left away."""
        with self._lock:
            self._away.add(job)
        self._work.put(("put", job, step))

    def fetch(self, job: int) -> None:
        """Bring a job's state back to its folder; ``take`` tells when it is there."""
        self._work.put(("fetch", job, 0))

    def drop(self, job: int) -> None:
        """A job has ended for good."""
        with self._lock:
            if job not in self._away:
                return
        self._work.put(("drop", job, 0))

    def take(self) -> dict[int, str]:
        """Jobs whose state is back since the last call; with what went wrong, or an empty text."""
        with self._lock:
            back, self._back = self._back, {}
        return back

    def close(self) -> None:
        """Finish what is under way; what was only asked for stays where it is."""
        self._closing = True
        self._work.put(("end", -1, 0))
        self._thread.join(_CLOSE_S)

    # -- in the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            what, job, step = self._work.get()
            if what == "end":
                break
            try:
                {"put": self._put, "fetch": self._fetch, "drop": self._drop}[what](job, step)
                self.stats = self._registry.stats()
            except Exception:
                # Whatever it was, a job must not wait for ever for a thread that is gone.
                _log.exception("saved state of job %d (%s)", job, what)
                if what == "fetch":
                    self._told(job, "its saved state could not be brought back; see the log of the scheduler")
        with contextlib.suppress(CotenantError):
            self._leave_nothing_empty()
            self._registry.close()

    def _leave_nothing_empty(self) -> None:
        """Nobody would ever tidy up a folder in host memory whose scheduler is gone for good."""
        for tier in self._registry.stats().tiers:
            if tier.name == "memory" and not tier.blocks:
                path = next(t.path for t in self._registry.tiers if t.name == "memory")
                shutil.rmtree(path, ignore_errors=True)

    def _put(self, job: int, step: int) -> None:
        folder = Path(job_folder(str(self._state), job), "state")
        try:
            self._registry.lease(job, "daemon", self._epoch)
            kept = absorb(folder, self._registry, job, step, epoch=self._epoch, delete=False)
        except (CotenantError, OSError) as error:
            # Its end may be told again after a restart: then it is in the registry already, and stays known as such.
            if self._registry.newest(job) is None:
                _log.info("the saved state of job %d stays in its folder: %s", job, error)
                self._forget(job)
            return
        # One rename empties the folder: a state is never partly gone.
        gone = folder.with_name("state-kept")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        _log.info("the state of job %d (%d bytes) is kept in %s", job, kept.size_bytes, ", ".join(kept.tiers))

    def _fetch(self, job: int, _: int) -> None:
        problem = ""
        try:
            self._bring(job)
        except (CotenantError, OSError) as error:
            problem = f"its saved state could not be brought back: {error}"
        if not problem:
            self._forget(job)
        self._told(job, problem)

    def _bring(self, job: int) -> None:
        if self._registry.newest(job) is None:
            return  # it stayed in its folder
        self._registry.lease(job, "daemon", self._epoch)
        folder = Path(job_folder(str(self._state), job), "state")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(NotFoundError):
            restore(self._registry, job, folder)
        self._registry.drop(job)

    def _drop(self, job: int, _: int) -> None:
        self._registry.drop(job)
        self._forget(job)

    def _forget(self, job: int) -> None:
        with self._lock:
            self._away.discard(job)

    def _told(self, job: int, problem: str) -> None:
        with self._lock:
            self._back[job] = problem
        self._wake()
