"""Care of the log: is it whole, a copy of it, and the log as a file for the other commands."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, func, select

from cotenant.errors import ConfigError, StoreError
from cotenant.live.store.sqlstore import SqlStore
from cotenant.live.store.tables import counters, events, lease, requests

__all__ = ["backup", "check", "export"]


def check(store: SqlStore) -> list[str]:
    """What is wrong with the log, one sentence each; an empty list if it is whole.

    Reads everything: every page of the file, every event, and that numbers have no gaps.
    """
    found: list[str] = []
    try:
        found += store.reading(_pages)
        found += store.reading(lambda c: list(_numbers(c)))
        for _ in store.read():
            pass
    except StoreError as error:
        found.append(str(error))
    return [*found, *_modes(store)]


def export(store: SqlStore, path: Path) -> int:
    """Write the log as a file of JSON lines, as ``cotenant simulate`` writes them; returns their number.

    The file takes its name when it is whole. What is appended meanwhile may or may not be in it.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with beside.open("wb") as file:
            for _, line in store.lines():
                file.write(line + b"\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return count


def backup(store: SqlStore, path: Path) -> None:
    """Copy a SQLite log to another file while it is in use; the copy is whole and of one moment.

    Raises
    ------
    ConfigError
        If the file exists, or the log is on PostgreSQL (use ``pg_dump`` there).
    StoreError
        If it cannot be written; nothing is left behind.
    """
    if store.engine.dialect.name != "sqlite":
        raise ConfigError("this log is on PostgreSQL; save it with pg_dump")
    if path.exists():
        raise ConfigError(f"{path} exists; name a new file")
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(beside)) as copy, store.engine.connect() as connection:
            connection.connection.driver_connection.backup(copy)  # type: ignore[union-attr]
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: the copy cannot be written: {error}") from error
    finally:
        beside.unlink(missing_ok=True)


def _pages(connection: Connection) -> list[str]:
    if connection.dialect.name != "sqlite":
        return []
    found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else [f"the database is damaged: {line}" for line in found]


def _numbers(connection: Connection) -> Iterator[str]:
    numbers = connection.execute(select(counters)).one()
    done = connection.execute(select(lease.c.done_seq)).scalar_one()
    for what, column, first, expected in (
        ("events", events.c.seq, 1, None),
        ("requests", requests.c.seq, 1, int(numbers.requests)),
        ("jobs", requests.c.job_id, 0, int(numbers.jobs)),
    ):
        count, low, high = connection.execute(
            select(func.count(column), func.min(column), func.max(column))
        ).one()
        if count and (low != first or high - low + 1 != count):
            yield f"{what} are missing: {count} between {low} and {high}"
        if expected is not None and count != expected:
            yield f"{what}: {count} found, {expected} were accepted"
    if done > numbers.requests:
        yield f"the log is ahead of the requests: {done} done, {numbers.requests} accepted"


def _modes(store: SqlStore) -> Iterator[str]:
    if store.engine.dialect.name != "sqlite":
        return
    for end in ("", "-wal", "-shm"):
        file = Path(store.where + end)
        if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            yield f"{file} can be read by others (mode {stat.S_IMODE(file.stat().st_mode):o}); chmod 600"
