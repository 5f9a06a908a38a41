"""What a policy sees: the present state behind a narrow, read-only door.

A view is free to make: it answers from the state's own indexes. What a policy derives
from it (heaps, buckets, sorted orders) lives in an ``Index``: kept up to date by the
state, dropped at will, never logged. Dropping every index before each call must not
change a single byte of the log; ``cotenant.checks`` holds every policy to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cotenant.model.ledger import Ledger
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.plan import Decision, Reason, Refusal, Start, Stop, Why
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import Books, ceiling_refusal, check_start, check_stop
from cotenant.model.service import ServiceCounts
from cotenant.model.settings import Settings
from cotenant.model.shape import ShapeTable, find_cpu_node, find_whole, why_not
from cotenant.model.usage import Usage

if TYPE_CHECKING:
    from cotenant.model.cluster import Cluster
    from cotenant.model.layout import Layout
    from cotenant.model.ports import Forecast

__all__ = ["HOOKS", "Draft", "Index", "Source", "View"]

HOOKS = ("enqueued", "dequeued", "placed", "vacated", "rated", "stopping", "sampled", "capacity")

_I = TypeVar("_I", bound="Index")


class Index:
    """Something derivable from a view, kept up to date by the state.

    ``__init__(view, *args)`` builds it from scratch; the methods below, where overridden,
    are called on every change from then on. What it answers must depend on the state
    alone, not on the order of changes that led there.
    """

    def __init__(self, view: View) -> None:
        """Build from the view."""

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue: submitted, suspended, or to be tried again."""

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue: started, cancelled or rejected."""

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices; the books show it already."""

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices; the books show it already."""

    def rated(self, record: JobRecord) -> None:
        """A running job's speed, predicted work or priority changed, or it began to stop."""

    def stopping(self, record: JobRecord) -> None:
        """A running job began to stop (``rated`` is told, too)."""

    def sampled(self, record: JobRecord) -> None:
        """A running job was sampled, see ``record.sample`` (``rated`` is told, too)."""

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed, returned, were drained, reserved or released."""


class Source:
    """What the state offers to a view (see ``engine.state.State``)."""

    now: float
    version: int
    ledger: Ledger
    books: Books
    queue: PendingQueue
    records: dict[int, JobRecord]
    running: dict[int, JobRecord]
    settings: Settings
    service: ServiceCounts
    hooks: dict[str, list[Callable[..., None]]]
    shapes: ShapeTable
    usage: Usage | None = None


class View:
    """The state, to be read.

    Attributes
    ----------
    now : float
        Seconds since the start of the run.
    version : int
        Number of events folded so far.
    ledger : Ledger
        The books: free memory and compute, residents of a device. Read only.
    layout : Layout
        Numbering of nodes, bays and devices.
    queue : PendingQueue
        Waiting jobs in default order.
    running : mapping of int to JobRecord
        Jobs that hold devices, in order of start.
    records : mapping of int to JobRecord
        All live jobs.
    forecast : Forecast
        What may be known about speeds.
    settings : Settings
    service : ServiceCounts
        Device-seconds that ended jobs had held, as counts in classes. Read only.
    memo : object
        What the policy returned as ``Plan.memo`` last.
    """

    def __init__(self, source: Source, forecast: Forecast | None = None, seed: int = 0) -> None:
        self._source = source
        self.ledger = source.ledger
        self.layout: Layout = source.ledger.layout
        self.queue = source.queue
        self.running: Mapping[int, JobRecord] = source.running
        self.records: Mapping[int, JobRecord] = source.records
        self.settings = source.settings
        self.service = source.service
        self.books = source.books
        self._forecast = forecast
        self.seed = seed
        self.memo: Any = None
        self._indexes: dict[tuple[Any, ...], Index] = {}
        # Quotas and weights stand in many of them.
        source.hooks.setdefault("tenants", []).append(lambda _: self.drop_indexes())

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._source.now

    @property
    def version(self) -> int:
        """Number of events folded so far."""
        return self._source.version

    @property
    def cluster(self) -> Cluster:
        """The cluster as described."""
        return self.layout.cluster

    @property
    def forecast(self) -> Forecast:
        """What may be known about speeds.

        Raises
        ------
        RuntimeError
            If the run was set up without one.
        """
        if self._forecast is None:
            raise RuntimeError("this run has no forecast of speeds; give one to Loop or Harness")
        return self._forecast

    @property
    def usage(self) -> Usage:
        """Devices that tenants held lately, decayed.

        Raises
        ------
        RuntimeError
            If the policy does not ask for it by an attribute ``usage_half_life_s``.
        """
        if self._source.usage is None:
            raise RuntimeError("usage is not kept; give the policy an attribute usage_half_life_s")
        return self._source.usage

    @property
    def shapes(self) -> ShapeTable:
        """All demands seen so far, and how many jobs made each."""
        return self._source.shapes

    @property
    def pending_count(self) -> int:
        """Number of waiting jobs."""
        return len(self.queue)

    def head(self) -> JobRecord | None:
        """The first waiting job in default order."""
        return self.queue.head()

    def find(self, record: JobRecord) -> tuple[int, ...] | None:
        """Whole free devices for a waiting job (see ``model.shape.find_whole``), or None.

        None also for a CPU-only job, which goes to a node: see ``find_node``.
        """
        return find_whole(self.ledger, record.shape)

    def find_node(self, record: JobRecord) -> int:
        """A node for a CPU-only job; -1 if none has room."""
        return find_cpu_node(self.ledger, record.shape)

    def why_not(self, record: JobRecord) -> tuple[Reason, dict[str, Any]]:
        """Why ``find`` has nothing for a job, with the numbers."""
        return why_not(self.ledger, record.shape)

    def limit_refusal(self, record: JobRecord) -> Refusal | None:
        """Whether the tenant's ceiling forbids the job now."""
        return ceiling_refusal(self.books, record, record.job.gpus)

    def refusal(
        self, record: JobRecord, devices: tuple[int, ...], share: Share = WHOLE, node: int = -1
    ) -> Refusal | None:
        """What the rules would say to starting a waiting job like this; None if they agree."""
        return check_start(self.books, record, devices, share, node)

    def has_state_room(self, records: Iterable[JobRecord]) -> bool:
        """Whether the states of all these jobs together would find room if they were suspended now."""
        tiers = self.books.tiers
        return tiers is None or tiers.fits([record.job for record in records])

    def residents(self, device: int) -> tuple[int, ...]:
        """Ids of the jobs on a device, ascending."""
        return self.ledger.residents[device]

    def remaining_s(self, record: JobRecord) -> float:
        """Predicted work left of a job, in reference-device seconds; infinite if unknown."""
        return record.remaining_at(self._source.now)

    def remaining_range_s(self, record: JobRecord) -> tuple[float, float]:
        """The 90% range of a job's work left, once it was sampled; before, zero to infinite."""
        return record.remaining_range_at(self._source.now)

    def attained_s(self, record: JobRecord) -> float:
        """Device-seconds a job has held so far."""
        return record.attained_at(self._source.now)

    def rng(self) -> np.random.Generator:
        """Random numbers that depend on the run's seed and the version alone."""
        return np.random.default_rng((self.seed, self._source.version))

    def index(self, kind: type[_I], *args: Any) -> _I:
        """The index of this kind, built on first use and kept up to date since."""
        key = (kind, *args)
        found = self._indexes.get(key)
        if found is None:
            found = self._indexes[key] = kind(self, *args)
            for name in HOOKS:
                if getattr(kind, name) is not getattr(Index, name):
                    self._source.hooks[name].append(getattr(found, name))
        return found  # type: ignore[return-value]

    def drop_indexes(self) -> None:
        """Forget everything derived. The next call must decide the same."""
        for found in self._indexes.values():
            for name in HOOKS:
                hooks = self._source.hooks[name]
                hooks[:] = [h for h in hooks if getattr(h, "__self__", None) is not found]
        self._indexes.clear()

    def draft(self) -> Draft:
        """Try several decisions one after the other: ``with view.draft() as draft: ...``."""
        return Draft(self)


class Draft:
    """Tentative starts and stops over the present state, undone at the end of the block.

    It writes into the real books and takes everything back on exit, so trying costs what
    changes, not what exists, and the rules are the engine's own. Indexes do not see it.

    Attributes
    ----------
    decisions : list of Decision
        What was accepted so far, ready for ``Plan``.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.decisions: list[Decision] = []
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._undo:
            self._undo.pop()()

    def start(
        self, record: JobRecord, devices: tuple[int, ...], share: Share = WHOLE, why: Why | None = None
    ) -> Refusal | None:
        """Try to start a waiting job; None if the rules agree."""
        books = self.view.books
        refusal = check_start(books, record, devices, share)
        if refusal:
            return refusal
        job, tenant = record.job, record.job.tenant
        books.ledger.occupy(record.id, Placement(devices, share), job.cpu_milli, job.host_memory_bytes)
        used = books.used.get(tenant)
        books.used[tenant] = (used or 0) + len(devices)
        record.status = Status.RUNNING

        def undo() -> None:
            record.status = Status.PENDING
            books.ledger.vacate(record.id, job.cpu_milli, job.host_memory_bytes)
            if used is None:
                del books.used[tenant]
            else:
                books.used[tenant] = used

        self._undo.append(undo)
        self.decisions.append(Start(record.id, devices, share, why or Why()))
        return None

    def stop(
        self, record: JobRecord, *, suspend: bool = True, beneficiary: int = -1, why: Why | None = None
    ) -> Refusal | None:
        """Try to take a running job off its devices; None if the rules agree.

        Saving takes time, so the devices may not be free when the plan is carried out.
        """
        books = self.view.books
        refusal = check_stop(books, record, suspend, self.view.now)
        if refusal:
            return refusal
        job, tenant = record.job, record.job.tenant
        place = books.ledger.vacate(record.id, job.cpu_milli, job.host_memory_bytes)
        books.used[tenant] -= len(place.devices)
        record.status = Status.STOPPING

        def undo() -> None:
            record.status = Status.RUNNING
            books.ledger.occupy(record.id, place, job.cpu_milli, job.host_memory_bytes)
            books.used[tenant] += len(place.devices)

        self._undo.append(undo)
        self.decisions.append(Stop(record.id, suspend, beneficiary, why or Why()))
        return None

    def find(self, record: JobRecord) -> tuple[int, ...] | None:
        """Whole free devices for a job, given what was tried so far."""
        return self.view.find(record)

    def pending(self) -> Iterator[JobRecord]:
        """Waiting jobs in default order, less those tried."""
        return (r for r in self.view.queue if not r.status)
