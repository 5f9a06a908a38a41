"""Is a policy woken for ever although nothing is left that could happen?"""

from __future__ import annotations

from cotenant.engine import mistakes
from cotenant.engine.state import State
from cotenant.model.ports import Executor, Policy

__all__ = ["Wakes"]

_MOST_IN_VAIN = 10_000


class Wakes:
    """Counts the wakes in a row in which nothing happened, while nothing is to come by itself."""

    def __init__(self, state: State, executor: Executor, policy: Policy) -> None:
        self._state, self._executor, self._policy = state, executor, policy
        self._in_vain, self._last_version = 0, -1

    def in_vain(self) -> bool:
        """True once nothing is left that could happen.

        Raises
        ------
        PolicyError
            If jobs wait and the policy has itself woken again and again, and decides nothing.
        """
        if not self._executor.idle():
            self._in_vain = 0
            return False
        waiting, version = len(self._state.records), self._state.version
        if not waiting:
            return True
        self._in_vain = self._in_vain + 1 if version == self._last_version else 0
        self._last_version = version
        if self._in_vain > _MOST_IN_VAIN:
            raise mistakes.in_vain(self._policy, _MOST_IN_VAIN, waiting)
        return False
