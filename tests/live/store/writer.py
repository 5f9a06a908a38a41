"""A process that writes to a store and tells on standard output what it was promised; tests kill it."""

from __future__ import annotations

import random
import sys
import time

from cotenant.errors import FencedError
from cotenant.live.store import SqlStore, open_store
from cotenant.model.events import NodeDown
from cotenant.model.liveports import Lease, Request


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def write(store: SqlStore, run: str) -> None:
    """Batches of random size, of requests and of events; each promise is told after it was given."""
    chance = random.Random(run)
    lease = store.acquire(run, 3600.0)
    assert lease is not None
    say("leads", lease.epoch)
    batch = 0
    while True:
        size = chance.randint(1, 20)
        names = [f"{run}.{batch}.{n}.{size}" for n in range(size)]
        found = store.accept(
            [Request(key=n, tenant="t", kind="submit", body={"name": n}) for n in names], 1.0
        )
        say("jobs", *(f"{n}={f.job_id}" for n, f in zip(names, found, strict=True)))
        count = store.append(
            lease, [NodeDown(1.0, n, cause=name) for n, name in enumerate(names)], found[-1].seq
        )
        say("events", count)
        batch += 1


def race(store: SqlStore, run: str) -> None:
    """Take the lease again and again, note each in the log, and give it up."""
    won = 0
    end = time.monotonic() + 300
    while won < 25 and time.monotonic() < end:
        lease = store.acquire(run, 3600.0)
        if lease is None:
            continue
        store.append(lease, [NodeDown(1.0, lease.epoch, cause=run)], 0)
        store.release(lease)
        won += 1
    say("won", won)


def hold(store: SqlStore, run: str) -> None:
    """Lead; when told to, give that up and lead with a short term, and write until fenced."""
    lease: Lease | None = store.acquire(run, 3600.0)
    assert lease is not None
    say("leads", lease.epoch)
    sys.stdin.readline()
    store.release(lease)
    lease = store.acquire(run, 0.5)
    assert lease is not None
    say("leads", lease.epoch)
    try:
        while True:
            store.renew(lease)
            store.append(lease, [NodeDown(1.0, 0, cause=run)], 0)
            time.sleep(0.01)
    except FencedError as error:
        say("fenced", error)


if __name__ == "__main__":
    kind, where, name = sys.argv[1:]
    opened = open_store(where)
    say("ready")
    sys.stdin.readline()
    {"write": write, "race": race, "hold": hold}[kind](opened, name)
