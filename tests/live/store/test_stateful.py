"""Any order of calls, by two schedulers, against a model in plain Python."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cotenant.errors import ConflictError, FencedError
from cotenant.live.store import open_store
from cotenant.model.events import NodeUp
from cotenant.model.liveports import Accepted, Lease, Request

WHO = st.sampled_from([0, 1])
ASKED = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["t", "u"]),
    st.sampled_from(["submit", "cancel"]),
    st.integers(0, 1),
)


class Machine(RuleBasedStateMachine):
    """Two stores on one database, which may each be opened anew at any time."""

    place = ""

    def __init__(self) -> None:
        super().__init__()
        self.ns = 0
        self.stores = [open_store(self.place, clock=lambda: self.ns) for _ in range(2)]
        self.leases: list[Lease] = []
        self.epoch, self.held, self.expires = 0, False, 0
        self.log: list[NodeUp] = []
        self.done = 0
        self.asked: dict[tuple[str, str], tuple[Request, int, int]] = {}
        self.order: list[tuple[Request, int, int]] = []

    @rule(who=WHO, ttl=st.integers(0, 5))
    def acquire(self, who: int, ttl: int) -> None:
        found = self.stores[who].acquire(f"s{who}", float(ttl))
        if self.held and self.ns < self.expires:
            assert found is None
            return
        self.epoch += 1
        self.held, self.expires = True, self.ns + ttl * 10**9
        assert found == Lease(self.epoch, f"s{who}", float(ttl))
        self.leases.append(found)

    @rule(seconds=st.integers(0, 4))
    def wait(self, seconds: int) -> None:
        self.ns += seconds * 10**9

    def _good(self, lease: Lease) -> bool:
        return lease.epoch == self.epoch and self.held

    @precondition(lambda self: self.leases)
    @rule(who=WHO, data=st.data())
    def renew(self, who: int, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        if self._good(lease):
            self.stores[who].renew(lease)
            self.expires = self.ns + int(lease.ttl_s * 1e9)
        else:
            with pytest.raises(FencedError):
                self.stores[who].renew(lease)

    @precondition(lambda self: self.leases)
    @rule(who=WHO, data=st.data())
    def release(self, who: int, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        self.stores[who].release(lease)
        if lease.epoch == self.epoch:
            self.held = False

    @precondition(lambda self: self.leases)
    @rule(who=WHO, data=st.data(), count=st.integers(0, 3), done=st.integers(0, 3))
    def append(self, who: int, data: st.DataObject, count: int, done: int) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        events = [NodeUp(float(len(self.log)), n) for n in range(count)]
        if not self._good(lease):
            with pytest.raises(FencedError):
                self.stores[who].append(lease, events, self.done + done)
            return
        self.log += events
        self.done += done
        assert self.stores[who].append(lease, events, self.done) == len(self.log)

    @rule(who=WHO, items=st.lists(ASKED, max_size=5))
    def accept(self, who: int, items: list[tuple[str, str, str, int]]) -> None:
        asked = [Request(key=k, tenant=t, kind=kind, body={"n": n}) for k, t, kind, n in items]
        found = self.stores[who].accept(asked, float(self.ns))
        assert len(found) == len(asked)
        for request, answer in zip(asked, found, strict=True):
            place = (request.tenant, request.key)
            if place not in self.asked:
                jobs = sum(r.kind == "submit" for r, _, _ in self.order)
                entry = (request, len(self.order) + 1, jobs if request.kind == "submit" else -1)
                self.asked[place] = entry
                self.order.append(entry)
                again = False
            else:
                again = True
            first, seq, job_id = self.asked[place]
            if first != request:
                assert isinstance(answer, ConflictError)
                continue
            assert isinstance(answer, Accepted)
            assert (answer.seq, answer.job_id, answer.again) == (seq, job_id, again)

    @rule(who=WHO)
    def open_anew(self, who: int) -> None:
        self.stores[who].close()
        self.stores[who] = open_store(self.place, clock=lambda: self.ns)

    @rule(who=WHO, after=st.integers(0, 6), limit=st.integers(1, 3))
    def look(self, who: int, after: int, limit: int) -> None:
        store = self.stores[who]
        assert [(w.request, w.seq, w.job_id) for w in store.waiting(after, limit)] == self.order[after:][
            :limit
        ]
        assert [event for _, event in store.read(after)] == self.log[after:]
        by_job = {job_id: request for request, _, job_id in self.order if job_id >= 0}
        for job_id in (0, 1, after):
            found = store.job(job_id)
            assert (found.request if found else None) == by_job.get(job_id)

    @invariant()
    def says_how_far_it_is(self) -> None:
        assert self.stores[0].done_seq() == self.done

    def teardown(self) -> None:
        for store in self.stores:
            store.close()


FEW: dict[str, Any] = {
    "stateful_step_count": 25,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
    "database": None,
}


def test_any_order_of_calls_on_sqlite() -> None:
    folder = Path(tempfile.mkdtemp(prefix="cotenant-state-"))

    class OnSqlite(Machine):
        def __init__(self) -> None:
            shutil.rmtree(folder)
            folder.mkdir()
            self.place = str(folder / "cotenant.db")
            super().__init__()

    try:
        run_state_machine_as_test(OnSqlite, settings=settings(max_examples=60, **FEW))
    finally:
        shutil.rmtree(folder)


def test_any_order_of_calls_on_postgres(server: Any) -> None:
    class OnPostgres(Machine):
        def __init__(self) -> None:
            self.place = server.place()
            super().__init__()

    run_state_machine_as_test(OnPostgres, settings=settings(max_examples=15, **FEW))
