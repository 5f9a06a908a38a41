"""What every store does, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from cotenant.errors import ConflictError, FencedError, InputError, StoreError
from cotenant.live.store import SqlStore, sqlstore
from cotenant.model.events import Event, NodeDown, NodeUp, Rated, Submitted
from cotenant.model.jobs import Job
from cotenant.model.liveports import Accepted, Lease, Request

Opener = Callable[..., SqlStore]

NAMES = [
    "dédé job",
    "训练-01",
    "für",
    "🚀",
    "\u202eabc",
    "a|b",
    "=1+1",
    "\x1b[31mred",
    "a'; DROP TABLE x; --",
]


class Clock:
    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def __call__(self) -> int:
        return self.ns

    def pass_s(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


def ask(key: str, name: str = "a", *, tenant: str = "t", kind: str = "submit") -> Request:
    return Request(key=key, tenant=tenant, kind=kind, body={"name": name})


def lead(store: SqlStore, owner: str = "one", ttl_s: float = 60.0) -> Lease:
    found = store.acquire(owner, ttl_s)
    assert found is not None
    return found


# -- the log


def test_events_come_back_equal_and_numbered_from_one(place: str, opened: Opener) -> None:
    store = opened(place)
    lease = lead(store)
    job = Job(0, "训练 \x1b[31m", 1.5, gpus=2, memory_bytes=3 << 30)
    events: list[Event] = [Submitted(1.5, job), Rated(2.25, 0, 0.1 + 0.2), NodeDown(3.0, 0, cause="für")]
    assert store.append(lease, events[:2], 0) == 2
    assert store.append(lease, events[2:], 0) == 3
    assert list(opened(place).read()) == [(1, events[0]), (2, events[1]), (3, events[2])]
    assert list(store.read(after=2)) == [(3, events[2])]
    assert list(store.read(after=3)) == []
    assert store.count() == 3


def test_reading_in_pages_crosses_their_edges_and_sees_what_is_appended_meanwhile(
    place: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlstore, "_PAGE", 3)
    store = opened(place)
    lease = lead(store)
    store.append(lease, [NodeUp(0.0, n) for n in range(6)], 0)
    reader = store.read()
    first = [next(reader)[0] for _ in range(4)]
    # An open reader keeps no lock: the writer goes on.
    store.append(lease, [NodeUp(1.0, 6)], 0)
    assert first + [number for number, _ in reader] == [1, 2, 3, 4, 5, 6, 7]


def test_how_far_requests_are_in_the_log_is_written_with_the_events_and_never_goes_back(
    place: str, opened: Opener
) -> None:
    store = opened(place)
    lease = lead(store)
    assert store.done_seq() == 0
    store.append(lease, [NodeUp(0.0, 0)], 4)
    assert store.done_seq() == 4
    assert store.append(lease, [], 7) == 1
    assert store.done_seq() == 7
    store.append(lease, [NodeUp(1.0, 0)], 3)
    assert opened(place).done_seq() == 7


def test_a_fold_of_nothing_is_written_by_nobody_else(place: str, opened: Opener) -> None:
    store = opened(place)
    old = lead(store, ttl_s=0.0)
    other = opened(place)
    new = lead(other, "two")
    assert (old.epoch, new.epoch) == (1, 2)
    with pytest.raises(FencedError, match=r"two.*epoch 2"):
        store.append(old, [NodeUp(0.0, 0)], 9)
    with pytest.raises(FencedError):
        store.append(old, [], 0)
    assert (store.count(), store.done_seq()) == (0, 0)
    assert other.append(new, [NodeUp(0.0, 0)], 0) == 1


# -- the lease


def test_the_lease_is_one_persons_until_its_term_is_over(place: str, opened: Opener) -> None:
    clock = Clock()
    store, other = opened(place, clock=clock), opened(place, clock=clock)
    first = lead(store, "one", 10.0)
    clock.pass_s(9.9)
    assert other.acquire("two", 10.0) is None
    store.renew(first)
    clock.pass_s(9.9)
    assert other.acquire("two", 10.0) is None
    clock.pass_s(0.2)
    second = other.acquire("two", 10.0)
    assert second == Lease(2, "two", 10.0)
    with pytest.raises(FencedError, match="leads since epoch 2"):
        store.renew(first)


def test_a_term_that_is_over_may_be_prolonged_as_long_as_nobody_took_it(place: str, opened: Opener) -> None:
    clock = Clock()
    store, other = opened(place, clock=clock), opened(place, clock=clock)
    first = lead(store, "one", 10.0)
    clock.pass_s(60)
    store.renew(first)
    assert other.acquire("two", 10.0) is None
    assert store.append(first, [NodeUp(0.0, 0)], 0) == 1


def test_a_lease_given_up_is_free_at_once_and_writes_no_more(place: str, opened: Opener) -> None:
    store = opened(place)
    first = lead(store)
    store.release(first)
    with pytest.raises(FencedError, match="given up"):
        store.append(first, [NodeUp(0.0, 0)], 0)
    second = lead(opened(place), "two")
    store.release(first)
    assert second.epoch == 2
    assert store.acquire("three", 1.0) is None, "giving up an old lease must not free the new one"


def test_the_wall_clock_has_no_part_in_it(
    place: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(place), opened(place)
    lead(store, "one", 30.0)
    for jump in (1e9, -1e9):
        monkeypatch.setattr("time.time", lambda jump=jump: 1.7e9 + jump)
        assert other.acquire("two", 30.0) is None


def _as_if_held_by(store: SqlStore, **changes: object) -> None:
    """Make the holder another process, of another boot perhaps."""
    import msgspec
    from sqlalchemy import select, update

    from cotenant.live.store.holder import Holder
    from cotenant.live.store.tables import lease

    with store.engine.begin() as connection:
        row = connection.execute(select(lease.c.holder)).scalar_one()
        holder = msgspec.structs.replace(msgspec.json.decode(row, type=Holder), **changes)
        connection.execute(update(lease).values(holder=msgspec.json.encode(holder).decode()))


def test_a_holder_that_is_gone_is_followed_at_once(place: str, opened: Opener) -> None:
    store = opened(place)
    lead(store, "one", 3600.0)
    # The same pid, started at another moment: another process.
    _as_if_held_by(store, start_ticks=1)
    assert lead(store, "two").epoch == 2


def test_a_holder_of_another_boot_is_gone_where_the_log_is_a_file_of_this_machine(
    tmp_path: object, opened: Opener
) -> None:
    clock = Clock()
    store = opened(f"{tmp_path}/cotenant.db", clock=clock)
    lead(store, "one", 3600.0)
    _as_if_held_by(store, boot="another")
    assert lead(store, "two").epoch == 2


def test_a_holder_on_another_machine_is_followed_when_it_stood_still_for_a_whole_term(
    server: object, opened: Opener
) -> None:
    clock = Clock()
    where = server.place()  # type: ignore[attr-defined]
    store, other = opened(where, clock=clock), opened(where, clock=clock)
    first = lead(store, "one", 10.0)
    _as_if_held_by(store, boot="another")
    assert other.acquire("two", 10.0) is None
    clock.pass_s(9)
    store.renew(first)
    clock.pass_s(9)
    assert other.acquire("two", 10.0) is None, "a renewal was seen: the term begins again"
    clock.pass_s(9.9)
    assert other.acquire("two", 10.0) is None
    clock.pass_s(0.2)
    assert other.acquire("two", 10.0) == Lease(2, "two", 10.0)


# -- requests


def test_jobs_are_numbered_from_zero_and_requests_from_one_without_gaps(place: str, opened: Opener) -> None:
    store = opened(place)
    found = store.accept([ask("a"), ask("b", kind="cancel"), ask("c")], 1.5)
    assert [(f.seq, f.job_id, f.again, f.t) for f in found if isinstance(f, Accepted)] == [
        (1, 0, False, 1.5),
        (2, -1, False, 1.5),
        (3, 1, False, 1.5),
    ]
    assert store.accept([], 2.0) == []
    assert [w.seq for w in store.waiting(0)] == [1, 2, 3]
    assert [w.request for w in store.waiting(1, limit=1)] == [ask("b", kind="cancel")]
    assert store.job(1) == Accepted(seq=3, t=1.5, request=ask("c"), job_id=1)
    assert (store.job(2), store.job(-1)) == (None, None)
    assert store.request("t", "c") == store.job(1)
    assert (store.request("t", "d"), store.request("u", "c")) == (None, None)


def test_c46_a_the_same_request_twice_is_one_job(place: str, opened: Opener) -> None:
    store = opened(place)
    first, second = store.accept([ask("x1"), ask("x1")], 1.0)
    (third,) = opened(place).accept([ask("x1")], 9.0)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert isinstance(third, Accepted)
    assert (first.again, second.again, third.again) == (False, True, True)
    assert {(f.seq, f.job_id, f.t) for f in (first, second, third)} == {(1, 0, 1.0)}
    assert len(store.waiting(0)) == 1


def test_c46_b_the_same_id_with_other_content_is_refused_and_the_first_is_unharmed(
    place: str, opened: Opener
) -> None:
    store = opened(place)
    store.accept([ask("x1", "first")], 1.0)
    found = store.accept([ask("ok1"), ask("x1", "other"), ask("x1", "first", kind="resize"), ask("ok2")], 2.0)
    assert [type(f) for f in found] == [Accepted, ConflictError, ConflictError, Accepted]
    assert 'request "x1" was used before with other content (submit of job 0)' in str(found[1])
    assert [f.job_id for f in (found[0], found[3]) if isinstance(f, Accepted)] == [1, 2]
    assert store.job(0) == Accepted(seq=1, t=1.0, request=ask("x1", "first"), job_id=0)


def test_c46_c_the_second_after_the_first_finished_is_the_first_not_a_new_run(
    place: str, opened: Opener
) -> None:
    store = opened(place)
    store.accept([ask("x1")], 1.0)
    store.append(lead(store), [NodeUp(0.0, 0)], 1)
    (found,) = store.accept([ask("x1")], 500.0)
    assert isinstance(found, Accepted)
    assert (found.job_id, found.again) == (0, True)
    assert store.waiting(store.done_seq()) == []


def test_c46_d_many_clients_retry_at_once_and_each_key_is_one_job(place: str, opened: Opener) -> None:
    stores = [opened(place), opened(place)]
    answers: list[list[Accepted | Exception]] = []
    gate = threading.Barrier(8)

    def client(number: int) -> None:
        gate.wait(30)
        for n in range(10):
            answers.append(stores[number % 2].accept([ask(f"k{n}", f"n{n}"), ask(f"{number}-{n}")], 1.0))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 80
    shared: dict[str, set[int]] = {}
    fresh = 0
    for first, second in answers:
        assert isinstance(first, Accepted)
        assert isinstance(second, Accepted)
        shared.setdefault(first.request.key, set()).add(first.job_id)
        fresh += (not first.again) + (not second.again)
    assert fresh == 10 + 80
    assert [len(jobs) for jobs in shared.values()] == [1] * 10
    rows = stores[0].waiting(0)
    assert [r.seq for r in rows] == list(range(1, 91))
    assert [r.job_id for r in rows] == list(range(90))


def test_tenants_do_not_share_their_keys(place: str, opened: Opener) -> None:
    found = opened(place).accept([ask("x", tenant="a"), ask("x", "other", tenant="b")], 1.0)
    assert [f.job_id for f in found if isinstance(f, Accepted)] == [0, 1]


def test_the_order_of_names_in_a_request_does_not_matter(place: str, opened: Opener) -> None:
    store = opened(place)
    one = Request(key="x", tenant="t", kind="submit", body={"name": "a", "env": {"A": "1", "B": "2"}})
    two = Request(key="x", tenant="t", kind="submit", body={"env": {"B": "2", "A": "1"}, "name": "a"})
    found = store.accept([one, two], 1.0)
    assert [f.again for f in found if isinstance(f, Accepted)] == [False, True]


def test_c67_names_of_all_kinds_come_back_exactly(place: str, opened: Opener) -> None:
    asked = [ask(name, name, tenant=name) for name in NAMES]
    opened(place).accept(asked, 1.0)
    assert [w.request for w in opened(place).waiting(0)] == asked


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (ask("a\0b"), "NUL"),
        (ask("x", tenant="\0"), "NUL"),
        (ask("\ud800"), "not valid Unicode"),
        (ask("x", "\ud800"), "cannot be written as JSON"),
        (Request(key="x", tenant="t", kind="submit", body={"f": object()}), "cannot be written as JSON"),
        (ask(""), "needs a key"),
        (ask("k" * 201), "at most 200"),
    ],
)
def test_an_item_that_cannot_be_written_is_told_so_and_the_others_are_accepted(
    place: str, opened: Opener, bad: Request, said: str
) -> None:
    store = opened(place)
    found = store.accept([ask("1"), bad, ask("2")], 1.0)
    assert [f.job_id for f in (found[0], found[2]) if isinstance(f, Accepted)] == [0, 1]
    assert isinstance(found[1], InputError)
    assert said in str(found[1])
    assert len(store.waiting(0)) == 2


def test_text_with_nul_inside_a_job_is_kept(place: str, opened: Opener) -> None:
    store = opened(place)
    store.accept([ask("x", "a\0b")], 1.0)
    assert store.waiting(0)[0].request.body == {"name": "a\0b"}


def test_notes_are_kept(place: str, opened: Opener) -> None:
    store = opened(place)
    assert store.recall("x") is None
    store.remember("x", "1")
    store.remember("x", "zwei")
    assert opened(place).recall("x") == "zwei"
    assert float(store.recall("began_wall_s") or 0) > 1.7e9


# -- versions


def test_tables_of_a_newer_version_are_refused(place: str, opened: Opener) -> None:
    opened(place).remember("schema", "99")
    with pytest.raises(StoreError, match=r"newer cotenant \(tables of version 99, this one knows 1\)"):
        opened(place)


def test_older_tables_are_brought_up_to_date_whole_or_not_at_all(
    place: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import Connection, text

    from cotenant.live.store import schema, tables

    old = opened(place)
    old.accept([ask("x")], 1.0)

    def step(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE cotenant_requests ADD COLUMN note TEXT"))
        connection.execute(text("UPDATE cotenant_requests SET note = 'moved'"))

    def failing(connection: Connection) -> None:
        step(connection)
        raise StoreError("half way")

    monkeypatch.setattr(tables, "SCHEMA", 2)
    with pytest.raises(StoreError, match="much older cotenant"):
        opened(place)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: failing})
    with pytest.raises(StoreError, match="half way"):
        opened(place)
    assert old.recall("schema") == "1"
    monkeypatch.setattr(schema, "MIGRATIONS", {1: step})
    new = opened(place)
    assert new.recall("schema") == "2"
    with new.engine.begin() as connection:
        assert connection.execute(text("SELECT note FROM cotenant_requests")).scalar_one() == "moved"
    assert new.job(0) is not None
