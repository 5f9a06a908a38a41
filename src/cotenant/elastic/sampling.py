"""Which samples a logical worker reads at a step: from (seed, epoch, step, worker) and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from cotenant.errors import InputError
from cotenant.runtime import randomness
from cotenant.runtime.seeded import SeededData

__all__ = ["NOTHING", "Data", "Last", "Loader", "Mark", "check_last"]

Last = Literal["short", "pad", "drop"]
Mark = Mapping[str, Any]
"""What a logical worker's context says of its data: ``epoch``, and what else its kind of data needs."""
NOTHING: Any = type("Nothing", (), {})
"""Read instead of a batch: the worker's data has ended."""
_ORDER, _SAMPLE = 1, 2


class Data(ABC):
    """The data of a run, of whatever kind; made by ``Run.prepare``."""

    counted = True
    """How many steps an epoch has is known when it begins."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of one epoch.

        Raises
        ------
        InputError
            If nobody knows.
        """

    def total(self, epochs: int) -> int:
        """Steps of so many epochs; 0 if nobody knows."""
        return epochs * self.steps

    @abstractmethod
    def live(self, epoch: int, step: int, worker: int, mark: Mark) -> bool:
        """Whether a worker may have samples at a step of an epoch, as far as its mark says."""

    @abstractmethod
    def over(self, epoch: int, step: int, marks: Sequence[Mark]) -> bool:
        """Whether an epoch is over when so many of its steps are done; marks are those of all workers."""

    @abstractmethod
    def open(
        self, epoch: int, step: int, mine: Sequence[int], marks: Sequence[Mark]
    ) -> Iterator[tuple[Any, Mark]]:
        """From a step on, for these workers in turn as long as they are live: batch, and the mark after it.

        Parameters
        ----------
        epoch, step : int
        mine : sequence of int
        marks : sequence of Mark
            Of all workers. Nothing may be left in the process's generators by what is read.
        """

    def check(self, epoch: int, step: int, marks: Sequence[Mark]) -> None:  # noqa: B027 - nothing by default
        """After the turns of a step, before its gradient is applied: see that all processes read the same data.

        Raises
        ------
        InputError
        """

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What decides which sample is read when."""


class Loader(Data):
    """A data set with indices.

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
                f"data set {type(dataset).__name__} cannot be elastic: it needs __len__ and __getitem__; of a"
                " stream give a function of the logical worker: run.prepare(model, lambda worker: Stream(worker), ...)"
            )
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: it must be at least 1")
        check_last(last)
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
        return self._steps_of(self._size)

    def _steps_of(self, size: int) -> int:
        return -(-size // (self.batch_size * self.workers))

    def _sized(self, epoch: int) -> int:
        """Samples that are dealt out in an epoch."""
        del epoch
        return self._size

    def count(self, step: int, worker: int, epoch: int = 0) -> int:
        """Samples of a worker at a step of an epoch."""
        mine = (self._sized(epoch) - worker + self.workers - 1) // self.workers
        return max(0, min(self.batch_size, mine - step * self.batch_size))

    def live(self, epoch: int, step: int, worker: int, mark: Mark) -> bool:
        """Whether a worker has samples at a step of an epoch."""
        del mark
        return self.count(step, worker, epoch) > 0

    def over(self, epoch: int, step: int, marks: Sequence[Mark]) -> bool:
        """Whether an epoch is over when so many of its steps are done."""
        del marks
        return step >= self._steps_of(self._sized(epoch))

    def order(self, epoch: int) -> list[Any]:
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
        for number in range(step, self._steps_of(len(order))):
            for worker in mine:
                count = self.count(number, worker, epoch)
                first = number * self.batch_size
                places = [(first + n) * self.workers + worker for n in range(count)]
                if places and self._random_data:
                    yield [(randomness.mix(seed, place, order[place]), order[place]) for place in places]
                elif places:
                    yield [order[place] for place in places]

    def open(
        self, epoch: int, step: int, mine: Sequence[int], marks: Sequence[Mark]
    ) -> Iterator[tuple[Any, Mark]]:
        """Batches for these workers from a step on."""
        from torch import Generator
        from torch.utils.data import DataLoader

        generator = Generator().manual_seed(randomness.mix(self._seed, epoch, 0))
        data = _Samples(self.dataset) if self._random_data else self.dataset
        batches = list(self.keys(epoch, step, mine))
        mark = self._mark(epoch, marks)
        loader = DataLoader(data, batch_sampler=batches, generator=generator, **self._settings)
        return ((batch, mark) for batch in loader)

    def _mark(self, epoch: int, marks: Sequence[Mark]) -> Mark:
        del epoch, marks
        return {}

    def identity(self) -> dict[str, str]:
        """What decides which sample is read when."""
        return {
            "samples": str(len(self.dataset)),
            "batch size of a worker": str(self.batch_size),
            "shuffle": str(self._shuffle),
            "last batch": self._last,
            "random data": str(self._random_data),
        }


def check_last(last: str) -> None:
    """See that it is one of ``Last``.

    Raises
    ------
    InputError
    """
    if last not in ("short", "pad", "drop"):
        raise InputError(f"last is {last!r}: it must be short, pad or drop")


class _Samples(SeededData):
    """Seeds before each sample; nothing is put back, as no worker's context is in place meanwhile."""

    def __getitems__(self, keys: list[tuple[int, Any]]) -> Any:
        return self._load(keys)
