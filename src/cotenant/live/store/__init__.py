"""The log of the live scheduler, what users asked for, and the lease, in one database.

SQLite in the state folder, or PostgreSQL where a scheduler on another host is to be able to take over;
the tables are the same. `open_store` opens either.
"""

from __future__ import annotations

from cotenant.live.store.care import backup, check, export
from cotenant.live.store.sqlstore import SqlStore, open_store

__all__ = ["SqlStore", "backup", "check", "export", "open_store"]
