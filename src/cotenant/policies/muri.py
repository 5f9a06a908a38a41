"""Interleaving of stages: jobs of equal size join running ones whose stages complement theirs.

Card: ``docs/policies/muri.md``. Source: Zhao, Liu, Peng and others, "Multi-Resource Interleaving for Deep
Learning Training", SIGCOMM 2022.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import ClassVar, Literal

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.las import check_levels
from cotenant.policies.published.muri_groups import Matching, make_room
from cotenant.policies.published.muri_stages import read_stages
from cotenant.policies.queues.circles import share_of
from cotenant.policies.queues.points import Point
from cotenant.policies.queues.ranked_points import RankedPoints
from cotenant.policies.space.fit import UNKNOWN_S
from cotenant.policies.space.overdue import serve_overdue

__all__ = ["Muri"]

_NODE_WHY = Why("cpu-only")
_FREE = Why("free-devices")
_EMPTIED = Why("devices-emptied")


class _Queue(RankedPoints):
    """Waiting jobs that may find free devices."""

    def could(self, point: Point, bay: int) -> bool:
        """Whether a bay has free devices for a point; never wrongly no."""
        shape, view = point.shape, self._view
        room = view.ledger.whole[bay].bit_count()
        fits = room >= shape.gpus or (shape.spans and room > 0)
        return fits and view.layout.bay_type[bay] in shape.types


class Muri(Params):
    """First in rank first; in overload, groups of jobs whose stages use different resources.

    Parameters
    ----------
    variant : {"S", "L"}
        ``S``: known lengths, least remaining time times devices first (SRSF). ``L``: unknown lengths, least
        attained service first, in levels (2D-LAS).
    max_group : int
        Most jobs in a group; the run's ``max_sharers`` bounds it too.
    period_s : float
        How often jobs are grouped, and somebody is made to give way.
    factor : float
        Under ``S`` a job gives way to one with less than this part of its remaining service.
    levels : tuple of float
        Under ``L``: attained service, in device-seconds, at which a job sinks.
    preemption : bool
        Whether running jobs give way at all.
    stages : tuple of str
        ``MODEL=INPUT/GPU/NETWORK``: times of one iteration, for models that are not among the published.

    Raises
    ------
    ConfigError
        For a value out of range.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def __init__(
        self,
        *,
        variant: Literal["S", "L"] = "S",
        max_group: int = 4,
        period_s: float = 360.0,
        factor: float = 0.5,
        levels: tuple[float, ...] = (3250.0, 7200.0),
        preemption: bool = True,
        stages: tuple[str, ...] = (),
    ) -> None:
        if variant not in ("S", "L"):
            raise ConfigError(f'variant of muri must be S or L, found "{variant}"')
        if not 1 <= max_group <= 4:
            raise ConfigError(f"max_group of muri must be 1 to 4, found {max_group}")
        if not (0.0 < period_s < math.inf and 0.0 < factor < 1.0):
            raise ConfigError(
                f"period_s of muri must be positive and factor in (0, 1), found {period_s} and {factor}"
            )
        check_levels(levels, 0.0)
        self.variant, self.max_group, self.period_s, self.factor = variant, max_group, period_s, factor
        self.levels, self.preemption, self.stages = levels, preemption, stages
        self._given = read_stages(stages)
        self._waiting_rank = _left if variant == "S" else self._level

    def decide(self, view: View) -> Plan:
        """Free devices at once; groups and preemption when a period begins."""
        if not len(view.queue):
            return EMPTY
        if view.ledger.reserved:
            plan, _ = serve_overdue(view, math.inf, _EMPTIED)
            if plan is not None:
                return plan
        points = view.index(_Queue, self._waiting_rank)
        points.review(points.could)
        start = self._free(view, points)
        if start is not None:
            return Plan((start,), again=True)
        if points.living and view.running and self._due(view):
            found = self._regroup(view, points)
            if found:
                return Plan(found, again=True)
        holds = self._holds(view, points)
        wake = self.period_s * (math.floor(view.now / self.period_s) + 1) if view.running else None
        return Plan(holds, wake_at_s=wake)

    def _due(self, view: View) -> bool:
        return bool(view.settings.round_s) or view.now == self.period_s * math.floor(view.now / self.period_s)

    # -- order -------------------------------------------------------------------------

    def _level(self, record: JobRecord) -> float:
        """Of a waiting job: how far it has sunk by the service it has attained."""
        return float(bisect_right(self.levels, record.ran_s * (record.job.gpus or 1)))

    def _worse(self, view: View, victim: JobRecord, record: JobRecord) -> bool:
        """Whether a running job should give way; never both ways, whatever happens between."""
        if self.variant == "L":
            return bisect_right(self.levels, view.attained_s(victim)) > self._level(record)
        mine = _left(record)
        return mine < UNKNOWN_S and mine < self.factor * view.remaining_s(victim) * (victim.job.gpus or 1)

    def _rank_now(self, view: View, record: JobRecord) -> float:
        if self.variant == "L":
            return float(bisect_right(self.levels, view.attained_s(record)))
        return min(view.remaining_s(record) * (record.job.gpus or 1), UNKNOWN_S)

    # -- places ----------------------------------------------------------------------

    def _free(self, view: View, points: _Queue) -> Start | None:
        """The first in rank that finds free devices."""
        heads = [(points.rank(head), head.key, point) for point in points.open for head in (point.head(),)]
        heads.sort(key=lambda entry: entry[:2])
        for _, _, point in heads:
            record = point.head()
            if not (view.books.limits and view.limit_refusal(record)):
                if not record.shape.gpus:
                    node = view.find_node(record)
                    if node >= 0:
                        return Start(record.id, (), why=_NODE_WHY, node=node)
                devices = view.find(record)
                if devices is not None:
                    share = share_of(record.job, view.layout.device_memory[devices[0]])
                    return Start(record.id, devices, share, _FREE)
            points.settle(point)
        return None

    def _regroup(self, view: View, points: _Queue) -> tuple[Decision, ...]:
        """One round of matching; if nobody joins any more, somebody may have to give way."""
        most = min(self.max_group, view.settings.max_sharers)
        if most > 1:
            rounds = Matching(view, points, most, self._given, lambda record: self._rank_now(view, record))
            starts = rounds.starts()
            if starts:
                return starts
        if not self.preemption or view.ledger.reserved:
            return ()
        heads = [point.head() for point in points.living if point.shape.gpus and point.shape.single]
        heads = [head for head in heads if not (view.books.limits and view.limit_refusal(head))]
        if not heads:
            return ()
        first = min(heads, key=lambda head: (points.rank(head), head.key))
        return make_room(view, first, lambda v, r: self._worse(view, v, r), self.period_s)

    @staticmethod
    def _holds(view: View, points: _Queue) -> tuple[Decision, ...]:
        heads = [head for point in points.untold if (head := point.head()).hold is None]
        points.untold.clear()
        holds = []
        for head in sorted(heads, key=lambda head: head.id):
            refusal = view.limit_refusal(head) if view.books.limits else None
            told = (refusal.reason, refusal.facts) if refusal else view.why_not(head)
            holds.append(Hold(head.id, *told))
        return tuple(holds)


def _left(record: JobRecord) -> float:
    """Predicted remaining service of a waiting job, in device-seconds; unknown lengths come last."""
    return min(record.remaining_at(record.rated_s) * (record.job.gpus or 1), UNKNOWN_S)
