"""Sizes of elastic jobs that may also be suspended or share: smaller or larger starts, growth that pays, taking back.

One device type for each job, so the grade of reproducibility it asks for is kept. Speeds by size are
those of the setting ``elastic_speed``; see ``model.workers`` and ``elastic.workplan``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.plan import Resize, Start, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_resize, check_start
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.model.workers import workers_of
from cotenant.policies.elastic.newcomers import Running
from cotenant.policies.elastic.workplan import Room, is_elastic
from cotenant.policies.queues.circles import share_of
from cotenant.policies.queues.levels import work_left_s

__all__ = ["Elastics", "Growth", "growth", "larger", "size_speed", "smaller"]

_MORE = 1.0 + 1e-9


def size_speed(settings: Settings, job: Job, count: int) -> float:
    """Speed on so many like devices, relative to the number that a job declares.

    >>> from cotenant.model.jobs import Job
    >>> job = Job(id=0, name="a", submit_s=0.0, gpus=2, min_gpus=1, max_gpus=6)
    >>> workers = Settings(elastic_speed="workers")
    >>> size_speed(Settings(), job, 3), size_speed(workers, job, 5), size_speed(workers, job, 6)
    (1.5, 1.5, 3.0)
    """
    if count == job.gpus or not is_elastic(job):
        return 1.0
    if settings.elastic_speed == "workers":
        workers = workers_of(job)
        return -(-workers // job.gpus) / -(-workers // count)
    return count / job.gpus


def _useful(settings: Settings, job: Job, least: int, most: int) -> int:
    """Of ``most`` devices, as many as are needed for the speed of all of them; no fewer than ``least``."""
    if settings.elastic_speed != "workers":
        return most
    workers = workers_of(job)
    return max(least, -(-workers // -(-workers // most)))


def larger(view: View, record: JobRecord, start: Start) -> Start:
    """The same start on more free devices, if the job can use them."""
    job = record.job
    if len(start.devices) >= job.max_gpus or not is_elastic(job):
        return start
    room, kind = Room(view), view.layout.device_type[start.devices[0]]
    held = () if record.shape.spans else start.devices
    most = min(job.max_gpus, room.count(record.shape, kind, held))
    if most <= job.gpus:
        return start
    for count in range(_useful(view.settings, job, job.gpus, most), job.gpus, -1):
        devices = room.find(record.shape, kind, count, ())
        if devices is not None and check_start(view.books, record, devices, start.share) is None:
            why = Why("sized-to-free", {"gpus": count, "declared_gpus": job.gpus})
            return Start(record.id, devices, start.share, why)
    return start


def smaller(view: View, record: JobRecord) -> Start | None:
    """A start on fewer free devices than a job declares, at least half of them and its least."""
    job = record.job
    if not is_elastic(job):
        return None
    room, least = Room(view), max(job.min_gpus, -(-job.gpus // 2))
    for kind in record.shape.types:
        most = min(job.gpus - 1, view.ledger.free_count[kind])
        for count in range(most, least - 1, -1):
            devices = room.find(record.shape, kind, count, ())
            if devices is None:
                continue
            held = share_of(job, view.layout.device_memory[devices[0]])
            if check_start(view.books, record, devices, held) is None:
                why = Why("sized-to-free", {"gpus": count, "declared_gpus": job.gpus})
                return Start(record.id, devices, held, why)
    return None


class Elastics(Running):
    """Elastic jobs that run (``jobs``; ``small`` are those that hold less than their most) and that wait (``waiting``)."""

    def __init__(self, view: View) -> None:
        self.small: set[int] = set()
        super().__init__(view)
        self.waiting = {r.id for r in view.queue if is_elastic(r.job)}

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came, or holds other devices than before."""
        super().placed(record, place)
        if record.id in self.jobs:
            (self.small.add if len(place.devices) < record.job.max_gpus else self.small.discard)(record.id)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        super().vacated(record, place)
        if record.id not in self.jobs:
            self.small.discard(record.id)

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        if is_elastic(record.job):
            self.waiting.add(record.id)

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        self.waiting.discard(record.id)


# -- growth ------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """What grows now, and when it is worth asking again though nothing happened."""

    resize: Resize | None
    wake_s: float


def growth(view: View, elastics: Elastics, margin: float) -> Growth:
    """The growth onto free devices of the job with least left that gains ``margin`` times the price of it."""
    room, wake_s = Room(view), math.inf
    best: tuple[float, int] | None = None
    chosen: Resize | None = None
    for job_id in sorted(elastics.small):
        record = view.records[job_id]
        place, job = record.place, record.job
        if place is None or record.status != Status.RUNNING or len(place.devices) >= job.max_gpus:
            continue
        if view.now < record.rated_s:
            wake_s = min(wake_s, record.rated_s)
            continue
        rank = work_left_s(record.predicted_s, record.work_at(view.now)) * job.gpus, job_id
        if not record.rate > 0.0 or (best is not None and rank >= best):
            continue
        resize = _grown(view, room, record, place, margin)
        if resize is None:
            continue
        if check_resize(view.books, record, resize.devices, place.share, view.now) is None:
            best, chosen = rank, resize
        elif view.now < (of_age_s := record.started_s + view.settings.min_quantum_s):
            wake_s = min(wake_s, of_age_s)
    return Growth(chosen, wake_s)


def _grown(view: View, room: Room, record: JobRecord, place: Placement, margin: float) -> Resize | None:
    """The same job on more devices; None if there are none, or the gain is not worth the price."""
    job, held, settings = record.job, place.devices, view.settings
    kind = view.layout.device_type[held[0]]
    free = room.count(record.shape, kind, held)
    if not free or not job.suspendable or not _alone(view, held):
        return None
    count = _useful(settings, job, len(held), min(job.max_gpus, len(held) + free))
    faster = size_speed(settings, job, count) / size_speed(settings, job, len(held))
    left_s, price_s = work_left_s(record.predicted_s, record.work_at(view.now)), settings.reload_s(job)
    gain_s = left_s / record.rate * (1.0 - 1.0 / faster)
    more = room.find(record.shape, kind, count - len(held), held)
    if faster < _MORE or gain_s <= margin * price_s or more is None:
        return None
    facts = {"gpus_before": len(held), "gpus_after": count, "gain_s": round(gain_s - price_s, 1)}
    return Resize(record.id, tuple(sorted((*held, *more))), place.share, Why("grown-to-free", facts))


def _alone(view: View, devices: tuple[int, ...]) -> bool:
    residents = view.ledger.residents
    return all(len(residents[d]) == 1 for d in devices)
