"""A training step as values: storages, tensors and operators, and the features made of them.

A ``Graph`` is the same whoever read it (``torchreader``, ``onnxreader``, ``hfreader``): the
operators of one training step in the order in which they run (forward, backward), each with its
class, its FLOPs and the bytes that it moves, over tensors that are views of storages; a storage
says when it is born and when it dies, so that memory is a sweep over the operators and not a sum.

Units: bytes; FLOPs count a multiply-add as two, as PyTorch's ``FlopCounterMode`` does, and only
for matrix work (products, convolutions, attention, recurrent layers). The arithmetic of all
other operators is counted apart, as ``scalar_ops``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = [
    "MATRIX_KINDS",
    "PRECISION_BYTES",
    "ClassUse",
    "Graph",
    "GraphFeatures",
    "Op",
    "OpKind",
    "Options",
    "Phase",
    "Precision",
    "Role",
    "Storage",
    "Tensor",
]

OpKind = Literal[
    "matmul",
    "convolution",
    "attention",
    "recurrent",
    "embedding",
    "normalisation",
    "activation",
    "softmax",
    "pooling",
    "dropout",
    "elementwise",
    "reduction",
    "loss",
    "copy",
    "index",
    "view",
    "create",
    "other",
]
"""What an operator does. ``other`` is an operator that no table knows: named and counted."""

MATRIX_KINDS: tuple[OpKind, ...] = ("matmul", "convolution", "attention", "recurrent")
"""Classes whose work counts as FLOPs."""

Phase = Literal["forward", "backward"]
Role = Literal["parameter", "buffer", "input", "activation", "gradient"]
Precision = Literal["fp32", "tf32", "amp", "bf16", "fp16"]
"""``amp``: 32-bit weights, 16-bit products (autocast). ``bf16``, ``fp16``: everything 16-bit.
``tf32`` computes with fewer bits and stores what ``fp32`` stores."""

PRECISION_BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "amp": 4, "bf16": 2, "fp16": 2}
"""Bytes of a stored weight."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is trained.

    Parameters
    ----------
    batch : int
        Samples in a step on one device; at least 1.
    precision : str
        See ``Precision``.
    optimiser : str
        A name of ``optimisers.known()``.
    checkpointing : bool
        Activations of the repeated blocks are computed again in the backward pass.
    training : bool
        False: the forward pass alone, nothing saved.
    device : str
        ``gpu`` or ``cpu``: which of a framework's kernels are used. They keep different things
        (dropout's mask is a byte on a GPU and a float on a CPU).
    """

    batch: int = 1
    precision: Precision = "fp32"
    optimiser: str = "sgd"
    checkpointing: bool = False
    training: bool = True
    device: Literal["gpu", "cpu"] = "gpu"


class Storage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A piece of memory, and when it lives.

    Parameters
    ----------
    size_bytes : int
    role : str
        See ``Role``.
    born : int
        Index of the operator that allocates it; -1 if it was there before the step.
    dies : int
        Index of the operator after which it is free; the number of operators if it outlives
        the step.
    saved : bool
        Kept by the forward pass for the backward pass.
    """

    size_bytes: int
    role: Role
    born: int
    dies: int
    saved: bool = False


class Tensor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A shaped view of a storage.

    Parameters
    ----------
    shape : tuple of int
    dtype : str
        ``float32``, ``int64``, ...
    storage : int
        Index into ``Graph.storages``.
    name : str
        Given to parameters, buffers and inputs.
    """

    shape: tuple[int, ...]
    dtype: str
    storage: int
    name: str = ""


class Op(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One operator of the step.

    Parameters
    ----------
    name : str
        As its framework calls it: ``aten.addmm``, ``onnx.Conv``.
    kind : str
        See ``OpKind``.
    phase : str
    inputs, outputs : tuple of int
        Indices into ``Graph.tensors``.
    flops : int
        Matrix work.
    scalar_ops : int
        Other arithmetic, in operations.
    moved_bytes : int
        Read plus written, each tensor once: what goes through device memory if nothing of it
        is in a cache.
    saved : tuple of int
        Tensors that it keeps for the backward pass.
    workspace_bytes : int
        Held inside the kernel while it runs, as far as known.
    """

    name: str
    kind: OpKind
    phase: Phase
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    flops: int = 0
    scalar_ops: int = 0
    moved_bytes: int = 0
    saved: tuple[int, ...] = ()
    workspace_bytes: int = 0


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """One training step of a model.

    Parameters
    ----------
    name : str
    source : str
        How it was read: ``torch fake tensors``, ``onnx``, ...
    options : Options
    ops : tuple of Op
        In the order in which they run.
    tensors : tuple of Tensor
    storages : tuple of Storage
    parameters : int
        Elements of all trained and frozen weights, a shared weight once.
    trained : int
        Elements of the weights that get a gradient.
    trained_sizes : tuple of int
        Elements of each trained weight.
    touched_sizes : tuple of int
        Elements of each trained weight that a step updates, where gradients are sparse; empty: all.
    notes : tuple of str
        What had to be assumed, for people.
    """

    name: str
    source: str
    options: Options
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    parameters: int
    trained: int
    trained_sizes: tuple[int, ...] = ()
    touched_sizes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class ClassUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the operators of one class use, both passes.

    Parameters
    ----------
    kind : str
    forward, backward : int
        Number of operators.
    flops, scalar_ops, moved_bytes : int
        Both passes together.
    shapes : tuple of (str, int)
        Shapes of the operators' inputs with how often they occur in the forward pass, the most
        frequent first, at most eight.
    """

    kind: OpKind
    forward: int
    backward: int
    flops: int
    scalar_ops: int
    moved_bytes: int
    shapes: tuple[tuple[str, int], ...] = ()


class GraphFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Features of one training step; nothing of a device is in them.

    Parameters
    ----------
    name, source, options
        Of the graph.
    parameters : int
        Number of weights.
    flops_forward, flops_backward : int
        Matrix work; recomputation under checkpointing counts as backward.
    scalar_ops_forward, scalar_ops_backward : int
        All other arithmetic.
    moved_forward_bytes, moved_backward_bytes, moved_step_bytes : int
        Through memory in either pass and in the optimiser's step.
    parameter_bytes, buffer_bytes, gradient_bytes, optimiser_bytes, input_bytes : int
    activation_bytes : int
        Saved by the forward pass for the backward pass.
    temporary_bytes : int
        What the peak holds beyond all of these.
    peak_bytes : int
        Peak of live bytes of a step, by liveness.
    kernels_forward, kernels_backward : int
        Operators that do something (no views).
    depth : int
        Operators with matrix work on the longest path of the forward pass (50 in ResNet-50).
    chain : int
        Operators that do something on the longest path of the forward pass.
    classes : tuple of ClassUse
        By kind, those that occur.
    unknown : mapping of str to int
        Operators that no table knows, with how often they occur in both passes.
    notes : tuple of str
    """

    name: str
    source: str
    options: Options
    parameters: int
    flops_forward: int
    flops_backward: int
    scalar_ops_forward: int
    scalar_ops_backward: int
    moved_forward_bytes: int
    moved_backward_bytes: int
    moved_step_bytes: int
    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    input_bytes: int
    activation_bytes: int
    temporary_bytes: int
    peak_bytes: int
    kernels_forward: int
    kernels_backward: int
    depth: int
    chain: int
    classes: tuple[ClassUse, ...] = ()
    unknown: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Matrix work of a whole step."""
        return self.flops_forward + self.flops_backward

    @property
    def moved_bytes(self) -> int:
        """Bytes through memory in a whole step, the optimiser's included."""
        return self.moved_forward_bytes + self.moved_backward_bytes + self.moved_step_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity of a step: FLOPs and scalar operations per byte moved."""
        work = self.flops + self.scalar_ops_forward + self.scalar_ops_backward
        return work / self.moved_bytes if self.moved_bytes else 0.0

    def row(self) -> dict[str, float]:
        """Flat numbers for a regression: everything above, and per class count, FLOPs and bytes.

        Every class is there, those that do not occur with zeros, so that rows of different
        models have the same columns in the same order.
        """
        numbers: dict[str, float] = {"batch": self.options.batch, "stored_bytes": self._weight_bytes()}
        numbers["checkpointing"] = float(self.options.checkpointing)
        for field in _NUMERIC:
            numbers[field] = float(getattr(self, field))
        numbers["intensity"] = self.intensity
        found = {use.kind: use for use in self.classes}
        for kind in _KINDS:
            use = found.get(kind)
            numbers[f"{kind}_count"] = float(use.forward) if use else 0.0
            numbers[f"{kind}_flops"] = float(use.flops) if use else 0.0
            numbers[f"{kind}_moved_bytes"] = float(use.moved_bytes) if use else 0.0
        numbers["unknown_count"] = float(sum(self.unknown.values()))
        return numbers

    def _weight_bytes(self) -> float:
        return float(PRECISION_BYTES[self.options.precision])


_KINDS: tuple[OpKind, ...] = OpKind.__args__  # type: ignore[attr-defined]
_NUMERIC = tuple(
    field
    for field in GraphFeatures.__struct_fields__
    if field not in {"name", "source", "options", "classes", "unknown", "notes"}
)
