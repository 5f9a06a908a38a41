"""A tape of everything that one training step does, seen from below autograd.

The step runs on fake tensors: shapes, types and lives are real, numbers do not exist. Because
the tape sits below autograd, it sees the backward pass's own operators, and each storage's
birth and death as the framework decides them: what autograd saves, what a module keeps by
accident, what is freed halfway through the backward pass.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cotenant.profiles.graph.aten import cost_of, kind_of, matrix_flops, scalar_cost
from cotenant.profiles.graph.ir import Graph, Op, OpKind, Options, Phase, Role, Storage, Tensor

__all__ = ["Lenient", "Tape"]

_ASSUMED = {
    "_local_scalar_dense": "a number read from a tensor was taken for 1",
    "nonzero": "all elements were taken for non-zero",
    "masked_select": "all elements were taken as selected",
    "equal": "two tensors were taken for equal",
}


class Lenient(TorchDispatchMode):
    """Answers questions about values, which fake tensors do not have, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.assumed: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.partition("::")[2]
        if name in _ASSUMED:
            return self._assume(name, args)
        return func(*args, **(kwargs or {}))

    def _assume(self, name: str, args: Sequence[Any]) -> Any:
        self.assumed[f"{name}: {_ASSUMED[name]}"] += 1
        if name == "equal":
            return True
        if name == "_local_scalar_dense":
            return {torch.bool: True}.get(args[0].dtype, 1.0 if args[0].is_floating_point() else 1)
        count = args[0].numel()
        if name == "nonzero":
            return args[0].new_empty((count, args[0].dim()), dtype=torch.int64)
        return args[0].new_empty((count,))


class Tape(Lenient):
    """Records operators, tensors and the lives of storages while it is entered.

    Parameters
    ----------
    device : str
        ``gpu`` or ``cpu``: sizes of a recurrent layer's hidden workspace.
    fake : bool
        Whether tensors are fake; values of real ones are asked for and not assumed.
    """

    def __init__(self, *, device: str = "gpu", fake: bool = True) -> None:
        super().__init__()
        self.device, self.fake = device, fake
        self.phase: Phase = "forward"
        self.ops: list[Op] = []
        self.touched: list[int] = []
        self._tensors: dict[tuple[int, tuple[int, ...], str], int] = {}
        self._names: dict[int, str] = {}
        self._size: list[int] = []
        self._role: list[Role] = []
        self._born: list[int] = []
        self._dies: list[int | None] = []
        self._kept: set[int] = set()
        self._closed = False
        self._live: dict[int, tuple[weakref.ref[Any], int]] = {}

    # --- storages -------------------------------------------------------------------------

    def own(self, tensors: Iterable[tuple[str, torch.Tensor]], role: Role) -> None:
        """Register tensors that exist before the step; a storage met twice keeps its first role."""
        for name, tensor in tensors:
            index = self._tensor(tensor, role=role, before=True)
            self._names.setdefault(index, name)

    def _storage(self, tensor: torch.Tensor, role: Role, before: bool) -> int:
        storage = tensor.untyped_storage()
        key = id(storage)
        found = self._live.get(key)
        if found is not None:
            return found[1]
        number = len(self._size)
        self._size.append(storage.nbytes())
        self._role.append(role)
        # Seen first as an input of an operator of the step: something made before it.
        self._born.append(-1 if before else len(self.ops))
        self._dies.append(None)
        self._live[key] = (weakref.ref(storage, partial(self._death, key)), number)
        return number

    def _death(self, key: int, _: object) -> None:
        _, number = self._live.pop(key)
        if not self._closed:
            self._dies[number] = len(self.ops) - 1

    def _tensor(self, tensor: torch.Tensor, *, role: Role = "activation", before: bool = False) -> int:
        storage = self._storage(tensor, role, before)
        key = (storage, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        return self._tensors.setdefault(key, len(self._tensors))

    # --- phases ---------------------------------------------------------------------------

    def turn_back(self) -> None:
        """The forward pass is over: what is alive now was saved for the backward pass."""
        self.phase = "backward"
        self._kept = {n for _, n in self._live.values() if self._born[n] >= 0}

    def close(self, gradients: Iterable[torch.Tensor]) -> None:
        """The step is over: these are weights' gradients, and what lives now outlives it."""
        for tensor in (_dense_parts(gradient)[0] for gradient in gradients):
            self._role[self._storage(tensor, "gradient", before=False)] = "gradient"
        self._closed = True

    # --- operators ------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name in _ASSUMED and self.fake:
            return self._assume(name, args)
        if name == "clone" and self.fake and args[0].layout is torch.sparse_coo:
            return args[0]  # a fake copy would be empty, and a real step takes a sparse gradient over
        out = _by_hand(name, args) if self.fake else None
        out = func(*args, **kwargs) if out is None else out
        self._record(func, name, args, kwargs, out)
        return out

    def _record(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        read = _distinct(args, kwargs)
        leaves = pytree.tree_leaves(out)
        written = [p for t in leaves if isinstance(t, torch.Tensor) for p in _dense_parts(t)]
        inputs = tuple(self._tensor(t, before=True) for t in read)
        outputs = tuple(self._tensor(t) for t in written)
        if name == "mkldnn_rnn_layer":
            self._size[self._storage(written[3], "activation", False)] = self._rnn_workspace(args)
        base = name.removesuffix("_copy") if name != "_reshape_copy" else name
        kind: OpKind = "view" if _is_view(func, inputs, outputs) else kind_of(name)
        if kind == "other" and base != name:
            kind = kind_of(base)
        flops = scalar = moved = 0
        if kind != "view":
            flops = matrix_flops(name, args, out) if written else 0
            scalar = _scalars(name, kind, args, read, written)
            index = sum(_extent(t) for t in read if t.dtype == torch.int64)
            moved = cost_of(name, map(_extent, read), map(_extent, written), index)
        inside = _inside(name, kind, args, read, written) if self.device == "cpu" else 0
        self.ops.append(
            Op(
                name=f"{func.namespace}.{name}",
                kind=kind,
                phase=self.phase,
                inputs=inputs,
                outputs=outputs,
                flops=flops,
                scalar_ops=scalar,
                moved_bytes=moved,
                workspace_bytes=inside,
            )
        )

    def _rnn_workspace(self, args: Sequence[Any]) -> int:
        """Bytes that one recurrent layer keeps inside its kernel for the backward pass.

        oneDNN: fitted to the workspaces of five LSTM layers, within 2%. cuDNN's reserve space
        is not documented; six values a hidden unit and step (four gates, cell, output) is ours.
        """
        steps, batch = args[0].shape[:2]
        hidden, item = int(args[10]), args[0].element_size()
        if self.device == "gpu":
            return int(6 * steps * batch * hidden * item)
        row = -(-hidden // 16) * 16
        row += 16 if row % 64 == 0 else 0
        return int((14.7 * steps + 15) * batch * row * item)

    # --- result ---------------------------------------------------------------------------

    def graph(self, *, name: str, source: str, options: Options, sizes: Sequence[tuple[int, bool]]) -> Graph:
        """Everything recorded, as values.

        Parameters
        ----------
        name, source, options
            Of the graph.
        sizes : sequence of (int, bool)
            Elements of each distinct weight, and whether it is trained.
        """
        end = len(self.ops)
        storages = tuple(
            Storage(
                size_bytes=size,
                role=role,
                born=born,
                dies=end if dies is None else dies,
                saved=n in self._kept,
            )
            for n, (size, role, born, dies) in enumerate(
                zip(self._size, self._role, self._born, self._dies, strict=True)
            )
        )
        tensors = tuple(
            Tensor(shape=shape, dtype=dtype, storage=storage, name=self._names.get(index, ""))
            for (storage, shape, dtype), index in self._tensors.items()
        )
        return Graph(
            name=name,
            source=source,
            options=options,
            ops=tuple(self._with_saved(op, tensors) for op in self.ops),
            tensors=tensors,
            storages=storages,
            parameters=sum(size for size, _ in sizes),
            trained=sum(size for size, trained in sizes if trained),
            trained_sizes=tuple(size for size, trained in sizes if trained),
            notes=tuple(f"{text} ({count} times)" for text, count in sorted(self.assumed.items())),
        )

    def _with_saved(self, op: Op, tensors: Sequence[Tensor]) -> Op:
        if op.phase != "forward" or not self._kept:
            return op
        kept = tuple(t for t in dict.fromkeys(op.inputs + op.outputs) if tensors[t].storage in self._kept)
        if not kept:
            return op
        return msgspec.structs.replace(op, saved=kept)


def _by_hand(name: str, args: Sequence[Any]) -> Any:
    """What fake tensors do not answer, or answer with empty sparse tensors; None for all else."""
    if name == "_ctc_loss":
        return _ctc(args)
    if name == "_embedding_bag_backward" and args[9]:
        return _rows_of_bags(args)
    return None


def _rows_of_bags(args: Sequence[Any]) -> Any:
    """Sparse gradient of an embedding's bags: a row for each index."""
    grad, indices, rows = args[0], args[1], args[6]
    values = grad.new_empty((indices.numel(), grad.shape[1]))
    return torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
        *(1, 1, [rows, grad.shape[1]], indices.reshape(1, -1), values),
        dtype=grad.dtype,
        layout=torch.sparse_coo,
        device=grad.device,
    )


def _ctc(args: Sequence[Any]) -> Any:
    """Losses and tables of the CTC loss, whose sizes depend on values; for the longest targets."""
    scores, targets = args[0], args[1]
    steps, batch = scores.shape[:2]
    longest = targets.shape[1] if targets.dim() > 1 else targets.numel() // max(batch, 1)
    return scores.new_empty((batch,)), scores.new_empty((batch, steps, 2 * longest + 1))


_PROMOTING = frozenset(("elementwise", "reduction", "loss", "activation"))


def _inside(
    name: str,
    kind: OpKind,
    args: Sequence[Any],
    read: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
) -> int:
    """What a CPU kernel holds for a moment, as PyTorch's profiler shows it.

    The gradient of a convolution's weight is made in the library's layout and copied; operands
    of another type are converted as a whole first, which a GPU does element by element.
    """
    if name == "convolution_backward":
        return _extent(args[2]) if args[10][1] else 0
    if name.startswith("mkldnn_rnn_layer"):
        # Weights in the library's layout (and their gradients), and the gates of every step.
        weights = _extent(args[1]) + _extent(args[2])
        gates = args[0].shape[0] * args[0].shape[1] * args[1].shape[0] * args[0].element_size()
        return int(gates + weights * (2 if name.endswith("backward") else 1))
    if kind not in _PROMOTING or not written:
        return 0
    out = written[0]
    # A comparison's own type says nothing of the type in which it compares.
    if out.dtype == torch.bool:
        return 0
    return sum(t.numel() * out.element_size() for t in read if t.dtype != out.dtype and t.numel() > 1)


def _distinct(args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for leaf in (*args, *kwargs.values()):
        if isinstance(leaf, torch.Tensor):
            found[id(leaf)] = leaf
        elif isinstance(leaf, (list, tuple)):
            found.update({id(t): t for t in leaf if isinstance(t, torch.Tensor)})
    return [part for tensor in found.values() for part in _dense_parts(tensor)]


def _dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensor, or what a sparse one (the gradient of an embedding) consists of."""
    if tensor.layout is not torch.sparse_coo:
        return (tensor,)
    return (tensor._values(), tensor._indices())


def _is_view(func: Any, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> bool:
    returns = func._schema.returns
    if not returns or not outputs:
        return False
    alias = [r.alias_info for r in returns]
    if func._schema.name in _ALSO_VIEWS:
        return True
    return all(a is not None and not a.is_write for a in alias)


_ALSO_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("_unsafe_view", "detach", "detach_", "lift_fresh", "_reshape_alias", "as_strided_", "t_", "set_"),
        *("transpose_", "squeeze_", "unsqueeze_", "swapaxes_"),
        "_sparse_coo_tensor_with_dims_and_tensors",
    )
)


def _extent(tensor: torch.Tensor) -> int:
    """Bytes that a tensor really spans: an expanded one repeats the same memory."""
    size = tensor.numel() * tensor.element_size()
    if size and 0 in tensor.stride():
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
            size //= length if stride == 0 else 1
    return int(size)


def _scalars(
    name: str,
    kind: OpKind,
    args: Sequence[Any],
    read: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
) -> int:
    most = max((t.numel() for t in read), default=0)
    out = sum(t.numel() for t in written)
    window = 1
    if kind == "pooling" and "adaptive" not in name and "backward" not in name and len(args) > 1:
        sizes = args[1] if isinstance(args[1], (list, tuple)) else ()
        for size in sizes:
            window *= size if isinstance(size, int) else 1
    return scalar_cost(name, kind, most, out, window)
