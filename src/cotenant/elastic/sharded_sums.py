"""Sums over a model's shards, whose order would depend on the number of processes: put right, or told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["total_norm", "watch"]

_EXACT = ("min", "max", "band", "bor", "bxor")


def total_norm(grads: Sequence[Any], norm_type: float) -> Any:
    """The norm of the norms of whole tensors, one of which is put together at a time.

    Parameters
    ----------
    grads : sequence of DTensor
    norm_type : float

    Returns
    -------
    Tensor
    """
    import torch

    if not grads:
        return torch.tensor(0.0)
    norms = [torch.linalg.vector_norm(grad.full_tensor(), norm_type) for grad in grads]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


def watch(mesh: Any, told: Callable[[str], None]) -> None:
    """From now on, ``torch.nn.utils.clip_grad_norm_`` is right for shards of this mesh, and other sums are told.

    Parameters
    ----------
    mesh : DeviceMesh
    told : callable
        Given the place in the script, each time that shards are summed by several processes.
    """
    _mend_clipping(mesh)
    from torch.distributed.tensor.placement_types import Partial

    for name in ("_reduce_value", "_reduce_shard_value"):
        _tell_before(Partial, name, mesh, told)
    _tell_before_item(Partial, mesh, told)


def _mend_clipping(mesh: Any) -> None:
    import torch
    from torch.distributed.tensor import DTensor, Replicate
    from torch.nn.utils import clip_grad

    plain = clip_grad._get_total_norm

    def ours(
        tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
    ) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if not any(isinstance(one, DTensor) and one.device_mesh == mesh for one in tensors):
            return plain(tensors, norm_type, error_if_nonfinite, foreach)
        with torch.no_grad():
            total = total_norm(tensors, float(norm_type))
        if error_if_nonfinite and not bool(torch.isfinite(total)):
            raise RuntimeError(f"the norm of the gradients is {total.item()}, so they cannot be clipped")
        return DTensor.from_local(total, mesh, [Replicate()], run_check=False)

    clip_grad._get_total_norm = ours


def _tell_before(kind: Any, name: str, mesh: Any, told: Callable[[str], None]) -> None:
    plain = getattr(kind, name)

    def telling(self: Any, tensor: Any, where: Any, *rest: Any) -> Any:
        if where == mesh and self.reduce_op not in _EXACT:
            told(_place())
        return plain(self, tensor, where, *rest)

    setattr(kind, name, telling)


def _tell_before_item(partial: Any, mesh: Any, told: Callable[[str], None]) -> None:
    # PyTorch gives each process the sum over its own shard.
    from torch.distributed.tensor import DTensor

    plain = DTensor.item

    def item(self: Any) -> Any:
        kinds = [one for one in self.placements if isinstance(one, partial)]
        if self.device_mesh == mesh and any(kind.reduce_op not in _EXACT for kind in kinds):
            told(_place())
        return plain(self)

    DTensor.item = item


def _place() -> str:
    """File and line of the script: the innermost call that is neither PyTorch's nor cotenant's."""
    import torch

    inside = tuple(f"{Path(file).resolve().parent}/" for file in (torch.__file__, Path(__file__).parent))
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((*inside, "<")):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "the script"
