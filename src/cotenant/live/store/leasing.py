"""The lease: who may write the log, judged by clocks that nobody can set.

Whatever this file decides, two cannot both write: each `append` checks the epoch in its own transaction.
What is decided here is only when a successor may begin, and no wall clock takes part in it:

1. given up (``release``), or never held: at once;
2. the holder was a process of this boot of this machine and is gone: at once;
3. it was of this boot of this machine and lives: when its term is over on the boot clock, which
   counts sleep and cannot be set;
4. of another boot, and the log is a file of this machine: at once, for that boot is over;
5. of another machine: when its count of renewals has stood still for a whole term, as seen here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, select, update
from sqlalchemy.engine import Row

from cotenant.errors import FencedError
from cotenant.live.store import holder as holders
from cotenant.live.store.tables import lease
from cotenant.model.liveports import Lease

__all__ = ["Leasing"]


class Leasing:
    """Takes, prolongs and checks the lease, inside the caller's transactions.

    Parameters
    ----------
    local : bool
        The log is a file of this machine.
    clock : callable
        Nanoseconds that no one can set (``holder.boot_ns``); tests put their own.
    """

    def __init__(self, *, local: bool, clock: Callable[[], int] = holders.boot_ns) -> None:
        self._local = local
        self._clock = clock
        self._seen: tuple[int, int, int] = (-1, -1, 0)

    def take(self, connection: Connection, owner: str, ttl_s: float) -> Lease | None:
        """Become the leader if that is allowed now."""
        row = self._row(connection)
        if not self._free(row):
            return None
        epoch = row.epoch + 1
        connection.execute(
            update(lease).values(
                epoch=epoch,
                owner=owner,
                holder=msgspec.json.encode(holders.myself()).decode(),
                beat=row.beat + 1,
                expires_ns=self._clock() + int(ttl_s * 1e9),
                ttl_s=ttl_s,
            )
        )
        return Lease(epoch, owner, ttl_s)

    def prolong(self, connection: Connection, held: Lease) -> None:
        """Count one renewal; a term that is over is prolonged too, as long as nobody else took it."""
        self.check(connection, held)
        connection.execute(
            update(lease).values(
                beat=lease.c.beat + 1, expires_ns=self._clock() + int(held.ttl_s * 1e9), ttl_s=held.ttl_s
            )
        )

    def give_up(self, connection: Connection, held: Lease) -> None:
        """Let a successor begin at once; does nothing if one has."""
        self._row(connection)
        connection.execute(
            update(lease)
            .where(lease.c.epoch == held.epoch)
            .values(holder="", expires_ns=0, beat=lease.c.beat + 1)
        )

    def check(self, connection: Connection, held: Lease) -> int:
        """Lock the row and check that the lease is the newest; returns ``done_seq``."""
        row = self._row(connection)
        if row.epoch != held.epoch:
            raise FencedError(
                f"another scheduler ({row.owner or 'unknown'}) leads since epoch {row.epoch}; "
                f"ours was {held.epoch}, so this one stops"
            )
        if not row.holder:
            raise FencedError(f"the lease of epoch {held.epoch} was given up; take a new one first")
        return int(row.done_seq)

    def _row(self, connection: Connection) -> Row[tuple[int, ...]]:
        return connection.execute(select(lease).where(lease.c.id == 1).with_for_update()).one()

    def _free(self, row: Row[tuple[int, ...]]) -> bool:
        if not row.holder:
            return True
        holder = msgspec.json.decode(row.holder, type=holders.Holder)
        here = holders.alive(holder)
        if here is False:
            return True
        now = self._clock()
        mine = holders.myself()
        if holder.boot and holder.boot == mine.boot:
            return bool(now >= row.expires_ns)
        if self._local and holder.boot and mine.boot:
            return True
        epoch, beat, since = self._seen
        if (epoch, beat) != (row.epoch, row.beat):
            self._seen = (row.epoch, row.beat, now)
            return False
        return bool(now - since >= int(row.ttl_s * 1e9))
