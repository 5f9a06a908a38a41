"""Best fit and first fit: sharing by memory and declared compute, blind to interference.

Cards: ``docs/policies/best-fit.md``, ``docs/policies/first-fit.md``.
"""

from __future__ import annotations

import difflib
from typing import ClassVar, Literal

from cotenant.errors import ConfigError
from cotenant.model.plan import Why
from cotenant.policies.space.pools import Order
from cotenant.policies.space.sharing import Sharer

__all__ = ["BestFit", "FirstFit"]

_ORDERS = ("pack", "spread")


class BestFit(Sharer):
    """Put each job where it fits best by memory.

    Parameters
    ----------
    order : {"pack", "spread"}
        ``pack``: where least memory is left. ``spread``: where fewest others are, then where
        most memory is.

    Raises
    ------
    ConfigError
        For any other word.
    """

    idle_without_queue: ClassVar[bool] = True

    def __init__(self, *, order: Literal["pack", "spread"] = "pack") -> None:
        if order not in _ORDERS:
            near = difflib.get_close_matches(str(order), _ORDERS, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ConfigError(f'order of best-fit must be one of pack, spread, found "{order}"{hint}')
        self.order = order
        self._why = Why("least-memory-left" if order == "pack" else "fewest-sharers")

    def _order(self) -> Order:
        return self.order


class FirstFit(Sharer):
    """Put each job on the lowest-numbered device or devices where it fits."""

    idle_without_queue: ClassVar[bool] = True
    _why = Why("first-that-fits")

    def _order(self) -> Order:
        return "first"
