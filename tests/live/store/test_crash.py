"""Processes that die or stall while they write."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotenant.errors import FencedError
from cotenant.live.store import SqlStore, check
from cotenant.model.events import NodeDown, NodeUp
from cotenant.model.liveports import Request

Opener = Callable[..., SqlStore]
Start = Callable[..., "subprocess.Popen[str]"]
WRITER = Path(__file__).with_name("writer.py")


@pytest.fixture
def start() -> Iterator[Start]:
    """Start writers that wait for a line before they begin; none outlives the test."""
    running: list[subprocess.Popen[str]] = []

    def begin(kind: str, where: str, name: str) -> subprocess.Popen[str]:
        words = [sys.executable, str(WRITER), kind, where, name]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def whole_batches(names: list[str]) -> None:
    """Batches of "run.batch.index.size" are complete, in order, and none is mixed with another."""
    for (_, _, size), group in itertools.groupby(
        (n.split(".") for n in names), key=lambda p: (p[0], p[1], p[3])
    ):
        assert [int(part[2]) for part in group] == list(range(int(size)))


def test_killed_at_any_moment_nothing_promised_is_lost_and_batches_are_whole(
    place: str, opened: Opener, start: Start
) -> None:
    chance = random.Random(5)
    promised: dict[str, int] = {}
    events = 0
    # All are started first, for starting takes longer than what is tested.
    for number, writer in enumerate([start("write", place, f"run{n}") for n in range(6)]):
        assert line(writer) == ["ready"]
        go(writer)
        # The one before was killed, not ended: its lease must not be in the way.
        assert line(writer) == ["leads", str(number + 1)]
        # One batch at least, however slow the machine is.
        whole = [line(writer), line(writer)]
        assert [words[0] for words in whole] == ["jobs", "events"]
        time.sleep(chance.uniform(0.0, 0.25))
        writer.kill()
        # Not communicate(): it would pass over what readline() has read ahead.
        assert writer.stdout is not None
        whole += [text.split() for text in writer.stdout.read().split("\n")[:-1]]
        writer.wait()
        promised |= {
            n: int(job) for t in whole if t[0] == "jobs" for n, _, job in (w.partition("=") for w in t[1:])
        }
        events = max([events, *(int(t[1]) for t in whole if t[0] == "events")])
    store = opened(place)
    asked = store.waiting(0, limit=10**6)
    found = {a.request.key: a.job_id for a in asked}
    assert len(promised) > 20
    assert {name: found.get(name) for name in promised} == promised
    assert [a.job_id for a in asked] == list(range(len(asked)))
    whole_batches([a.request.key for a in asked])
    causes = [event.cause for _, event in store.read() if isinstance(event, NodeDown)]
    assert len(causes) == store.count() >= events > 0
    whole_batches(causes)
    # How far requests are in the log was written in the same transaction as their events.
    assert asked[store.done_seq() - 1].request.key == causes[-1]
    assert check(store) == []


def test_of_two_processes_that_race_for_the_lease_one_leads_at_a_time(
    place: str, opened: Opener, start: Start
) -> None:
    racers = [start("race", place, name) for name in ("one", "two")]
    for racer in racers:
        assert line(racer) == ["ready"]
    for racer in racers:
        go(racer)
    assert [line(racer) for racer in racers] == [["won", "25"]] * 2
    events = [event for _, event in opened(place).read() if isinstance(event, NodeDown)]
    # Every epoch was one process's alone, and they wrote in their order.
    assert [event.node for event in events] == list(range(1, 51))
    assert sorted(event.cause for event in events) == ["one"] * 25 + ["two"] * 25


def test_a_leader_that_was_stopped_and_wakes_up_late_writes_nothing(
    place: str, opened: Opener, start: Start
) -> None:
    holder = start("hold", place, "sleeper")
    assert line(holder) == ["ready"]
    go(holder)
    assert line(holder) == ["leads", "1"]
    store = opened(place)
    assert store.acquire("late", 60.0) is None
    go(holder)
    assert line(holder) == ["leads", "2"]
    # In the midst of a transaction a stopped SQLite writer would keep its lock: stop it between two.
    lease = None
    for _ in range(60):
        holder.send_signal(signal.SIGSTOP)
        time.sleep(0.6)
        try:
            lease = opened(place, busy_s=0.2).acquire("next", 60.0)
        except Exception:
            lease = None
        if lease is not None:
            break
        holder.send_signal(signal.SIGCONT)
        time.sleep(0.05)
    assert lease is not None
    before = store.count()
    holder.send_signal(signal.SIGCONT)
    assert line(holder)[0] == "fenced"
    assert store.count() == before
    assert store.append(lease, [NodeUp(2.0, 0)], 0) == before + 1


def test_a_database_server_that_crashes_loses_nothing_and_is_used_again(
    server: object, opened: Opener
) -> None:
    where = server.place()  # type: ignore[attr-defined]
    store = opened(where)
    lease = store.acquire("one", 60.0)
    assert lease is not None
    store.accept([Request(key="a", tenant="t", kind="submit", body={})], 1.0)
    store.append(lease, [NodeUp(1.0, 0)], 1)
    server.stop(signal.SIGQUIT)  # type: ignore[attr-defined]
    from cotenant.errors import LostError

    with pytest.raises(LostError, match="does not answer"):
        store.append(lease, [NodeUp(2.0, 0)], 1)
    server.start()  # type: ignore[attr-defined]
    assert store.append(lease, [NodeUp(2.0, 0)], 1) == 2
    (again,) = store.accept([Request(key="a", tenant="t", kind="submit", body={})], 2.0)
    assert (again.job_id, again.again) == (0, True)  # type: ignore[union-attr]
    assert [event.t for _, event in store.read()] == [1.0, 2.0]


def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    place: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is lost after the commit: the second try finds the events in the log."""
    from sqlalchemy.exc import OperationalError

    store = opened(place)
    lease = store.acquire("one", 60.0)
    assert lease is not None
    real, lost = store._transaction, [True]

    def transaction(act: Callable[..., object], options: dict[str, object]) -> object:
        found = real(act, options)
        if lost.pop() if lost else False:
            raise OperationalError("COMMIT", {}, Exception("gone"), connection_invalidated=True)
        return found

    monkeypatch.setattr(store, "_transaction", transaction)
    assert store.append(lease, [NodeUp(1.0, 0), NodeUp(1.0, 1)], 3) == 2
    assert not lost
    assert [event.node for _, event in store.read()] == [0, 1]
    lost.append(True)
    (found,) = store.accept([Request(key="a", tenant="t", kind="submit", body={})], 1.0)
    assert found.job_id == 0  # type: ignore[union-attr]
    assert len(store.waiting(0)) == 1


def test_what_is_appended_again_after_the_server_was_away_is_written_once(
    place: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed, but the answer was lost and the server away for the second try, too."""
    from sqlalchemy.exc import OperationalError

    from cotenant.errors import LostError

    store = opened(place)
    lease = store.acquire("one", 60.0)
    assert lease is not None
    real, away = store._transaction, [False, True]

    def transaction(act: Callable[..., object], options: dict[str, object]) -> object:
        if away and away.pop():
            real(act, options)
            away.append(False)
        elif not away:
            return real(act, options)
        raise OperationalError("COMMIT", {}, Exception("gone"), connection_invalidated=True)

    monkeypatch.setattr(store, "_transaction", transaction)
    with pytest.raises(LostError):
        store.append(lease, [NodeUp(1.0, 0), NodeUp(1.0, 1)], 3)
    away.clear()
    assert store.append(lease, [NodeUp(1.0, 0), NodeUp(1.0, 1)], 3) == 2
    assert store.append(lease, [NodeUp(1.0, 0), NodeUp(1.0, 1)], 3) == 4, "once more is meant so"
    assert [event.node for _, event in store.read()] == [0, 1, 0, 1]


def test_a_lease_lost_between_the_two_tries_fences(
    place: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    store = opened(place)
    lease = store.acquire("one", 0.0)
    assert lease is not None
    real, tries = store._transaction, [0]

    def transaction(act: Callable[..., object], options: dict[str, object]) -> object:
        tries[0] += 1
        if tries[0] == 1:
            assert opened(place).acquire("two", 60.0) is not None
            raise OperationalError("BEGIN", {}, Exception("gone"), connection_invalidated=True)
        return real(act, options)

    monkeypatch.setattr(store, "_transaction", transaction)
    with pytest.raises(FencedError):
        store.append(lease, [NodeUp(1.0, 0)], 0)
    assert store.count() == 0
