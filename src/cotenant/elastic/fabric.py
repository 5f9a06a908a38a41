"""Lightning Fabric's loop, elastic: ``run.fabric()`` in place of ``Fabric()``, and logical workers in place of ranks.

::

    run = elastic.Run(workers=4)
    fabric = run.fabric(accelerator="cpu", precision="bf16-mixed")
    model, optimizer = fabric.setup(model, optimizer)
    for step in fabric.steps(fabric.setup_dataloaders(loader), epochs=3):
        optimizer.zero_grad()
        for x, y in step:
            fabric.backward(loss_fn(model(x), y))
        optimizer.step()

Lightning is imported when a Fabric is made, not before.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cotenant.elastic import scan
from cotenant.elastic.adopt import AdoptedLoader, distributed
from cotenant.elastic.fabric_turns import Later, Turns
from cotenant.errors import InputError, MissingExtraError
from cotenant.runtime import contents

if TYPE_CHECKING:
    from cotenant.elastic.run import Run, Step

__all__ = ["make"]

_PACKAGES = ("lightning.fabric", "lightning_fabric")
_PRECISIONS = ("Precision", "MixedPrecision", "HalfPrecision", "DoublePrecision")
_STARTED_BY = (
    "processes are started by cotenant run --elastic MIN:MAX, the run is declared by elastic.Run(workers=...)"
)


def make(run: Run, options: Mapping[str, Any]) -> Any:
    """See ``Run.fabric``.

    Raises
    ------
    InputError, MissingExtraError
    """
    lightning = _lightning()
    for name in ("strategy", "devices", "num_nodes"):
        if options.get(name, "auto") not in ("auto", 1):
            raise InputError(f"{name}={options[name]!r}: leave it out; {_STARTED_BY}")
    if os.environ.get("LT_CLI_USED"):
        raise InputError(f"started by `fabric run`: {_STARTED_BY}")
    rest = {
        name: value for name, value in options.items() if name not in ("strategy", "devices", "num_nodes")
    }
    turns = Turns(run)
    single = importlib.import_module(f"{lightning.__name__}.strategies").SingleDeviceStrategy
    # The classes are made here, so that this module can be imported without Lightning.
    strategy = type("ElasticStrategy", (_Strategy, single), {})(_device(rest.get("accelerator", "auto")))
    strategy.turns, strategy.world_size = turns, run.workers
    fabric = type("ElasticFabric", (_Fabric, lightning.Fabric), {})(strategy=strategy, devices=1, **rest)
    if type(strategy.precision).__name__ not in _PRECISIONS:
        raise InputError(
            f"precision {type(strategy.precision).__name__}: elastic runs have 32-true, 64-true, 16-mixed, bf16-mixed,"
            " 16-true and bf16-true"
        )
    fabric._begin(run, turns, lightning)
    return fabric


def _lightning() -> ModuleType:
    for name in sorted(_PACKAGES, key=lambda name: name not in sys.modules):  # the one that the script has
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingExtraError("run.fabric()", "lightning")


def _device(accelerator: Any) -> Any:
    import torch

    if accelerator not in ("auto", "cpu", "cuda", "gpu"):
        raise InputError(f"accelerator={accelerator!r}: elastic runs are on cpu or cuda")
    if accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)


class _Strategy:
    """What Fabric asks its strategy; a mixin for ``SingleDeviceStrategy``."""

    turns: Turns

    def __init__(self, device: Any) -> None:
        parent: Any = super()
        parent.__init__(device)
        self.models: list[Any] = []
        self.optimizers: list[Any] = []
        self.schedulers: list[Any] = []

    @property
    def is_global_zero(self) -> bool:
        return self.turns.rank == 0

    def setup_module(self, module: Any) -> Any:
        scan.check_model(module, rows=self.turns.order != "ddp")
        self.models.append(module)
        return module

    def setup_optimizer(self, optimizer: Any) -> Any:
        self.optimizers.append(optimizer)
        return optimizer

    def setup_module_and_optimizers(self, module: Any, optimizers: list[Any], *scheduler: Any) -> Any:
        self.schedulers += [one for one in scheduler if one is not None]
        return self.setup_module(module), [self.setup_optimizer(one) for one in optimizers], *scheduler

    def backward(self, *given: Any, **named: Any) -> None:
        self.turns.only_within("fabric.backward()", "iterate over `for step in fabric.steps(loader, epochs)`")
        parent: Any = super()
        parent.backward(*given, **named)

    def optimizer_step(self, *given: Any, **named: Any) -> Any:
        self.turns.only_after("optimizer.step()")
        parent: Any = super()
        return parent.optimizer_step(*given, **named)

    def clip_gradients_norm(self, *given: Any, **named: Any) -> Any:
        self.turns.only_after("fabric.clip_gradients()")
        parent: Any = super()
        return parent.clip_gradients_norm(*given, **named)

    def clip_gradients_value(self, *given: Any, **named: Any) -> Any:
        self.turns.only_after("fabric.clip_gradients()")
        parent: Any = super()
        return parent.clip_gradients_value(*given, **named)

    def save_checkpoint(self, *given: Any, **named: Any) -> None:
        self.turns.only_after("fabric.save()")
        parent: Any = super()
        parent.save_checkpoint(*given, **named)

    def all_reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        if group is not None:
            raise InputError("fabric.all_reduce(group=...): logical workers have no groups; leave it out")
        return self.turns.reduced(tensor, reduce_op)

    def all_gather(self, *_: Any, **__: Any) -> Any:
        raise InputError(
            "fabric.all_gather(): logical workers take turns, so one cannot see what the others have; single numbers can"
            " be averaged: fabric.all_reduce() or step.note() in the inner loop"
        )

    def broadcast(self, *_: Any, **__: Any) -> Any:
        raise InputError(
            "fabric.broadcast(): processes come and go, and do not wait for each other outside of the steps; derive the"
            " value from the seed, or keep an object that has it: fabric.keep(extra={...})"
        )


class _Fabric:
    """The Fabric that a script has; a mixin for Lightning's."""

    _strategy: Any
    _loggers: list[Any]

    def _begin(self, run: Run, turns: Turns, lightning: ModuleType) -> None:
        self._run, self._turns = run, turns
        self._move = importlib.import_module(f"{lightning.__name__}.utilities").move_data_to_device
        self._wrapped: list[Any] = []
        self._extra: dict[str, Any] = {}

    # -- ranks -----------------------------------------------------------------------

    @property
    def global_rank(self) -> int:
        """In the inner loop the logical worker; elsewhere the process, which is for printing and files only."""
        return self._turns.rank

    @property
    def local_rank(self) -> int:
        """The same."""
        return self._turns.rank

    @property
    def world_size(self) -> int:
        """Logical workers, N."""
        return self._run.workers

    # -- setting up ------------------------------------------------------------------

    def setup(self, module: Any, *optimizers: Any, **named: Any) -> Any:
        """As Fabric's; what is given here is part of the run."""
        parent: Any = super()
        given = parent.setup(module, *optimizers, **named)
        self._wrapped += given[1 : 1 + len(optimizers)] if optimizers else []
        return given

    def setup_optimizers(self, *optimizers: Any) -> Any:
        """As Fabric's."""
        parent: Any = super()
        given = parent.setup_optimizers(*optimizers)
        self._wrapped += [given] if len(optimizers) == 1 else given
        return given

    def setup_dataloaders(self, *loaders: Any, use_distributed_sampler: bool = True, **named: Any) -> Any:
        """As Fabric's; samples are dealt out to logical workers by ``steps``. Other loops read all of them."""
        parent: Any = super()
        given = parent.setup_dataloaders(*loaders, use_distributed_sampler=use_distributed_sampler, **named)
        for one in [given] if len(loaders) == 1 else given:
            one.elastic_deals_out = use_distributed_sampler
        return given

    def keep(self, scheduler: Any = None, extra: Mapping[str, Any] | None = None) -> None:
        """What is saved, and sent to new processes, beside what ``setup`` was given; see ``Run.keep``."""
        self._strategy.schedulers += [] if scheduler is None else [scheduler]
        self._extra |= dict(extra or {})

    # -- the loop --------------------------------------------------------------------

    def steps(self, loader: Any, epochs: int, *, random_data: bool = True) -> Iterator[Step]:
        """The steps of the run, see ``Run.steps``.

        Parameters
        ----------
        loader : what ``setup_dataloaders`` gave
            Its batch size is that of one logical worker. Without a ``DistributedSampler`` it is dealt out as
            Fabric does under ``ddp``: shuffled by the seed of ``seed_everything``, 0 by default.
        epochs : int
        random_data : bool
            See ``sampling.Loader``.

        Raises
        ------
        InputError, StateError
        """
        strategy, run = self._strategy, self._run
        if not strategy.models:
            raise InputError(
                "fabric.steps() before fabric.setup(model, optimizer): there is nothing to train"
            )
        dealt = self._dealt(loader, random_data)
        schedulers = {str(n): one for n, one in enumerate(strategy.schedulers)}
        self._check_schedulers()
        self._take(strategy.models)
        scaler = getattr(strategy.precision, "scaler", None)
        optimizers = strategy.optimizers
        run.keep(optimizers[0] if len(optimizers) == 1 else optimizers, schedulers, scaler, self._extra)
        for step in run.steps(dealt, epochs):
            yield step
            self._turns.settle()

    def _take(self, models: list[Any]) -> None:
        from torch.nn import ModuleList

        self._run._model = models[0] if len(models) == 1 else ModuleList(models)
        self._run._parts["model"] = contents.named("model", models[0] if len(models) == 1 else models)

    def _dealt(self, loader: Any, random_data: bool) -> AdoptedLoader:
        inner = getattr(loader, "_dataloader", None)
        if inner is None:
            raise InputError(
                f"fabric.steps() was given a {type(loader).__name__}: it takes what fabric.setup_dataloaders() gave"
            )
        workers, seed = self._run.workers, int(os.environ.get("PL_GLOBAL_SEED") or 0)
        dealing = distributed(inner, workers, seed)
        if dealing is not inner and not loader.elastic_deals_out:
            raise InputError(
                f"use_distributed_sampler=False and sampler {type(inner.sampler).__name__}: every logical worker would"
                " read all samples; leave it out, or give DistributedSampler(dataset, run.workers, 0, ...)"
            )
        found = AdoptedLoader(dealing, workers, self._run._settings.seed, random_data=random_data)
        device, move = loader.device, self._move

        def on_turn(worker: int, batch: Any) -> Any:
            self._turns.begin(worker)
            return batch if device is None else move(batch, device)

        found.on_turn = on_turn
        precision = self._strategy.precision
        found.more = {"precision": f"{type(precision).__name__} {getattr(precision, 'precision', '32-true')}"}
        return found

    def _check_schedulers(self) -> None:
        known = {id(getattr(one, "optimizer", None)) for one in self._strategy.schedulers}
        for number, (inner, wrapped) in enumerate(zip(self._strategy.optimizers, self._wrapped, strict=True)):
            for one in (inner, wrapped):
                if "_wrapped_by_lr_sched" in vars(vars(one).get("step", object)) and id(one) not in known:
                    raise InputError(
                        f"optimiser {number} has a scheduler that is not kept, and would begin anew on a new process: "
                        " fabric.setup(model, optimizer, scheduler=scheduler), or fabric.keep(scheduler)"
                    )

    # -- talking to others -----------------------------------------------------------

    def save(self, *given: Any, **named: Any) -> None:
        """As Fabric's, by the first process; nobody waits for it."""
        self._turns.quietly(super(), "save", given, named)

    def load(self, *given: Any, **named: Any) -> Any:
        """As Fabric's, by every process."""
        return self._turns.quietly(super(), "load", given, named)

    def barrier(self, name: str | None = None) -> None:
        """Refused: processes come and go, they meet in the steps only.

        Raises
        ------
        InputError
        """
        del name
        if not self._turns.quiet:
            raise InputError(
                "fabric.barrier(): processes of an elastic run come and go, and meet in the steps only; what one of them"
                " prepares for all, prepare before the run"
            )

    def rank_zero_first(self, local: bool = False) -> Any:
        """Refused, as ``barrier``."""
        del local
        self.barrier()

    def log_dict(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """As Fabric's, on the first process."""
        if self._turns.rank == 0:
            parent: Any = super()
            numbers = {name: float(one) if isinstance(one, Later) else one for name, one in metrics.items()}
            parent.log_dict(numbers, step)
