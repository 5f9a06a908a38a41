"""Whose turn it is in a Fabric script, and numbers that all logical workers have a part in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cotenant.errors import InputError

if TYPE_CHECKING:
    from cotenant.elastic.run import Run

__all__ = ["Later", "Turns"]

_NAMES = {"mean": "mean", "avg": "mean", "sum": "sum", "max": "max", "min": "min"}


class Later:
    """A number reduced over all logical workers; it can be read when all have had their turns.

    ``item()``, ``float()``, ``str()`` and formats give it.
    """

    def __init__(self, turns: Turns, name: str, how: str) -> None:
        self._turns, self._name, self._how = turns, name, how
        self._value: float | None = None

    def item(self) -> float:
        """The number.

        Raises
        ------
        InputError
            In the inner loop.
        """
        if self._value is None:
            self._value = self._turns.value(self._name, self._how)
        return self._value

    def __float__(self) -> float:
        return self.item()

    def __format__(self, how: str) -> str:
        return format(self.item(), how)

    def __str__(self) -> str:
        return str(self.item())


class Turns:
    """What Fabric's ranks become: a logical worker in the inner loop, one of equal processes elsewhere.

    Attributes
    ----------
    quiet : bool
        Fabric itself calls ``barrier``, where nobody needs to be waited for.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._worker = self._calls = 0
        self._open: list[Later] = []
        self.quiet = False

    @property
    def order(self) -> str:
        """In which the run sums gradients."""
        return self._run._settings.order

    @property
    def _process(self) -> Any:
        return self._run._process

    @property
    def within(self) -> bool:
        """Whether the script is in the inner loop."""
        return self._process is not None and self._process.in_turns

    @property
    def rank(self) -> int:
        """The logical worker in the inner loop; elsewhere 0 on one of the processes."""
        return self._worker if self.within else 0 if self._process is None else self._process.rank

    def begin(self, worker: int) -> None:
        """A worker's turn begins."""
        self._worker, self._calls = worker, 0

    def only_within(self, what: str, how: str) -> None:
        """Refuse elsewhere than in the inner loop.

        Raises
        ------
        InputError
        """
        if not self.within:
            raise InputError(
                f"{what} outside of the inner loop of a step, where no logical worker has its turn: {how}"
            )

    def only_after(self, what: str) -> None:
        """Refuse in the inner loop.

        Raises
        ------
        InputError
        """
        if self.within:
            raise InputError(
                f"{what} in the inner loop, or after a break out of it: the gradient is the mean over all workers only"
                " when the loop has ended by itself; move it behind the loop"
            )

    def reduced(self, tensor: Any, op: Any) -> Any:
        """A number of this worker's turn, as ``Later``; between turns all have the same, which is given back.

        Raises
        ------
        InputError
        """
        how = _NAMES.get(str(op).rpartition(".")[2].lower())
        if how is None:
            raise InputError(f"fabric.all_reduce(reduce_op={op!r}): it must be {', '.join(_NAMES)}")
        if not self.within:
            if how == "sum":
                raise InputError(
                    "fabric.all_reduce(reduce_op='sum') outside of the inner loop: there every process has the whole, and"
                    " a sum over processes would depend on their number; leave it out"
                )
            return tensor
        if tensor.numel() != 1:
            raise InputError(
                f"fabric.all_reduce() of a tensor of shape {tuple(tensor.shape)}: single numbers only are exchanged in a"
                " step; reduce it to a number first"
            )
        name = f"fabric.all_reduce {self._calls}"
        self._calls += 1
        self._process.note({name: float(tensor.item())})
        later = Later(self, name, how)
        self._open.append(later)
        return later

    def value(self, name: str, how: str) -> float:
        """What all workers noted under a name, in their order.

        Raises
        ------
        InputError
        """
        if self.within:
            raise InputError(
                "a number of fabric.all_reduce() is read in the inner loop: it is known when all logical workers have had"
                " their turns; read it behind the loop"
            )
        found: list[float] = [
            context.notes[name] for context in self._process.contexts if name in context.notes
        ]
        if how in ("max", "min"):
            return max(found) if how == "max" else min(found)
        return sum(found) / (len(found) if how == "mean" else 1)

    def settle(self) -> None:
        """The step is over, and what was noted in it is about to be forgotten."""
        for later in self._open:
            later.item()
        self._open.clear()

    def quietly(self, parent: Any, method: str, given: Any, named: Any) -> Any:
        """Call Fabric's own method, in which nobody needs to be waited for."""
        self.quiet = True
        try:
            return getattr(parent, method)(*given, **named)
        finally:
            self.quiet = False
