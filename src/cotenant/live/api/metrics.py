"""The API's own metrics, and those of the scheduler made from what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from cotenant.live.api.acceptor import Acceptor
from cotenant.live.api.hub import Hub
from cotenant.live.views import DeviceView, StatusView

__all__ = ["Meters", "exposition"]

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Meters:
    """How often and how fast the API answered.

    Labels are the operation's name and the status, of which there are few: paths, names of jobs and of
    tenants are none.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "cotenant_api_answers", "Answered requests.", ("operation", "status"), registry=self._registry
        )
        self._spent = Histogram(
            "cotenant_api_answer_seconds",
            "Time until an answer began.",
            ("operation",),
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def count(self, operation: str, status: int, spent_s: float) -> None:
        """Count one answer."""
        self._answers.labels(operation, str(status)).inc()
        self._spent.labels(operation).observe(spent_s)

    def text(self, hub: Hub, acceptor: Acceptor) -> bytes:
        """Prometheus text."""
        now = CollectorRegistry()
        now.register(
            _Fixed(
                [
                    GaugeMetricFamily(
                        "cotenant_api_event_readers", "Readers of /v1/events.", value=hub.readers
                    ),
                    GaugeMetricFamily(
                        "cotenant_api_submits_waiting", "Jobs that wait for the disk.", value=acceptor.waiting
                    ),
                    CounterMetricFamily(
                        "cotenant_api_submit_groups",
                        "Submissions made durable together.",
                        value=acceptor.calls,
                    ),
                    CounterMetricFamily(
                        "cotenant_api_submits",
                        "Jobs that were submitted, refused ones too.",
                        value=acceptor.accepted,
                    ),
                ]
            )
        )
        return generate_latest(self._registry) + generate_latest(now)


class _Fixed:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def exposition(status: StatusView, devices: Iterable[DeviceView]) -> str:
    """The scheduler's metrics from what it shows: Prometheus text.

    Labels are devices (their number and name) and states; jobs are counted, never named.
    """
    whole = [
        InfoMetricFamily(
            "cotenant_build",
            "Version, policy and forecast.",
            value={"version": status.version, "policy": status.policy, "forecast": status.forecast},
        ),
        GaugeMetricFamily(
            "cotenant_epoch", "Number of the lease; higher for each takeover.", value=status.epoch
        ),
        GaugeMetricFamily(
            "cotenant_start_time_seconds", "When the scheduler started, since 1970.", value=status.started
        ),
        CounterMetricFamily("cotenant_events", "Events in the log.", value=status.events),
    ]
    jobs = GaugeMetricFamily("cotenant_jobs", "Jobs by state.", labels=("status",))
    for state, count in sorted(status.counts.items()):
        jobs.add_metric((state,), count)
    registry = CollectorRegistry()
    registry.register(_Fixed([*whole, jobs, *_of_devices(devices)]))
    return generate_latest(registry).decode()


def _of_devices(devices: Iterable[DeviceView]) -> list[Metric]:
    labels = ("device", "name")
    memory = GaugeMetricFamily("cotenant_device_memory_bytes", "Memory of a device.", labels=labels)
    used = GaugeMetricFamily("cotenant_device_memory_used_bytes", "Memory in use, by anyone.", labels=labels)
    foreign = GaugeMetricFamily(
        "cotenant_device_foreign_bytes", "Memory held by processes that are not ours.", labels=labels
    )
    busy = GaugeMetricFamily(
        "cotenant_device_busy_ratio",
        "Part of the time in which it worked; left out: not known.",
        labels=labels,
    )
    free = GaugeMetricFamily(
        "cotenant_device_free_ratio", "Part of its compute that is promised to nobody.", labels=labels
    )
    residents = GaugeMetricFamily("cotenant_device_jobs", "Jobs on a device.", labels=labels)
    up = GaugeMetricFamily("cotenant_device_up", "1: can be used.", labels=labels)
    for one in devices:
        who = (str(one.device), one.name)
        memory.add_metric(who, one.memory_bytes)
        used.add_metric(who, one.memory_used_bytes)
        foreign.add_metric(who, one.foreign_bytes)
        free.add_metric(who, one.free_milli / 1000)
        residents.add_metric(who, len(one.residents))
        up.add_metric(who, float(one.state in ("up", "ok", "ready")))
        if one.busy is not None:
            busy.add_metric(who, one.busy)
    return [memory, used, foreign, busy, free, residents, up]
