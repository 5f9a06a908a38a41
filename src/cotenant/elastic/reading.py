"""One logical worker's stream: read from a mark on, a batch at a time, and a look at what comes next."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.elastic.hashing import of_value
from cotenant.elastic.sampling import Mark
from cotenant.errors import StateError
from cotenant.runtime import contents, randomness

__all__ = ["Reader"]

_END: Any = object()
_PLAIN = (bool, int, float, complex, str, bytes)


class Reader:
    """Reads a stream that has just been made.

    Before each sample the generators of Python, NumPy and PyTorch are seeded from the sample's number, so
    what a stream draws depends on nothing else, also when it is read again.

    Parameters
    ----------
    stream : iterable
    name : str
        For messages.
    mark : Mark
        ``taken`` samples have been used, ``more`` says that there are more, ``next`` is the digest of the
        next one, ``state`` what the stream said of itself then, by who said it: ``iterator`` or ``stream``.
    seed : int or None
        None seeds nothing.
    size, ahead : int
        Samples of a batch, and how many there must be for another batch.

    Raises
    ------
    StateError
        From ``batches``: if the stream does not go on as it did before.
    """

    def __init__(
        self, stream: Any, name: str, mark: Mark, *, seed: int | None, size: int, ahead: int
    ) -> None:
        self._stream, self._name, self._mark = stream, name, mark
        self._seed, self._size, self._ahead = seed, size, ahead
        self._read = 0
        self._iterator: Any = None

    def batches(self) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """Samples and the mark after them, until there are no more; once no samples if there are none at all."""
        self._begin()
        taken = self._mark["taken"]
        ahead = self._take(self._ahead)
        if taken:
            self._compare(ahead)
        if len(ahead) < self._ahead:
            yield [], self._marked(taken, False, [], None)
            return
        more, checked = True, False
        while more:
            samples = ahead + self._take(self._size - len(ahead))
            taken += len(samples)
            state = self._state()
            if not checked:
                # When the state is to be loaded it is too late.
                contents.check_loadable(state, self._name)
                checked = True
            ahead = self._take(self._ahead)
            more = len(ahead) == self._ahead
            yield samples, self._marked(taken, more, ahead, state)

    def _marked(self, taken: int, more: bool, ahead: list[Any], state: Any) -> dict[str, Any]:
        following = of_value(_plain(ahead[0])) if more else None
        return {
            "epoch": self._mark["epoch"],
            "taken": taken,
            "more": more,
            "next": following,
            "state": state if more else None,
        }

    def _begin(self) -> None:
        state = self._mark["state"]
        self._seeded(0)
        if state is not None and "stream" in state:
            self._put(self._stream, state["stream"])
        self._iterator = iter(self._stream)
        if state is not None and "iterator" in state:
            self._put(self._iterator, state["iterator"])
        if state is not None:
            self._read = self._mark["taken"]
        while self._read < self._mark["taken"]:
            if not self._take(1):
                self._parted(f"it has ended after {self._read} samples, {self._mark['taken']} had been taken")

    def _put(self, one: Any, state: Any) -> None:
        if not hasattr(one, "load_state_dict"):
            self._parted(f"its {type(one).__name__} had a state, and has no load_state_dict now")
        one.load_state_dict(randomness.rebuilt(state))

    def _take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            self._seeded(self._read + 1)
            sample = next(self._iterator, _END)
            if sample is _END:
                break
            self._read += 1
            found.append(sample)
        return found

    def _seeded(self, place: int) -> None:
        if self._seed is not None:
            randomness.seed_all(randomness.mix(self._seed, place, 1))

    def _state(self) -> dict[str, Any] | None:
        """Taken down at once: a stream may go on to change what it gave."""
        for name, one in (("iterator", self._iterator), ("stream", self._stream)):
            if hasattr(one, "state_dict") and hasattr(one, "load_state_dict"):
                return {name: copy.deepcopy(randomness.plain(one.state_dict()))}
        return None

    def _compare(self, ahead: list[Any]) -> None:
        taken = self._mark["taken"]
        if len(ahead) < self._ahead:
            self._parted(f"it had more than {taken} samples, and has ended now")
        if of_value(_plain(ahead[0])) != self._mark["next"]:
            self._parted(f"sample {taken} (from 0) is another one than before")

    def _parted(self, how: str) -> None:
        way = (
            "it has no state_dict, so it was read again from its beginning: that must give the same samples every time"
            if self._mark["state"] is None
            else "its state_dict, taken after a sample, must lead to the sample after that: count before yield"
        )
        raise StateError(
            f"{self._name} does not go on where it was, in epoch {self._mark['epoch']}: {how}; {way}"
        )


def _plain(value: Any) -> Any:
    """What can be compared between processes: numbers, text, tensors and arrays; of others the type."""
    import torch

    if value is None or isinstance(value, _PLAIN) or torch.is_tensor(value):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
        return value
    return type(value).__name__
