"""The device that jobs are measured on: how a job is bound to it, and what reads it."""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.cpu import CpuSampler, core_set_name, cpu_model, parse_core_set
from cotenant.profiles.samplers.readings import Sampler

__all__ = ["Target", "parse_target"]

_CUDA = re.compile(r"cuda:(\d+|GPU-[0-9A-Za-z-]+|MIG-[0-9A-Za-z/-]+)")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A device to measure on.

    Parameters
    ----------
    name : str
        ``cpu:0-1`` or ``cuda:0``.
    kind : {"cpu", "cuda"}
    cores : tuple of int
        Of a CPU device.
    visible : str
        Value of ``CUDA_VISIBLE_DEVICES`` of an NVIDIA device.
    mps : bool
        Whether jobs share it through NVIDIA's multi-process service, which must be running.
    device_type : str
        Model by which tables file it.
    memory_mib : float or None
    """

    name: str
    kind: str
    cores: tuple[int, ...] = ()
    visible: str = ""
    mps: bool = False
    device_type: str = ""
    memory_mib: float | None = None

    def sampler(self) -> Sampler:
        """Open what reads this device."""
        if self.kind == "cpu":
            return CpuSampler(self.cores, check=False)  # checked when the name was read
        from cotenant.profiles.samplers.nvml import NvmlSampler

        return NvmlSampler(None if self.visible.startswith("MIG-") else self.visible)

    def environment(self, threads: int) -> dict[str, str]:
        """What a job's environment needs, on top of ours."""
        found = dict.fromkeys(_THREAD_VARIABLES, str(threads))
        if self.kind == "cpu":
            return {**found, "CUDA_VISIBLE_DEVICES": "", "COTENANT_TORCH_DEVICE": "cpu"}
        found |= {"CUDA_VISIBLE_DEVICES": self.visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return {**found, "COTENANT_TORCH_DEVICE": "cuda"}


def parse_target(name: str, *, mps: bool = False) -> Target:
    """Find the device that a name stands for.

    Parameters
    ----------
    name : str
        ``cpu:0``, ``cpu:0-3``, ``cuda:0`` (as ``nvidia-smi`` counts), ``cuda:GPU-...`` or ``cuda:MIG-...``.
    mps : bool
        Share an NVIDIA device through MPS.

    Raises
    ------
    ConfigError
        If it is no device, or not there.
    """
    if name.startswith("cpu"):
        if mps:
            raise ConfigError(f"{name}: MPS is NVIDIA's; leave --mps out")
        return _cpu(parse_core_set(name))
    found = _CUDA.fullmatch(name)
    if found is None:
        raise ConfigError(f"no device {name!r}; write cpu:0, cpu:0-3, cuda:0 or cuda:GPU-UUID")
    return _cuda(name, found.group(1), mps)


def _cpu(cores: tuple[int, ...]) -> Target:
    sampler = CpuSampler(cores)
    reading = sampler.read().devices[0]
    model = cpu_model() or "CPU"
    return Target(
        name=core_set_name(cores),
        kind="cpu",
        cores=cores,
        device_type=f"{model} x{len(cores)}",
        memory_mib=reading.memory_total_mib,
    )


def _cuda(name: str, visible: str, mps: bool) -> Target:
    from cotenant.profiles.catalogue import canonical_type
    from cotenant.profiles.samplers.nvml import NvmlSampler

    if mps and not os.path.exists(_mps_pipe()):  # noqa: PTH110
        raise ConfigError(
            f"MPS is not running ({_mps_pipe()} is missing): start it with nvidia-cuda-mps-control -d"
        )
    # NVML lists no MIG instances as devices of their own; the card is read in their place.
    sampler = NvmlSampler(None if visible.startswith("MIG-") else visible)
    try:
        devices: tuple[Any, ...] = sampler.read().devices
    finally:
        sampler.close()
    if not devices:
        raise ConfigError(f"{name}: NVML lists the device but cannot read it; is it lost?")
    model = devices[0].model
    return Target(
        name=name,
        kind="cuda",
        visible=visible,
        mps=mps,
        device_type=(canonical_type(model) or model) + (" MPS" if mps else ""),
        memory_mib=devices[0].memory_total_mib,
    )


def _mps_pipe() -> str:
    return os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps") + "/control"  # noqa: S108
