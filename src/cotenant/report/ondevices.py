"""How long a job really held devices, beside the work it did there."""

from __future__ import annotations

from cotenant.model.quantities import format_duration

__all__ = ["OnDevices"]


class OnDevices:
    """Adds up the stays of one job on devices; only of real processes is anything told.

    Attributes
    ----------
    real : bool
        Whether the log says that its processes are real.
    """

    def __init__(self) -> None:
        self.real = False
        self._since_s: float | None = None
        self._before_s = 0.0

    def came(self, t: float) -> None:
        """It has devices from now on."""
        self._since_s = t

    def left(self, t: float) -> str:
        """It has them no more; how long it had, in words, to stand after its work.

        >>> stays = OnDevices()
        >>> stays.real = True
        >>> stays.came(10.0)
        >>> stays.left(70.0)
        ', 1m on its devices'
        >>> stays.came(100.0)
        >>> stays.left(130.0)
        ', 30s on its devices (1m 30s in all)'
        """
        if self._since_s is None:
            return ""
        lasted, self._since_s = max(t - self._since_s, 0.0), None
        words = self._words(lasted)
        self._before_s += lasted
        return f", {words}" if words else ""

    def now(self, t: float) -> str:
        """The same for one that has them still; empty if it has none."""
        return "" if self._since_s is None else self._words(max(t - self._since_s, 0.0))

    def _words(self, lasted_s: float) -> str:
        if not self.real:
            return ""
        before = f" ({format_duration(self._before_s + lasted_s)} in all)" if self._before_s else ""
        return f"{format_duration(lasted_s)} on its devices{before}"
