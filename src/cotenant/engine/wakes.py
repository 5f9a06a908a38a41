"""Is a policy woken for ever although nothing is left that could happen?"""

from __future__ import annotations

from cotenant.engine import mistakes
from cotenant.engine.state import State
from cotenant.model.ports import Executor, Policy

__all__ = ["Wakes"]

_MOST_IN_VAIN = 10_000


class Wakes:
    """Counts the wakes in a row between which no job ran or ended, while nothing is to come by itself.

    A memo that is saved, a reason to wait, a reservation, a refusal or a start that is taken back at
    once are events too, but leave jobs where they were: a policy may go on with them for ever.
    """

    def __init__(self, state: State, executor: Executor, policy: Policy) -> None:
        self._state, self._executor, self._policy = state, executor, policy
        self._in_vain = 0
        self._last = (-1, -1)

    def in_vain(self) -> bool:
        """True once nothing is left that could happen.

        Raises
        ------
        PolicyError
            If jobs wait and the policy has itself woken again and again, and decides nothing that
            lets one run or end.
        """
        if not self._executor.idle():
            self._in_vain = 0
            return False
        waiting = len(self._state.records)
        if not waiting:
            return True
        # What runs keeps the executor busy; retries are bounded; so only these two tell of an end in sight.
        known = (waiting, self._state.counts["submitted"])
        self._in_vain = self._in_vain + 1 if known == self._last else 0
        self._last = known
        if self._in_vain > _MOST_IN_VAIN:
            raise mistakes.in_vain(self._policy, _MOST_IN_VAIN, waiting)
        return False
