"""One training step boiled down to what decides its speed: kernels in groups.

Operators of a graph are put into groups by class and arithmetic intensity. Which of two limits,
arithmetic or bandwidth, binds an operator depends on nothing else, so a sum over groups is as
good as a sum over operators, and a step becomes a line of text instead of thousands of operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.graph.ir import MATRIX_KINDS, Graph, Op, Precision
from cotenant.profiles.wholefile import write_whole

__all__ = ["KernelClass", "KernelGroup", "StepWork", "read_works", "work_of", "write_works", "zoo_works"]

KernelClass = Literal["convolution", "matrix", "other"]
"""What kind of rate binds a kernel; ``other`` does no matrix work."""

_LAUNCHES = {"none": 0, "sgd": 2, "momentum": 4, "nesterov": 5}
_ADAPTIVE_LAUNCHES = 9
"""Kernels for each weight where weights are updated one by one: adaptive rules need about nine."""


class KernelGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Kernels of one class and one binary order of arithmetic intensity, both passes.

    Parameters
    ----------
    kind : {"convolution", "matrix", "other"}
    intensity : int
        Exponent of 2: FLOPs per byte lie in ``[2**intensity, 2**(intensity + 1))``; 0 for
        ``other``.
    count : int
        Operators.
    flops, moved_bytes : float
        Of all of them together.
    """

    kind: KernelClass
    intensity: int
    count: int
    flops: float
    moved_bytes: float


class StepWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One training step of a model at one batch size.

    Parameters
    ----------
    name : str
    batch : int
        Samples in a step on one device.
    precision : str
        As in ``graph.ir.Options``.
    optimiser : str
    forward, backward : int
        Operators that do something, in either pass.
    weights : int
        Trained tensors: each is updated by kernels of its own.
    update_bytes : float
        Moved by the optimiser's step.
    parameter_bytes, activation_bytes, peak_bytes : float
        Weights, what is kept for the backward pass, and the peak of live bytes.
    memory_bytes, memory_high_bytes : float
        P50 and P95 of the memory model on a GPU of any type; 0 if it was not asked.
    scalar_ops : float
        Arithmetic outside of matrix work.
    counts : dict of str to int
        Operators of the forward pass by class (``graph.ir.OpKind``), those that occur.
    groups : tuple of KernelGroup
    """

    name: str
    batch: int
    precision: Precision = "fp32"
    optimiser: str = "sgd"
    forward: int = 0
    backward: int = 0
    weights: int = 0
    update_bytes: float = 0.0
    parameter_bytes: float = 0.0
    activation_bytes: float = 0.0
    peak_bytes: float = 0.0
    memory_bytes: float = 0.0
    memory_high_bytes: float = 0.0
    scalar_ops: float = 0.0
    counts: dict[str, int] = {}
    groups: tuple[KernelGroup, ...] = ()

    @property
    def flops(self) -> float:
        """Matrix work, both passes."""
        return math.fsum(group.flops for group in self.groups)

    @property
    def moved_bytes(self) -> float:
        """Bytes through device memory, the optimiser's included."""
        return math.fsum(group.moved_bytes for group in self.groups) + self.update_bytes

    @property
    def updates(self) -> int:
        """Kernels of the optimiser's step, one weight at a time.

        >>> StepWork(name="x", batch=1, optimiser="momentum", weights=10).updates
        40
        """
        return self.weights * _LAUNCHES.get(self.optimiser, _ADAPTIVE_LAUNCHES)

    @property
    def kernels(self) -> int:
        """Kernels of a whole step."""
        return self.forward + self.backward + self.updates


def work_of(graph: Graph) -> StepWork:
    """Boil a graph down.

    Examples
    --------
    One product of 2 * 4 * 8 * 16 FLOPs over 1,000 bytes:

    >>> from cotenant.profiles.graph.ir import Graph, Op, Options
    >>> op = Op(name="mm", kind="matmul", phase="forward", flops=1024, moved_bytes=1000)
    >>> graph = Graph(
    ...     name="m", source="", options=Options(), ops=(op,), tensors=(), storages=(), parameters=0, trained=0
    ... )
    >>> work_of(graph).groups
    (KernelGroup(kind='matrix', intensity=0, count=1, flops=1024.0, moved_bytes=1000.0),)
    """
    from cotenant.profiles.graph.features import features_of
    from cotenant.profiles.graph.memory import forecast_memory

    features = features_of(graph)
    busy = [op for op in graph.ops if op.moved_bytes > 0 or op.flops > 0]
    forward = [op for op in busy if op.phase == "forward"]
    memory = forecast_memory(graph)
    trained = len(graph.trained_sizes) if graph.options.training else 0
    return StepWork(
        name=graph.name,
        batch=graph.options.batch,
        precision=graph.options.precision,
        optimiser=graph.options.optimiser,
        forward=len(forward),
        backward=len(busy) - len(forward),
        weights=trained,
        update_bytes=float(features.moved_step_bytes),
        parameter_bytes=float(features.parameter_bytes),
        activation_bytes=float(features.activation_bytes),
        peak_bytes=float(features.peak_bytes),
        memory_bytes=float(memory.p50_bytes),
        memory_high_bytes=float(memory.p95_bytes),
        scalar_ops=float(features.scalar_ops_forward + features.scalar_ops_backward),
        counts=dict(sorted(Counter(op.kind for op in forward).items())),
        groups=_groups(busy),
    )


def _groups(ops: Iterable[Op]) -> tuple[KernelGroup, ...]:
    sums: dict[tuple[KernelClass, int], list[float]] = {}
    for op in ops:
        entry = sums.setdefault(_group_of(op), [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += op.flops
        entry[2] += op.moved_bytes
    return tuple(
        KernelGroup(kind, intensity, int(count), flops, moved)
        for (kind, intensity), (count, flops, moved) in sorted(sums.items())
    )


def _group_of(op: Op) -> tuple[KernelClass, int]:
    if op.kind not in MATRIX_KINDS or op.flops <= 0:
        return "other", 0
    kind: KernelClass = "convolution" if op.kind == "convolution" else "matrix"
    return kind, math.floor(math.log2(op.flops / max(op.moved_bytes, 1)))


def write_works(path: Path | str, works: Sequence[StepWork]) -> None:
    """Write one JSON object a line; the file appears whole or not at all."""
    encoder = msgspec.json.Encoder()
    write_whole(path, encoder.encode_lines(works))


def read_works(path: Path | str) -> tuple[StepWork, ...]:
    """Read what ``write_works`` wrote.

    Raises
    ------
    ConfigError
        If the file is not there, or a line is none of ours.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; it holds one step of work a line, as JSON") from error
    return _decoded(text, str(path))


def _decoded(text: bytes, path: str) -> tuple[StepWork, ...]:
    decoder = msgspec.json.Decoder(StepWork)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}:{number}: is no step of work: {error}") from error
    return tuple(found)


def zoo_works() -> tuple[StepWork, ...]:
    """Steps of the networks in the measured tables, read once from their graphs and shipped."""
    text = (files("cotenant") / "data" / "zoo_steps.jsonl").read_bytes()
    return _decoded(text, "zoo_steps.jsonl")
