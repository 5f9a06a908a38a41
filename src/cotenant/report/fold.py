"""The streaming fold of an event log into metrics: the same code online and from a file.

Events are gathered into columns a piece at a time and folded in blocks of a fixed number,
whatever the batches they arrive in, with array operations; memory is one small row for each
job and fixed tables for time and devices. A block boundary changes nothing but the order of a
few sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from cotenant.errors import LogError
from cotenant.model.events import Event, Opened, Submitted
from cotenant.report.bins import StepBins
from cotenant.report.block import Block, Piece
from cotenant.report.columns import Grouped, stable_order
from cotenant.report.company import CompanyWalk
from cotenant.report.jobrows import JobRows
from cotenant.report.jobtable import JobTable, Outcomes
from cotenant.report.kinds import Kind
from cotenant.report.metrics import RunMetrics, build_metrics
from cotenant.report.occupancy import Channel, Occupancy

__all__ = ["MetricFold"]

BLOCK = 32768
"""Events folded at once."""
PIECE = 2048
"""Events gathered at once: few enough to stay in the caches of a processor."""

Floats = npt.NDArray[Any]
Ints = npt.NDArray[Any]
_Level = tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]


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
        self._pieces: list[Piece] = []
        self._gathered = 0
        self._rows: list[ref[JobRows]] = []
        self.opened: Opened | None = None
        self.closed = self.interrupted = False
        self.events = 0
        self.last_s = -np.inf
        self.start_s: float | None = None
        self.jobs = JobTable()
        self.devices: Occupancy | None = None
        self.reason_bins: StepBins | None = None
        self.refused: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.evictions = 0
        self.cycles = 0
        self._edges: set[tuple[int, int]] = set()
        self._demand = (0.0, 0.0, 0.0)  # time, gpus alive, integral
        self.company: CompanyWalk | None = None
        self._fractions: set[int] = set()
        self._walked: list[Event] = []

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
        begin, size = 0, min(PIECE, BLOCK - self._gathered)
        while len(buffer) - begin >= size:
            self._gather(buffer[begin : begin + size])
            begin += size
            if self._gathered == BLOCK:
                self._fold()
            size = min(PIECE, BLOCK - self._gathered)
        del buffer[:begin]

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
            self._gather(self._buffer)
            self._buffer = []
        if self._pieces:
            self._fold()
        return build_metrics(self, evidence or {})

    def see_all(self, events: Iterable[Event]) -> MetricFold:
        """Take events from any iterable; returns itself."""
        block: list[Event] = []
        for event in events:
            block.append(event)
            if len(block) == PIECE:
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

    def rows(self, end_s: float, capacity: int) -> JobRows:
        """Rows of the jobs so far; they stay as they are if more events follow."""
        rows = JobRows(self.jobs, end_s, capacity)
        self._rows.append(ref(rows))
        return rows

    def _gather(self, events: list[Event]) -> None:
        piece = Piece(events, self.jobs.codes, self.jobs.reasons)
        self._pieces.append(piece)
        self._fractions.update(piece.fractions)
        if self.company is not None:
            self._walked += self.company.followed.chosen(piece, events)
        elif piece.shares or self._walked:
            self._walked += events  # from the first part of a device that anybody gets
        self._gathered += len(events)

    def _fold(self) -> None:
        for rows in filter(None, [found() for found in self._rows]):
            rows.detach()
        self._rows.clear()
        block = Block(self._pieces)
        self._pieces, self._gathered = [], 0
        t = block.t
        back = np.flatnonzero(np.diff(t, prepend=self.last_s) < 0)
        if back.size:
            at = int(back[0])
            raise LogError(
                f"event {self.events + at + 1} of the log is at t={t[at]}, before the one above it"
            )
        self.events += block.size
        self.last_s = float(t[-1])
        self._rare(block)
        if block.has(Kind.SUBMITTED):
            self.jobs.submit(block)
        if self.devices is None:
            start = self.start_s if self.start_s is not None else self.last_s
            self.devices = Occupancy(self._cluster(), start)
            self.reason_bins = StepBins(0, start)
            self._demand = (start, 0.0, 0.0)
        self._check_ids(block.ids)
        self._ledger(block, self.devices)
        self._walk()
        flags, active, queue = self._series(block)
        self.devices.fold(block, flags, active, queue)

    def _walk(self) -> None:
        """Who ran beside whom matters once somebody may, and only where speeds are told."""
        if self._walked and self.opened is not None and self.rated:
            if self.company is None:
                self.company = CompanyWalk(self.opened, self._fractions)
            models, of, gpus = self.jobs.codes["model"].words, self.jobs.words["model"], self.jobs.gpus
            self.company.walk(self._walked, lambda job: models[of[job]], lambda job: int(gpus[job]))
        self._walked = []

    def _cluster(self) -> Any:
        if self.opened is None:
            raise LogError(
                "the log does not begin with its opening line; metrics need the cluster it describes"
            )
        return self.opened.cluster

    def _rare(self, block: Block) -> None:
        for event in block.of(Kind.OPENED):
            self.opened = event
        for event in block.of(Kind.CLOSED):
            self.closed, self.interrupted = True, event.interrupted
        for event in block.of(Kind.REJECTED):
            if Outcomes.of_rejection(event.reason) == Outcomes.REJECTED:
                self.rejected[str(event.reason)] += 1
        for event in block.of(Kind.REFUSED):
            self.refused[str(event.reason)] += 1
        for event in block.of(Kind.STOPPING):
            gains, loses = event.beneficiary, event.id
            if gains >= 0:
                self.evictions += 1
                self.cycles += (loses, gains) in self._edges
                self._edges.add((gains, loses))

    def _check_ids(self, ids: Ints) -> None:
        unknown = ids[ids >= 0]
        unknown = unknown[~self.jobs.known(unknown)]
        if unknown.size:
            raise LogError(f"the log mentions job {unknown[0]}, which was never submitted in it")

    def _levels(self, block: Block) -> tuple[_Level, _Level, _Level]:
        """Speed, devices held (-1: not running) and reason to wait (-1: not waiting), where events set them."""
        size = block.size
        rate: _Level = (np.zeros(size), np.zeros(size, dtype=bool))
        width: _Level = (np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=bool))
        reason: _Level = (np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=bool))
        for level, kinds in ((rate, _SETS_RATE), (width, _SETS_WIDTH), (reason, _SETS_REASON)):
            for kind in kinds:
                level[1][block.at(kind)] = True
        rate[0][block.at(Kind.STARTED)] = 1.0  # an attempt that starts at any other speed says so
        rate[0][block.at(Kind.RATED)] = block.column(Kind.RATED, "rate")
        width[0][block.at(Kind.STARTED)] = block.column(Kind.STARTED, "lengths")
        for kind in (Kind.MOVED, Kind.RESIZED):
            width[0][block.at(kind)] = block.column(kind, "devices")
        for kind in (Kind.SUBMITTED, Kind.SUSPENDED):
            reason[0][block.at(kind)] = 0
        reason[0][block.at(Kind.HELD)] = block.column(Kind.HELD, "reason")
        reason[0][block.at(Kind.ENDED)] = -block.column(Kind.ENDED, "final").astype(np.int64)
        return rate, width, reason

    def _series(self, block: Block) -> tuple[Ints, npt.NDArray[np.bool_], tuple[Ints, Ints, Ints]]:
        table, devices, size, t = self.jobs, self.devices, block.size, block.t
        job = np.flatnonzero(block.ids >= 0)
        rate, width, reason = self._levels(block)
        grouped = Grouped(block.ids[job])
        at, who = job[grouped.order], grouped.ids
        when = t[at]
        rate_was, rate_is = grouped.fill(rate[0][job], rate[1][job], table.rate)
        width_was, width_is = grouped.fill(width[0][job], width[1][job], table.width)
        reason_was, reason_is = grouped.fill(reason[0][job], reason[1][job], table.reason)
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

    def _ledger(self, block: Block, devices: Occupancy) -> None:
        table, ids, t = self.jobs, block.ids, block.t
        started, suspended, ended = block.at(Kind.STARTED), block.at(Kind.SUSPENDED), block.at(Kind.ENDED)
        if started.size:
            kind = Kind.STARTED
            nodes = devices.spans(block.column(kind, "lengths"), block.column(kind, "devices"))
            table.start(ids[started], t[started], block.column(kind, "attempt"), nodes)
        outcome, final = block.column(Kind.ENDED, "outcome"), block.column(Kind.ENDED, "final").astype(bool)
        if suspended.size or ended.size:
            leaves = np.concatenate([suspended, ended])
            order = stable_order(leaves, block.size)
            work = [block.column(kind, "work_s") for kind in (Kind.SUSPENDED, Kind.ENDED)]
            not_ended = np.zeros(suspended.size, dtype=bool)
            over = np.r_[not_ended, final][order]
            failed = np.r_[not_ended, ~final & (outcome == Outcomes.FAILED)][order]
            table.leave(ids[leaves[order]], np.concatenate(work)[order], over, failed)
            np.add.at(table.suspensions, ids[suspended], 1)
        finals = ended
        if ended.size:
            finals = ended[final]
            table.end(ids[ended], t[ended], outcome, final, block.column(Kind.ENDED, "lost_s"))
        rejected = block.at(Kind.REJECTED)
        if rejected.size:
            outcome = block.column(Kind.REJECTED, "reason")
            table.end(ids[rejected], t[rejected], outcome, np.ones(rejected.size, dtype=bool), None)
        np.add.at(table.moves, ids[block.at(Kind.MOVED)], 1)
        self._contention(block.at(Kind.SUBMITTED), np.sort(np.concatenate([finals, rejected])), ids, t)

    def _contention(self, submits: Ints, finals: Ints, ids: Ints, t: Floats) -> None:
        """Integral of the GPUs wanted by all live jobs, noted at each job's arrival and end."""
        at = np.concatenate([submits, finals])
        order = stable_order(at, t.size)
        who = ids[at[order]]
        jump = self.jobs.gpus[who] * np.where(order < submits.size, 1.0, -1.0)
        last, alive, area = self._demand
        when = t[at[order]]
        # Summed on from where the last block ended, so that it does not matter where blocks end.
        level = np.cumsum(np.r_[alive, jump])[1:]
        before = np.r_[alive, level[:-1]]
        total = np.cumsum(np.r_[area, before * np.diff(when, prepend=last)])[1:]
        if when.size:
            self._demand = (float(when[-1]), float(level[-1]), float(total[-1]))
        arrives = order < submits.size
        self.jobs.demand[who[arrives]] -= total[arrives]
        self.jobs.demand[who[~arrives]] += total[~arrives]


_SETS_RATE = (Kind.STARTED, Kind.RATED, Kind.STOPPING, Kind.SUSPENDED, Kind.ENDED)
_SETS_WIDTH = (Kind.STARTED, Kind.MOVED, Kind.RESIZED, Kind.SUSPENDED, Kind.ENDED)
_SETS_REASON = (Kind.SUBMITTED, Kind.REJECTED, Kind.STARTED, Kind.SUSPENDED, Kind.ENDED, Kind.HELD)
