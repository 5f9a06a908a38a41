"""What a process holds on a device besides its tensors: context, library workspaces.

Published and measured figures, each with its source; they differ by driver, CUDA version and
device, so each comes as a middle and a high value.

Contexts on GPUs:

- Kernels loaded when first used (the default since PyTorch 1.13 with CUDA 11.7): 287,047,680
  bytes after one small tensor (pytorch/pytorch#86509), about 300 MB (#107667), about 400 MB
  (#109888); libraries that a training step loads come on top.
- All kernels loaded at once (before): 666,632,192 bytes (#86509), 1,008 MB on a Titan V (#28394),
  over 1,000 MB (#107667); a tensor of 156 MiB took 1,035 MiB in all on a 2080 Ti and 1,644 MiB
  on an RTX 3090 (#49877).
- TensorFlow's runtime is counted like the second kind (our assumption).

Workspaces: cuBLAS holds 8,519,680 bytes (PyTorch forum, topic 178671: two of 4 MiB and eight of
16 KiB), 32 MiB on Hopper and newer (cuBLAS documentation, cublasSetWorkspace). What cuDNN takes
inside a convolution is chosen at run time: little by its rules of thumb, up to some 1.5 GiB where
kernels are chosen by trial (the most that memory of convolutional networks measured by others exceeds
what tensors and context explain); only the high value allows for that.
"""

from __future__ import annotations

import msgspec

from cotenant.errors import UnknownNameError
from cotenant.model.quantities import MIB
from cotenant.profiles.catalogue import canonical_type

__all__ = ["CPU_CONTEXT", "TRIAL_BYTES", "Context", "context_of", "frameworks"]


class Context(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Memory outside tensors.

    Parameters
    ----------
    p50_bytes, p95_bytes : int
        Runtime, kernels and libraries.
    blas_bytes : int
        Held by the matrix library inside the framework's allocator; 0 where it is none of it.
    source : str
    """

    p50_bytes: int
    p95_bytes: int
    blas_bytes: int
    source: str


_LAZY = "kernels loaded when first used: pytorch/pytorch#86509, #107667, #109888"
_EAGER = "all kernels loaded at once: pytorch/pytorch#86509, #28394, #49877, #107667"
_FRAMEWORKS: dict[str, tuple[int, int, str]] = {
    "pytorch": (430, 700, _LAZY),
    "pytorch-before-1.13": (1250, 2150, _EAGER),
    "tensorflow": (1000, 2150, "as PyTorch with all kernels loaded; assumed"),
}
_AMPERE_EAGER_MIB = 1490
"""1,644 less 156 MiB, pytorch/pytorch#49877."""
_AMPERE = ("RTX3090", "A10", "A30", "A100", "A100-80GB", "RTX4090", "L4", "L40S")
_NEW = ("H100", "H100-PCIe", "H200", "B200")

TRIAL_BYTES = 1536 * MIB
"""High value of what convolutions take inside on a GPU, where kernels are chosen by trial."""

CPU_CONTEXT = Context(
    p50_bytes=330 * MIB,
    p95_bytes=350 * MIB,
    blas_bytes=0,
    source="resident memory of Python with torch 2.13 imported and its kernels used once, measured",
)
"""What a CPU process holds besides tensors."""


def frameworks() -> tuple[str, ...]:
    """Names that ``context_of`` knows."""
    return tuple(_FRAMEWORKS)


def context_of(device_type: str | None, framework: str = "pytorch") -> Context:
    """The context of a framework on a GPU type; on a type that nobody knows, the widest.

    Raises
    ------
    UnknownNameError
        For a framework that is not in ``frameworks()``.
    """
    if framework not in _FRAMEWORKS:
        raise UnknownNameError("framework", framework, _FRAMEWORKS)
    middle, high, source = _FRAMEWORKS[framework]
    known = canonical_type(device_type) if device_type else None
    if framework != "pytorch" and known in (*_AMPERE, *_NEW):
        middle = _AMPERE_EAGER_MIB
    blas = 32 * MIB if known in _NEW or known is None else 8_519_680
    return Context(p50_bytes=middle * MIB, p95_bytes=high * MIB, blas_bytes=blas, source=source)
