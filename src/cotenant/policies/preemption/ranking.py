"""What a preemptive policy must say: who goes first, and who may be stopped for whom.

The machinery of ``preempt``, ``waiting`` and ``victims`` is the same for all of them.
"""

from __future__ import annotations

import abc
import math

from cotenant.model.records import JobRecord
from cotenant.model.view import View

__all__ = ["Ranking", "first_instant"]


def first_instant(gpus: int, held_s: float, since_s: float, goal: float) -> float:
    """The first float ``t`` at which ``(held_s + t - since_s) * gpus`` has reached ``goal``.

    Solving for ``t`` may end a rounding error too early, where a timer would fire for ever.
    """
    t = since_s + (goal / gpus - held_s)
    while (held_s + (t - since_s)) * gpus < goal:
        t = math.nextafter(t, math.inf)
    return t


class Ranking(abc.ABC):
    """An order of waiting jobs, and one of running jobs. Both depend on the state and the time alone.

    Priority comes first in either, and is not a ranking's business.

    Attributes
    ----------
    by_speed : bool
        Whether a running job's badness depends on its speed.
    """

    by_speed = False

    def version(self, view: View) -> int:
        """Changes when the order of waiting jobs must be worked out again."""
        return 0

    @abc.abstractmethod
    def rank(self, view: View, record: JobRecord) -> float:
        """Of a waiting job; smaller goes first, ties by submission."""

    def rank_until_s(self, view: View, record: JobRecord) -> float:
        """When a waiting job's rank changes by itself; infinite if never."""
        return math.inf

    @abc.abstractmethod
    def badness(self, view: View, record: JobRecord) -> tuple[float, float]:
        """Of a running job: larger is stopped first; and when it changes by itself.

        The second is later than now, and infinite if never.
        """

    @abc.abstractmethod
    def bound(self, view: View, record: JobRecord, speed: float) -> float:
        """What the badness of a victim of equal priority must exceed.

        ``speed`` is that of the device type, relative to the reference device. The bound may
        only grow as time passes.
        """

    def may_stop(self, view: View, victim: JobRecord, record: JobRecord) -> bool:
        """A last look at a victim of equal priority; once false, false until an event."""
        return True
