"""An existing ``DataLoader``, with its ``DistributedSampler``, as the data of a run: the same samples to each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cotenant.elastic.samplers import Sampled
from cotenant.elastic.sampling import Loader, Mark
from cotenant.errors import InputError

__all__ = ["AdoptedLoader", "adopt", "distributed"]

_SAME = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")


class AdoptedLoader(Loader):
    """Deals out samples as ``DistributedSampler`` of N processes does.

    Parameters
    ----------
    loader : DataLoader
    workers : int
    seed : int
        For what samples draw, and for the order if the loader has no ``DistributedSampler``.
    random_data : bool
        See ``Loader``.

    Attributes
    ----------
    on_turn : callable, optional
        Given the logical worker and its batch when its turn begins; what it returns is what the script gets.
    more : dict of str to str
        For the run's identity.
    """

    def __init__(self, loader: Any, workers: int, seed: int, *, random_data: bool) -> None:
        shuffle, self._sampler_seed, uneven = _read_sampler(loader, workers)
        self.on_turn: Callable[[int, Any], Any] | None = None
        self.more: dict[str, str] = {}
        super().__init__(
            loader.dataset,
            loader.batch_size,
            workers,
            seed,
            shuffle=shuffle,
            last="pad",
            random_data=random_data,
            settings=_settings(loader),
        )
        samples = len(loader.dataset)
        each = samples // workers if uneven == "drop" else -(-samples // workers)
        if loader.drop_last:
            each -= each % loader.batch_size
        self._size = each * workers
        self._last_of = f"{uneven} samples, {'drop' if loader.drop_last else 'short'} batch"
        if each < 1:
            raise InputError(
                f"data set of {samples} samples gives no step: a step takes {loader.batch_size} x {workers} workers,"
                " and the loader drops what is left over"
            )

    def _order_seed(self, epoch: int) -> int:
        # As DistributedSampler.set_epoch(epoch) has it.
        return super()._order_seed(epoch) if self._sampler_seed is None else self._sampler_seed + epoch

    def identity(self) -> dict[str, str]:
        """What decides which sample is read when."""
        seed = "none" if self._sampler_seed is None else str(self._sampler_seed)
        return super().identity() | {"last batch": self._last_of, "sampler's seed": seed} | self.more

    def open(
        self, epoch: int, step: int, mine: Sequence[int], marks: Sequence[Mark]
    ) -> Iterator[tuple[Any, Mark]]:
        """See ``Loader``."""
        batches = super().open(epoch, step, mine, marks)
        if self.on_turn is None:
            return batches
        turns = (worker for n in range(step, self.steps) for worker in mine if self.count(n, worker))
        return (
            (self.on_turn(worker, batch), mark) for worker, (batch, mark) in zip(turns, batches, strict=True)
        )


def _settings(loader: Any) -> dict[str, Any]:
    settings = {name: getattr(loader, name) for name in _SAME}
    return settings | ({"prefetch_factor": loader.prefetch_factor} if loader.num_workers else {})


def distributed(loader: Any, workers: int, seed: int) -> Any:
    """The same ``DataLoader`` with a ``DistributedSampler``, if it has none.

    Raises
    ------
    InputError
    """
    from torch.utils import data

    _check(loader)
    if not _plain(loader.sampler) or type(loader.batch_sampler) is not data.BatchSampler:
        raise InputError(
            f"sampler {type(loader.sampler).__name__} or batch_sampler {type(loader.batch_sampler).__name__} cannot be kept:"
            " samples are dealt out by a DistributedSampler here; use one, or shuffle=True or False, or run.adopt() without"
            " Fabric"
        )
    shuffle, _, _ = _read_sampler(loader, workers)
    if type(loader.sampler) is data.DistributedSampler:
        return loader
    sampler: Any = data.DistributedSampler(loader.dataset, workers, 0, shuffle=shuffle, seed=seed)
    return data.DataLoader(
        loader.dataset, loader.batch_size, sampler=sampler, drop_last=loader.drop_last, **_settings(loader)
    )


def _read_sampler(loader: Any, workers: int) -> tuple[bool, int | None, str]:
    """Whether it shuffles, the seed if it is DDP's, and what is done with samples that do not divide."""
    from torch.utils import data

    sampler = loader.sampler
    if type(sampler) is data.DistributedSampler:
        if sampler.num_replicas != workers:
            raise InputError(
                f"DistributedSampler deals out to {sampler.num_replicas} processes, the run has {workers} logical"
                " workers: DistributedSampler(dataset, run.workers, 0, ...)"
            )
        return sampler.shuffle, sampler.seed, "drop" if sampler.drop_last else "pad"
    return type(sampler) is data.RandomSampler, None, "pad"


def adopt(loader: Any, workers: int, seed: int, *, random_data: bool = True) -> Loader:
    """See ``AdoptedLoader``; with a sampler of another kind, or a batch sampler, ``Sampled``.

    What is left over is then filled up from the epoch's beginning, so that all workers have as much, or left
    out if the loader has ``drop_last``.

    Raises
    ------
    InputError
        If the loader has something that would be lost: a stream, or a sampler of several processes.
    """
    from torch.utils import data

    _check(loader)
    batched = type(loader.batch_sampler) is not data.BatchSampler
    if not batched and _plain(loader.sampler):
        return AdoptedLoader(loader, workers, seed, random_data=random_data)
    return Sampled(
        loader.dataset,
        loader.batch_sampler if batched else loader.sampler,
        None if batched else loader.batch_size,
        workers,
        seed,
        last="drop" if loader.drop_last else "pad",
        random_data=random_data,
        settings=_settings(loader),
    )


def _plain(sampler: Any) -> bool:
    """Whether the run deals out as this sampler says by itself."""
    from torch.utils import data

    if type(sampler) is data.RandomSampler:
        return not sampler.replacement and sampler._num_samples is None
    return type(sampler) in (data.DistributedSampler, data.SequentialSampler)


def _check(loader: Any) -> None:
    from torch.utils import data

    if type(loader) is not data.DataLoader:
        raise InputError(
            f"loader is a {type(loader).__name__}: it must be torch.utils.data.DataLoader itself, what a subclass adds"
            " would be lost"
        )
    if isinstance(loader.dataset, data.IterableDataset):
        raise InputError(
            f"data set {type(loader.dataset).__name__} is a stream: give run.prepare() a function that makes the stream of"
            " each logical worker, see docs/elastic-data.md"
        )
    if loader.batch_sampler is None:
        raise InputError("loader without batches (batch_size=None): give batch_size=, or batch_sampler=")
    if loader.persistent_workers:
        raise InputError(
            "persistent_workers=True cannot be kept: loader workers start anew when processes come and go; leave it out"
        )
