"""How a story names moments and devices: by the run's own time and numbers, or by the clock and their names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

__all__ = ["Telling", "now_telling", "told_live"]


class Telling(msgspec.Struct, frozen=True):
    """Of a machine that runs now.

    Parameters
    ----------
    wall : callable
        Seconds since 1970 of a moment of the log.
    now_s : float
        The present, in the log's time.
    device : callable
        What a device is called, by number.
    """

    wall: Callable[[float], float]
    now_s: float
    device: Callable[[int], str]

    def moment(self, t: float) -> str:
        """Time of day on this machine's clock; with the date, if it is another day's."""
        at, now = time.localtime(self.wall(t)), time.localtime(self.wall(self.now_s))
        return time.strftime("%H:%M:%S" if at[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", at)

    def devices(self, devices: tuple[int, ...]) -> str:
        """Their names."""
        return ", ".join(self.device(device) for device in devices) or "no device"


_TELLING: ContextVar[Telling | None] = ContextVar("telling", default=None)


def now_telling() -> Telling | None:
    """Whose story is told now; None: that of a run, by its own time and numbers."""
    return _TELLING.get()


@contextmanager
def told_live(
    wall: Callable[[float], float], now_s: float, device: Callable[[int], str]
) -> Iterator[Telling]:
    """Sentences made in this block are of a machine that runs now."""
    telling = Telling(wall, now_s, device)
    token = _TELLING.set(telling)
    try:
        yield telling
    finally:
        _TELLING.reset(token)
