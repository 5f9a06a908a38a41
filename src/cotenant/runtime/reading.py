"""Reading training data so that a resumed job goes on at the very next batch.

Three ways, by what the data are:

``order``
    A PyTorch ``DataLoader`` over a data set with indices. The order of the epoch is drawn when the epoch begins; a
    resumed job draws it again and leaves out what was read, without loading it. Random numbers that
    the data set draws (augmentation) are seeded for each sample from the epoch and its place, so
    they do not depend on how many workers load it, nor on what was read before.
``replay``
    Anything else that can be iterated: what was read is read again and dropped.
``stateful``
    An object with ``state_dict`` and ``load_state_dict``: it knows itself where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.errors import StateError
from cotenant.runtime import randomness
from cotenant.runtime.seeded import Keys, reordered

__all__ = ["Reading"]


class Reading:
    """One source of batches, and how far it has been read.

    Parameters
    ----------
    source : DataLoader, sampler, or any iterable
    random_data : bool
        The data set draws random numbers. False spares their seeding.

    Attributes
    ----------
    index : int
        Batches of the epoch handed out.
    waited_ns : int
        Time spent waiting for batches, in all.
    """

    def __init__(self, source: Any, *, random_data: bool = True) -> None:
        self.source = source
        self.index = 0
        self._keys: Keys | None = None
        self._loader: Any = source
        self._start: dict[str, Any] = {}
        if hasattr(source, "state_dict") and hasattr(source, "load_state_dict"):
            self.kind = "stateful"
        else:
            made = reordered(source, random_data)
            self.kind = "order" if made else "replay"
            if made:
                self._loader, self._keys = made

    @property
    def workers(self) -> int:
        """Processes that load data; 0 is the job's own."""
        return int(getattr(self.source, "num_workers", 0))

    # -- reading ---------------------------------------------------------------------

    def begin(self, epoch: int) -> Iterator[Any]:
        """Start an epoch."""
        self.index = 0
        self._start = {"random": randomness.capture(), "generators": self._generators()}
        return self._open(epoch, 0)

    def resume(self, saved: dict[str, Any], now: dict[str, Any]) -> Iterator[Any]:
        """Go on in the middle of an epoch, as ``state`` told it.

        Parameters
        ----------
        saved : dict
        now : dict
            Random states at the moment of saving; in force again when this returns.

        Raises
        ------
        StateError
            If the data are others than those that were read.
        """
        if saved["kind"] != self.kind:
            raise StateError(
                f"the data were read by way of {saved['kind']!r} before, now it would be {self.kind!r}: give the"
                " run the same kind of loader as when it was suspended"
            )
        self.index = saved["index"]
        if self.kind == "stateful":
            self.source.load_state_dict(saved["source"])
            iterator: Iterator[Any] = iter(self._loader)
        else:
            self._start = saved["start"]
            randomness.restore(self._start["random"])
            self._set_generators(self._start["generators"])
            iterator = self._open(saved["epoch"], self.index, saved.get("batches"))
        randomness.restore(now)
        self._set_generators(saved["generators"])
        return iterator

    def _open(self, epoch: int, skip: int, batches: int | None = None) -> Iterator[Any]:
        for sampler in self._samplers():
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        if self._keys is not None:
            self._keys.draw(self.source, skip)
            if batches is not None and batches != self._keys.batches:
                raise StateError(
                    f"an epoch had {batches} batches when the state was saved, now it has {self._keys.batches}: resume"
                    " with the same data set and batch size"
                )
            return iter(self._loader)
        iterator: Iterator[Any] = iter(self._loader)
        for number in range(skip if self.kind == "replay" else 0):
            if next(iterator, self) is self:
                raise StateError(
                    f"the data end after {number} batches of epoch {epoch}, but {skip} had been read when the state"
                    " was saved: resume with the same data"
                )
        return iterator

    # -- position --------------------------------------------------------------------

    def state(self, epoch: int) -> dict[str, Any]:
        """Where reading is, for ``resume``: numbers, text and tensors."""
        kept: dict[str, Any] = {
            "kind": self.kind,
            "epoch": epoch,
            "index": self.index,
            "workers": self.workers,
            "generators": self._generators(),
        }
        if self.kind == "stateful":
            kept["source"] = self.source.state_dict()
        else:
            kept["start"] = self._start
        if self._keys is not None:
            kept["batches"] = self._keys.batches
        return kept

    def changes(self, saved: dict[str, Any]) -> list[str]:
        """What makes a resumed run read other numbers than an undisturbed one."""
        if self.kind == "order" or saved["workers"] == self.workers:
            return []
        return [f"loader workers {saved['workers']} -> {self.workers}"]

    def _samplers(self) -> list[Any]:
        batched = getattr(self.source, "batch_sampler", None)
        inner = getattr(self.source, "sampler", None)
        nested = getattr(batched, "sampler", None)
        found: list[Any] = []
        for one in (self.source, batched, inner, nested):
            if one is not None and not any(one is other for other in found):
                found.append(one)
        return found

    def _owners(self) -> list[Any]:
        """Generators of loader and samplers, each once, in a fixed order."""
        found: list[Any] = []
        for one in self._samplers():
            generator = getattr(one, "generator", None)
            if hasattr(generator, "get_state") and not any(generator is other for other in found):
                found.append(generator)
        return found

    def _generators(self) -> list[Any]:
        return [generator.get_state() for generator in self._owners()]

    def _set_generators(self, states: list[Any]) -> None:
        for generator, state in zip(self._owners(), states, strict=False):
            generator.set_state(state)
