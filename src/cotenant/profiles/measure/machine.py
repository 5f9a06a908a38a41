"""What a machine is, as far as measurements depend on it. It names no host, no user and no time of day."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from cotenant import __version__
from cotenant.profiles.measure.target import Target
from cotenant.profiles.samplers.cpu import cpu_model

__all__ = ["describe_machine", "describe_versions"]


def describe_machine(target: Target) -> dict[str, Any]:
    """Processor, memory, kernel and scheduler settings, and the device."""
    found: dict[str, Any] = {
        "device": target.name,
        "device_type": target.device_type,
        "device_memory_mib": None if target.memory_mib is None else round(target.memory_mib),
        "processor": cpu_model(),
        "logical_cores": psutil.cpu_count() or 0,
        "memory_mib": psutil.virtual_memory().total // (1024 * 1024),
        "system": platform.system(),
        "kernel": platform.release(),
        "hypervisor": _hypervisor(),
    }
    for name, path in (
        ("autogroup", "/proc/sys/kernel/sched_autogroup_enabled"),
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ):
        value = _line(path)
        if value:
            found[name] = value
    if target.kind == "cuda":
        found |= _driver() | {"mps": target.mps}
    return found


def _hypervisor() -> bool:
    flags = next(
        (line for line in _line("/proc/cpuinfo", whole=True).splitlines() if line.startswith("flags")), ""
    )
    return "hypervisor" in flags.split()


def _driver() -> dict[str, Any]:
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return {"driver": str(pynvml.nvmlSystemGetDriverVersion())}
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return {}


def _line(path: str, *, whole: bool = False) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text if whole else text.strip()


def describe_versions() -> dict[str, str]:
    """Versions of Python, of cotenant and of libraries that included jobs run on."""
    found = {"cotenant": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "psutil", "nvidia-ml-py"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
