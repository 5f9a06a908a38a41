"""The books of the registry, in SQLite: what there is, where, and who needs it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.errors import StoreError

__all__ = ["Books", "holder_lives", "holder_name"]

_TABLES = """
CREATE TABLE IF NOT EXISTS blocks (hash TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS copies (
  hash TEXT NOT NULL, tier TEXT NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (hash, tier)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions (
  job INTEGER, version INTEGER, epoch INTEGER NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (job, version)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (
  job INTEGER, version INTEGER, place INTEGER, hash TEXT NOT NULL, PRIMARY KEY (job, version, place)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parts_by_hash ON parts (hash);
CREATE TABLE IF NOT EXISTS leases (job INTEGER PRIMARY KEY, owner TEXT NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS pins (job INTEGER, version INTEGER, PRIMARY KEY (job, version)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holds (hash TEXT, holder TEXT, PRIMARY KEY (hash, holder)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS readers (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER, version INTEGER, holder TEXT NOT NULL,
  valid INTEGER NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS clock (now INTEGER NOT NULL);
"""


class Books:
    """Connection and lock; every change is one transaction of one process at a time.

    Raises
    ------
    StoreError
        If the file cannot be opened or is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "registry.db"
        self._mutex, self._depth = threading.RLock(), 0
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            with self.alone():
                self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise StoreError(
                f"{self.path}: {error}; if the file is damaged, move it away: states are then begun anew"
            ) from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes books or files meanwhile. A process that dies lets go."""
        with self._mutex:
            if not self._depth:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """All of it or nothing, and on disk at the end.

        Not ``durable``: a loss of power may undo it (never a process that dies), until the next durable
        one: for what need not outlive the machine, or is published later.
        """
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._db.execute(statement, values)

    def rows(self, query: str, *values: Any) -> list[Any]:
        """All rows of a query."""
        with self._mutex:
            return self._db.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        """First column of the first row, or None."""
        with self._mutex:
            row = self._db.execute(query, values).fetchone()
        return None if row is None else row[0]

    def tick(self) -> int:
        """The next moment, for recency."""
        if self.one("SELECT now FROM clock") is None:
            self.run("INSERT INTO clock VALUES (0)")
        self.run("UPDATE clock SET now = now + 1")
        return int(self.one("SELECT now FROM clock"))

    def close(self) -> None:
        """Give back file and lock."""
        with self._mutex:
            self._db.close()
            os.close(self._lock)


def holder_name(pid: int | None = None) -> str:
    """Name of a process that no other process ever has: number and start time."""
    number = os.getpid() if pid is None else pid
    return f"{number}:{_start_ticks(number)}"


def holder_lives(name: str) -> bool:
    """Whether the process of that name is still there."""
    pid, _, ticks = name.partition(":")
    return _start_ticks(int(pid)) == ticks


def _start_ticks(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The command's name may hold spaces and brackets; fields after the last bracket are fixed.
    state, *fields = text.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]
