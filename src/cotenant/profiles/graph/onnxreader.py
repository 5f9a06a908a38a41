"""Read an ONNX file: shapes are inferred for the batch that is asked for, weights are never loaded.

An ONNX file has a forward pass only. The backward pass is derived by rules (``backward``); the
loss is whatever the file's outputs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from cotenant.errors import ConfigError, MissingExtraError
from cotenant.profiles.graph.aten import scalar_cost
from cotenant.profiles.graph.backward import with_backward
from cotenant.profiles.graph.ir import Graph, Op, OpKind, Options, Role, Storage, Tensor
from cotenant.profiles.graph.onnxops import VIEWS, onnx_flops, onnx_kind

__all__ = ["read_onnx"]

_TYPES = {
    1: ("float32", 4),
    2: ("uint8", 1),
    3: ("int8", 1),
    6: ("int32", 4),
    7: ("int64", 8),
    9: ("bool", 1),
    10: ("float16", 2),
    11: ("float64", 8),
    16: ("bfloat16", 2),
}


def read_onnx(path: str | Path, options: Options, *, length: int = 128) -> Graph:
    """The graph of one training step (one forward pass, if ``options.training`` is off).

    Parameters
    ----------
    path : path
    options : Options
        The batch replaces the first dimension of every input that leaves it open.
    length : int
        Stands for every other open dimension; the graph's notes say where.

    Raises
    ------
    ConfigError
        If it is no ONNX file, was exported for another batch, or shapes cannot be inferred.
    MissingExtraError
        Without onnx.
    """
    where = Path(path)
    if not where.is_file():
        raise ConfigError(f"no such file: {where}")
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("reading ONNX files", "onnx") from None
    try:
        # External data would be the weights themselves: shapes are all that is needed.
        model = onnx.load(str(where), load_external_data=False)
        if not model.graph.node:
            raise ConfigError(f"{where} holds no ONNX graph")
        notes = _fix_inputs(model.graph, options, length, where)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except ConfigError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{where} cannot be read as ONNX: {type(error).__name__}: {reason}") from None
    graph = _Reading(onnx, model.graph, options, where).graph(where.stem, notes)
    return with_backward(graph) if options.training else graph


def _fix_inputs(graph: Any, options: Options, length: int, where: Path) -> tuple[str, ...]:
    """Give open dimensions their sizes, and forget shapes inferred for others."""
    weights = {tensor.name for tensor in graph.initializer}
    notes: dict[str, None] = {}
    for value in graph.input:
        if value.name in weights:
            continue
        for number, dim in enumerate(value.type.tensor_type.shape.dim):
            fixed = dim.dim_value if dim.HasField("dim_value") else 0
            if number == 0 and fixed and fixed != options.batch:
                raise ConfigError(
                    f"{where} was exported for a batch of {fixed} (input {value.name}), not {options.batch}; "
                    f"ask for --batch {fixed}, or export it with an open batch dimension"
                )
            if not fixed:
                name = dim.dim_param or "unnamed"
                dim.dim_value = options.batch if number == 0 else length
                if number:
                    notes[f"dimension {name!r} of input {value.name} was taken for {length}"] = None
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    return tuple(notes)


class _Reading:
    """Mutable while one file is read."""

    def __init__(self, onnx: Any, source: Any, options: Options, where: Path) -> None:
        self.onnx, self.source, self.options, self.where = onnx, source, options, where
        self.shapes: dict[str, tuple[tuple[int, ...] | None, str, int]] = {}
        self.tensors: list[Tensor] = []
        self.index: dict[str, int] = {}
        self.sizes: list[int] = []
        self.roles: list[Role] = []
        self.born: list[int] = []
        self.last: list[int] = []
        self.ops: list[Op] = []
        self.unshaped: set[str] = set()
        self.weights: list[int] = []

    def graph(self, name: str, notes: tuple[str, ...]) -> Graph:
        self._shapes()
        self._given()
        for node in self.source.node:
            self._node(node)
        end = len(self.ops)
        for value in self.source.output:
            if value.name in self.index:
                self.last[self.tensors[self.index[value.name]].storage] = end
        storages = tuple(
            Storage(size_bytes=size, role=role, born=born, dies=last)
            for size, role, born, last in zip(
                self.sizes,
                self.roles,
                self.born,
                (end if b < 0 else x for b, x in zip(self.born, self.last, strict=True)),
                strict=True,
            )
        )
        sizes = tuple(self.weights)
        return Graph(
            name=name,
            source="onnx, backward derived" if self.options.training else "onnx",
            options=self.options,
            ops=tuple(self.ops),
            tensors=tuple(self.tensors),
            storages=storages,
            parameters=sum(sizes),
            trained=sum(sizes),
            trained_sizes=sizes,
            notes=(*notes, *self._doubts()),
        )

    def _doubts(self) -> list[str]:
        notes = []
        if self.unshaped:
            some = ", ".join(sorted(self.unshaped)[:5])
            notes.append(f"{len(self.unshaped)} tensors have no inferred shape and count as empty: {some}")
        kinds = {node.op_type for node in self.source.node}
        if self.options.training and "Conv" in kinds and "BatchNormalization" not in kinds:
            notes.append("no batch normalisation: if it was folded at export, training keeps more than this")
        return notes

    def _shapes(self) -> None:
        graph = self.source
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type
            dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
            known = kind.HasField("shape") and all(size >= 0 for size in dims)
            dtype, item = _TYPES.get(kind.elem_type, ("unknown", 4))
            self.shapes[value.name] = (tuple(dims) if known else None, dtype, item)

    def _given(self) -> None:
        """Weights, constants and inputs."""
        for tensor in self.source.initializer:
            dtype, item = _TYPES.get(tensor.data_type, ("unknown", 4))
            shape = tuple(tensor.dims)
            floating = dtype.startswith(("float", "bfloat", "double"))
            # Integers and single numbers are the exporter's constants, not weights.
            role: Role = "parameter" if floating and shape and prod(shape) > 1 else "buffer"
            self.shapes[tensor.name] = (shape, dtype, item)
            self._tensor(tensor.name, role, -1)
        self._demote_statistics()
        for number, (tensor, role) in enumerate(zip(self.tensors, self.roles, strict=True)):
            if role == "parameter" and number == tensor.storage:
                self.weights.append(prod(tensor.shape))
        for value in self.source.input:
            if value.name not in self.index:
                self._tensor(value.name, "input", -1)

    def _demote_statistics(self) -> None:
        """Running mean and variance of batch normalisation are buffers."""
        for node in self.source.node:
            if node.op_type == "BatchNormalization":
                for name in node.input[3:5]:
                    if name in self.index:
                        self.roles[self.tensors[self.index[name]].storage] = "buffer"

    def _tensor(self, name: str, role: Role, born: int, storage: int | None = None) -> int:
        if name in self.index:
            return self.index[name]
        shape, dtype, item = self.shapes.get(name, (None, "unknown", 4))
        if shape is None:
            self.unshaped.add(name)
            shape = (0,)
        if storage is None:
            storage = len(self.sizes)
            self.sizes.append(self._stored(prod(shape) * item, dtype))
            self.roles.append(role)
            self.born.append(born)
            self.last.append(born)
        self.tensors.append(Tensor(shape=shape, dtype=dtype, storage=storage, name=name if born < 0 else ""))
        self.index[name] = len(self.tensors) - 1
        return self.index[name]

    def _stored(self, size: int, dtype: str) -> int:
        """Bytes under the precision that is asked for; a file says only what it was exported with."""
        if dtype == "float32" and self.options.precision in {"bf16", "fp16"}:
            return size // 2
        return size

    def _node(self, node: Any) -> None:
        at = len(self.ops)
        inputs = [self._tensor(name, "activation", -1) for name in node.input if name]
        shapes = [self.tensors[self.index[n]].shape if n else () for n in node.input]
        for number in inputs:
            self.last[self.tensors[number].storage] = at
        kind = onnx_kind(node.op_type)
        shared = self._shared(node, inputs)
        if node.op_type in VIEWS and shared is not None:
            kind = "view"
        outputs = [
            self._tensor(name, "activation", at, shared if kind == "view" else None)
            for name in node.output
            if name
        ]
        out = [self.tensors[number].shape for number in outputs]
        attributes = {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}
        flops = onnx_flops(node.op_type, shapes, out, attributes) if out else 0
        self.ops.append(
            Op(
                name=f"onnx.{node.op_type}",
                kind=kind,
                phase="forward",
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                flops=flops,
                scalar_ops=_scalars(node.op_type, kind, shapes, out, attributes),
                moved_bytes=0 if kind in {"view", "create"} else self._moved(kind, inputs, outputs),
            )
        )

    def _shared(self, node: Any, inputs: list[int]) -> int | None:
        """Storage that the output is a view of, if it is one."""
        if not inputs or node.op_type in {"Shape", "Constant", "Split"}:
            return None
        before = self.tensors[inputs[0]]
        after = self.shapes.get(node.output[0], (None, "unknown", 4))
        return before.storage if after[1] == before.dtype else None

    def _moved(self, kind: OpKind, inputs: Iterable[int], outputs: Iterable[int]) -> int:
        written = sum(self._extent(t) for t in outputs)
        if kind == "embedding":
            return 2 * written
        return sum(self._extent(t) for t in dict.fromkeys(inputs)) + written

    def _extent(self, tensor: int) -> int:
        found = self.tensors[tensor]
        item = next((size for name, size in _TYPES.values() if name == found.dtype), 4)
        return self._stored(prod(found.shape) * item, found.dtype)


def _scalars(
    op_type: str,
    kind: OpKind,
    inputs: list[tuple[int, ...]],
    out: list[tuple[int, ...]],
    attributes: Mapping[str, Any],
) -> int:
    read = max((prod(shape) for shape in inputs if shape), default=0)
    written = sum(prod(shape) for shape in out)
    window = prod(attributes.get("kernel_shape", ())) if kind == "pooling" else 1
    return scalar_cost(op_type.casefold(), kind, read, written, window)
