"""Least attained service in levels: discretised 2D-LAS of Tiresias.

Card: ``docs/policies/las.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import ClassVar

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import Plan
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.preemption.preempt import advance
from cotenant.policies.preemption.ranking import Ranking, first_instant

__all__ = ["AttainedLevels", "Las", "check_levels"]


def check_levels(levels: tuple[float, ...], promote_knob: float) -> None:
    """Refuse thresholds that do not ascend, and a negative knob.

    Raises
    ------
    ConfigError
    """
    if not levels or levels[0] <= 0.0 or any(a >= b for a, b in pairwise(levels)):
        raise ConfigError(f"levels must be ascending and positive, in GPU-seconds, found {levels}")
    if not 0.0 <= promote_knob < math.inf:
        raise ConfigError(f"promote_knob must be zero (never) or more and finite, found {promote_knob}")


class Las(Params):
    """Jobs sink through levels as they receive GPU-seconds; a higher level stops a lower one.

    Parameters
    ----------
    levels : tuple of float
        Attained service at which a job sinks, in GPU-seconds.
    promote_knob : float
        A job that sank and has waited this many times as long as it has run goes back to the
        top level until it has run on; 0 never promotes.

    Notes
    -----
    Tiresias (Gu et al., NSDI 2019), section 3. The default levels are those of the authors'
    simulator (SymbioticLab/Tiresias, ``simulator/jobs.py``: three queues, limits 3250 and 7200).
    """

    idle_without_queue: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = False
    uses_service: ClassVar[bool] = False

    def __init__(self, *, levels: tuple[float, ...] = (3250.0, 7200.0), promote_knob: float = 0.0) -> None:
        check_levels(levels, promote_knob)
        self.levels, self.promote_knob = levels, promote_knob
        self._ranking = AttainedLevels(levels, promote_knob)

    def decide(self, view: View) -> Plan:
        """Start or stop one job, and ask again."""
        return advance(view, self._ranking)


class AttainedLevels(Ranking):
    """Badness is the level. It changes only at instants known in advance."""

    def __init__(self, levels: tuple[float, ...], promote_knob: float) -> None:
        self._levels, self._knob = levels, promote_knob

    def level(self, view: View, record: JobRecord) -> int:
        """The level now: 0 is the top."""
        gpus = record.job.gpus or 1
        if record.status:
            held, since = self._held(record, gpus)
            return bisect_right(self._levels, (held + (view.now - since)) * gpus)
        level = bisect_right(self._levels, record.ran_s * gpus)
        if level and self._knob and view.now >= record.queued_s + self._knob * record.ran_s:
            return 0
        return level

    def _held(self, record: JobRecord, gpus: int) -> tuple[float, float]:
        """Seconds held that count, up to a time, for a running job."""
        ran = record.ran_s
        if (
            self._knob
            and record.started_s >= record.queued_s + self._knob * ran
            and bisect_right(self._levels, ran * gpus)
        ):
            return 0.0, record.started_s
        return ran, record.started_s

    def rank(self, view: View, record: JobRecord) -> float:
        return float(self.level(view, record))

    def rank_until_s(self, view: View, record: JobRecord) -> float:
        if not self._knob or not self.level(view, record):
            return math.inf
        return record.queued_s + self._knob * record.ran_s

    def badness(self, view: View, record: JobRecord) -> tuple[float, float]:
        gpus, levels = record.job.gpus or 1, self._levels
        held, since = self._held(record, gpus)
        level = bisect_right(levels, (held + (view.now - since)) * gpus)
        if level == len(levels):
            return float(level), math.inf
        return float(level), first_instant(gpus, held, since, levels[level])

    def bound(self, view: View, record: JobRecord, speed: float) -> float:
        return float(self.level(view, record))
