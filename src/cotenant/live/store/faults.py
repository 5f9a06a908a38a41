"""What a database says when it fails, in words of what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cotenant.errors import FullError, LostError, StoreError

__all__ = ["lost_connection", "told"]

_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full; free space there, nothing that was confirmed is lost",
    sqlite3.SQLITE_BUSY: "another process holds it locked; see who has it open (fuser -v), then try again",
    sqlite3.SQLITE_LOCKED: "another process holds it locked; see who has it open (fuser -v), then try again",
    sqlite3.SQLITE_READONLY: "it cannot be written to; see who owns it and its folder, and that the disk "
    "is not mounted read-only",
    sqlite3.SQLITE_PERM: "it cannot be written to; see who owns it and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; see that its folder exists and may be written to",
    sqlite3.SQLITE_CORRUPT: "it is damaged; stop the scheduler, copy the folder away, then take the last backup, or "
    "save what can be read: sqlite3 cotenant.db .recover | sqlite3 new.db",
    sqlite3.SQLITE_NOTADB: "it is damaged, or no SQLite file; move it away, or take the last backup",
    sqlite3.SQLITE_IOERR: "the disk could not be read or written; see that it has room and no limit on sizes of files "
    "(ulimit -f), and the machine's log for errors of the disk",
    sqlite3.SQLITE_PROTOCOL: "its locks do not work there; a network file system cannot hold it, "
    "choose a local folder (--state)",
}
_POSTGRES = {
    "53100": "the disk of the database server is full; free space there, nothing that was confirmed is lost",
    "53300": "the database server takes no more connections; raise max_connections, or close some",
    "55P03": "another session holds it locked; see pg_stat_activity, then try again",
    "57P03": "the database server is starting up or shutting down; try again",
    "25006": "the database is read-only, perhaps a standby; name the primary in --store",
    "28P01": "the database server refuses the password; see the URL of --store",
    "28000": "the database server refuses the user; see the URL of --store and pg_hba.conf",
    "3D000": "there is no such database; create it: createdb NAME",
    "42501": "the user lacks the right to do this; grant it all rights on the schema",
    "XX001": "the database is damaged; restore the last backup (pg_restore)",
    "XX002": "an index of the database is damaged; run REINDEX DATABASE, then cotenant doctor",
}
_AT_THE_DOOR = {
    "does not exist": "3D000",
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    "authentication failed": "28000",
    "too many clients": "53300",
    "is starting up": "57P03",
    "is shutting down": "57P03",
}
_AWAY = ("57P01", "57P02", "57P03")
_FULL = (sqlite3.SQLITE_FULL, "53100")
_ASK = "see the server's own log"


@contextmanager
def told(where: str, what: str) -> Iterator[None]:
    """Turn what the database raises into ``StoreError``.

    ``FullError`` if all that it lacks is room, ``LostError`` if its server is away.

    Parameters
    ----------
    where : str
        The file, or the URL without its password.
    what : str
        What was being done: "cannot write the log".
    """
    try:
        yield
    except DBAPIError as error:
        kind = FullError if _code(error) in _FULL else LostError if _away(error) else StoreError
        raise kind(f"{where}: {what}: {_advice(error)}") from error
    except PoolTimeoutError as error:
        raise StoreError(f"{where}: {what}: all connections are in use; try again") from error
    except SQLAlchemyError as error:
        raise StoreError(f"{where}: {what}: {error}") from error


def lost_connection(error: BaseException) -> bool:
    """Whether the server went away, so that nobody knows whether the last transaction was committed."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _away(error: DBAPIError) -> bool:
    """Whether a server is not there now: it ended, or starts, or does not answer."""
    code, said = _code(error), str(error.orig)
    if isinstance(error.orig, sqlite3.Error):
        return False
    if code is None:
        code = next((found for words, found in _AT_THE_DOOR.items() if words in said), None)
    return code in _AWAY or code is None or lost_connection(error)


def _code(error: DBAPIError) -> int | str | None:
    """SQLite's primary code, or PostgreSQL's state; None where neither gave one."""
    origin = error.orig
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & 0xFF
    state = getattr(origin, "sqlstate", None) or getattr(getattr(origin, "diag", None), "sqlstate", None)
    return None if state is None else str(state)


def _advice(error: DBAPIError) -> str:
    origin, code = error.orig, _code(error)
    said = " ".join(str(origin).split())
    if isinstance(code, int):
        return f"{_SQLITE.get(code, 'see the machine log')} (SQLite says: {said})"
    if isinstance(origin, sqlite3.Error):
        return said
    state = code
    if state is None:
        # Refusals at the door come without a code.
        state = next((found for words, found in _AT_THE_DOOR.items() if words in said), None)
    if state is None:
        return f"the database server does not answer; see that it runs, and the URL of --store ({said})"
    return f"{_POSTGRES.get(state, _ASK)} (PostgreSQL says: {said})"
