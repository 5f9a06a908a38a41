"""State of a sharded run: full tensors in files, shards in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["gathered", "scattered"]


def gathered(value: Any, *, keep: bool) -> Any:
    """The same with full tensors for shards; all processes call it, and those that do not keep get None for them."""
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        full = value.detach().full_tensor()
        return full.cpu() if keep else None
    if isinstance(value, Mapping):
        found = {key: gathered(item, keep=keep) for key, item in value.items()}
        kind: Any = type(value)
        return found if kind is dict else kind(found)
    if type(value) in (list, tuple):
        return type(value)(gathered(item, keep=keep) for item in value)
    return value


def scattered(
    content: Mapping[str, Any], models: Mapping[str, Any], optimizers: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of a file with this process's shards for full tensors; nothing is sent."""
    out = dict(content)
    out["model"] = {
        name: {key: _shard(value, models[name].state_dict().get(key)) for key, value in state.items()}
        if name in models
        else state
        for name, state in content["model"].items()
    }
    out["gradients"] = {
        name: {
            key: _shard(value, dict(models[name].named_parameters()).get(key)) for key, value in state.items()
        }
        for name, state in content.get("gradients", {}).items()
        if name in models
    }
    out["optimizer"] = {
        name: _optimizer(state, optimizers[name]) if name in optimizers else state
        for name, state in content["optimizer"].items()
    }
    return out


def _optimizer(state: Mapping[str, Any], optimizer: Any) -> Any:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    like = dict(zip(numbers, parameters, strict=False))
    parts = {
        number: {
            key: _shard(value, like.get(number)) if getattr(value, "dim", int)() else value
            for key, value in of.items()
        }
        for number, of in state["state"].items()
    }
    return {**state, "state": parts}


def _shard(full: Any, like: Any) -> Any:
    """The part of a full tensor that this process has of a sharded one of the same shape."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or getattr(full, "shape", None) != like.shape:
        return full
    device = like.device_mesh.device_type
    return distribute_tensor(full.to(device), like.device_mesh, like.placements, src_data_rank=None)
