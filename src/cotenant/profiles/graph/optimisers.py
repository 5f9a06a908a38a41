"""Optimisers: what they keep, what they need for a moment, what they move.

State and moments were measured on torch 2.13 by counting live bytes through a step of eight
equal weights; ``docs/prediction/memory.md`` says how to repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.errors import UnknownNameError

__all__ = ["Optimiser", "find_optimiser", "known"]


class Optimiser(msgspec.Struct, frozen=True, gc=False):
    """One rule of update, in units of the trained weights' size.

    Parameters
    ----------
    state : float
        Kept between steps.
    grouped : float
        Held for a moment where all weights are updated together, as PyTorch does on a GPU.
    single, carried : float
        Held for a moment where weights are updated one by one, as PyTorch does on a CPU: in
        units of the weight at hand, and of the one before it, whose last intermediate the
        loop's variable still holds.
    moved : float
        Read plus written in a step.
    """

    state: float
    grouped: float
    single: float
    carried: float
    moved: float

    def moment_bytes(self, sizes: Sequence[int], item_bytes: int, *, grouped: bool) -> int:
        """Bytes held for a moment during the step.

        Parameters
        ----------
        sizes : sequence of int
            Elements of each trained weight, in the module's order.
        item_bytes : int
        grouped : bool

        Examples
        --------
        >>> find_optimiser("adam").moment_bytes([10, 30, 20], 4, grouped=False)
        280
        """
        if grouped:
            return round(self.grouped * sum(sizes) * item_bytes)
        before, most = 0, 0.0
        for size in sizes:
            most = max(most, self.single * size + self.carried * before)
            before = size
        return round(most * item_bytes)


_TABLE: dict[str, Optimiser] = {
    # read weight and gradient, write weight; then per copy of state one read and one write
    "sgd": Optimiser(0, 0, 0, 0, 3),
    "momentum": Optimiser(1, 0, 0, 0, 5),
    "nesterov": Optimiser(1, 0, 1, 1, 7),
    "adam": Optimiser(2, 1, 2, 1, 9),
    "adamw": Optimiser(2, 1, 2, 1, 10),
    "adamax": Optimiser(2, 1, 1, 0, 9),
    "nadam": Optimiser(2, 1, 2, 1, 9),
    "radam": Optimiser(2, 1, 2, 1, 9),
    "rmsprop": Optimiser(1, 1, 1, 1, 7),
    "adagrad": Optimiser(1, 2, 1, 1, 7),
    "adadelta": Optimiser(2, 2, 2, 1, 9),
    # Not in torch: from their definitions. Lion keeps one moment, LAMB two; 8-bit Adam two of a byte
    # each for four of a weight.
    "lion": Optimiser(1, 1, 1, 1, 5),
    "lamb": Optimiser(2, 1, 2, 1, 10),
    "adam8bit": Optimiser(0.5, 0, 0, 0, 4),
    "none": Optimiser(0, 0, 0, 0, 0),
}


def known() -> tuple[str, ...]:
    """Names of the optimisers."""
    return tuple(_TABLE)


def find_optimiser(name: str) -> Optimiser:
    """The optimiser of this name.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.
    """
    found = _TABLE.get(name.casefold())
    if found is None:
        raise UnknownNameError("optimiser", name, _TABLE)
    return found
