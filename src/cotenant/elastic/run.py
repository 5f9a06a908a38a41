"""A training with a fixed number of logical workers, on any number of processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from cotenant.elastic import failing, scan
from cotenant.elastic.adopt import adopt
from cotenant.elastic.digests import wanted
from cotenant.elastic.folders import use_folder
from cotenant.elastic.gradients import Order
from cotenant.elastic.identity import Grade
from cotenant.elastic.members import MOST
from cotenant.elastic.process import Process, Settings
from cotenant.elastic.sampling import Data, Last
from cotenant.elastic.settings import check_wanted, check_words, whole
from cotenant.elastic.sources import source
from cotenant.elastic.state import End
from cotenant.elastic.step import Step
from cotenant.elastic.telling import Telling, least_left, state_folder
from cotenant.errors import InputError, MissingExtraError
from cotenant.runtime import contents, randomness

__all__ = ["Run", "Step"]


class Run:
    """An elastic run; make it before the model, which it seeds.

    Parameters
    ----------
    workers : int
        Logical workers, N. With the batch size they fix the global batch; they never change.
    max_processes : int, optional
        Most processes, a divisor of ``workers``; by default as many as workers. With the order ``blocks`` it is
        part of how gradients are summed, so changing it changes bits.
    seed : int
    order : "blocks", "sequence" or "ddp"
        How gradients are summed. ``blocks``: runs of workers/max_processes neighbours first, then these in a
        binary tree. ``sequence``: 0, 1, ..., N-1, as gradient accumulation does; where there are several
        processes, all but the first keep a gradient for each of their workers. ``ddp``: as DistributedDataParallel
        of N processes does over gloo; every process keeps a gradient for each of its workers.
    threads : int, optional
        CPU threads of each process, part of the identity; by default what the saved state or PyTorch says.
    state : path, optional
        Folder of checkpoints; a run that finds one there goes on from it. By default that of the scheduler, if it
        started the run.
    every_steps : int
        Save this often; 0 is only at the end and when asked.
    keep : int
        Checkpoints to keep.
    least : "bitwise", "statistical" or "changed"
        Go on from saved state only if at least this is left.
    deterministic : bool
        Only deterministic kernels of PyTorch; without, equality may fail where an operator has none.
    digests : path or True, optional
        Folder of a log for ``cotenant elastic diff``; True: ``digests`` in the state folder. The environment
        variable COTENANT_ELASTIC_DIGESTS stands above it.
    digests_every : int
        Log every so many steps; COTENANT_ELASTIC_DIGESTS_EVERY stands above it.

    Raises
    ------
    InputError, MissingExtraError
    """

    def __init__(
        self,
        workers: int,
        max_processes: int | None = None,
        *,
        seed: int = 0,
        order: Order = "blocks",
        threads: int | None = None,
        state: str | Path | None = None,
        every_steps: int = 0,
        keep: int = 1,
        least: Literal["bitwise", "statistical", "changed"] = "statistical",
        deterministic: bool = True,
        digests: str | Path | bool | None = None,
        digests_every: int = 1,
    ) -> None:
        try:
            import torch
        except ImportError:
            raise MissingExtraError("elastic training", "torch") from None
        workers = whole("workers", workers, 1)
        most = workers if max_processes is None else whole("max_processes", max_processes, 1)
        if workers % most:
            raise InputError(f"workers={workers}, max_processes={most}: it must be a divisor of workers")
        check_words(order, least)
        leaves = most if order == "blocks" else workers
        check_wanted(leaves, os.environ.get(MOST, ""))
        if threads is not None:
            torch.set_num_threads(whole("threads", threads, 1))
        if deterministic:
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False
            torch.backends.cudnn.benchmark = False
        self._settings = Settings(
            workers=workers,
            leaves=leaves,
            most=most,
            seed=whole("seed", seed),
            order=order,
            folder=state_folder(state),
            every_steps=whole("every_steps", every_steps, 0),
            keep=whole("keep", keep, 1),
            least=least_left(Grade[least.upper()]),
            adopt_threads=threads is None,
        )
        self._digests = wanted(digests, whole("digests_every", digests_every, 1), self._settings.folder)
        self._parts: dict[str, Mapping[str, Any]] = {}
        self._process: Process | None = None
        self._model: Any = None
        self._sharding: Any = None
        self._asked = -1
        randomness.seed_all(randomness.mix(self._settings.seed, 0, 0))

    def prepare(
        self,
        model: Any,
        dataset: Any,
        batch_size: int | None = None,
        *,
        shuffle: bool = True,
        last: Last = "short",
        random_data: bool = True,
        sampler: Any = None,
        batch_sampler: Any = None,
        shard: Callable[[Any, Any], None] | None = None,
        **settings: Any,
    ) -> tuple[Any, Data]:
        """The model as it is, after a look at it, and a loader of the data set.

        Parameters
        ----------
        model : Module
            On its device, not wrapped.
        dataset : Dataset or callable
            With ``__len__`` and ``__getitem__``. Or a function of the logical worker that makes its stream: see
            ``streams.Streams`` and docs/elastic-data.md.
        batch_size : int
            Of one logical worker; not with a batch sampler.
        shuffle, last, random_data
            See ``sampling.Loader``. Streams are not shuffled.
        sampler, batch_sampler : iterable with ``__len__``, optional
            Says the order of an epoch, or its batches: see ``samplers.Sampled``.
        shard : callable, optional
            Given the model and a mesh, applies ``fully_shard`` to it; see docs/elastic-sharded.md. Make the
            optimiser afterwards.
        **settings
            For ``DataLoader``: num_workers, collate_fn, pin_memory, ...

        Raises
        ------
        InputError
            If the model or the data set cannot be elastic; names the module.
        """
        scan.check_model(model, rows=shard is None and self._settings.order != "ddp")
        if shard is not None:
            from cotenant.elastic.sharded import Sharding

            self._sharding = Sharding(self._settings, model, shard)
        self._model = model
        self._parts["model"] = contents.named("model", model)
        loader = source(
            dataset,
            batch_size,
            self._settings.workers,
            self._settings.seed,
            shuffle=shuffle,
            last=last,
            random_data=random_data,
            sampler=sampler,
            batch_sampler=batch_sampler,
            settings=settings,
        )
        if shard is not None and not loader.counted:
            raise InputError(
                "streams and a sharded model do not go together yet: give a data set with indices"
            )
        return model, loader

    def adopt(  # noqa: PLR0917 - one parameter for each thing that is kept
        self,
        model: Any,
        loader: Any,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        extra: Mapping[str, Any] | None = None,
        *,
        random_data: bool = True,
    ) -> Data:
        """For a script written for DistributedDataParallel: what its ``DataLoader`` says, dealt out to logical workers.

        Data set, batch size, ``drop_last`` and the options of loading are taken from the loader. With a
        ``DistributedSampler`` of ``run.workers`` processes (of any rank) each logical worker reads the samples of
        the process of its number, also what shuffles them (``seed``; ``set_epoch`` is done by the run). With
        ``shuffle=True`` each epoch's order is drawn from the run's seed, with ``shuffle=False`` it is the data
        set's.

        Parameters
        ----------
        model : Module
            Not wrapped.
        loader : DataLoader
        optimizer, scheduler, scaler, extra
            See ``keep``.
        random_data : bool
            See ``sampling.Loader``.

        Raises
        ------
        InputError
            If something of the loader would be lost, or the model cannot be elastic.
        """
        scan.check_model(model, rows=self._settings.order != "ddp")
        self._model = model
        self._parts["model"] = contents.named("model", model)
        found = adopt(loader, self.workers, self._settings.seed, random_data=random_data)
        self.keep(optimizer, scheduler, scaler, extra)
        return found

    def keep(
        self,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """What is saved, and sent to new processes, beside the model: one object each, several, or by name.

        Raises
        ------
        InputError
            An object whose state cannot be saved.
        """
        self._parts["optimizer"] = contents.named("optimizer", optimizer)
        self._parts["scheduler"] = contents.named("scheduler", scheduler)
        self._parts["scaler"] = contents.named("scaler", scaler)
        self._parts["extra"] = dict(extra or {})

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self._process is None or self._process.rank == 0

    @property
    def workers(self) -> int:
        """Logical workers, N."""
        return self._settings.workers

    @property
    def processes(self) -> int:
        """Processes at this moment."""
        return 1 if self._process is None else self._process.size

    @property
    def grade(self) -> Grade:
        """What is left of equality after all the resumes of this process's run."""
        return Grade.BITWISE if self._process is None else self._process.grade

    def fabric(self, **options: Any) -> Any:
        """A Lightning Fabric for this run; its ``steps`` takes the place of the script's loops, see docs/elastic-adapters.md.

        Parameters
        ----------
        **options
            Of ``Fabric``: accelerator, precision, plugins, callbacks, loggers. Not strategy and devices.

        Raises
        ------
        InputError, MissingExtraError
        """
        from cotenant.elastic.fabric import make

        return make(self, options)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2.0) -> Any:
        """As ``torch.nn.utils.clip_grad_norm_``, also of a sharded model, where PyTorch's own breaks equality."""
        if self._sharding is not None:
            from cotenant.elastic.sharded import clip

            return clip(list(parameters), max_norm, norm_type)
        from torch.nn.utils import clip_grad_norm_

        return clip_grad_norm_(parameters, max_norm, norm_type)

    def _make(self, loader: Data) -> Process:
        kind: Callable[..., Process] = Process
        given: tuple[Any, ...] = (
            self._settings,
            loader,
            self._model,
            contents.Objects(self._parts),
            self._parts,
        )
        if self._sharding is not None:
            from cotenant.elastic.sharded_process import ShardedProcess

            given, kind = (*given, self._sharding), ShardedProcess
        if self._digests is not None:
            from cotenant.elastic.recorded import recorded

            kind = recorded(*self._digests, sharded=self._sharding is not None)
        return kind(*given)

    def save(self) -> None:
        """Save a checkpoint when this step is over: when the loop over the steps goes on, or is left.

        Raises
        ------
        InputError
            Without a folder, before the first step, or in the inner loop.
        """
        if self._process is None or self._settings.folder is None or self._process.in_turns:
            raise InputError(
                "nothing to save: give elastic.Run(state=FOLDER), and save behind the inner loop"
            )
        self._asked = self._process.place.step

    def steps(self, loader: Data, epochs: int | None = None, *, steps: int | None = None) -> Iterator[Step]:
        """All steps from where the run is to the end of the last epoch, or to a number of steps.

        Here saved state is loaded, processes come and go, and checkpoints are written. One loop for each ``Run``:
        what is to be done after an epoch is done in it, where ``step.last`` is true.

        Parameters
        ----------
        loader : Data
            From ``prepare`` or ``adopt``.
        epochs, steps : int, optional
            Of the whole run, over resumes; of both, what comes first.

        Raises
        ------
        InputError
            If something has been left out, the inner loop of a step was not run to its end, a second loop is
            begun, or another run uses the state folder.
        StateError
            Saved state that cannot be used, or of which less than ``least`` is left.
        """
        end = End.asked(epochs, steps)
        if self._model is None or not isinstance(loader, Data):
            raise InputError("steps() takes the loader that run.prepare(model, dataset, ...) gave")
        if not self._parts.get("optimizer"):
            raise InputError("no optimiser is kept: call run.keep(optimizer=...) before run.steps()")
        scan.check_optimizers(self._model, self._parts["optimizer"])
        return self._steps(loader, end)

    def _steps(self, loader: Data, end: End) -> Iterator[Step]:
        if self._process is not None:
            raise InputError(
                f"a second run.steps(): the first one has done {self._process.place.step} steps; one loop goes through"
                " all epochs, what follows an epoch is done in it if step.last; another training needs another"
                " elastic.Run"
            )
        with use_folder(self._settings.folder):
            yield from self._loop(loader, end)

    def _loop(self, loader: Data, end: End) -> Iterator[Step]:
        process = self._make(loader)
        self._process = process
        failing.watch(process)
        process.open()
        telling = Telling(process, end.length(loader))
        telling.opened()
        if end.reached(process.place) and self.first:
            sys.stderr.write(
                f"cotenant: saved state of {process.place.step} steps: all {end} are done, no step is left\n"
            )
        while not end.reached(process.place):
            step = Step(process)
            try:
                yield step
            except GeneratorExit:
                process.leave_loop(save=self._asked == step.number and step.done)
                raise
            if not step.done:
                raise InputError(f"the inner loop of step {step.number} was left before its end")
            process.advance()
            telling.stepped()
            if self._asked == step.number:
                process.save()
            try:
                over = process.boundary(end=end.reached(process.place))
            finally:
                telling.saved()
            if over:
                break
        process.close()
