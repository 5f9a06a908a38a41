"""Settings of PyTorch that decide which kernel computes something."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from cotenant.elastic.checks.findings import D0_ROUNDED, D1_ROUNDED, D2_ROUNDED, REMARK, Finding
from cotenant.elastic.checks.origins import COUNT, HASH, MACHINE, NOW, ORIGINS, RANK, Origins
from cotenant.elastic.checks.scope import Scope
from cotenant.elastic.checks.source import Source, words, written

__all__ = ["kernels"]


def kernels(source: Source, origins: Origins, scope: Scope) -> Iterator[Finding]:
    """Findings of this kind in a file."""
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _setting(source, node, source.name(target))
    for call in source.calls:
        name = source.name(call.func)
        last = name.rpartition(".")[2]
        yield from _deterministic(source, call, name)
        if last in ("set_num_threads", "set_num_interop_threads"):
            yield from _threads(source, origins, call)
        elif name == "torch.compile" or (last == "script" and name.startswith("torch.jit")):
            yield from _compiled(source, call)
        elif last == "autocast" and name.startswith("torch"):
            yield from _autocast(source, origins, call, name)
        elif name.startswith("torch.optim") and scope.sharded:
            yield from _fused(source, call)
    yield from _environment(source, origins)


def _value(node: ast.AST | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _setting(source: Source, node: ast.Assign, name: str) -> Iterator[Finding]:
    value = _value(node.value)
    if name == "torch.backends.cudnn.benchmark" and value is not False:
        yield source.finding(
            node,
            "cudnn-benchmark",
            D0_ROUNDED,
            "cuDNN times its kernels and takes the fastest of this start: another kernel, another rounding",
            "leave it out; elastic.Run turns it off, but not if this line comes after it",
        )
    elif name == "torch.backends.cudnn.deterministic" and value is False:
        yield source.finding(
            node,
            "nondeterministic-allowed",
            D0_ROUNDED,
            "cuDNN may sum in another order each time",
            "leave it out",
        )
    elif name.endswith(".allow_tf32") and value is not False:
        yield source.finding(
            node,
            "tf32",
            D2_ROUNDED,
            "only some GPUs have TF32, others multiply in float32",
            "nothing, as long as all devices are of one type (the setting is part of the run's identity)",
        )
    elif name == "torch.utils.deterministic.fill_uninitialized_memory" and value is False:
        return


def _deterministic(source: Source, call: ast.Call, name: str) -> Iterator[Finding]:
    last = name.rpartition(".")[2]
    named = words(call)
    first = call.args[0] if call.args else named.get("mode", named.get("debug_mode"))
    if last == "use_deterministic_algorithms" and _value(first) is False:
        how = "kernels that add in the order in which threads arrive are allowed"
    elif last == "use_deterministic_algorithms" and _value(named.get("warn_only")) is True:
        how = "an operator without deterministic kernel only warns, and differs from one time to the next"
    elif last == "set_deterministic_debug_mode" and _value(first) in (0, 1, "default", "warn"):
        how = "operators without deterministic kernel run all the same"
    elif last == "Run" and _value(named.get("deterministic")) is False:
        how = "the run allows kernels that add in the order in which threads arrive"
    else:
        return
    yield source.finding(
        call,
        "nondeterministic-allowed",
        D0_ROUNDED,
        how,
        "leave it out: elastic.Run asks for deterministic kernels, and says which operator has none",
    )


def _threads(source: Source, origins: Origins, call: ast.Call) -> Iterator[Finding]:
    found = origins.of(call.args[0] if call.args else None)
    kinds = [kind for kind in (COUNT, RANK, NOW, MACHINE, HASH) if kind in found]
    if kinds:
        yield source.finding(
            call,
            "threads",
            D1_ROUNDED,
            f"sums are cut into as many parts as there are threads, and their number follows {ORIGINS[kinds[0]]}",
            "a fixed number: elastic.Run(threads=2), or cotenant run --threads 2",
        )


def _environment(source: Source, origins: Origins) -> Iterator[Finding]:
    for node in source.nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if not isinstance(target, ast.Subscript) or not source.name(target.value).endswith("environ"):
                continue
            name = _value(target.slice)
            if name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") and origins.of(node.value):
                yield source.finding(
                    node,
                    "threads",
                    D1_ROUNDED,
                    "sums are cut into as many parts as there are threads, and their number is not fixed here",
                    "a fixed number: elastic.Run(threads=2), or cotenant run --threads 2",
                )
            elif name in ("MKL_CBWR", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA") and origins.of(node.value):
                yield source.finding(
                    node, "cpu-kernels", D1_ROUNDED, "kernels follow the machine", "the same value everywhere"
                )


def _compiled(source: Source, call: ast.Call) -> Iterator[Finding]:
    mode = str(_value(words(call).get("mode")))
    if mode.startswith("max-autotune"):
        yield source.finding(
            call,
            "compile-autotune",
            D0_ROUNDED,
            "the compiler times its kernels and takes the fastest of this start (PyTorch says that deterministic"
            " algorithms stop this; older versions do not)",
            "torch.compile(model) without mode",
        )
    else:
        yield source.finding(
            call,
            "compile",
            REMARK,
            "compiled models have not been compared here on other numbers of processes",
            "compare once: cotenant elastic check --run 3",
        )


def _autocast(source: Source, origins: Origins, call: ast.Call, name: str) -> Iterator[Finding]:
    named = words(call)
    old = name.startswith(("torch.cuda", "torch.cpu"))
    dtype = named.get("dtype", call.args[1] if len(call.args) > 1 and not old else None)
    device = named.get("device_type", call.args[0] if call.args else None)
    if dtype is None and not old and _value(device) is None:
        why = "without dtype it is float16 on CUDA and bfloat16 on CPUs"
    elif MACHINE in origins.of(dtype):
        why = "which precision it is follows the machine"
    else:
        return
    yield source.finding(call, "precision", D2_ROUNDED, why, "name the precision: dtype=torch.bfloat16")


def _fused(source: Source, call: ast.Call) -> Iterator[Finding]:
    if _value(words(call).get("fused")) is True:
        yield source.finding(
            call,
            "fused-sharded",
            D1_ROUNDED,
            "a fused kernel rounds the end of a tensor otherwise than its middle, and shards end elsewhere with each"
            " number of processes: refused",
            f"leave fused=True out of {written(call.func)}",
        )
