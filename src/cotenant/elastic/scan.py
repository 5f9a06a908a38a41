"""What cannot be elastic, found before the first step, and what is done at the wrong place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cotenant.errors import InputError

__all__ = [
    "check_devices",
    "check_gradients",
    "check_loops",
    "check_model",
    "check_optimizers",
    "check_sums",
    "watch",
]

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel")


def check_model(model: Any, *, rows: bool = True) -> None:
    """Look through a model for modules that stop equality.

    Parameters
    ----------
    model : Module
    rows : bool
        Whether sparse gradients can be summed.

    Raises
    ------
    InputError
        Names every such module, where it is in the model, and what to do.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model is a {type(model).__name__}: it must be a torch.nn.Module")
    found = []
    for path, module in model.named_modules():
        name, where = type(module).__name__, path or "the model"
        names = {one.__name__ for one in type(module).__mro__}
        if names & set(_WRAPPERS):
            found.append(f"{where} is a {name}: give the model itself, unwrapped")
        elif isinstance(module, torch.nn.SyncBatchNorm):
            found.append(f"{where} is a {name}: it needs all workers at once; use BatchNorm")
        elif isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.max_norm is not None:
            found.append(
                f"{where} is a {name} with max_norm: it changes rows while it looks them up, of which other processes"
                " know nothing; use max_norm=None"
            )
        elif not rows and getattr(module, "sparse", False):
            found.append(
                f"{where} is a {name} with sparse gradients, which order='ddp' and sharded models do not sum: use"
                " sparse=False, or order='blocks' without shard="
            )
        elif isinstance(module, torch.nn.Module) and any(
            isinstance(p, torch.nn.parameter.UninitializedParameter) for p in module._parameters.values()
        ):
            found.append(f"{where} is a {name} not yet initialised: run it once on a batch first")
    if found:
        raise InputError(f"this model cannot be elastic: {'; '.join(found)}")


def check_size(processes: int, most: int) -> None:
    """Raise ``InputError`` if a generation has more processes than the run can share its workers out to."""
    if processes > most:
        raise InputError(
            f"{processes} processes, {most} at most: raise elastic.Run(max_processes=...) or start fewer"
        )


def check_devices(parameters: Iterable[Any], processes: int) -> None:
    """See that several processes can exchange the gradients of these parameters.

    Raises
    ------
    InputError
    """
    devices = sorted({str(p.device) for p in parameters} - {"cpu"})
    if processes == 1:
        return
    others = [name for name in devices if not name.startswith("cuda")]
    if others:
        raise InputError(
            f"parameters on {', '.join(others)} and {processes} processes: gradients are exchanged between CPUs and"
            " between CUDA devices only; use one process"
        )
    if len(devices) > 1:
        raise InputError(
            f"parameters on {', '.join(devices)} and {processes} processes: each process has one device; put the whole"
            " model on one, or use one process"
        )


def check_gradients(parameters: Iterable[Any], tables: Collection[int] = ()) -> None:
    """See that the gradients of a turn can be summed.

    Parameters
    ----------
    parameters : iterable of Parameter
    tables : collection of int
        Those, by ``id``, whose gradients may be sparse.

    Raises
    ------
    InputError
    """
    for number, parameter in enumerate(parameters):
        grad = parameter.grad
        if grad is not None and grad.is_sparse and id(parameter) not in tables:
            raise InputError(
                f"parameter {number} of shape {tuple(parameter.shape)} has a sparse gradient, and is not the weight of"
                " an Embedding or EmbeddingBag with sparse=True: only theirs are summed; use sparse=False"
            )


def check_sums(sums: Iterable[Any], parameters: Iterable[Any], step: int) -> None:
    """See that somebody made a gradient: without one nothing is trained, and nobody would notice.

    Raises
    ------
    InputError
    """
    if any(True for _ in parameters) and all(tensor is None for tensor in sums):
        raise InputError(
            f"step {step}: no parameter has a gradient after the turns of all workers; call loss.backward() in the"
            " inner loop, and optimizer.zero_grad() not after it but behind the loop"
        )


def check_loops(loops: Sequence[Sequence[Any]]) -> None:
    """See that all processes are in the same inner loop.

    Parameters
    ----------
    loops : sequence of (int, int, str)
        Of each process: step, number of the loop in it, and its optimisers.

    Raises
    ------
    InputError
    """
    told = [f"step {step}, loop {number} ({name or 'all parameters'})" for step, number, name in loops]
    if len(set(told)) > 1:
        raise InputError(
            f"processes are in different inner loops: {', '.join(f'{n}: {one}' for n, one in enumerate(told))}; which"
            " loops a step has may depend on step.number and on what is kept, not on variables of the script"
        )


def check_optimizers(model: Any, optimizers: Mapping[str, Any]) -> None:
    """See that optimisers update the model's parameters, and no others: those would not be exchanged.

    Raises
    ------
    InputError
    """
    mine = {id(parameter) for parameter in model.parameters()}
    for name, optimizer in optimizers.items():
        for number, group in enumerate(getattr(optimizer, "param_groups", ())):
            others = [tuple(p.shape) for p in group["params"] if id(p) not in mine]
            if others:
                raise InputError(
                    f"{name}: {len(others)} parameters of group {number} are none of the model's (the first of shape"
                    f" {others[0]}): make it after run.prepare(), from model.parameters() of the model that it gave"
                )


def watch(process: Any, optimizers: Iterable[Any]) -> None:
    """Optimisers refuse to step within a turn."""

    def refuse(*_: Any) -> None:
        if process.in_turns:
            raise InputError(
                "optimizer.step() in the inner loop, or after a break out of it: the gradient is the mean over all"
                " workers only when the loop has ended by itself; move clipping, step() and zero_grad() behind it"
            )

    for optimizer in optimizers:
        if hasattr(optimizer, "register_step_pre_hook"):
            optimizer.register_step_pre_hook(refuse)
