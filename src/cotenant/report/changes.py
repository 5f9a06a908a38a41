"""What a move or another share did to a job's speed: told when the log tells it."""

from __future__ import annotations

from cotenant.model import events as ev

__all__ = ["Changes"]


class Changes:
    """Remembers the speed before the last change, until the speed after it is known."""

    def __init__(self) -> None:
        self._since_s = -1.0
        self._before = 0.0
        self._loads = False

    def changed(self, event: ev.Moved | ev.Resized, rate: float | None) -> None:
        """A job was moved or resized; ``rate`` is its speed until then."""
        self._since_s, self._loads = (-1.0 if rate is None else event.t), False
        self._before = rate or 0.0

    def measured(self, event: ev.Rated) -> str:
        """One sentence with both speeds, once the job works again; else empty."""
        since_s = self._since_s
        if since_s < 0.0:
            return ""
        if event.rate <= 0.0:
            self._loads = self._loads or event.t == since_s
            return ""
        self._since_s = -1.0
        if event.t > since_s and not self._loads:
            return ""  # the change did nothing to its speed; what happened now has another cause
        waited = f" after {event.t - since_s:.4g} s of saving and loading" if event.t > since_s else ""
        return f"Measured: speed {event.rate:.4g}{waited}; it was {self._before:.4g} before the change."
