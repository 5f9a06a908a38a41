"""Classes of service, and the hooks a policy's index needs to stay true."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.records import JobRecord, Status
from cotenant.model.service import ServiceCounts, service_class, service_edge_s
from cotenant.model.settings import Settings
from cotenant.model.view import Index, View


@given(st.floats(0.0, 1e12))
def test_a_service_lies_between_the_edges_of_its_class(device_s: float) -> None:
    number = service_class(device_s)
    assert service_edge_s(number) <= device_s < service_edge_s(number + 1)


def test_counts_grow_with_the_largest_service() -> None:
    counts = ServiceCounts()
    counts.add(0.5)
    counts.add(2.0)
    counts.add(2.2)
    assert counts.counts == [1, 0, 0, 0, 0, 2]
    assert counts.total == 3


class _Seen(Index):
    def __init__(self, view: View) -> None:
        self.seen: list[tuple[int, Status]] = []

    def rated(self, record: JobRecord) -> None:
        self.seen.append((record.priority, record.status))


def test_indexes_hear_of_a_running_job_that_stops_or_changes_priority() -> None:
    state = State(Cluster.uniform(2, gpus_per_node=2), Settings())
    seen = View(state).index(_Seen)
    state.apply(ev.Submitted(0.0, Job(id=0, name="a", submit_s=0.0, gpus=2)))
    state.apply(ev.Started(0.0, 0, 1, (0, 1)))
    state.apply(ev.PriorityChanged(1.0, 0, 3))
    state.apply(ev.Stopping(2.0, 0, 1, True, -1))
    assert seen.seen == [(3, Status.RUNNING), (3, Status.STOPPING)]
    state.apply(ev.Suspended(4.0, 0, 1, 4.0))
    assert state.service.total == 0


def test_service_is_counted_when_a_job_ends_for_good() -> None:
    state = State(Cluster.uniform(2, gpus_per_node=2), Settings())
    state.apply(ev.Submitted(0.0, Job(id=0, name="a", submit_s=0.0, gpus=2)))
    state.apply(ev.Started(0.0, 0, 1, (0, 1)))
    state.apply(ev.Ended(5.0, 0, 1, "done", 5.0))
    # 2 devices for 5 s are 10 device-seconds.
    assert state.service.total == 1
    assert state.service.counts[service_class(10.0)] == 1
