"""Data without indices: a stream for each logical worker, which goes on where it was on any number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from cotenant.elastic.reading import Reader
from cotenant.elastic.sampling import NOTHING, Data, Last, Mark
from cotenant.errors import InputError
from cotenant.runtime import randomness

__all__ = ["Streams"]

_PARTED = ("sampler", "batch_sampler", "drop_last", "persistent_workers", "generator")


class Streams(Data):
    """A stream for each logical worker.

    How far each is, and what its ``state_dict`` says, is part of the worker's context: it travels with the
    worker, and is in checkpoints. A stream without ``state_dict`` is read again from its beginning, as many
    samples as were taken. One sample more is read than is used, so that its end is known at the step before.

    Parameters
    ----------
    make : callable
        Given a logical worker's number, a new stream of its samples: an ``IterableDataset``, or anything
        else that begins anew with every ``iter``. If it has ``set_epoch``, that is called first.
    batch_size : int
        Of one logical worker.
    workers : int
        Logical workers, N.
    seed : int
    last : "short" or "drop"
        An epoch ends when all streams have ended (a worker whose stream is over has a zero gradient), or
        before the first step for which one of them has no full batch.
    random_data : bool
        The streams draw random numbers; False spares their seeding.
    settings : dict
        Passed on to ``DataLoader``: num_workers (processes that read, at most one for each logical
        worker), collate_fn, pin_memory, ...

    Raises
    ------
    InputError
        If it cannot be elastic.
    """

    counted = False

    def __init__(
        self,
        make: Callable[[int], Any],
        batch_size: int,
        workers: int,
        seed: int,
        *,
        last: Last = "short",
        random_data: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: it must be at least 1")
        if last not in ("short", "drop"):
            raise InputError(f"last is {last!r}: for streams it must be short or drop")
        settings = dict(settings or {})
        for name in _PARTED:
            if settings.pop(name, None):
                raise InputError(f"{name} does not go with streams: leave it out")
        self._make, self.batch_size, self.workers, self._seed = make, batch_size, workers, seed
        self._last, self._random_data = last, random_data
        self._readers = int(settings.pop("num_workers", 0))
        self._collate, self._settings = settings.pop("collate_fn", None), settings
        with randomness.aside():
            made = [self._stream(0), self._stream(0), *([self._stream(1)] if workers > 1 else [])]
        if len({id(stream) for stream in made}) < len(made):
            raise InputError(
                "the function of the logical worker gave the same stream twice: it must make a new one whenever it is"
                " called, as several are read at once"
            )
        self._name = type(made[0]).__name__

    def _stream(self, worker: int) -> Any:
        from torch.utils.data import IterableDataset

        stream = self._make(worker)
        what = f"the function of the logical worker gave a {type(stream).__name__}"
        if not hasattr(stream, "__iter__"):
            raise InputError(
                f"{what}: it must give something that can be iterated, an IterableDataset for example"
            )
        known = isinstance(stream, IterableDataset) or hasattr(stream, "load_state_dict")
        if hasattr(stream, "__next__") and not known:
            raise InputError(
                f"{what}, which can be read only once: give an IterableDataset, or a class of your own, whose __iter__"
                " begins anew; or one with state_dict and load_state_dict"
            )
        return stream

    @property
    def steps(self) -> int:
        """Not known."""
        raise InputError(
            "how many steps an epoch of streams has is known when it is over: give a scheduler a number of your own,"
            " and end with run.steps(loader, steps=...)"
        )

    def total(self, epochs: int) -> int:
        """Not known."""
        return 0

    def live(self, epoch: int, step: int, worker: int, mark: Mark) -> bool:
        """Whether a stream has not ended, as far as its mark says."""
        return mark.get("epoch") != epoch or bool(mark["more"])

    def over(self, epoch: int, step: int, marks: Sequence[Mark]) -> bool:
        """Whether streams have ended: all of them, or one where nothing shorter than a batch is wanted."""
        ended = [not self.live(epoch, step, worker, mark) for worker, mark in enumerate(marks)]
        return all(ended) if self._last == "short" else any(ended)

    def check(self, epoch: int, step: int, marks: Sequence[Mark]) -> None:
        """See that the streams are not empty, all of them, or one where full batches are wanted.

        Raises
        ------
        InputError
        """
        empty = [
            worker for worker, mark in enumerate(marks) if mark.get("epoch") == epoch and not mark["taken"]
        ]
        if self._last == "drop" and empty:
            raise InputError(
                f"the stream of logical worker {empty[0]} gave less than one batch of {self.batch_size} in epoch {epoch},"
                " and last='drop' wants full ones: no step is left"
            )
        if len(empty) == len(marks):
            raise InputError(f"none of the {self.workers} streams gave a sample in epoch {epoch}")

    def open(
        self, epoch: int, step: int, mine: Sequence[int], marks: Sequence[Mark]
    ) -> Iterator[tuple[Any, Mark]]:
        """From the marks on: batch, or ``NOTHING``, and mark of each worker whose stream has not ended, in turn."""
        live = [worker for worker in mine if self.live(epoch, step, worker, marks[worker])]
        readers = [self._reader(worker, epoch, marks[worker]) for worker in live]
        many = max(1, min(self._readers, len(live)))
        parts = [self._loaded(readers[number::many], epoch) for number in range(many)]
        where = {worker: number % many for number, worker in enumerate(live)}

        def items() -> Iterator[tuple[Any, Mark]]:
            left = live
            while left:
                over = set()
                for worker in left:
                    batch, full, mark = next(parts[where[worker]])
                    if not mark["more"]:
                        over.add(worker)
                    yield (batch if full else NOTHING), mark
                left = [worker for worker in left if worker not in over]

        return items()

    def _reader(self, worker: int, epoch: int, mark: Mark) -> Reader:
        seed = randomness.mix(randomness.mix(self._seed, epoch, 2), worker, 0)
        randomness.seed_all(seed)
        stream = self._stream(worker)
        if hasattr(stream, "set_epoch"):
            stream.set_epoch(epoch)
        if mark.get("epoch") != epoch:
            mark = {"epoch": epoch, "taken": 0, "more": True, "next": None, "state": None}
        return Reader(
            stream,
            f"stream of logical worker {worker} ({type(stream).__name__})",
            mark,
            seed=seed if self._random_data else None,
            size=self.batch_size,
            ahead=self.batch_size if self._last == "drop" else 1,
        )

    def _loaded(self, readers: list[Reader], epoch: int) -> Iterator[_Item]:
        """Read in a process of its own, if there is to be one."""
        from torch import Generator
        from torch.utils.data import DataLoader, default_collate

        part = _part(readers, self._collate or default_collate)
        generator = Generator().manual_seed(randomness.mix(self._seed, epoch, 0))
        apart = {"num_workers": 1 if self._readers else 0}
        return iter(
            DataLoader(
                part, batch_size=None, collate_fn=_same, generator=generator, **apart, **self._settings
            )
        )

    def identity(self) -> dict[str, str]:
        """What decides which sample is read when."""
        return {
            "samples": "streams",
            "stream": self._name,
            "batch size of a worker": str(self.batch_size),
            "last batch": self._last,
            "random data": str(self._random_data),
        }


class _Item(NamedTuple):
    batch: Any
    full: bool
    mark: dict[str, Any]


def _same(item: Any) -> Any:
    return item


def _part(readers: list[Reader], collate: Callable[[list[Any]], Any]) -> Any:
    """The streams of some workers, in turn, for one process that reads."""
    from torch.utils.data import IterableDataset

    class Part(IterableDataset[Any]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[_Item]:
            left = [reader.batches() for reader in readers]
            while left:
                over = []
                for batches in left:
                    samples, mark = next(batches)
                    if not mark["more"]:
                        over.append(batches)
                    yield _Item(collate(samples) if samples else 0, bool(samples), mark)
                left = [batches for batches in left if batches not in over]

        def __reduce__(self) -> Any:
            return _part, (readers, collate)

    return Part()
