"""Memory of a training job on a device, in named parts, each with a middle and a high value.

What tensors hold comes from liveness over the graph (``liveness``): at the moment when most
lives, so much is weights, gradients, optimiser state, inputs, activations and temporary
results. To this come what kernels take inside (``workspace``), what the allocator rounds up and
keeps (``reserve``), and the runtime's own memory (``context``).

P50 is the middle of what to expect; P95 is meant to be exceeded by one job in twenty at most,
and is the sum of the parts' own high values, since what makes one part large (an older driver,
a greedy kernel choice) says nothing about the others. How often it held is measured in
``docs/prediction/memory.md``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np

from cotenant.model.quantities import MIB, format_bytes
from cotenant.profiles.catalogue import device_type, known
from cotenant.profiles.graph.contexts import CPU_CONTEXT, TRIAL_BYTES, Context, context_of
from cotenant.profiles.graph.ir import Graph
from cotenant.profiles.graph.liveness import Peak, doubtful_peak, peak_of, reserved_bytes

__all__ = ["Fit", "MemoryForecast", "MemoryPart", "Verdict", "fit_on", "fits", "forecast_memory"]

Verdict = Literal["fits", "does not fit", "too close to call"]

# From the errors measured on a CPU (docs/prediction/memory.md).
_TENSOR_DOUBT = 0.05
"""Share of activations and temporaries: kernels that make a tensor of their own for a moment."""
_RECURRENT_DOUBT = 0.25
"""Share of what a recurrent layer's kernel holds (bidirectional ones hold more than the rule says)."""
_MAPPED = 32 * MIB
"""Larger blocks the C library takes from the system and gives back at once (glibc, mallopt(3),
``M_MMAP_THRESHOLD``); of smaller ones it keeps a part, and scratch of kernels comes with them."""
_CLASSES = tuple(2**k for k in (16, 18, 20, 22, 23, 24, 25))
"""Upper ends of classes of smaller blocks by size, in bytes: what was freed of one does not serve another."""
_CPU_KEPT, _CPU_ELSEWHERE, _CPU_CONVOLUTION = 1.0, 0.4, 12 * MIB
"""Kept by the C library: of the class that holds most, as much again; of what smaller blocks hold at another moment
beyond the peak's, a share; and the library of convolutions."""
_CPU_DOUBT = (60 * MIB, 0.5)
"""A fixed part, and a share of the class that holds most."""
_GPU_RESERVE_HIGH = 0.08
"""Share of everything but weights and state: fragmentation beyond that of two simulated steps."""


class MemoryPart(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One part of a job's memory.

    Parameters
    ----------
    name : str
    p50_bytes, p95_bytes : int
    why : str
        What is in it, for people.
    """

    name: str
    p50_bytes: int
    p95_bytes: int
    why: str


class MemoryForecast(msgspec.Struct, frozen=True, kw_only=True):
    """A job's memory on a kind of device.

    Parameters
    ----------
    name : str
    device_type : str
        Type whose context is counted; empty: any GPU. ``cpu`` for a CPU.
    parts : tuple of MemoryPart
    live_bytes : int
        Peak of what tensors hold; below this it cannot run, however the allocator does.
    notes : tuple of str
    """

    name: str
    device_type: str
    parts: tuple[MemoryPart, ...]
    live_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def p50_bytes(self) -> int:
        """Middle of what to expect."""
        return sum(part.p50_bytes for part in self.parts)

    @property
    def p95_bytes(self) -> int:
        """Exceeded by one job in twenty at most."""
        return sum(part.p95_bytes for part in self.parts)

    @property
    def least_bytes(self) -> int:
        """Tensors and half of the context: with less than this it does not run."""
        context = next(part.p50_bytes for part in self.parts if part.name == "context")
        return self.live_bytes + context // 2


class Fit(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Whether a job fits a device.

    Parameters
    ----------
    verdict : str
    free_bytes : int
        What the device has left for it.
    reason : str
        Both numbers, in MiB.
    """

    verdict: Verdict
    free_bytes: int
    reason: str


def forecast_memory(graph: Graph, device: str | None = None, *, framework: str = "pytorch") -> MemoryForecast:
    """Predict the memory of the job whose graph this is.

    Parameters
    ----------
    graph : Graph
        Read with ``options.device`` set to the kind of device that is asked for.
    device : str, optional
        A type of the device catalogue; without one, the context of an unknown GPU is counted.
        Not used for a graph that was read for a CPU.
    framework : str
        A name of ``contexts.frameworks()``.

    Raises
    ------
    UnknownNameError
        For an unknown framework.
    """
    peak = peak_of(graph)
    coming = peak.activation_bytes + peak.temporary_bytes
    on_cpu = graph.options.device == "cpu"
    context = CPU_CONTEXT if on_cpu else context_of(device, framework)
    # On a CPU what is inside kernels is known, and counted as temporary.
    workspace = (0, 0) if on_cpu else _workspace(graph, context)
    reserve = _cpu_reserve(graph, peak) if on_cpu else _gpu_reserve(graph, peak, workspace[0])
    doubt = 1 + _TENSOR_DOUBT
    parts = (
        _exact("weights", peak.weight_bytes, "parameters and buffers"),
        _exact("gradients", peak.gradient_bytes, "of weights, as many as exist at the peak"),
        _exact("optimiser", peak.optimiser_bytes, f"state of {graph.options.optimiser}"),
        _exact("inputs", peak.input_bytes, "one batch"),
        _part("activations", peak.activation_bytes, doubt, "kept for the backward pass, at the peak"),
        _temporary(graph, peak),
        MemoryPart(
            name="workspace",
            p50_bytes=workspace[0],
            p95_bytes=workspace[1],
            why="inside kernels and libraries",
        ),
        MemoryPart(
            name="reserve",
            p50_bytes=reserve[0],
            p95_bytes=reserve[1],
            why="the allocator's rounding and cache",
        ),
        MemoryPart(
            name="context", p50_bytes=context.p50_bytes, p95_bytes=context.p95_bytes, why=context.source
        ),
    )
    return MemoryForecast(
        name=graph.name,
        device_type="cpu" if on_cpu else device or "",
        parts=parts,
        live_bytes=peak.total_bytes,
        notes=graph.notes if coming else (*graph.notes, "nothing is kept for a backward pass"),
    )


def _exact(name: str, size: int, why: str) -> MemoryPart:
    return MemoryPart(name=name, p50_bytes=size, p95_bytes=size, why=why)


def _part(name: str, size: int, doubt: float, why: str) -> MemoryPart:
    return MemoryPart(name=name, p50_bytes=size, p95_bytes=round(size * doubt), why=why)


def _temporary(graph: Graph, peak: Peak) -> MemoryPart:
    # If what comes and goes is larger than thought, the peak may lie at another moment.
    other = (
        doubtful_peak(graph, _TENSOR_DOUBT) - peak.total_bytes - round(_TENSOR_DOUBT * peak.activation_bytes)
    )
    high = max(round(peak.temporary_bytes * (1 + _TENSOR_DOUBT)), peak.temporary_bytes + other)
    # What a recurrent layer holds inside is known by a rule alone, layer by layer.
    inside = max((op.workspace_bytes for op in graph.ops if op.kind == "recurrent"), default=0)
    high += round(_RECURRENT_DOUBT * inside)
    return MemoryPart(
        name="temporary",
        p50_bytes=peak.temporary_bytes,
        p95_bytes=high,
        why="results on their way at the peak",
    )


def _workspace(graph: Graph, context: Context) -> tuple[int, int]:
    """Middle and high: the matrix library's own, and what convolutions may take."""
    kinds = {op.kind for op in graph.ops}
    products = context.blas_bytes if kinds & {"matmul", "attention"} else 0
    return products, products + (TRIAL_BYTES if "convolution" in kinds else 0)


def _cpu_reserve(graph: Graph, peak: Peak) -> tuple[int, int]:
    """What the C library keeps of blocks that were given back, and the library of convolutions holds."""
    end = len(graph.ops)
    change = np.zeros((len(_CLASSES), end + 2), np.int64)
    for storage in graph.storages:
        if storage.role == "activation" and storage.size_bytes <= _MAPPED:
            order = change[bisect_left(_CLASSES, storage.size_bytes)]
            order[max(storage.born, 0)] += storage.size_bytes
            order[storage.dies + 1] -= storage.size_bytes
    held = np.cumsum(change, axis=1)[:, : end + 1]
    smaller = held.sum(axis=0)
    kept, elsewhere = int(held.max()), int(smaller.max() - smaller[peak.at])
    middle = round(_CPU_KEPT * kept + _CPU_ELSEWHERE * elsewhere)
    if any(op.kind == "convolution" for op in graph.ops):
        middle += _CPU_CONVOLUTION
    fixed, share = _CPU_DOUBT
    return middle, middle + fixed + round(share * kept)


def _gpu_reserve(graph: Graph, peak: Peak, workspace: int) -> tuple[int, int]:
    middle = max(reserved_bytes(graph, held_bytes=workspace) - peak.total_bytes - workspace, 0)
    coming = peak.total_bytes - peak.weight_bytes - peak.optimiser_bytes
    return middle, middle + round(_GPU_RESERVE_HIGH * coming)


def fits(forecast: MemoryForecast, capacity_bytes: int, *, held_bytes: int = 0) -> Fit:
    """Whether the job fits beside what a device already holds.

    It *fits* if even the high value does, it *does not fit* if not even its tensors and half a
    context do, and in between it is *too close to call*.

    Parameters
    ----------
    forecast : MemoryForecast
    capacity_bytes : int
        The device's usable memory, as its driver reports it.
    held_bytes : int
        Booked by others on the same device.
    """
    free = max(capacity_bytes - held_bytes, 0)
    verdict: Verdict = "too close to call"
    if forecast.p95_bytes <= free:
        verdict = "fits"
    elif forecast.least_bytes > free:
        verdict = "does not fit"
    needs = f"needs {format_bytes(forecast.p50_bytes)} (P50) to {format_bytes(forecast.p95_bytes)} (P95)"
    left = f"{format_bytes(free)} free"
    held = f" of {format_bytes(capacity_bytes)}" if held_bytes else ""
    return Fit(verdict=verdict, free_bytes=free, reason=f"{needs}, {left}{held}")


def fit_on(
    graph: Graph, types: Iterable[str] | None = None, *, framework: str = "pytorch"
) -> tuple[tuple[str, MemoryForecast, Fit], ...]:
    """Forecast and verdict for each device type.

    Parameters
    ----------
    graph : Graph
        Read for a GPU.
    types : iterable of str, optional
        Names of the catalogue; all of it if none are given.
    framework : str

    Raises
    ------
    UnknownNameError
        For a type that is not in the catalogue: nobody knows its memory.
    """
    found = []
    for name in types if types is not None else known():
        described = device_type(name)
        forecast = forecast_memory(graph, described.name, framework=framework)
        found.append((described.name, forecast, fits(forecast, described.memory_bytes)))
    return tuple(found)
