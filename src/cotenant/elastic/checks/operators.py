"""Operators that PyTorch documents as having no deterministic kernel, or one only when asked.

The lists are those of ``torch.use_deterministic_algorithms`` in PyTorch 2.13's documentation. Two of its entries
are narrower than they read, as its source and an issue tracker of errors have it: NLLLoss is without kernel for
inputs of more than two dimensions, and pooling to 1 x 1 is a mean.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cotenant.elastic.checks.findings import D0_ROUNDED, REMARK, Finding
from cotenant.elastic.checks.scope import Scope
from cotenant.elastic.checks.source import Source, words

__all__ = ["operators"]


class _Operator(NamedTuple):
    """``when`` says from its call whether it is concerned; ``backward``: only if it is differentiated."""

    on: str
    backward: bool = True
    when: Callable[[ast.Call], bool] = lambda call: True
    instead: str = "another operator"


def _value(node: ast.AST | None, default: Any = None) -> Any:
    try:
        return default if node is None else ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return "unknown"


def _argument(call: ast.Call, name: str, place: int, default: Any = None) -> Any:
    node = words(call).get(name, call.args[place] if len(call.args) > place else None)
    return _value(node, default)


def _mode(call: ast.Call) -> bool:
    return _argument(call, "mode", 3, "nearest") in ("linear", "bilinear", "bicubic", "trilinear", "unknown")


def _upsample(call: ast.Call) -> bool:
    return _argument(call, "mode", 2, "nearest") in ("linear", "bilinear", "bicubic", "trilinear", "unknown")


def _not_one(call: ast.Call) -> bool:
    return _argument(call, "output_size", 0) not in (1, (1, 1), [1, 1])


def _not_one_of(call: ast.Call) -> bool:
    return _argument(call, "output_size", 1) not in (1, (1, 1), [1, 1])


def _is_max(call: ast.Call) -> bool:
    return _argument(call, "mode", 99, "mean") in ("max", "unknown")


def _weights(call: ast.Call) -> bool:
    return "weights" in words(call)


def _not_sum(call: ast.Call) -> bool:
    return _argument(call, "reduce", 3) in ("prod", "unknown")


def _floats(call: ast.Call) -> bool:
    """``cumsum`` of something that is not plainly a mask or an integer."""
    whole = ("long", "int", "int32", "int64", "bool", "ne", "eq")
    given = words(call).get("dtype")
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    texts = [ast.unparse(node) for node in (given, inner) if node is not None]
    return not any(f".{word}" in text for text in texts for word in whole)


_POOL = "AvgPool2d with a fixed kernel, or pooling to 1 x 1"
_LAYERS = {
    "AvgPool3d": _Operator("CUDA"),
    "AdaptiveAvgPool2d": _Operator("CUDA", when=_not_one, instead=_POOL),
    "AdaptiveAvgPool3d": _Operator("CUDA", instead="a mean over the last three dimensions"),
    "AdaptiveMaxPool2d": _Operator("CUDA", instead="MaxPool2d with a fixed kernel"),
    "FractionalMaxPool2d": _Operator("CUDA", instead="MaxPool2d"),
    "FractionalMaxPool3d": _Operator("CUDA", instead="MaxPool3d"),
    "MaxUnpool1d": _Operator("", False, instead="ConvTranspose1d, or Upsample with mode='nearest'"),
    "MaxUnpool2d": _Operator("", False, instead="ConvTranspose2d, or Upsample with mode='nearest'"),
    "MaxUnpool3d": _Operator("", False, instead="ConvTranspose3d, or Upsample with mode='nearest'"),
    "ReflectionPad1d": _Operator("CUDA", instead="ZeroPad1d or ReplicationPad1d"),
    "ReflectionPad2d": _Operator("CUDA", instead="ZeroPad2d or ReplicationPad2d"),
    "ReflectionPad3d": _Operator("CUDA", instead="ZeroPad3d or ReplicationPad3d"),
    "CTCLoss": _Operator("CUDA", instead="the loss on the CPU: ctc_loss(x.cpu(), ...)"),
    "EmbeddingBag": _Operator("CUDA", when=_is_max, instead="mode='mean' or 'sum'"),
    "Upsample": _Operator("CUDA", when=_upsample, instead="mode='nearest'"),
    "UpsamplingBilinear2d": _Operator("CUDA", instead="Upsample with mode='nearest'"),
}
_FUNCTIONS = {
    "interpolate": _Operator("CUDA", when=_mode, instead="mode='nearest'"),
    "upsample": _Operator("CUDA", when=_mode, instead="mode='nearest'"),
    "grid_sample": _Operator("CUDA", instead="sample on the CPU, or before the model, in the data set"),
    "ctc_loss": _Operator("CUDA", instead="the loss on the CPU: ctc_loss(x.cpu(), ...)"),
    "adaptive_avg_pool2d": _Operator("CUDA", when=_not_one_of, instead=_POOL),
    "adaptive_avg_pool3d": _Operator("CUDA", instead="a mean over the last three dimensions"),
    "adaptive_max_pool2d": _Operator("CUDA", instead="max_pool2d with a fixed kernel"),
    "avg_pool3d": _Operator("CUDA"),
    "max_unpool1d": _Operator("", False, instead="a transposed convolution"),
    "max_unpool2d": _Operator("", False, instead="a transposed convolution"),
    "max_unpool3d": _Operator("", False, instead="a transposed convolution"),
}
_TENSOR = {
    "put_": _Operator("", False, instead="index_put_, or x[index] = value"),
    "histc": _Operator("CUDA", False, instead="histc on the CPU"),
    "bincount": _Operator(
        "CUDA", False, when=_weights, instead="zeros.index_add(0, index, weights), which has a kernel"
    ),
    "scatter_reduce": _Operator("CUDA", False, when=_not_sum, instead="reduce='sum' or 'mean'"),
    "scatter_reduce_": _Operator("CUDA", False, when=_not_sum, instead="reduce='sum' or 'mean'"),
    "cumsum": _Operator("CUDA", False, when=_floats, instead="cumsum on the CPU, or of integers"),
}
_WITH_KERNEL = {
    *("scatter_add", "scatter_add_", "index_add", "index_add_", "index_put", "index_put_", "index_copy"),
    *("index_copy_", "gather", "index_select", "repeat_interleave"),
}
"""Deterministic only when asked; elastic.Run asks."""


def operators(source: Source, scope: Scope, *, allowed: bool) -> Iterator[Finding]:
    """Findings of this kind in a file.

    Parameters
    ----------
    source : Source
    scope : Scope
    allowed : bool
        Whether the script allows kernels that are not deterministic.
    """
    for call in source.calls:
        name = source.name(call.func)
        last = name.rpartition(".")[2]
        if isinstance(call.func, ast.Attribute):
            last = call.func.attr
        known = _known(source, call, name, last)
        if known is not None and known.when(call):
            if not (known.backward and source.without_gradient(call)):
                yield _without_kernel(source, call, known, scope, allowed=allowed)
        elif allowed and last in _WITH_KERNEL and not _foreign(source, call):
            yield source.finding(
                call,
                "operator",
                D0_ROUNDED if scope.cuda or last.startswith("index_put") else REMARK,
                f"{last} adds in the order in which threads arrive, and this script allows it",
                "leave deterministic algorithms on: then it has a kernel of fixed order",
            )


def _foreign(source: Source, call: ast.Call) -> bool:
    """Whether it is a function of a module other than torch: ``np.histc``, ``itertools...``."""
    return source.is_module(call.func) and not source.name(call.func).startswith("torch")


def _known(source: Source, call: ast.Call, name: str, last: str) -> _Operator | None:
    if _foreign(source, call):
        return None
    if name.startswith("torch.nn"):
        return _LAYERS.get(last) or _FUNCTIONS.get(last)
    if name.startswith("torch.") or isinstance(call.func, ast.Attribute):
        return _TENSOR.get(last)
    return None


def _without_kernel(
    source: Source, call: ast.Call, known: _Operator, scope: Scope, *, allowed: bool
) -> Finding:
    """On CUDA only, a script that says nothing of CUDA is not stopped by it."""
    stops = not known.on or scope.cuda
    last = (
        call.func.attr if isinstance(call.func, ast.Attribute) else source.name(call.func).rpartition(".")[2]
    )
    where = f" on {known.on}" if known.on else ""
    half = ", when it is differentiated," if known.backward else ""
    why = f"{last}{half} has no deterministic kernel{where}"
    why += (
        ": it differs from one time to the next" if allowed else ": elastic.Run lets PyTorch refuse it there"
    )
    return source.finding(call, "operator", D0_ROUNDED if stops else REMARK, why, known.instead)
