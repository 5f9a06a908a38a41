"""Which kind of data a script has given."""

from __future__ import annotations

from typing import Any

from cotenant.elastic.samplers import Sampled
from cotenant.elastic.sampling import Data, Last, Loader
from cotenant.elastic.settings import whole
from cotenant.elastic.streams import Streams
from cotenant.errors import InputError

__all__ = ["source"]


def source(
    dataset: Any,
    batch_size: int | None,
    workers: int,
    seed: int,
    *,
    shuffle: bool,
    last: Last,
    random_data: bool,
    sampler: Any,
    batch_sampler: Any,
    settings: dict[str, Any],
) -> Data:
    """Indices, indices in a sampler's order, or streams; parameters as those of ``Run.prepare``.

    Raises
    ------
    InputError
    """
    batch_size = _sized(batch_size, sampler, batch_sampler)
    _refuse_one(dataset, workers)
    own: dict[str, Any] = {"last": last, "random_data": random_data, "settings": settings}
    order = batch_sampler if sampler is None else sampler
    if callable(dataset) and (isinstance(dataset, type) or not hasattr(dataset, "__getitem__")):
        if order is not None:
            raise InputError(
                "a sampler does not go with streams, which have an order of their own: leave it out"
            )
        return Streams(dataset, batch_size or 0, workers, seed, **own)
    if order is not None:
        return Sampled(dataset, order, batch_size, workers, seed, **own)
    return Loader(dataset, batch_size or 0, workers, seed, shuffle=shuffle, **own)


def _sized(batch_size: Any, sampler: Any, batch_sampler: Any) -> int | None:
    """Samples of a batch; None if a batch sampler says it."""
    if sampler is not None and batch_sampler is not None:
        raise InputError("sampler and batch_sampler: give one of them")
    if batch_sampler is None and batch_size is None:
        raise InputError("batch_size, of one logical worker, is missing")
    if batch_sampler is None:
        return whole("batch_size", batch_size, 1)
    if batch_size is not None:
        raise InputError(
            f"batch_size={batch_size} with a batch_sampler, which says it itself: leave batch_size out"
        )
    return None


def _refuse_one(dataset: Any, workers: int) -> None:
    """One stream for all workers is of no use."""
    from torch.utils.data import IterableDataset

    stream = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__")
    if isinstance(dataset, type) or not stream or not hasattr(dataset, "__iter__"):
        return
    name = type(dataset).__name__
    if hasattr(dataset, "__next__"):
        raise InputError(
            f"data set {name} can be read only once, by one reader: give a function that makes a stream for each of the"
            f" {workers} logical workers, run.prepare(model, lambda worker: Stream(worker, {workers}), ...), Stream being"
            " an IterableDataset or a class of your own whose __iter__ begins anew"
        )
    raise InputError(
        f"data set {name} is one stream, for {workers} logical workers: give a function that makes the stream of each,"
        f" run.prepare(model, lambda worker: {name}(worker, {workers}), ...), which for example reads every {workers}th"
        " file or sample from number worker on"
    )
