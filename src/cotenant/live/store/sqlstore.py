"""The store: the log, the requests and the lease in a database."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, func, select, update
from sqlalchemy.exc import DBAPIError

from cotenant.errors import StoreError
from cotenant.live.store import accepting, holder
from cotenant.live.store.accepting import Answer, Prepared
from cotenant.live.store.engines import IMMEDIATE, open_engine, shown
from cotenant.live.store.faults import lost_connection, told
from cotenant.live.store.grouping import Grouped
from cotenant.live.store.leasing import Leasing
from cotenant.live.store.schema import make_ready
from cotenant.live.store.tables import events, lease, meta, requests
from cotenant.model.events import Event, decode_event, encode_event
from cotenant.model.liveports import Accepted, Lease, Request

__all__ = ["SqlStore", "open_store"]

_PAGE = 2000
"""Events read at once: a reader's memory does not grow with the log, and no read holds up the writer."""
R = TypeVar("R")


def open_store(
    where: str | Path,
    *,
    create: bool = True,
    busy_s: float = 10.0,
    clock: Callable[[], int] = holder.boot_ns,
) -> SqlStore:
    """Open a log, and make it if there is none.

    Parameters
    ----------
    where : str or Path
        A file for SQLite, or ``postgresql://user@host/database``.
    create : bool
        False: it must be there already.
    busy_s : float
        How long to wait for a lock of someone else.
    clock : callable
        See ``leasing.Leasing``.

    Raises
    ------
    StoreError
        If it cannot be opened, is damaged, or of a newer version.
    """
    place = str(where)
    engine = open_engine(place, busy_s=busy_s, create=create)
    try:
        with told(shown(place), "cannot open the log"):
            make_ready(engine, shown(place), create=create)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, shown(place), clock=clock)


class SqlStore:
    """``model.liveports.Store`` on SQLAlchemy; safe in any thread.

    Writers of one process queue up in front of SQLite rather than inside it, where waiting is by sleeping.
    """

    def __init__(self, engine: Engine, where: str, *, clock: Callable[[], int] = holder.boot_ns) -> None:
        self.engine = engine
        self.where = where
        self._local = engine.dialect.name == "sqlite"
        self._writing: AbstractContextManager[object] = (
            threading.RLock() if self._local else contextlib.nullcontext()
        )
        self._leasing = Leasing(local=self._local, clock=clock)
        self._unsure: tuple[list[dict[str, object]], list[int]] = ([], [])
        self._grouped: Grouped[Prepared, Answer] = Grouped(self._accept)

    # -- the lease

    def acquire(self, owner: str, ttl_s: float) -> Lease | None:
        """Take the lease if nobody holds it or it has run out; see ``leasing`` for when that is."""
        return self._write("cannot take the lease", lambda c: self._leasing.take(c, owner, ttl_s))

    def renew(self, lease: Lease) -> None:
        """Prolong it; ``FencedError`` if lost."""
        self._write("cannot prolong the lease", lambda c: self._leasing.prolong(c, lease))

    def release(self, lease: Lease) -> None:
        """Give it up; does nothing if it was lost before."""
        self._write("cannot give up the lease", lambda c: self._leasing.give_up(c, lease))

    # -- the log

    def append(self, lease: Lease, events: Sequence[Event], done_seq: int) -> int:
        """Write events, and how far requests are in them, in one durable transaction.

        Returns
        -------
        int
            Number of the last event in the log.

        Raises
        ------
        FencedError
            If the lease is not the newest: nothing was written.
        StoreError
            If it cannot be written. Nothing of it is in the log, unless it is a ``LostError``: then it may
            be, and appending the same again, at once, writes it once.
        """
        rows = [_row(event) for event in events]
        before, started = self._unsure
        if [row["body"] for row in rows] != [row["body"] for row in before]:
            started = []
        self._unsure = rows, started

        def write(connection: Connection) -> int:
            done = self._leasing.check(connection, lease)
            count = _count(connection)
            if started and count == started[0] + len(rows) and done >= done_seq:
                return count  # The commit whose answer was lost had succeeded.
            started[:] = [count]
            for number, row in enumerate(rows, count + 1):
                row["seq"] = number
            if rows:
                connection.execute(_EVENTS.insert(), rows)
            if done_seq > done:
                connection.execute(update(_LEASE).values(done_seq=done_seq))
            return count + len(rows)

        count = self._write("cannot write the log", write)
        self._unsure = [], []
        return count

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The log in order, numbered from 1, after that number; in pages, so memory is bounded."""
        for number, line in self.lines(after):
            try:
                yield number, decode_event(line)
            except msgspec.MsgspecError as error:
                raise StoreError(
                    f"{self.where}: event {number} cannot be read ({error}); it was written by another version of "
                    "cotenant, or is damaged: run cotenant doctor"
                ) from error

    def lines(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The log as the lines of an event log of the simulator, without line ends."""
        while True:
            found = self._page(after)
            for number, body in found:
                if number != after + 1:
                    raise StoreError(
                        f"{self.where}: the log is damaged: events {after + 1} to {number - 1} are missing; "
                        "take the last backup"
                    )
                after = number
                yield number, body.encode()
            if len(found) < _PAGE:
                return

    def _page(self, after: int) -> Sequence[Any]:
        page = select(events.c.seq, events.c.body).where(events.c.seq > after).order_by(events.c.seq)
        return self.reading(lambda c: c.execute(page.limit(_PAGE)).all())

    def count(self) -> int:
        """Number of the last event in the log."""
        return self.reading(_count)

    # -- requests

    def accept(self, requests: Sequence[Request], t: float) -> list[Accepted | Exception]:
        """Make requests durable; those of other threads that come meanwhile share the transaction.

        Returns
        -------
        list
            For each request the ``Accepted``, or its ``ConflictError`` or ``InputError``.
        """
        prepared = [accepting.prepare(request, t) for request in requests]
        good = [item for item in prepared if isinstance(item, Prepared)]
        answers = iter(self._grouped.submit(good) if good else [])
        return [next(answers) if isinstance(item, Prepared) else item for item in prepared]

    def waiting(self, after_seq: int, limit: int = 1000) -> list[Accepted]:
        """Requests accepted after that one, in order."""
        own = select(requests).where(requests.c.seq > after_seq).order_by(requests.c.seq).limit(limit)
        return [accepting.stored(row) for row in self.reading(lambda c: c.execute(own).all())]

    def done_seq(self) -> int:
        """The last request whose events are in the log."""
        return self.reading(lambda c: int(c.execute(select(lease.c.done_seq)).scalar_one()))

    def job(self, job_id: int) -> Accepted | None:
        """The request that submitted a job; None if there is no such job."""
        own = select(requests).where(requests.c.job_id == job_id)
        row = self.reading(lambda c: c.execute(own).one_or_none())
        return None if row is None else accepting.stored(row)

    def request(self, tenant: str, key: str) -> Accepted | None:
        """What was accepted under that key; None if nothing was."""
        own = select(requests).where(requests.c.tenant == tenant, requests.c.key == key)
        row = self.reading(lambda c: c.execute(own).one_or_none())
        return None if row is None else accepting.stored(row)

    # -- notes

    def remember(self, key: str, value: str) -> None:
        """Keep a short text under a name, durably; what it was before is gone."""

        def write(connection: Connection) -> None:
            changed = connection.execute(update(meta).where(meta.c.key == key).values(value=value))
            if not changed.rowcount:
                connection.execute(meta.insert(), {"key": key, "value": value})

        self._write("cannot write a note", write)

    def recall(self, key: str) -> str | None:
        """What was kept under that name; ``began_wall_s`` says when the log was made."""
        return self.reading(lambda c: c.execute(select(meta.c.value).where(meta.c.key == key)).scalar())

    def close(self) -> None:
        """Give back files and connections."""
        self.engine.dispose()

    # -- inside

    def _accept(self, items: list[Prepared]) -> list[Answer]:
        return self._write("cannot accept requests", lambda c: accepting.write(c, items))

    def _write(self, what: str, act: Callable[[Connection], R]) -> R:
        with self._writing:
            return self._twice(what, act, IMMEDIATE)

    def reading(self, act: Callable[[Connection], R]) -> R:
        """Run something that only reads, in a transaction of its own."""
        return self._twice("cannot read the log", act, {})

    def _twice(self, what: str, act: Callable[[Connection], R], options: dict[str, Any]) -> R:
        """Run in a transaction of its own; once more if the server was lost, which ``act`` must survive."""
        with told(self.where, what):
            try:
                return self._transaction(act, options)
            except DBAPIError as error:
                if not lost_connection(error):
                    raise
                return self._transaction(act, options)

    def _transaction(self, act: Callable[[Connection], R], options: dict[str, Any]) -> R:
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            return act(connection)


_EVENTS = events
_LEASE = lease


def _count(connection: Connection) -> int:
    return int(connection.execute(select(func.max(events.c.seq))).scalar() or 0)


def _row(event: Event) -> dict[str, object]:
    job = getattr(event, "job", None)
    return {
        "t": event.t,
        "kind": event.__struct_config__.tag,
        "job": getattr(event, "id", None) if job is None else job.id,
        "body": encode_event(event).decode(),
    }
