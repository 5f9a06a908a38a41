"""Derive a backward pass by rules, for a forward pass read where no autograd exists.

For each operator the table says what its gradient needs again: inputs, outputs, a mask, or
nothing. What is needed lives on; everything else dies after its last reader. Then the operators
run in reverse: each consumes the gradients of its outputs and makes those of its inputs, and a
product costs, for every input that needs a gradient, what it cost forward.
"""

from __future__ import annotations

import msgspec

from cotenant.profiles.graph.ir import Graph, Op, OpKind, Role, Storage

__all__ = ["with_backward"]

_KEEPS_INPUTS: frozenset[OpKind] = frozenset(
    ("matmul", "convolution", "normalisation", "pooling", "loss", "recurrent", "attention", "other")
)
_KEEPS_OUTPUT: frozenset[OpKind] = frozenset(("softmax", "attention", "recurrent"))
_NEEDS_INPUT_NAMES = frozenset(
    """Mul Div Pow Gelu Silu HardSwish Mish Softplus Elu LeakyRelu Clip Abs Log Sin Cos Erf PRelu Selu Swish
    mul div pow gelu silu hardswish mish softplus elu leaky_relu clamp hardtanh abs log sin cos erf
    hardsigmoid HardSigmoid Where where
    """.split()  # noqa: SIM905
)
_NEEDS_OUTPUT_NAMES = frozenset(
    "Relu Sigmoid Tanh Sqrt Exp Reciprocal relu sigmoid tanh sqrt rsqrt exp reciprocal".split()  # noqa: SIM905
)
_FLOATING = ("float", "bfloat", "double")


class _Builder:
    """Mutable while the backward pass is laid out."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.end = len(graph.ops)
        self.sizes = [s.size_bytes for s in graph.storages]
        self.roles: list[Role] = [s.role for s in graph.storages]
        self.born = [s.born for s in graph.storages]
        self.dies = [s.dies for s in graph.storages]
        self.kept: set[int] = set()
        self.masks: dict[int, int] = {}
        self.gradient: dict[int, int] = {}
        self.ops: list[Op] = []

    def storage(self, tensor: int) -> int:
        return self.graph.tensors[tensor].storage

    def add(self, size: int, role: Role, born: int, dies: int) -> int:
        self.sizes.append(size)
        self.roles.append(role)
        self.born.append(born)
        self.dies.append(dies)
        return len(self.sizes) - 1


def with_backward(graph: Graph) -> Graph:
    """The graph with a derived backward pass after its forward pass.

    Parameters
    ----------
    graph : Graph
        Forward operators only, in order. Storages die after their last reader, outputs of the
        model at the end.
    """
    made = _Builder(graph)
    needing = _needing(graph)
    saved: dict[int, tuple[int, ...]] = {}
    for number, op in enumerate(graph.ops):
        if any(made.storage(t) in needing for t in op.outputs):
            saved[number] = _saved(made, op)
            if op.kind == "dropout":
                # A byte an element says what was dropped.
                elements = sum(made.sizes[made.storage(t)] for t in op.outputs[:1]) // 4
                made.masks[number] = made.add(elements, "activation", number, made.end)
                made.kept.add(made.masks[number])
    last_use: dict[int, int] = {}
    for number in reversed(range(made.end)):
        if number in saved and graph.ops[number].kind != "view":
            _back(made, number, saved[number], needing, last_use)
    for storage in made.kept:
        made.dies[storage] = last_use.get(storage, made.dies[storage])
    return _finished(made, saved)


def _needing(graph: Graph) -> set[int]:
    """Storages that get a gradient: trained weights and all floats that depend on them."""
    needing = {n for n, s in enumerate(graph.storages) if s.role == "parameter"}
    for op in graph.ops:
        if any(graph.tensors[t].storage in needing for t in op.inputs):
            for t in op.outputs:
                if graph.tensors[t].dtype.startswith(_FLOATING):
                    needing.add(graph.tensors[t].storage)
    return needing


def _saved(made: _Builder, op: Op) -> tuple[int, ...]:
    name = op.name.rpartition(".")[2].rstrip("_")
    tensors: list[int] = []
    if op.kind in _KEEPS_INPUTS or name in _NEEDS_INPUT_NAMES:
        tensors += op.inputs
    if op.kind in _KEEPS_OUTPUT or name in _NEEDS_OUTPUT_NAMES:
        tensors += op.outputs
    kept = tuple(t for t in dict.fromkeys(tensors) if made.roles[made.storage(t)] == "activation")
    made.kept.update(made.storage(t) for t in kept)
    return kept


def _back(
    made: _Builder, number: int, saved: tuple[int, ...], needing: set[int], last_use: dict[int, int]
) -> None:
    graph, op = made.graph, made.graph.ops[number]
    at = made.end + len(made.ops)
    read = 0
    for storage in {made.storage(t) for t in op.outputs} & needing:
        grad = made.gradient.get(storage)
        if grad is None:
            grad = made.gradient[storage] = made.add(made.sizes[storage], "activation", at, at)
        made.dies[grad] = at
        read += made.sizes[grad]
    written = 0
    for storage in dict.fromkeys(made.storage(t) for t in op.inputs):
        if storage not in needing:
            continue
        written += made.sizes[storage]
        if storage in made.gradient:
            made.dies[made.gradient[storage]] = max(made.dies[made.gradient[storage]], at)
            continue
        role: Role = "gradient" if made.roles[storage] == "parameter" else "activation"
        dies = 1 << 60 if role == "gradient" else at
        made.gradient[storage] = made.add(made.sizes[storage], role, at, dies)
    for storage in (
        {made.storage(t) for t in saved} | {made.masks[number]}
        if number in made.masks
        else {made.storage(t) for t in saved}
    ):
        last_use.setdefault(storage, at)
        last_use[storage] = max(last_use[storage], at)
        read += made.sizes[storage]
    made.ops.append(
        Op(
            name=f"{op.name} backward",
            kind=op.kind,
            phase="backward",
            inputs=saved,
            flops=_flops(made, op, needing),
            scalar_ops=op.scalar_ops,
            moved_bytes=read + written + _weights(graph, op),
        )
    )


def _flops(made: _Builder, op: Op, needing: set[int]) -> int:
    if op.kind == "attention":
        return op.flops * 5 // 2
    if op.kind == "recurrent":
        return op.flops * 2
    # A bias needs a sum and no product: only the two factors count.
    biased_first = op.name.rpartition(".")[2] in {"addmm", "baddbmm", "addmv"}
    factors = op.inputs[1:3] if biased_first else op.inputs[:2]
    return op.flops * sum(made.storage(t) in needing for t in factors)


def _weights(graph: Graph, op: Op) -> int:
    storages = {graph.tensors[t].storage for t in op.inputs}
    return sum(graph.storages[s].size_bytes for s in storages if graph.storages[s].role == "parameter")


def _finished(made: _Builder, saved: dict[int, tuple[int, ...]]) -> Graph:
    graph = made.graph
    end = made.end + len(made.ops)
    forward = tuple(
        msgspec.structs.replace(op, saved=saved[number]) if saved.get(number) else op
        for number, op in enumerate(graph.ops)
    )
    storages = tuple(
        Storage(
            size_bytes=size,
            role=role,
            born=born,
            dies=end if dies >= 1 << 60 or (number < len(graph.storages) and dies >= made.end) else dies,
            saved=number in made.kept,
        )
        for number, (size, role, born, dies) in enumerate(
            zip(made.sizes, made.roles, made.born, made.dies, strict=True)
        )
    )
    # What the forward pass kept to its end dies where its last gradient was made.
    fixed = [
        msgspec.structs.replace(s, dies=min(made.dies[n], end))
        if n in made.kept and made.dies[n] >= made.end
        else s
        for n, s in enumerate(storages)
    ]
    return msgspec.structs.replace(graph, ops=forward + tuple(made.ops), storages=tuple(fixed))
