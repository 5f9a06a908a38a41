"""A loader that knows its place, for frameworks that save loaders with ``state_dict``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.runtime import randomness
from cotenant.runtime.reading import Reading

__all__ = ["Resumable"]


class Resumable:
    """A ``DataLoader``, or any iterable, with ``state_dict`` and ``load_state_dict``.

    Each iteration is one epoch. After ``load_state_dict`` the first one goes on behind the last
    batch that had been handed out, with the same order and the same random numbers for each sample.

    Parameters
    ----------
    source : DataLoader or iterable
    random_data : bool
        The data set draws random numbers (augmentation).

    Examples
    --------
    >>> data = Resumable([1, 2, 3])
    >>> first = iter(data)
    >>> next(first), next(first)
    (1, 2)
    >>> again = Resumable([1, 2, 3])
    >>> again.load_state_dict(data.state_dict())
    >>> list(again), list(again)
    ([3], [1, 2, 3])
    """

    def __init__(self, source: Any, *, random_data: bool = True) -> None:
        self.source = source
        self._reading = Reading(source, random_data=random_data)
        self._epoch = -1
        self._pending: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._epoch = pending["data"]["epoch"]
            batches = self._reading.resume(pending["data"], pending["random"])
        else:
            self._epoch += 1
            batches = self._reading.begin(self._epoch)
        return self._counted(batches)

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._reading.index += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Where reading is: numbers, text and tensors."""
        if self._pending is not None:
            return self._pending
        return {"data": self._reading.state(max(self._epoch, 0)), "random": randomness.capture()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there at the next iteration."""
        self._pending = state
