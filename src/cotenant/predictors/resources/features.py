"""Columns for regressions: the graph's features, and what the roofline makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.resources.roofline import DeviceRates, StepTimes
from cotenant.predictors.resources.work import StepWork

__all__ = ["FEATURES", "design"]

Array = NDArray[np.float64]

_COUNTED = ("matmul", "convolution", "activation", "normalisation", "recurrent", "embedding", "pooling")
FEATURES = (
    "log_batch",
    "log_flops",
    "log_moved_bytes",
    "log_parameter_bytes",
    "log_activation_bytes",
    "log_intensity",
    "log_kernels",
    "log_kernel_flops",
    "log_kernel_bytes",
    "convolution_share",
    "sixteen_bits",
    *(f"log_{kind}_count" for kind in _COUNTED),
    "log_peak_flops",
    "log_bandwidth",
    "log_busy_s",
    "log_host_s",
    "log_busy_over_host",
    "log_iteration_s",
    "roofline_gpu_util",
    "roofline_mem_util",
)
"""Columns, in order. The last six come from the roofline; those before them are Horus' features
(FLOPs, memory of parameters and activations, batch, counts of operators) and the device's rates."""

GRAPH_COLUMNS = len(FEATURES) - 6
"""Columns that need no roofline."""


def design(works: Sequence[StepWork], rates: Sequence[DeviceRates], times: StepTimes) -> Array:
    """One row for each work on its device.

    Returns
    -------
    ndarray, shape (n, len(FEATURES))
        Natural logarithms, but for shares (0 to 1) and utilisations (log(1 + per cent)).
    """
    graph = np.array([_graph_row(w, r) for w, r in zip(works, rates, strict=True)], float)
    host = np.maximum(times.host_s, 1e-9)
    busy = np.maximum(times.busy_s, 1e-9)
    physics = (
        np.log(busy),
        np.log(host),
        np.log(busy / host),
        np.log(np.maximum(times.iteration_s, 1e-9)),
        np.log1p(times.gpu_util),
        np.log1p(times.mem_util),
    )
    return np.column_stack([graph.reshape(len(works), GRAPH_COLUMNS), *physics])


def _graph_row(work: StepWork, rates: DeviceRates) -> list[float]:
    flops, moved, kernels = work.flops, work.moved_bytes, max(work.kernels, 1)
    convolution = sum(g.flops for g in work.groups if g.kind == "convolution")
    return [
        float(np.log(max(work.batch, 1))),
        float(np.log1p(flops)),
        float(np.log1p(moved)),
        float(np.log1p(work.parameter_bytes)),
        float(np.log1p(work.activation_bytes)),
        float(np.log1p(flops / max(moved, 1.0))),
        float(np.log(kernels)),
        float(np.log1p(flops / kernels)),
        float(np.log1p(moved / kernels)),
        convolution / flops if flops else 0.0,
        float(work.precision in {"amp", "bf16", "fp16"}),
        *(float(np.log1p(work.counts.get(kind, 0))) for kind in _COUNTED),
        float(np.log(rates.matrix_flops[work.precision])),
        float(np.log(rates.bandwidth)),
    ]
