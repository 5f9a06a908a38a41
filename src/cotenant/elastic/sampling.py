"""Which samples a logical worker reads at a step: from (seed, epoch, step, worker) and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from cotenant.errors import InputError
from cotenant.runtime import randomness
from cotenant.runtime.seeded import SeededData

__all__ = ["Last", "Loader"]

Last = Literal["short", "pad", "drop"]
_ORDER, _SAMPLE = 1, 2


class Loader:
    """The data of a run; made by ``Run.prepare``.

    Worker w reads samples w, w + N, w + 2N, ... of the epoch's order, as PyTorch's
    ``DistributedSampler`` deals them out. Whatever a sample draws is seeded from its epoch and place.

    Parameters
    ----------
    dataset : Dataset with ``__len__`` and ``__getitem__``
    batch_size : int
        Of one logical worker.
    workers : int
        Logical workers, N.
    seed : int
    shuffle : bool
    last : "short", "pad" or "drop"
        What is left over at the end of an epoch makes smaller batches (a worker may have none, its
        gradient is zero), or is filled up from the epoch's beginning, or is left out.
    random_data : bool
        The data set draws random numbers; False spares their seeding.
    settings : dict
        Passed on to ``DataLoader``: num_workers, collate_fn, pin_memory, ...

    Raises
    ------
    InputError
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        workers: int,
        seed: int,
        *,
        shuffle: bool = True,
        last: Last = "short",
        random_data: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise InputError(
                f"data set {type(dataset).__name__} cannot be elastic: it needs __len__ and __getitem__ (streams are"
                " not supported)"
            )
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: it must be at least 1")
        if last not in ("short", "pad", "drop"):
            raise InputError(f"last is {last!r}: it must be short, pad or drop")
        self.dataset, self.batch_size, self.workers = dataset, batch_size, workers
        self._seed, self._shuffle, self._last = seed, shuffle, last
        self._random_data, self._settings = random_data, dict(settings or {})
        size, whole = len(dataset), batch_size * workers
        self._size = size - size % whole if last == "drop" else size
        if last == "pad":
            self._size = -(-size // workers) * workers
        if self._size < 1:
            raise InputError(
                f"data set of {size} samples gives no step: a step takes {batch_size} x {workers} workers"
            )

    @property
    def steps(self) -> int:
        """Steps of one epoch."""
        return -(-self._size // (self.batch_size * self.workers))

    def count(self, step: int, worker: int) -> int:
        """Samples of a worker at a step of an epoch."""
        mine = (self._size - worker + self.workers - 1) // self.workers
        return max(0, min(self.batch_size, mine - step * self.batch_size))

    def order(self, epoch: int) -> list[int]:
        """Indices of an epoch in the order in which they are dealt out."""
        import torch

        size = len(self.dataset)
        order = list(range(size))
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._order_seed(epoch))
            order = torch.randperm(size, generator=generator).tolist()
        return [order[place % size] for place in range(self._size)]

    def _order_seed(self, epoch: int) -> int:
        return randomness.mix(self._seed, epoch, _ORDER)

    def keys(self, epoch: int, step: int, mine: Sequence[int]) -> Iterator[list[Any]]:
        """What is read for these workers from a step on: step by step, worker by worker; no empty lists."""
        order = self.order(epoch)
        seed = randomness.mix(self._seed, epoch, _SAMPLE)
        for number in range(step, self.steps):
            for worker in mine:
                count = self.count(number, worker)
                first = number * self.batch_size
                places = [(first + n) * self.workers + worker for n in range(count)]
                if places and self._random_data:
                    yield [(randomness.mix(seed, place, order[place]), order[place]) for place in places]
                elif places:
                    yield [order[place] for place in places]

    def open(self, epoch: int, step: int, mine: Sequence[int]) -> Iterator[Any]:
        """Batches for these workers from a step on; draws nothing from the process's generators."""
        from torch import Generator
        from torch.utils.data import DataLoader

        generator = Generator().manual_seed(randomness.mix(self._seed, epoch, 0))
        data = _Samples(self.dataset) if self._random_data else self.dataset
        batches = list(self.keys(epoch, step, mine))
        return iter(DataLoader(data, batch_sampler=batches, generator=generator, **self._settings))

    def identity(self) -> dict[str, str]:
        """What decides which sample is read when."""
        return {
            "samples": str(len(self.dataset)),
            "batch size of a worker": str(self.batch_size),
            "shuffle": str(self._shuffle),
            "last batch": self._last,
            "random data": str(self._random_data),
        }


class _Samples(SeededData):
    """Seeds before each sample; nothing is put back, as no worker's context is in place meanwhile."""

    def __getitems__(self, keys: list[tuple[int, Any]]) -> Any:
        return self._load(keys)
