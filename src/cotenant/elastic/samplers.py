"""Samplers of the script's own: each epoch's order is drawn as a whole, the same in every process."""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from cotenant.elastic.hashing import of_value
from cotenant.elastic.sampling import Last, Loader, Mark, check_last
from cotenant.errors import InputError
from cotenant.runtime import randomness

__all__ = ["Sampled"]


class Sampled(Loader):
    """A data set with indices, of which a sampler says the order.

    Indices, or whole batches if it is a batch sampler, are dealt out in turn: number p of the epoch to
    logical worker p % N. Before an epoch is drawn Python's, NumPy's and PyTorch's generators, and the
    sampler's own if it is one of PyTorch, are seeded from the epoch; ``set_epoch`` is called if there is
    one. A sampler of another kind without ``set_epoch`` is drawn as often as there were epochs before.

    Parameters
    ----------
    dataset : Dataset
    sampler : iterable with ``__len__``
        Of indices, or of lists of them: of the whole epoch, not of the share of one process.
    batch_size : int or None
        Of one logical worker; None if the sampler gives batches.
    workers, seed, last, random_data, settings
        See ``Loader``. With batches, ``short`` gives some workers none at the last step, ``drop`` leaves
        these out, ``pad`` begins again at the first.

    Raises
    ------
    InputError
        If it cannot be elastic.
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Any,
        batch_size: int | None,
        workers: int,
        seed: int,
        *,
        last: Last = "short",
        random_data: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._batched, self._sampler = batch_size is None, sampler
        _check(sampler)
        check_last(last)
        super().__init__(
            dataset,
            1 if batch_size is None else batch_size,
            workers,
            seed,
            shuffle=False,
            random_data=random_data,
            settings=settings,
        )
        self._last = last
        self._known = _known(sampler)
        self._draws, self._digest = 0, 0
        self._drawn: list[Any] = []
        self._order: list[Any] = []
        self._draw(0)
        self._first = f"{type(sampler).__name__}, order {self._digest:08x} of epoch 0"
        if not self._order:
            raise InputError(
                f"sampler {type(sampler).__name__} gives {len(self._drawn)} {'batches' if self._batched else 'indices'}"
                f" in an epoch, which is no step: a step takes {self.batch_size} x {workers} workers"
            )

    @property
    def steps(self) -> int:
        """Steps of the epoch that was drawn last."""
        return self._steps_of(len(self._order))

    def total(self, epochs: int) -> int:
        """Steps of so many epochs, if all are as long as this one."""
        return epochs * self.steps

    def order(self, epoch: int) -> list[Any]:
        """What is dealt out in an epoch."""
        self._draw(epoch)
        return self._order

    def _sized(self, epoch: int) -> int:
        return len(self.order(epoch))

    def _draw(self, epoch: int) -> None:
        if self._draws == epoch + 1:
            return
        begin = epoch if self._known or hasattr(self._sampler, "set_epoch") else self._draws
        if begin > epoch:
            raise InputError(
                f"sampler {type(self._sampler).__name__} has been drawn for epoch {self._draws - 1} and cannot go back to"
                f" {epoch}: make a new one, or give it set_epoch"
            )
        with randomness.aside():
            for number in range(begin, epoch + 1):
                self._drawn = self._draw_one(number)
        self._draws = epoch + 1
        self._digest = _digest(self._drawn)
        size, whole = len(self._drawn), self.batch_size * self.workers
        if self._last == "drop":
            size -= size % whole
        elif self._last == "pad":
            size = -(-size // self.workers) * self.workers
        self._order = [self._drawn[place % len(self._drawn)] for place in range(size)]

    def _draw_one(self, epoch: int) -> list[Any]:
        seed = self._order_seed(epoch)
        randomness.seed_all(seed)
        inner: Any = getattr(self._sampler, "sampler", None)
        for one in (self._sampler, inner):
            if hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
            if self._known and getattr(one, "generator", None) is not None:
                one.generator.manual_seed(seed)
        said = len(self._sampler)
        found = list(itertools.islice(iter(self._sampler), said + 1))
        if len(found) > said:
            raise InputError(
                f"sampler {type(self._sampler).__name__} says that it has {said} in an epoch, and gives more: its"
                " __len__ must be right, for an epoch without end give a stream"
            )
        return (
            [[_index(one) for one in batch] for batch in found]
            if self._batched
            else [_index(one) for one in found]
        )

    def keys(self, epoch: int, step: int, mine: Sequence[int]) -> Iterator[list[Any]]:
        """What is read for these workers from a step on: step by step, worker by worker; no empty lists."""
        if not self._batched:
            yield from super().keys(epoch, step, mine)
            return
        order, seed = self.order(epoch), randomness.mix(self._order_seed(epoch), 0, 1)
        for number, worker in itertools.product(range(step, self._steps_of(len(order))), mine):
            place = number * self.workers + worker
            if place < len(order) and self._random_data:
                own = randomness.mix(seed, place, 0)
                yield [(randomness.mix(own, n, 0), index) for n, index in enumerate(order[place])]
            elif place < len(order):
                yield order[place]

    def _mark(self, epoch: int, marks: Sequence[Mark]) -> Mark:
        mark = {"epoch": epoch, "order": self._digest}
        self._compare([mark, *marks], epoch)
        return mark

    def check(self, epoch: int, step: int, marks: Sequence[Mark]) -> None:
        """See that all workers had the same order.

        Raises
        ------
        InputError
        """
        self._compare(marks, epoch)

    def _compare(self, marks: Sequence[Mark], epoch: int) -> None:
        orders = sorted({mark["order"] for mark in marks if mark.get("epoch") == epoch})
        if len(orders) > 1:
            raise InputError(
                f"sampler {type(self._sampler).__name__} drew different orders of epoch {epoch} in different processes:"
                f" {', '.join(f'{order:08x}' for order in orders)}; it must draw from PyTorch's, NumPy's or Python's"
                " global generators, which are seeded for it, or from set_epoch, and from nothing that differs between"
                " processes (time, process id, order of files or of sets)"
            )

    def identity(self) -> dict[str, str]:
        """What decides which sample is read when."""
        own = {"sampler": self._first}
        if self._batched:
            own["batch size of a worker"] = "the sampler's"
        return super().identity() | own


def _index(index: Any) -> Any:
    return index.item() if hasattr(index, "item") and not getattr(index, "shape", None) else index


def _digest(order: list[Any]) -> int:
    try:
        return zlib.crc32(array("q", order).tobytes())
    except TypeError:
        return of_value(order)


def _known(sampler: Any) -> bool:
    """Whether its order follows from the generators alone."""
    from torch.utils import data

    plain = (data.RandomSampler, data.SequentialSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
    return type(sampler) in plain or (type(sampler) is data.BatchSampler and type(sampler.sampler) in plain)


def _check(sampler: Any) -> None:
    name = type(sampler).__name__
    for one in (sampler, getattr(sampler, "sampler", None)):
        parts = getattr(one, "num_replicas", 1) or 1
        if parts > 1:
            raise InputError(
                f"sampler {type(one).__name__} gives the share of one process of {parts}: a run deals out itself, give it"
                " a sampler of the whole epoch (without a DistributedSampler it shuffles by itself)"
            )
    if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
        raise InputError(
            f"sampler {name} cannot be elastic: it needs __iter__ and __len__; for an epoch without end give a stream"
        )
