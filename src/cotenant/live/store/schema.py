"""The version of the tables: made, brought up to date, or refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sqlalchemy import Connection, Engine, inspect, select, text

from cotenant.errors import StoreError
from cotenant.live.store import tables as now
from cotenant.live.store.engines import APPLICATION_ID, IMMEDIATE
from cotenant.live.store.tables import counters, lease, meta

__all__ = ["MIGRATIONS", "make_ready", "version"]

MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {}
"""By the version that is left; each step makes the next one. All of them run in one transaction."""

_LOCK = 0x636F74
"""Two that start at once make the tables one after the other."""


def make_ready(engine: Engine, where: str, *, create: bool) -> None:
    """Make the tables if there are none, or bring older ones up to date.

    Raises
    ------
    StoreError
        If they are of a newer version, or the database holds something else.
    """
    with engine.connect().execution_options(**IMMEDIATE) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        found = version(connection)
        if found is None:
            _refuse_others(connection, where, create)
            _create(connection)
        elif found > now.SCHEMA:
            raise StoreError(
                f"{where}: written by a newer cotenant (tables of version {found}, this one knows {now.SCHEMA}); "
                "update cotenant, or name another --state"
            )
        else:
            _migrate(connection, found, where)


def version(connection: Connection) -> int | None:
    """The version of the tables; None where there are none."""
    if not inspect(connection).has_table(meta.name):
        return None
    found = connection.execute(select(meta.c.value).where(meta.c.key == "schema")).scalar()
    return None if found is None else int(found)


def _refuse_others(connection: Connection, where: str, create: bool) -> None:
    if not create:
        raise StoreError(f"{where}: there is no log here; cotenant up makes one")
    if connection.dialect.name == "sqlite" and inspect(connection).get_table_names():
        raise StoreError(f"{where}: holds a database that is not ours; name another file or --state")


def _create(connection: Connection) -> None:
    now.tables.create_all(connection)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(
        meta.insert(),
        [{"key": "schema", "value": str(now.SCHEMA)}, {"key": "began_wall_s", "value": repr(time.time())}],
    )
    connection.execute(counters.insert(), {"id": 1, "requests": 0, "jobs": 0})
    connection.execute(
        lease.insert(),
        {
            "id": 1,
            "epoch": 0,
            "owner": "",
            "holder": "",
            "beat": 0,
            "expires_ns": 0,
            "ttl_s": 0.0,
            "done_seq": 0,
        },
    )


def _migrate(connection: Connection, found: int, where: str) -> None:
    for step in range(found, now.SCHEMA):
        if step not in MIGRATIONS:
            raise StoreError(
                f"{where}: written by a much older cotenant (tables of version {step}); "
                "run the version before this one once, it brings them up to date"
            )
        MIGRATIONS[step](connection)
    if found != now.SCHEMA:
        connection.execute(meta.update().where(meta.c.key == "schema").values(value=str(now.SCHEMA)))
