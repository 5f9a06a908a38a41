"""Round-robin time slicing: over-subscribe devices when none is free.

Card: ``docs/policies/time-slice.md``. The mechanism is Gandiva's time slicing (OSDI'18,
section 3): residents of a device take turns, and saved memory waits on the host.
"""

from __future__ import annotations

from cotenant.errors import ConfigError
from cotenant.model.placement import Mode
from cotenant.model.plan import Why
from cotenant.model.view import View
from cotenant.policies.space.pools import Order
from cotenant.policies.space.sharing import Sharer

__all__ = ["TimeSlice"]


class TimeSlice(Sharer):
    """Free devices first; when none is left, join the device or gang with fewest residents.

    Parameters
    ----------
    max_residents : int
        Most jobs that take turns on one device; the run's ``max_sharers`` bounds it too.

    Raises
    ------
    ConfigError
        If ``max_residents`` is below 1.
    """

    _mode: Mode = "time-sliced"
    _mixed = False
    _why = Why("fewest-residents")

    def __init__(self, *, max_residents: int = 4) -> None:
        if max_residents < 1:
            raise ConfigError(f"max_residents of time-slice must be 1 or more, found {max_residents}")
        self.max_residents = max_residents

    def _order(self) -> Order:
        return "spread"

    def _sharers(self, view: View) -> int:
        return min(self.max_residents, view.settings.max_sharers)
