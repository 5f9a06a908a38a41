"""Placement by predicted over-commitment, and class queues served by weight.

Card: ``docs/policies/horus.md``. Source: Yeung, Borowiec, Yang, Friday, Harper and Garraghan, "Horus:
Interference-Aware and Prediction-Based Scheduling in Deep Learning Systems", IEEE TPDS 33(1), 2022.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cotenant.errors import ConfigError
from cotenant.model.params import Params, check_amounts
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.published.horus_queues import ClassQueues
from cotenant.policies.published.horus_rounds import Round
from cotenant.policies.queues.circles import share_of
from cotenant.policies.queues.points import Point
from cotenant.policies.space.boards import Board, Boards, pick
from cotenant.policies.space.overdue import serve_overdue

__all__ = ["Horus"]

_NODE_WHY = Why("cpu-only")
_VARIANTS = ("fairness", "makespan")
_SHAPES = ("fill", "spread")
_FULL = 1000


class Horus(Params):
    """Put jobs where predicted memory and utilisation cost least; take them from class queues by weight.

    Parameters
    ----------
    variant : {"fairness", "makespan"}
        ``fairness``: weighted fair queueing over classes of waiting jobs. ``makespan``: of the
        ``beta`` demands that have waited longest, the cheapest to place goes first.
    shape : {"fill", "spread"}
        What a device costs while predicted utilisation is at most 100%: less the fuller it gets, or
        more.
    steepness : float
        ``t``: beyond 100% a device costs ``exp(t * (U - 100) / 100)``.
    memory_weight, utilisation_weight : float
        ``w1`` and ``w2`` of the cost.
    max_utilisation : float
        Sum of predicted utilisations in per cent beyond which nobody joins; 0 knows no such bound.
    classes : int
        Queues that waiting jobs are divided into.
    beta : int
        Jobs taken in one round.
    floor_s : float
        Least median wait that a class is reckoned with.
    recluster_s : float
        How often classes are made out anew; and whenever twice as many jobs have come as last time.
    patience_s : float
        Wait after which the head of the queue gets devices reserved; 0 makes no reservations.

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
        variant: Literal["fairness", "makespan"] = "fairness",
        shape: Literal["fill", "spread"] = "fill",
        steepness: float = 3.0,
        memory_weight: float = 0.5,
        utilisation_weight: float = 0.5,
        max_utilisation: float = 0.0,
        classes: int = 3,
        beta: int = 16,
        floor_s: float = 1.0,
        recluster_s: float = 3600.0,
        patience_s: float = 28800.0,
    ) -> None:
        for name, word, known in (("variant", variant, _VARIANTS), ("shape", shape, _SHAPES)):
            if word not in known:
                raise ConfigError(f'{name} of horus must be one of {", ".join(known)}, found "{word}"')
        check_amounts(
            steepness=steepness,
            memory_weight=memory_weight,
            utilisation_weight=utilisation_weight,
            max_utilisation=max_utilisation,
            patience_s=patience_s,
        )
        if steepness > 20.0:
            raise ConfigError(f"steepness of horus must be 20 or less, found {steepness}")
        if classes < 1 or beta < 1:
            raise ConfigError(f"classes and beta of horus must be 1 or more, found {classes} and {beta}")
        if not (0.0 < floor_s < math.inf and 0.0 < recluster_s < math.inf):
            raise ConfigError(
                f"floor_s and recluster_s of horus must be positive and finite, found {floor_s} and {recluster_s}"
            )
        self.variant, self.shape, self.steepness = variant, shape, steepness
        self.memory_weight, self.utilisation_weight = memory_weight, utilisation_weight
        self.max_utilisation = max_utilisation
        self.classes, self.beta, self.floor_s, self.recluster_s = classes, beta, floor_s, recluster_s
        self.patience_s = patience_s

    def decide(self, view: View) -> Plan:
        """Play one round: start what its jobs find room for."""
        most, most_util = view.settings.max_sharers, round(10.0 * self.max_utilisation)
        boards = view.index(Boards, most, most_util)
        if boards.stale():
            view.drop_indexes()
            boards = view.index(Boards, most, most_util)
        queues = view.index(ClassQueues)
        wake = None
        if self.patience_s:
            plan, wake = serve_overdue(view, self.patience_s)
            if plan is not None:
                return plan
        memo = self._classes(view, queues)
        queues.review(boards.could)
        for point in sorted([p for p in queues.open if not p.shape.gpus], key=lambda p: p.head().key):
            node = view.find_node(point.head())
            if node >= 0 and not self._limited(view, point.head()):
                return Plan((Start(point.head().id, (), why=_NODE_WHY, node=node),), memo, wake, again=True)
            queues.settle(point)
        starts: tuple[Decision, ...] = ()
        if queues.open:
            played = Round(view, boards, queues, self)
            starts = played.fair() if self.variant == "fairness" else played.cheapest()
        if starts:
            return Plan(starts, memo, wake, again=True)
        holds = self._holds(view, boards, queues)
        return Plan(holds, memo, wake) if holds or memo is not None or wake is not None else EMPTY

    @staticmethod
    def _limited(view: View, record: JobRecord) -> bool:
        return bool(view.books.limits) and view.limit_refusal(record) is not None

    def _classes(self, view: View, queues: ClassQueues) -> dict[str, Any] | None:
        """Make classes out anew if that is due; what to remember of them, if so."""
        if self.variant != "fairness" or not queues.living:
            return None
        memo = view.memo
        young = memo is not None and view.now < memo["at_s"] + self.recluster_s
        if young and view.shapes.jobs < 2 * memo["jobs"]:
            queues.use(memo)
            return None
        fresh = queues.clustered(self.classes)
        if fresh is not None:
            queues.use(fresh)
        return fresh

    @staticmethod
    def _holds(view: View, boards: Boards, queues: ClassQueues) -> tuple[Decision, ...]:
        """Why the first job of each demand that was found blocked waits, once for each job."""
        holds = []
        for point in queues.untold:
            head = point.head()
            if head.hold is None:
                refusal = view.limit_refusal(head) if view.books.limits else None
                told = (refusal.reason, refusal.facts) if refusal else boards.blocked(head, point)
                holds.append(Hold(head.id, *told))
        queues.untold.clear()
        return tuple(sorted(holds, key=lambda hold: hold.id))

    # -- cost ------------------------------------------------------------------------

    def utilisation_costs(self, most: int) -> NDArray[np.float64]:
        """Cost of each summed utilisation, in thousandths, up to that of so many whole devices."""
        fill, t = self.shape == "fill", self.steepness
        row = []
        for util in range(most * _FULL + 1):
            over = (util - _FULL) / _FULL
            row.append(math.exp(t * over) if over > 0 else (-over if fill else 1.0 + over))
        return np.array(row)

    def place(
        self, view: View, boards: Boards, queues: ClassQueues, record: JobRecord
    ) -> tuple[float, Start] | None:
        """The cheapest place for a job, over all types that will do, and what it costs."""
        point = queues.point(record)
        best: tuple[float, tuple[int, ...]] | None = None
        for kind in record.shape.types:
            board = boards.boards[kind]
            room = boards.room(board, point)
            if not room.any():
                continue
            found = pick(view, board, self._costs(boards, queues, board, point, room), record)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            return None
        cost, devices = best
        share = share_of(record.job, view.layout.device_memory[devices[0]])
        most = max([boards.util_after(device, point.model) for device in devices])
        facts = {"cost": round(cost / len(devices), 4), "utilisation_percent": most / 10.0}
        return cost, Start(record.id, devices, share, Why("least-cost", facts))

    def _costs(
        self, boards: Boards, queues: ClassQueues, board: Board, point: Point, room: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Equations 3 to 10 for one job on each device of a board; infinite where it cannot go."""
        table = queues.table
        if table is None:
            table = queues.table = self.utilisation_costs(boards.most + 1)
        util = board.util + boards.load(point.model, board.kind)
        cost = self.utilisation_weight * table[util]
        if board.capacity:
            used = board.capacity - board.free + point.shape.memory_bytes
            cost += self.memory_weight * (used / board.capacity)
        return np.where(room, cost, math.inf)
