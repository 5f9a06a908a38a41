"""A ``DataLoader`` like a given one, whose order is known and whose samples have seeds of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from cotenant.runtime import randomness

__all__ = ["Keys", "SeededData", "reordered"]


class Keys:
    """The order of one epoch, drawn as a whole; takes the place of the loader's sampler.

    Attributes
    ----------
    batches : int
        In the epoch.
    """

    def __init__(self, seeded: bool, generator: Any) -> None:
        self._seeded, self._generator = seeded, generator
        self._order: list[Any] = []
        self._seed = self._skip = 0
        self.batches = 0

    def draw(self, loader: Any, skip: int) -> None:
        """Draw the order of an epoch as the loader itself would; begin after ``skip`` batches."""
        import torch

        draw = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        self._seed, self._skip = int(draw.item()), skip
        self._generator.manual_seed(self._seed)
        sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        self._order = list(sampler)
        self.batches = len(self._order)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        for number in range(self._skip, self.batches):
            found = self._order[number]
            if not self._seeded:
                yield found
            elif isinstance(found, list):
                seeds = (randomness.mix(self._seed, number, place) for place in range(len(found)))
                yield list(zip(seeds, found, strict=True))
            else:
                yield randomness.mix(self._seed, number, 0), found


class SeededData:
    """A data set that is asked for (seed, index) and seeds the generators before it answers.

    In the job's own process the generators are put back afterwards, so that loading data there
    leaves the training's random numbers alone, as it does with workers.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        # Workers look at attributes of their data set (worker_init_fn); unpickling asks before any are there.
        if name == "dataset" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: list[tuple[int, Any]]) -> Any:
        if _in_worker():
            return self._load(keys)
        with randomness.aside():
            return self._load(keys)

    def _load(self, keys: list[tuple[int, Any]]) -> Any:
        several = getattr(self.dataset, "__getitems__", None)
        if several is not None:
            randomness.seed_all(keys[0][0])
            return several([index for _, index in keys])
        found = []
        for seed, index in keys:
            randomness.seed_all(seed)
            found.append(self.dataset[index])
        return found


def _in_worker() -> bool:
    return sys.modules["torch"].utils.data.get_worker_info() is not None


def reordered(loader: Any, random_data: bool) -> tuple[Any, Keys] | None:
    """A loader like this one that reads by ``Keys``; None if it is no plain loader over indices.

    Subclasses of ``DataLoader`` are left alone: what they add cannot be rebuilt.
    """
    data = sys.modules["torch"].utils.data if "torch" in sys.modules else None
    if data is None or type(loader) is not data.DataLoader:
        return None
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    if isinstance(loader.dataset, data.IterableDataset) or not hasattr(sampler, "__len__"):
        return None
    import torch

    own = torch.Generator()
    keys = Keys(random_data, own)
    same = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    settings = {name: getattr(loader, name) for name in (*same, "persistent_workers")}
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
    if loader.batch_sampler is None:
        settings |= {"batch_size": None, "sampler": keys}
    else:
        settings["batch_sampler"] = keys
    dataset = SeededData(loader.dataset) if random_data else loader.dataset
    return data.DataLoader(dataset, generator=own, **settings), keys
