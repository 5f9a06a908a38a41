"""Sub-job scheduling on shared devices: shortest first with ageing, suspension, a guard for large jobs.

Card: ``docs/policies/tong.md``. After Chung, Tong and Chen, Journal of Supercomputing 81(2), 2025, of which
only the abstract could be had: the algorithm is a reconstruction.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from cotenant.errors import ConfigError
from cotenant.model.params import Params, check_amounts
from cotenant.model.plan import EMPTY, Plan
from cotenant.model.view import View
from cotenant.policies.published.tong_step import NOBODY, Step

__all__ = ["Tong"]


class Tong(Params):
    """Share devices, shortest predicted remaining time first; suspend, and keep large jobs from starving.

    Parameters
    ----------
    tau_s : float
        Ageing: a job that has waited ``w`` ranks by ``remaining / (1 + w / tau_s)``.
    max_residents : int
        Most jobs on one device; the run's ``max_sharers`` bounds it too.
    spare : float
        Part of a device's memory that is left free where jobs share it.
    min_gain : float
        What a newcomer must add, more than this, to a device's predicted normalised throughput.
    free_first : bool
        Whether an idle device is always better than a shared one.
    quantum_s : float
        No job is suspended before it has run this long; also how often suspensions are considered.
    gain_factor : float
        What is gained by a suspension must exceed this many times the time to save and load.
    large : float
        Part of a device's memory beyond which a job is guarded; jobs on several devices always are.
    guard_s, guard_factor : float
        A large job is overdue after ``guard_factor`` times its predicted run, not before ``guard_s``.
    overtaken : int
        Or after so many jobs behind it were started before the large job first in the queue.

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
        tau_s: float = 3600.0,
        max_residents: int = 4,
        spare: float = 0.05,
        min_gain: float = 0.0,
        free_first: bool = True,
        quantum_s: float = 60.0,
        gain_factor: float = 2.0,
        large: float = 0.5,
        guard_s: float = 600.0,
        guard_factor: float = 2.0,
        overtaken: int = 10,
    ) -> None:
        if not (0.0 < tau_s < math.inf and 0.0 < quantum_s < math.inf):
            raise ConfigError(
                f"tau_s and quantum_s of tong must be positive and finite, found {tau_s} and {quantum_s}"
            )
        if max_residents < 1 or overtaken < 1:
            raise ConfigError(
                f"max_residents and overtaken of tong must be 1 or more, found {max_residents} and {overtaken}"
            )
        for name, part in (("spare", spare), ("large", large)):
            if not 0.0 <= part < 1.0:
                raise ConfigError(f"{name} of tong must lie in [0, 1), found {part}")
        check_amounts(min_gain=min_gain, gain_factor=gain_factor, guard_s=guard_s, guard_factor=guard_factor)
        self.tau_s, self.max_residents, self.spare, self.min_gain = tau_s, max_residents, spare, min_gain
        self.free_first, self.quantum_s, self.gain_factor = free_first, quantum_s, gain_factor
        self.large, self.guard_s, self.guard_factor = large, guard_s, guard_factor
        self.overtaken = overtaken

    def decide(self, view: View) -> Plan:
        """One start, or one suspension, or nothing."""
        if not len(view.queue):
            return EMPTY
        step = Step(view, self)
        if step.boards.stale():
            view.drop_indexes()
            step = Step(view, self)
        decisions = step.choose()
        memo: Any = step.memo if step.memo != (view.memo or NOBODY) else None
        wake = step.wake_s()
        if not decisions and memo is None and wake is None:
            return EMPTY
        return Plan(decisions, memo, wake, again=step.acted)
