"""Gandiva: over-subscribe by turns, watch real progress, and keep only what helped (OSDI'18).

Card: ``docs/policies/gandiva.md``. Reactive mode is ``affinity`` and ``sharing``; introspective mode
is ``packing``, ``relocation`` and ``growth``. No forecast of speeds or lengths is read: what a pair or
a move is worth is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from cotenant.errors import ConfigError
from cotenant.model.placement import WHOLE, Mode
from cotenant.model.plan import Plan, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.elastic.growth import Elastic, grow, shrink
from cotenant.policies.published.affinity import Affinity
from cotenant.policies.published.pairs import Memory, Packing, Step
from cotenant.policies.published.relocation import Scattered, defragment, even_out, lower, unite
from cotenant.policies.published.slots import Slots
from cotenant.policies.queues.classwise import Offer
from cotenant.policies.queues.demands import Demands, Family
from cotenant.policies.space.pools import Order
from cotenant.policies.space.sharing import Sharer

__all__ = ["Gandiva"]

_RULES = {rule: Why(rule) for rule in ("same-affinity", "unassigned-server", "any-server")}
_NODE_WHY = Why("cpu-only")
_OVER = tuple(Why("over-subscribed", {"residents_before": n, "residents_after": n + 1}) for n in range(64))


class Gandiva(Sharer):
    """Free devices by affinity, then turns of a minute; in the background pack, migrate, grow and shrink.

    Parameters
    ----------
    max_residents : int
        Most jobs that take turns on one device; the run's ``max_sharers`` bounds it too.
    packing : bool
        Try pairs side by side in overload, and keep those whose measured speeds add up to more than ``least_sum``.
    migration : bool
        Move running jobs: to lower heights, for locality, against fragmentation, for fair turns.
    growth : bool
        Let elastic jobs have idle devices of their server.
    least_sum : float
        Sum of both speeds relative to alone that a pair must exceed.
    trial_s : float
        Seconds for which a job is profiled alone, and for which a pair is measured.
    period_s : float
        Seconds between two looks at pairs, fairness, fragments and idle devices.
    idle_s : float
        Seconds for which devices must have been seen idle before a job grows onto them.
    most_loss : float
        What a background move may cost a job, as a share of the time since its speed last changed.

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    """

    _mode: Mode = "time-sliced"
    _mixed = False

    def __init__(
        self,
        *,
        max_residents: int = 4,
        packing: bool = True,
        migration: bool = True,
        growth: bool = True,
        least_sum: float = 1.0,
        trial_s: float = 60.0,
        period_s: float = 300.0,
        idle_s: float = 300.0,
        most_loss: float = 0.02,
    ) -> None:
        if max_residents < 1:
            raise ConfigError(f"max_residents of gandiva must be 1 or more, found {max_residents}")
        for name, value in (("trial_s", trial_s), ("period_s", period_s), ("most_loss", most_loss)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} of gandiva must be positive and finite, found {value}")
        if least_sum < 1.0 or idle_s < 0.0:
            raise ConfigError(
                f"least_sum of gandiva must be 1 or more and idle_s 0 or more, found {least_sum} and {idle_s}"
            )
        self.max_residents = max_residents
        self.packing, self.migration, self.growth = packing, migration, growth
        self.least_sum, self.trial_s = least_sum, trial_s
        self.period_s, self.idle_s, self.most_loss = period_s, idle_s, most_loss

    def decide(self, view: View) -> Plan:
        """Start what fits, then improve what runs."""
        if self.growth and view.pending_count and view.index(Elastic).grown:
            taken = self._give_back(view)
            if taken is not None:
                return taken
        plan = super().decide(view)
        if plan.again or not view.running:
            return plan
        memory, wake = Memory.of(view.memo), self._next_look(view)
        for look in self._looks(view):
            step = look(view, memory)
            if step.wake_at_s is not None:
                wake = min(wake, step.wake_at_s)
            if step.decisions or step.memory is not None:
                memo = None if step.memory is None else step.memory.plain()
                return Plan((*plan.decisions, *step.decisions), memo=memo, wake_at_s=wake, again=True)
        return Plan(plan.decisions, wake_at_s=wake if wake < math.inf else None)

    # -- reactive mode -----------------------------------------------------------------

    def _order(self) -> Order:
        return "spread"

    def _sharers(self, view: View) -> int:
        return min(self.max_residents, view.settings.max_sharers)

    def offer(self, view: View, family: Family, record: JobRecord) -> Offer | None:
        """Node choice in the published order: same affinity, unassigned, any, then turns."""
        if record.shape.gpus == 0:
            node = view.find_node(record)
            return Offer((), why=_NODE_WHY, node=node) if node >= 0 else None
        affinity = view.index(Affinity)
        known = self._known(view, family) if family.domain else None
        if known is not None and known.types:
            share = family.share(self._mode, record.shape.memory_bytes)
            spot = affinity.find(known)
            if spot is not None:
                return Offer(spot.devices, share, _RULES[spot.rule])
            joined = self._join(view, family, known, record)
            if joined is not None:
                return Offer(joined[1], share, _OVER[len(view.residents(joined[1][0]))])
        spot = affinity.find(record.shape)
        return None if spot is None else Offer(spot.devices, WHOLE, _RULES[spot.rule])

    def _give_back(self, view: View) -> Plan | None:
        """Shrink a grown job if a waiting one cannot have free devices otherwise."""
        affinity = view.index(Affinity)
        for family in view.index(Demands).open:
            head = family.head()
            if head.shape.gpus and affinity.find(head.shape) is None and view.limit_refusal(head) is None:
                decision = shrink(view, set(head.shape.types))
                if decision is not None:
                    return Plan((decision,), again=True)
        return None

    # -- introspective mode --------------------------------------------------------------

    def _next_look(self, view: View) -> float:
        """When to look again at what needs no event to change."""
        works = view.index(Slots) or (self.growth and view.index(Elastic).jobs) or view.index(Scattered).jobs
        return (math.floor(view.now / self.period_s) + 1) * self.period_s if works else math.inf

    def _looks(self, view: View) -> Iterator[Callable[[View, Memory], Step]]:
        """What to look at now, in order; the dear ones only every ``period_s``."""
        measures = view.settings.rate_events
        packing = Packing(self.trial_s, self.least_sum, self.most_loss, self._sharers(view), self.period_s)
        if self.packing and measures:
            yield packing.judge
        if self.migration:
            yield self._departed
        if view.now != math.floor(view.now / self.period_s) * self.period_s:
            return
        if self.packing and measures:
            yield packing.watch
            yield packing.seek
        if self.migration:
            if measures:
                yield self._fair
            yield self._fragments
        if self.growth:
            yield self._grow

    def _departed(self, view: View, memory: Memory) -> Step:
        found = lower(view, memory.tried(), self._sharers(view)) or unite(view, self.most_loss)
        return Step() if found is None else Step((found,))

    def _fair(self, view: View, memory: Memory) -> Step:
        return Step(tuple(even_out(view, self.most_loss, memory.tried(), self._sharers(view))))

    def _fragments(self, view: View, memory: Memory) -> Step:
        found = defragment(view, self.most_loss)
        return Step() if found is None else Step((found,))

    def _grow(self, view: View, memory: Memory) -> Step:
        return grow(view, memory, self.idle_s, self.most_loss)
