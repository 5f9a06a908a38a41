"""Buffers of the exchange: kept from step to step and from generation to generation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cotenant.elastic.gradients import Order
from cotenant.elastic.lanes import Lane

__all__ = ["Memory"]


class Memory:
    """Memory by role. Fresh memory is several times slower than used memory, at its first use.

    Attributes
    ----------
    lane : Lane
        Says where the memory is.
    """

    def __init__(self) -> None:
        self.lane = Lane()
        self._held: dict[tuple[Any, Any], Any] = {}

    def use(self, lane: Lane) -> None:
        """From now on memory of this lane; what was elsewhere is let go."""
        if lane.place != self.lane.place:
            self._held.clear()
        self.lane = lane

    def take(self, role: Any, size: int, dtype: Any) -> Any:
        """So many elements for this role, with whatever is in them; the same ones at the next call."""
        held = self._held.get((role, dtype))
        if held is None or held.numel() < size:
            # Let go of the old one first: the two need not be there at once.
            self._held.pop((role, dtype), None)
            held = self._held[role, dtype] = self.lane.buffer(size, dtype)
        return held[:size]

    def touch(self, role: Any, size: int, dtype: Any) -> None:
        """Have so much memory ready for this role."""
        self.take(role, size, dtype).zero_()

    def warm(self, parameters: Iterable[Any], order: Order) -> None:
        """Have ready what the first exchange in this order will take, in the host's memory."""
        sizes: dict[Any, int] = {}
        for parameter in parameters:
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
        roles: dict[Order, tuple[Any, ...]] = {
            "blocks": (("flat", 0), "parts", "sum"),
            "sequence": (("flat", 0), "sum"),
            "ddp": (("row", 0),),
        }
        for dtype, size in sizes.items():
            for role in roles[order]:
                self.touch(role, size, dtype)
