"""What the bits of a run depend on beside its state, and what is left of them under another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from cotenant.errors import StateError

__all__ = ["Grade", "environment", "grade", "judge"]

_WORDS = {"leaves": "blocks (max_processes)"}
"""What is told by another name than it is kept by. In other orders than ``blocks`` it is the number of workers."""


class Grade(IntEnum):
    """How much a continued run has in common with one that was never changed."""

    CHANGED = 0
    """Another training: other samples, batches or random numbers."""
    STATISTICAL = 1
    """The same training, rounded otherwise: bits differ, on average nothing does."""
    BITWISE = 2
    """The same bits."""

    def __str__(self) -> str:
        return self.name.lower()


_MEANING = (
    "logical workers",
    "seed",
    "samples",
    "batch size of a worker",
    "shuffle",
    "last batch",
    "random data",
    "sampler",
    "stream",
    "optimiser",
)
"""A change of one of these is another training."""


def environment(parameters: Any, optimizers: Mapping[str, Any]) -> dict[str, str]:
    """Versions, devices, kernels and settings of this process."""
    import numpy
    import torch

    devices = sorted({p.device.type for p in parameters})
    kept = {
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
        "CPU threads": str(torch.get_num_threads()),
        "CPU instructions": str(torch.backends.cpu.get_cpu_capability()),
        "oneDNN": str(torch.backends.mkldnn.enabled),
        "deterministic kernels": str(torch.are_deterministic_algorithms_enabled()),
        "float32 matmul": str(torch.get_float32_matmul_precision()),
        "cuDNN TF32": str(torch.backends.cudnn.allow_tf32),
        "device": "+".join(devices),
        "parameter types": "+".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        "memory format": _formats(parameters),
        "optimiser": ", ".join(f"{name} {type(one).__name__}" for name, one in sorted(optimizers.items())),
        "optimiser kernels": ", ".join(_kernels(one) for _, one in sorted(optimizers.items())),
    }
    if "cuda" in devices:
        kept["GPU"] = str(torch.cuda.get_device_name())
        kept["CUDA"] = str(torch.version.cuda)
    return kept


def _formats(parameters: Any) -> str:
    import torch

    images = [p for p in parameters if p.dim() == 4]
    last = sum(p.is_contiguous(memory_format=torch.channels_last) and not p.is_contiguous() for p in images)
    return f"{last} of {len(images)} channels last"


def _kernels(optimizer: Any) -> str:
    first = (getattr(optimizer, "param_groups", None) or [{}])[0]
    return "fused" if first.get("fused") else "plain"


def grade(there: Mapping[str, str], here: Mapping[str, str]) -> tuple[Grade, list[str]]:
    """The grade that is left, and what differs.

    >>> grade({"seed": "0", "torch": "2.6"}, {"seed": "0", "torch": "2.7"})
    (<Grade.STATISTICAL: 1>, ['torch 2.6 -> 2.7'])
    """
    names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    told = [name for name in names if name != "leaves" or there.get("order") == here.get("order") == "blocks"]
    found = [
        f"{_WORDS.get(name, name)} {there.get(name, 'none')} -> {here.get(name, 'none')}" for name in told
    ]
    if not names:
        return Grade.BITWISE, []
    return (Grade.CHANGED if any(name in _MEANING for name in names) else Grade.STATISTICAL), found


def judge(there: Mapping[str, str], here: Mapping[str, str], least: Grade, where: str) -> Grade:
    """The grade that is left, told on standard error if it is not ``bitwise``.

    Raises
    ------
    StateError
        If it is less than ``least``.
    """
    import sys

    left, found = grade(there, here)
    if left is Grade.BITWISE:
        return left
    text = f"{where}: grade {left.name.lower()}: {'; '.join(found)}"
    if left < least:
        raise StateError(
            f"{text}; this run asks for {least.name.lower()}: put back what differs, or lower it with"
            f' elastic.Run(least={left.name.lower()!r}), and determinism = "none" under [elastic] if it is a job'
        )
    sys.stderr.write(f"cotenant: {text}\n")
    return left
