"""Discretised 2D-Gittins of Tiresias: levels of attained service, the Gittins index within them.

Card: ``docs/policies/gittins.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import Plan
from cotenant.model.records import JobRecord
from cotenant.model.service import ServiceCounts, service_class, service_edge_s
from cotenant.model.view import Index, View
from cotenant.policies.las import AttainedLevels, check_levels
from cotenant.policies.preemption.preempt import advance

__all__ = ["Gittins", "gittins_indices"]

_GROWTH = 1.25


class Gittins(Params):
    """Like ``Las``, but within a level the job goes first that is likeliest to end soon for its cost.

    Parameters
    ----------
    levels : tuple of float
        Attained service at which a job sinks, in GPU-seconds.
    promote_knob : float
        As in ``Las``.
    services : tuple of float
        The distribution of service, as GPU-seconds of equal weight. Empty: learned from the
        jobs that ended so far.
    least_jobs : int
        Jobs that must have ended before anything is learned; until then submission order.

    Notes
    -----
    Tiresias (Gu et al., NSDI 2019), section 3. What is learned is taken up each time the number of
    ended jobs has grown by a quarter, so that waiting jobs are seldom sorted anew.
    """

    uses_predictions: ClassVar[bool] = False

    def __init__(
        self,
        *,
        levels: tuple[float, ...] = (3250.0, 7200.0),
        promote_knob: float = 0.0,
        services: tuple[float, ...] = (),
        least_jobs: int = 20,
    ) -> None:
        check_levels(levels, promote_knob)
        if any(not 0.0 <= s < float("inf") for s in services) or least_jobs < 1:
            raise ConfigError("services must be finite GPU-seconds, and least_jobs at least 1")
        self.levels, self.promote_knob = levels, promote_knob
        self.services, self.least_jobs = services, least_jobs
        self._ranking = _ByIndex(levels, promote_knob, services)

    def decide(self, view: View) -> Plan:
        """Start or stop one job, and ask again; now and then take up what was learned."""
        plan = advance(view, self._ranking)
        if self.services:
            return plan
        ended = view.service.total
        if ended < self.least_jobs or ended < _known(view) * _GROWTH:
            return plan
        memo = {"ended": ended, "counts": list(view.service.counts)}
        return msgspec.structs.replace(plan, memo=memo)


def _known(view: View) -> int:
    return int(view.memo["ended"]) if view.memo else 0


class _ByIndex(AttainedLevels):
    """Rank is the level, then the place of the job's class of service by falling Gittins index."""

    def __init__(self, levels: tuple[float, ...], promote_knob: float, services: tuple[float, ...]) -> None:
        super().__init__(levels, promote_knob)
        declared = ServiceCounts()
        for service in services:
            declared.add(service)
        self._declared = _places(declared.counts)

    def version(self, view: View) -> int:
        return _known(view)

    def rank(self, view: View, record: JobRecord) -> float:
        places = self._declared or view.index(_Learned).places(view)
        number = service_class(record.ran_s * (record.job.gpus or 1))
        place = places[number] if number < len(places) else 1.0
        return self.level(view, record) + 0.5 * place


class _Learned(Index):
    """Places by class, worked out once for each distribution taken up."""

    def __init__(self, view: View) -> None:
        self._known = -1
        self._places: list[float] = []

    def places(self, view: View) -> list[float]:
        """For the distribution in the memo; empty before the first."""
        known = _known(view)
        if known != self._known:
            self._known = known
            self._places = _places(view.memo["counts"]) if known else []
        return self._places


def _places(counts: Sequence[int]) -> list[float]:
    """For each class, the share of classes with a larger index; in [0, 1)."""
    indices = gittins_indices(counts)
    falling = sorted(set(indices), reverse=True)
    order = {index: i / len(falling) for i, index in enumerate(falling)}
    return [order[index] for index in indices]


def gittins_indices(counts: Sequence[int]) -> list[float]:
    """Gittins index of a job that has attained the lower edge of each class of service.

    The index of attained service a is the largest, over quanta d, of the chance to end within
    d more, divided by the expected service until then (Gittins 1979; Tiresias, section 3).
    Quanta end at edges of classes, jobs of a class end in its middle.

    Parameters
    ----------
    counts : sequence of int
        Ended jobs by class (``model.service``).

    Returns
    -------
    list of float
        One for each class, per GPU-second.

    Examples
    --------
    Ten jobs end near 1.1 and ten near 3.75 device-seconds: with 1.0 attained, half of them
    end within 0.25, for 0.125 on average if they do and 0.25 if not.

    >>> round(gittins_indices([0, 10, 0, 0, 0, 0, 0, 0, 10])[1], 3)
    2.667
    """
    edges = [service_edge_s(k) for k in range(len(counts) + 1)]
    middles = [(low + high) / 2.0 for low, high in pairwise(edges)]
    found = []
    for first in range(len(counts)):
        attained, left = edges[first], sum(counts[first:])
        ended, spent, best = 0, 0.0, 0.0
        for k in range(first, len(counts)):
            ended += counts[k]
            spent += counts[k] * (middles[k] - attained)
            if ended:
                served = spent + (left - ended) * (edges[k + 1] - attained)
                best = max(best, ended / served)
        found.append(best)
    return found
