"""Connections: what makes a commit durable, and files that only their owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from cotenant.errors import ConfigError, MissingExtraError, StoreError

__all__ = ["is_url", "open_engine", "shown"]

APPLICATION_ID = 0x636F7401
"""Tells our SQLite files from others' (first letters of the project, and a kind)."""
IMMEDIATE: dict[str, Any] = {"begin": "BEGIN IMMEDIATE"}
_SCHEMES = ("postgresql", "postgres")


def is_url(where: str) -> bool:
    """True for a database URL, False for the path of a file."""
    return where.partition("://")[1] != "" and where.partition(":")[0].split("+")[0] in (*_SCHEMES, "sqlite")


def shown(where: str) -> str:
    """The place, fit for people: a URL without its password."""
    return make_url(where).render_as_string(hide_password=True) if is_url(where) else where


def open_engine(where: str, *, busy_s: float, create: bool) -> Engine:
    """An engine for a SQLite file or a PostgreSQL URL.

    Raises
    ------
    ConfigError
        For another kind of database.
    StoreError
        If the file cannot be made, or is not there and ``create`` is False.
    MissingExtraError
        If the driver of PostgreSQL is not installed.
    """
    if not is_url(where):
        if "://" in where:
            raise ConfigError(f"--store {where}: not a database that we use; give postgresql://... or a file")
        return _sqlite(Path(where), busy_s, create)
    try:
        url = make_url(where)
    except ArgumentError:
        raise ConfigError("--store: cannot read this URL; write postgresql://user@host/database") from None
    if url.get_backend_name() == "sqlite":
        if not url.database:
            raise ConfigError("--store: a database in memory keeps nothing; name a file")
        return _sqlite(Path(url.database), busy_s, create)
    return _postgres(url, busy_s)


def _sqlite(path: Path, busy_s: float, create: bool) -> Engine:
    _prepare_file(path, create)
    url = URL.create("sqlite+pysqlite", database=str(path))
    options = {"timeout": busy_s, "check_same_thread": False}
    engine = create_engine(url, connect_args=options, pool_size=8, max_overflow=64, pool_timeout=60)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # The driver's own idea of when a transaction begins is too late for us.
        connection.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")
        # A log that was once large need not stay so on disk.
        connection.execute("PRAGMA journal_size_limit = 67108864")

    @event.listens_for(engine, "begin")
    def _began(connection: Any) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _prepare_file(path: Path, create: bool) -> None:
    """Make the file with mode 600 before SQLite does; its companions get the same mode from it."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file")
    if not path.exists() and not create:
        raise StoreError(f"{path}: there is no log here; cotenant up makes one, --state names its folder")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be opened for writing: {error.strerror or error}; see who owns it and its folder, "
            "that the disk has room and is not mounted read-only"
        ) from error


def _postgres(url: URL, busy_s: float) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtraError("a store on PostgreSQL", "postgres") from None
    millis = max(1, int(busy_s * 1000))
    options = {"connect_timeout": max(2, int(busy_s)), "application_name": "cotenant"}
    engine = create_engine(url.set(drivername="postgresql+psycopg"), connect_args=options, pool_size=4)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        before = connection.autocommit
        connection.autocommit = True
        with connection.cursor() as cursor:
            # What is confirmed must be on disk, whatever the server's file of settings says.
            found = cursor.execute("SHOW synchronous_commit").fetchone()[0]
            if found not in ("on", "remote_apply", "remote_write"):
                cursor.execute("SET synchronous_commit = on")
            cursor.execute(f"SET lock_timeout = {millis}")
            cursor.execute("SET idle_in_transaction_session_timeout = '60s'")
        connection.autocommit = before

    return engine
