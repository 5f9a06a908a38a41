"""Features of a training step, made from its graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cotenant.profiles.graph.ir import MATRIX_KINDS, ClassUse, Graph, GraphFeatures, Op
from cotenant.profiles.graph.liveness import peak_of, state_bytes
from cotenant.profiles.graph.optimisers import find_optimiser

__all__ = ["features_of"]

_SHAPES = 8


def features_of(graph: Graph) -> GraphFeatures:
    """Count what the graph does, moves and holds."""
    forward = [op for op in graph.ops if op.phase == "forward"]
    backward = [op for op in graph.ops if op.phase == "backward"]
    depth, chain = _longest_paths(graph, forward)
    held = _held(graph)
    peak = peak_of(graph)
    saved = sum(s.size_bytes for s in graph.storages if s.saved and s.role == "activation")
    trained = held["trained"] if graph.options.training else 0
    # Of a table whose gradient is sparse, a step touches the rows that were looked up.
    touched = trained
    if graph.touched_sizes and graph.trained and graph.options.training:
        touched = trained * sum(graph.touched_sizes) // graph.trained
    return GraphFeatures(
        name=graph.name,
        source=graph.source,
        options=graph.options,
        parameters=graph.parameters,
        flops_forward=sum(op.flops for op in forward),
        flops_backward=sum(op.flops for op in backward),
        scalar_ops_forward=sum(op.scalar_ops for op in forward),
        scalar_ops_backward=sum(op.scalar_ops for op in backward),
        moved_forward_bytes=sum(op.moved_bytes for op in forward),
        moved_backward_bytes=sum(op.moved_bytes for op in backward),
        moved_step_bytes=round(find_optimiser(graph.options.optimiser).moved * touched),
        parameter_bytes=held["parameter"],
        buffer_bytes=held["buffer"],
        gradient_bytes=touched,
        optimiser_bytes=state_bytes(graph),
        input_bytes=held["input"],
        activation_bytes=saved,
        temporary_bytes=peak.temporary_bytes,
        peak_bytes=peak.total_bytes,
        kernels_forward=_kernels(forward),
        kernels_backward=_kernels(backward),
        depth=depth,
        chain=chain,
        classes=tuple(_classes(graph)),
        unknown=dict(sorted(Counter(op.name for op in graph.ops if op.kind == "other").items())),
        notes=graph.notes,
    )


def _kernels(ops: Iterable[Op]) -> int:
    return sum(op.moved_bytes > 0 or op.flops > 0 for op in ops)


def _held(graph: Graph) -> dict[str, int]:
    held = dict.fromkeys(("parameter", "buffer", "input", "trained"), 0)
    for storage in graph.storages:
        if storage.role in held:
            held[storage.role] += storage.size_bytes
    if graph.parameters:
        held["trained"] = held["parameter"] * graph.trained // graph.parameters
    return held


def _longest_paths(graph: Graph, ops: Iterable[Op]) -> tuple[int, int]:
    """Longest path counted in operators with matrix work, and in operators that do something."""
    weighted: dict[int, tuple[int, int]] = {}
    most = (0, 0)
    for op in ops:
        depth = chain = 0
        for number in op.inputs:
            before = weighted.get(graph.tensors[number].storage, (0, 0))
            depth, chain = max(depth, before[0]), max(chain, before[1])
        depth += op.kind in MATRIX_KINDS and op.flops > 0
        chain += op.moved_bytes > 0
        for number in op.outputs:
            storage = graph.tensors[number].storage
            old = weighted.get(storage, (0, 0))
            weighted[storage] = (max(depth, old[0]), max(chain, old[1]))
        most = (max(most[0], depth), max(most[1], chain))
    return most


def _classes(graph: Graph) -> Iterable[ClassUse]:
    by_kind: dict[str, list[Op]] = {}
    for op in graph.ops:
        by_kind.setdefault(op.kind, []).append(op)
    for kind in sorted(by_kind):
        ops = by_kind[kind]
        forward = [op for op in ops if op.phase == "forward"]
        yield ClassUse(
            kind=ops[0].kind,
            forward=len(forward),
            backward=len(ops) - len(forward),
            flops=sum(op.flops for op in ops),
            scalar_ops=sum(op.scalar_ops for op in ops),
            moved_bytes=sum(op.moved_bytes for op in ops),
            shapes=_shapes(graph, forward),
        )


def _shapes(graph: Graph, ops: Iterable[Op]) -> tuple[tuple[str, int], ...]:
    counts = Counter(
        " x ".join("(" + ",".join(map(str, graph.tensors[t].shape)) + ")" for t in op.inputs[:3])
        for op in ops
    )
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_SHAPES])
