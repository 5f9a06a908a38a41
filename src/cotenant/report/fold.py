"""The streaming fold of an event log into metrics: the same code online and from a file.

Events are taken in blocks of a fixed number, whatever the batches they arrive in, and each
block is folded with array operations; memory is one small row for each job and fixed
tables for time and devices. A block boundary changes nothing but the order of a few sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.errors import LogError
from cotenant.model.events import Event, Opened, Submitted
from cotenant.report.bins import StepBins
from cotenant.report.columns import Grouped, column
from cotenant.report.jobtable import JobTable, Outcomes
from cotenant.report.kinds import Kind
from cotenant.report.metrics import RunMetrics, build_metrics
from cotenant.report.occupancy import Channel, Occupancy

__all__ = ["MetricFold"]

BLOCK = 16384
"""Events folded at once."""

Floats = npt.NDArray[Any]
Ints = npt.NDArray[Any]
Masks = dict[int, Ints]


class MetricFold:
    """Folds events into metrics.

    Give it every event of a run, in order, in batches of any size; then ask for ``result``.

    Examples
    --------
    >>> fold = MetricFold()
    >>> fold.see([])
    >>> fold.result().summary["jobs_submitted"]
    0
    """

    def __init__(self) -> None:
        self._buffer: list[Event] = []
        self.opened: Opened | None = None
        self.closed = False
        self.events = 0
        self.last_s = -np.inf
        self.start_s: float | None = None
        self.jobs = JobTable()
        self.devices: Occupancy | None = None
        self.reason_bins: StepBins | None = None
        self.refused: Counter[str] = Counter()
        self.evictions = 0
        self.cycles = 0
        self._edges: set[tuple[int, int]] = set()
        self._demand = (0.0, 0.0, 0.0)  # time, gpus alive, integral

    def see(self, events: Sequence[Event]) -> None:
        """Take the next events, in log order.

        Raises
        ------
        LogError
            If time runs backwards, or a job is mentioned that was never submitted.
        """
        buffer = self._buffer
        buffer.extend(events)
        if self.start_s is None and not self._begin():
            return  # what comes before the first job (a drained node, say) waits for it
        while len(buffer) >= BLOCK:
            block, self._buffer = buffer[:BLOCK], buffer[BLOCK:]
            buffer = self._buffer
            self._fold(block)

    def result(self, evidence: dict[str, float] | None = None) -> RunMetrics:
        """Metrics of all events seen so far.

        Parameters
        ----------
        evidence : dict, optional
            GPU-seconds of running by the source of the speeds used (``measured``,
            ``composed``, ``modelled``), where the simulator keeps it.
        """
        if self._buffer:
            if self.start_s is None and not self._begin():
                self.start_s = self._buffer[0].t
            block, self._buffer = self._buffer, []
            self._fold(block)
        return build_metrics(self, evidence or {})

    def see_all(self, events: Iterable[Event]) -> MetricFold:
        """Take events from any iterable; returns itself."""
        block: list[Event] = []
        for event in events:
            block.append(event)
            if len(block) == BLOCK:
                self.see(block)
                block = []
        self.see(block)
        return self

    @property
    def rated(self) -> bool:
        """Whether the log tells speeds; the settings can leave them out."""
        return self.opened is not None and self.opened.settings.get("rate_events", True) is not False

    def _begin(self) -> bool:
        """Begin the window of the run with the first job, if it is there."""
        self.start_s = next((e.t for e in self._buffer if isinstance(e, Submitted)), None)
        return self.start_s is not None

    def _fold(self, block: list[Event]) -> None:
        codes = np.frombuffer(bytes(map(Kind.OF.__getitem__, map(type, block))), np.uint8)
        t: Floats = column(block, "t", np.float64)
        back = np.flatnonzero(np.diff(t, prepend=self.last_s) < 0)
        if back.size:
            at = int(back[0])
            raise LogError(
                f"event {self.events + at + 1} of the log is at t={t[at]}, before the one above it"
            )
        self.events += len(block)
        self.last_s = float(t[-1])
        where = {int(code): np.flatnonzero(codes == code) for code in np.flatnonzero(np.bincount(codes))}
        self._rare(block, where)
        submits = where.get(Kind.SUBMITTED)
        if submits is not None:
            self.jobs.submit([block[i].job for i in submits.tolist()], t[submits])  # type: ignore[union-attr]
        if self.devices is None:
            start = self.start_s if self.start_s is not None else self.last_s
            self.devices = Occupancy(self._cluster(), start)
            self.reason_bins = StepBins(0, start)
            self._demand = (start, 0.0, 0.0)
        moves, queue = self._fold_jobs(block, where, t)
        self.devices.fold(block, codes, t, moves, queue)

    def _cluster(self) -> Any:
        if self.opened is None:
            raise LogError(
                "the log does not begin with its opening line; metrics need the cluster it describes"
            )
        return self.opened.cluster

    def _rare(self, block: list[Any], where: Masks) -> None:
        for i in where.get(Kind.OPENED, ()):
            self.opened = block[i]
        self.closed = self.closed or Kind.CLOSED in where
        for i in where.get(Kind.REFUSED, ()):
            self.refused[str(block[i].reason)] += 1
        for i in where.get(Kind.STOPPING, ()):
            gains, loses = block[i].beneficiary, block[i].id
            if gains >= 0:
                self.evictions += 1
                self.cycles += (loses, gains) in self._edges
                self._edges.add((gains, loses))

    def _fold_jobs(
        self, block: list[Any], where: Masks, t: Floats
    ) -> tuple[tuple[Ints, npt.NDArray[np.bool_], Ints], tuple[Ints, Ints, Ints]]:
        size = len(block)
        ids = np.full(size, -1, dtype=np.int64)
        rate, rate_set = np.zeros(size), np.zeros(size, dtype=bool)
        width, width_set = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=bool)
        reason, reason_set = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=bool)
        for kind in _JOB_KINDS:
            at = where.get(kind)
            if at is None:
                continue
            events = [block[i] for i in at.tolist()]
            ids[at] = column(events, "job.id" if kind == Kind.SUBMITTED else "id")
            rate_set[at] = kind in _SETS_RATE
            width_set[at] = kind in _SETS_WIDTH
            reason_set[at] = kind in _SETS_REASON
            if kind == Kind.RATED:
                rate[at] = column(events, "rate", np.float64)
            elif kind in (Kind.STARTED, Kind.MOVED, Kind.RESIZED):
                rate[at] = 1.0  # an attempt that starts at any other speed says so
                width[at] = column(events, "devices", via=len)
            elif kind in (Kind.SUBMITTED, Kind.SUSPENDED):
                reason[at] = 0
            elif kind == Kind.HELD:
                reason[at] = column(events, "reason", via=self.jobs.reasons.__getitem__)
            elif kind == Kind.ENDED:
                reason[at] = -column(events, "final")
        self._check_ids(ids)
        self._ledger(block, where, t, ids)
        job = np.flatnonzero(ids >= 0)
        values = (rate[job], rate_set[job], width[job], width_set[job], reason[job], reason_set[job])
        flags, active, queue = self._series(job, ids[job], t, values, size)
        return (flags, active, ids), queue

    def _check_ids(self, ids: Ints) -> None:
        unknown = ids[ids >= 0]
        unknown = unknown[~self.jobs.known(unknown)]
        if unknown.size:
            raise LogError(f"the log mentions job {unknown[0]}, which was never submitted in it")

    def _series(
        self, job: Ints, ids: Ints, t: Floats, values: tuple[Any, ...], size: int
    ) -> tuple[Ints, npt.NDArray[np.bool_], tuple[Ints, Ints, Ints]]:
        rate, rate_set, width, width_set, reason, reason_set = values
        table, devices = self.jobs, self.devices
        grouped = Grouped(ids)
        at, who = job[grouped.order], grouped.ids
        when = t[at]
        rate_was, rate_is = grouped.fill(rate, rate_set, table.rate)
        width_was, width_is = grouped.fill(width, width_set, table.width)
        reason_was, reason_is = grouped.fill(reason, reason_set, table.reason)
        flags, active = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
        active[at] = rate_is > 0
        flags[at] = (rate_is > 0).astype(np.int64) - (rate_was > 0)
        gpus = table.gpus[who]
        queue_jump = (reason_is >= 0).astype(np.int64) - (reason_was >= 0)
        run_jump = (width_is >= 0).astype(np.int64) - (width_was >= 0)
        held_jump = np.maximum(width_is, 0) - np.maximum(width_was, 0)
        table.accumulate(who, when, queue_jump, run_jump, held_jump)
        if devices is None or self.reason_bins is None:
            raise LogError("the log has no opening line")
        bins = devices.bins
        speed_jump = rate_is * np.maximum(width_is, 0) - rate_was * np.maximum(width_was, 0)
        for channel, jump in (
            (Channel.GOODPUT, speed_jump),
            (Channel.QUEUE_JOBS, queue_jump),
            (Channel.QUEUE_GPUS, queue_jump * gpus),
            (Channel.RUNNING, run_jump),
        ):
            hit = np.flatnonzero(jump)
            bins.add(channel, when[hit], jump[hit])
        changed = np.flatnonzero(reason_was != reason_is)
        self.reason_bins.grow(len(table.reasons))
        for values_at, sign in ((reason_was, -1.0), (reason_is, 1.0)):
            hit = changed[values_at[changed] >= 0]
            self.reason_bins.add(values_at[hit], when[hit], np.full(hit.size, sign))
        hit = np.flatnonzero(queue_jump)
        hit = hit[np.argsort(at[hit], kind="stable")]
        return flags, active, (at[hit], gpus[hit], queue_jump[hit])

    def _ledger(self, block: list[Any], where: Masks, t: Floats, ids: Ints) -> None:
        table, none = self.jobs, np.zeros(0, dtype=np.int64)
        started = where.get(Kind.STARTED, none)
        if started.size and self.devices is not None:
            events = [block[i] for i in started.tolist()]
            nodes = self.devices.spans([e.devices for e in events])
            table.start(ids[started], t[started], column(events, "attempt"), nodes)
        suspended, ended = where.get(Kind.SUSPENDED, none), where.get(Kind.ENDED, none)
        leaves = np.sort(np.concatenate([suspended, ended]))
        if leaves.size:
            events = [block[i] for i in leaves.tolist()]
            is_end = np.isin(leaves, ended) if suspended.size else np.ones(leaves.size, dtype=bool)
            table.leave(ids[leaves], column(events, "work_s", np.float64), is_end)
        finals = none
        if ended.size:
            events = [block[i] for i in ended.tolist()]
            outcome = column(events, "outcome", via=Outcomes.OF.__getitem__)
            final = column(events, "final", np.bool_)
            finals = ended[final]
            table.end(ids[ended], t[ended], outcome, final, column(events, "lost_s", np.float64))
        rejected = where.get(Kind.REJECTED, none)
        if rejected.size:
            events = [block[i] for i in rejected.tolist()]
            outcome = column(events, "reason", via=Outcomes.of_rejection)
            table.end(ids[rejected], t[rejected], outcome, np.ones(rejected.size, dtype=bool), None)
        np.add.at(table.moves, ids[where.get(Kind.MOVED, none)], 1)
        submits = where.get(Kind.SUBMITTED, none)
        self._contention(submits, np.sort(np.concatenate([finals, rejected])), ids, t)

    def _contention(self, submits: Ints, finals: Ints, ids: Ints, t: Floats) -> None:
        """Integral of the GPUs wanted by all live jobs, noted at each job's arrival and end."""
        at = np.concatenate([submits, finals])
        order = np.argsort(at, kind="stable")
        who = ids[at[order]]
        jump = self.jobs.gpus[who] * np.where(order < submits.size, 1.0, -1.0)
        last, alive, area = self._demand
        when = t[at[order]]
        level = alive + np.cumsum(jump)
        before = np.r_[alive, level[:-1]]
        total = area + np.cumsum(before * np.diff(when, prepend=last))
        if when.size:
            self._demand = (float(when[-1]), float(level[-1]), float(total[-1]))
        arrives = order < submits.size
        self.jobs.demand[who[arrives]] -= total[arrives]
        self.jobs.demand[who[~arrives]] += total[~arrives]


_JOB_KINDS = (
    Kind.SUBMITTED,
    Kind.REJECTED,
    Kind.STARTED,
    Kind.RATED,
    Kind.STOPPING,
    Kind.SUSPENDED,
    Kind.ENDED,
    Kind.MOVED,
    Kind.RELEASED,
    Kind.RESIZED,
    Kind.HELD,
)
_SETS_RATE = (Kind.STARTED, Kind.RATED, Kind.STOPPING, Kind.SUSPENDED, Kind.ENDED)
_SETS_WIDTH = (Kind.STARTED, Kind.MOVED, Kind.RESIZED, Kind.SUSPENDED, Kind.ENDED)
_SETS_REASON = (Kind.SUBMITTED, Kind.REJECTED, Kind.STARTED, Kind.SUSPENDED, Kind.ENDED, Kind.HELD)
