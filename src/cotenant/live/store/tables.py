"""The tables, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text

__all__ = ["SCHEMA", "counters", "events", "lease", "meta", "requests", "tables"]

SCHEMA = 1
"""Version of the tables; raised by one with each change, beside a step in ``schema.MIGRATIONS``."""

tables = MetaData()

meta = Table(
    "cotenant_meta",
    tables,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""``schema`` (version of the tables), ``began_wall_s``, and what others keep here (``SqlStore.remember``)."""

events = Table(
    "cotenant_events",
    tables,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("t", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("job", BigInteger),
    Column("body", Text, nullable=False),
    Index("cotenant_events_job", "job", "seq"),
)
"""The log: ``body`` is the line as ``model.events.encode_event`` writes it, ``seq`` counts from 1 without gaps."""

requests = Table(
    "cotenant_requests",
    tables,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("job_id", BigInteger, unique=True),
    Column("t", Double, nullable=False),
    Index("cotenant_requests_key", "tenant", "key", unique=True),
)
"""What users asked for, in order of acceptance; ``job_id`` only where a job was submitted."""

counters = Table(
    "cotenant_counters",
    tables,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("requests", BigInteger, nullable=False),
    Column("jobs", BigInteger, nullable=False),
)
"""One row: how many requests and jobs there are. Whoever accepts locks it, so numbers have no gaps, and
who reads number N is sure that no smaller one becomes visible later."""

lease = Table(
    "cotenant_lease",
    tables,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
    Column("ttl_s", Double, nullable=False),
    Column("done_seq", BigInteger, nullable=False),
)
"""One row; whoever appends locks it. ``holder`` is the process (see ``holder.Holder``), empty when nobody
leads; ``expires_ns`` is on that machine's boot clock, and of no use on another; ``beat`` counts renewals."""
