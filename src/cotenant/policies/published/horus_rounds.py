"""One round of Horus: which waiting jobs are looked at, in which order, and what starts.

Starts are tried in a draft, so each sees those before it; the boards follow, and are read from
the books again at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cotenant.model.plan import Decision, Start
from cotenant.model.records import JobRecord
from cotenant.model.view import Draft, View
from cotenant.policies.published.clusters import apportioned
from cotenant.policies.published.horus_queues import ClassQueues
from cotenant.policies.queues.points import Point
from cotenant.policies.space.boards import Boards

if TYPE_CHECKING:
    from cotenant.policies.horus import Horus

__all__ = ["Round"]


class Round:
    """A round over the present state.

    Parameters
    ----------
    view : View
    boards : Boards
    queues : ClassQueues
    policy : Horus
    """

    def __init__(self, view: View, boards: Boards, queues: ClassQueues, policy: Horus) -> None:
        self._view, self._boards, self._queues, self._policy = view, boards, queues, policy
        self._taken: dict[Point, list[JobRecord]] = {}
        self._shut: set[Point] = set()

    def fair(self) -> tuple[Decision, ...]:
        """Each class places as many jobs as its weight gives it; what it cannot use goes to the others."""
        policy, queues = self._policy, self._queues
        weights = queues.weights(policy.floor_s)
        quotas = apportioned(policy.beta, weights)
        order = sorted(range(len(weights)), key=lambda c: (-weights[c], c))
        lines: dict[int, list[tuple[int, Point]]] = {c: [] for c in order}
        for point in queues.open:
            lines[queues.class_of(point)].append((point.head().key, point))
        for line in lines.values():
            line.sort(key=lambda entry: entry[0])
        with self._view.draft() as draft:
            left = policy.beta
            for c in order:
                left -= self._serve(draft, lines[c], quotas[c])
            for c in order:
                left -= self._serve(draft, lines[c], left)
        return self._done(draft)

    def _serve(self, draft: Draft, line: list[tuple[int, Point]], most: int) -> int:
        """Place up to so many jobs of a line, longest waiting first; how many found room."""
        placed = 0
        while line and placed < most:
            point = line[0][1]
            found = self._find(draft, point)
            if found is None:
                line.pop(0)
                continue
            placed += self._take(draft, point, found[1])
            line.pop(0)
            rest = self._next(point)
            if rest is not None:
                at = 0
                while at < len(line) and line[at][0] < rest.key:
                    at += 1
                line.insert(at, (rest.key, point))
        return placed

    def cheapest(self) -> tuple[Decision, ...]:
        """Of the demands that have waited longest, the cheapest to place goes first, and again."""
        policy, queues = self._policy, self._queues
        by_age = sorted(queues.open, key=lambda point: point.head().key)
        with self._view.draft() as draft:
            buffer: list[Point] = []
            for point in by_age:
                if len(buffer) == policy.beta:
                    break
                if self._find(draft, point) is not None:
                    buffer.append(point)
            for _ in range(policy.beta):
                offers = []
                for point in buffer:
                    record = self._next(point)
                    found = None if record is None else self._find(draft, point)
                    if record is not None and found is not None:
                        offers.append((found[0] / record.job.gpus, record.key, point, found[1]))
                if not offers:
                    break
                _, _, point, start = min(offers, key=lambda offer: offer[:2])
                self._take(draft, point, start)
        return self._done(draft)

    # -- one job ---------------------------------------------------------------------

    def _next(self, point: Point) -> JobRecord | None:
        """The first of a point's jobs that this round has not placed."""
        return point.head() if point.count > len(self._taken.get(point, ())) else None

    def _find(self, draft: Draft, point: Point) -> tuple[float, Start] | None:
        """Where the next job of a point could go now; a point without such a place is looked at no more."""
        if point in self._shut:
            return None
        record = self._next(point)
        found = None
        if record is not None and not (self._view.books.limits and self._view.limit_refusal(record)):
            found = self._policy.place(self._view, self._boards, self._queues, record)
        if found is None:
            self._shut.add(point)
            # Only what the present state says may be remembered, not what this draft does.
            if not draft.decisions:
                self._queues.settle(point)
        return found

    def _take(self, draft: Draft, point: Point, start: Start) -> bool:
        record = self._view.records[start.id]
        if draft.start(record, start.devices, start.share, start.why) is not None:
            self._shut.add(point)
            return False
        self._taken.setdefault(point, []).append(record)
        self._boards.refresh(start.devices)
        return True

    def _done(self, draft: Draft) -> tuple[Decision, ...]:
        """What the draft held, once it is taken back."""
        decisions = tuple(draft.decisions)
        for decision in decisions:
            if isinstance(decision, Start):
                self._boards.refresh(decision.devices)
        for records in self._taken.values():
            for record in records:
                self._queues.put_back(record)
        return decisions
