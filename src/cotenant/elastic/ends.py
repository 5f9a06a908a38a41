"""What the ends of a run's processes say of the whole run."""

from __future__ import annotations

from collections.abc import Callable

from cotenant.elastic.board import Board
from cotenant.runtime.run import SUSPENDED

__all__ = ["Ends"]


class Ends:
    """Keeps who was the first of each generation, and how processes have ended.

    What counts is the first process of the newest generation that was begun: one that was published later had nobody
    in it when the others left.

    Parameters
    ----------
    board : Board
    tell : callable
        Given a line for people.
    end : callable
        Given why the run ends.
    """

    def __init__(self, board: Board, tell: Callable[[str], None], end: Callable[[str], None]) -> None:
        self._board, self._tell, self._end = board, tell, end
        self._firsts: dict[int, str] = {}
        self._codes: dict[str, int] = {}
        self._killed = ""
        self._failed = 0

    def published(self, generation: int, first: str) -> None:
        """A generation, and its first process."""
        self._firsts[generation] = first

    def ended(self, name: str, code: int) -> None:
        """A process, however it has ended."""
        self._codes[name] = code
        if code < 0:
            self._killed = name

    def unended(self, name: str, what: str = "after the last step") -> None:
        """It was killed, or has left for another to take its place, and nobody can: others may have left with the state."""
        code = self._codes[name]
        if code < 0:
            self._board.late_death()
        text = f"process {name} {f'was killed by signal {-code}' if code < 0 else 'left'} {what}"
        if name != self._first():
            self._tell(text)
            return
        self._end(
            f"{text}: what the first process does at the end of the script may not be done; with"
            " elastic.Run(state=...), start the run again for that alone"
        )
        self._failed = self._signal()

    def code(self, *, left: bool) -> int:
        """Of the run, whose last process has ended: finished, left early, or stopped."""
        first = self._first()
        if self._board.finished:
            if self._board.missed and not self._failed:
                self._end(
                    "the first process was killed in the last step: what it prints or writes in that step may be missing;"
                    " the model is in the folder of elastic.Run(state=...), if there is one"
                )
                self._failed = self._signal()
            return self._failed
        if left:
            if self._codes.get(first, 0) < 0:
                self.unended(first, "after others had left the loop")
            return self._failed
        if not first or self._board.saved or not self._killed:
            return SUSPENDED
        self._end(
            f"process {self._killed} was killed by signal {self._signal() - 128} before the state was saved: what was done since the last"
            " checkpoint is lost; start the run again to go on from there"
        )
        return self._signal()

    def _signal(self) -> int:
        """The code of a run that failed because one was killed, the last one if several were."""
        return 128 - self._codes[self._killed] if self._killed else 1

    def _first(self) -> str:
        return self._firsts.get(self._board.begun, "")
