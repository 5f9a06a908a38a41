"""One row of numbers for each job, in columns that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cotenant.errors import LogError
from cotenant.report.columns import Codes, grown
from cotenant.report.kinds import Kind

if TYPE_CHECKING:
    from cotenant.report.block import Block

__all__ = ["EXPECTED", "NOT_STATED", "SIZE_CLASSES", "WORDS", "JobTable", "Outcomes", "size_class"]

Ints = npt.NDArray[Any]
Floats = npt.NDArray[Any]

NOT_STATED = "behind others"
"""Reason of a waiting job about which the log says nothing: policies speak of the jobs they looked at."""
EXPECTED = ("expected_s", "expected_low_s", "expected_high_s")
"""What the forecast of running times says of a job when it is submitted; 0 where it says nothing."""
WORDS = ("model", "tenant", "user", "job_class")
"""What is told of a job in words that many jobs share."""
SIZE_CLASSES = ("0", "1", "2-4", "5-8", ">8")
"""Classes of gang size, in devices; 0 are jobs without a GPU."""


def size_class(gpus: npt.ArrayLike) -> Ints:
    """Index into ``SIZE_CLASSES`` for each gang size.

    >>> size_class([0, 1, 4, 5, 9]).tolist()
    [0, 1, 2, 3, 4]
    """
    return np.searchsorted(np.array([0, 1, 4, 8]), np.asarray(gpus), side="left").astype(np.int64)


class Outcomes:
    """Codes of how a job stands at the end of the log."""

    NAMES = ("waiting", "running", "done", "failed", "cancelled", "lost", "preempted", "rejected")
    WAITING, RUNNING, DONE, FAILED, CANCELLED, LOST, PREEMPTED, REJECTED = range(8)
    OF: dict[str, int] = {"done": 2, "failed": 3, "cancelled": 4, "lost": 5, "preempted": 6}

    @classmethod
    def of_rejection(cls, reason: str) -> int:
        """A job cancelled while it waited counts as cancelled, every other as rejected."""
        return cls.CANCELLED if str(reason).startswith("cancel") else cls.REJECTED


class JobTable:
    """Accumulators by job id. Sums hold ``-t`` at each beginning and ``+t`` at each end."""

    def __init__(self) -> None:
        self.size = 0
        self.submit_s: Floats = np.zeros(0)
        self.first_s: Floats = np.zeros(0)
        self.end_s: Floats = np.zeros(0)
        self.queued_s: Floats = np.zeros(0)
        self.run_s: Floats = np.zeros(0)
        self.gpu_s: Floats = np.zeros(0)
        self.work_s: Floats = np.zeros(0)
        self.open_work_s: Floats = np.zeros(0)
        self.failed_work_s: Floats = np.zeros(0)
        self.expected_s: Floats = np.zeros(0)
        self.expected_low_s: Floats = np.zeros(0)
        self.expected_high_s: Floats = np.zeros(0)
        self.lost_s: Floats = np.zeros(0)
        self.demand: Floats = np.zeros(0)
        self.rate: Floats = np.zeros(0)
        self.width = np.zeros(0, dtype=np.int32)
        self.reason = np.zeros(0, dtype=np.int16)
        self.gpus = np.zeros(0, dtype=np.int32)
        self.priority = np.zeros(0, dtype=np.int32)
        self.outcome = np.zeros(0, dtype=np.int8)
        self.attempts = np.zeros(0, dtype=np.int32)
        self.suspensions = np.zeros(0, dtype=np.int32)
        self.moves = np.zeros(0, dtype=np.int32)
        self.nodes = np.zeros(0, dtype=np.int32)
        self.words = {name: np.zeros(0, dtype=np.int32) for name in WORDS}
        self.codes = {name: Codes() for name in WORDS}
        self.reasons = Codes()
        self.reasons.encode([NOT_STATED])
        self._names: list[pl.Series] = []
        self._name_ids: list[Ints] = []

    def submit(self, block: Block) -> None:
        """Add the jobs that a block submits.

        Raises
        ------
        LogError
            If an id is negative or was used before.
        """
        kind = Kind.SUBMITTED
        ids = block.ids[block.at(kind)]
        self._grow(int(ids.max()) + 1)
        if ids.min() < 0 or self.known(ids).any() or (np.diff(np.sort(ids)) == 0).any():
            raise LogError("a job id is negative, or is submitted twice in one log")
        self.submit_s[ids] = block.t[block.at(kind)]
        self.gpus[ids] = block.column(kind, "gpus")
        for name in ("priority", *WORDS):
            values = block.column(kind, name)
            if values.any():  # zeros that nobody writes take no memory
                self.stored(name)[ids] = values
        told = block.column(kind, "told")
        if told.size:  # only where somebody asks for predictions
            for name, values in zip(EXPECTED, block.column(kind, "expected").T, strict=True):
                self._begun(name)[told] = values
        self._names.append(pl.Series(block.names, dtype=pl.String))
        self._name_ids.append(ids.astype(np.int32))

    def _grow(self, size: int) -> None:
        if size <= self.size:
            return
        fills = {"submit_s": np.nan, "first_s": np.nan, "end_s": np.nan, "width": -1, "reason": -1}
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray) and (values.size or name not in _SELDOM):
                setattr(self, name, grown(values, self.size, size, fills.get(name, 0)))
        for name, values in self.words.items():
            self.words[name] = grown(values, self.size, size)
        self.size = size

    def known(self, ids: Ints) -> npt.NDArray[np.bool_]:
        """Which of the ids were submitted."""
        inside = ids < self.size
        out = np.zeros(ids.size, dtype=bool)
        out[inside] = ~np.isnan(self.submit_s[ids[inside]])
        return out

    def start(self, ids: Ints, t: Floats, attempts: Ints, nodes: Ints) -> None:
        """Note starts, in order."""
        first = np.fmin(np.inf, self.first_s[ids])
        self.first_s[ids[::-1]] = np.minimum(first, t)[::-1]  # of repeated ids the first one stays
        np.maximum.at(self.attempts, ids, attempts.astype(np.int32))
        np.maximum.at(self.nodes, ids, nodes.astype(np.int32))

    def leave(
        self, ids: Ints, work_s: Floats, final: npt.NDArray[np.bool_], failed: npt.NDArray[np.bool_]
    ) -> None:
        """Note suspensions and ends of attempts, in order, with the work done up to there.

        What is neither final nor failed is gone on from: the next of them counts that work again.
        """
        self.work_s[ids[final]] = work_s[final]
        if failed.any():
            np.add.at(self._begun("failed_work_s"), ids[failed], work_s[failed])
        open_work = np.where(final | failed, 0.0, work_s)
        if open_work.any() or self.open_work_s[ids].any():
            self.open_work_s[ids] = open_work

    def end(
        self, ids: Ints, t: Floats, outcome: Ints, final: npt.NDArray[np.bool_], lost_s: Floats | None
    ) -> None:
        """Note ends of attempts; only final ones are outcomes."""
        if lost_s is not None:
            lost = np.flatnonzero(lost_s)
            np.add.at(self.lost_s, ids[lost], lost_s[lost])
        self.outcome[ids[final]] = outcome[final]
        self.end_s[ids[final]] = t[final]
        again = ids[~final & (outcome == Outcomes.PREEMPTED)]
        np.add.at(self.suspensions, again, 1)

    def accumulate(self, ids: Ints, t: Floats, queue: Ints, run: Ints, held: Ints) -> None:
        """Add to the sums of waiting, running and GPU time; arguments are jumps."""
        for total, jump in ((self.queued_s, queue), (self.run_s, run), (self.gpu_s, held)):
            hit = np.flatnonzero(jump)
            np.add.at(total, ids[hit], -t[hit] * jump[hit])

    def stored(self, name: str) -> npt.NDArray[Any]:
        """An accumulator by the name of its column."""
        if name in self.words:
            return self.words[name]
        found: npt.NDArray[Any] = getattr(self, _STORED_AS.get(name, name))
        return found

    def of(self, name: str, ids: Ints) -> npt.NDArray[Any]:
        """An accumulator of these jobs, zeros where nobody ever wrote to it."""
        values = self.stored(name)
        return values[ids] if values.size else np.zeros(ids.size, dtype=values.dtype)

    def _begun(self, name: str) -> npt.NDArray[Any]:
        if not self.stored(name).size:
            setattr(self, name, np.zeros(self.size))
        return self.stored(name)

    def names(self, ids: Ints) -> pl.Series:
        """Names of these jobs (ascending), in their order."""
        if not self._names:
            return pl.Series([], dtype=pl.String)
        names = pl.concat(self._names)
        self._names = [names]
        order = np.concatenate(self._name_ids)
        self._name_ids = [order]
        if np.array_equal(order, ids):
            return names
        rank = np.argsort(order, kind="stable")
        return names.gather(rank[np.searchsorted(order[rank], ids)])

    def copy(self) -> JobTable:
        """A table that goes its own way."""
        twin = JobTable()
        for name, value in vars(self).items():
            setattr(twin, name, value.copy() if isinstance(value, np.ndarray) else value)
        twin.words = {name: codes.copy() for name, codes in self.words.items()}
        twin._names, twin._name_ids = list(self._names), list(self._name_ids)
        return twin


_SELDOM = (*EXPECTED, "failed_work_s")
"""Columns that many runs never write to: they have no length until somebody does."""
_STORED_AS = {"first_start_s": "first_s", "preemptions": "suspensions"}
