"""NVIDIA devices through NVML, as the driver's own library gives them (package nvidia-ml-py).

Busy time is ``utilization.gpu``; ``utilization.memory`` is the share of time in which memory was
read or written, not its bandwidth. NVML has no SM active, occupancy or bandwidth: those fields
stay missing (the DCGM exporter has them).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.readings import DeviceReading, Failure, ProcessReading, Snapshot
from cotenant.profiles.samplers.words import BLANK_FROM

__all__ = ["NvmlSampler"]

_MIB = 1024 * 1024


class NvmlSampler:
    """Reads every NVIDIA device of this machine, or one.

    Parameters
    ----------
    only : str, optional
        Index or UUID.

    Raises
    ------
    ConfigError
        If the driver's library is not there, or has no such device.
    """

    def __init__(self, only: str | None = None) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._open = False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise ConfigError(f"NVML cannot be used: {error}; is an NVIDIA driver installed here?") from None
        self._open = True
        self._last_us: dict[str, int] = {}
        try:
            self._devices = self._listed(only)
        except BaseException:
            self.close()
            raise

    def _listed(self, only: str | None) -> list[tuple[int, str, str, Any]]:
        """Index, name, model and handle of each device; a lost one keeps its index and no handle."""
        found: list[tuple[int, str, str, Any]] = []
        for index in range(int(self._nvml.nvmlDeviceGetCount())):
            handle = self._try(self._nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = handle and self._try(self._nvml.nvmlDeviceGetUUID, handle)
            model = handle and self._try(self._nvml.nvmlDeviceGetName, handle)
            found.append((index, _text(uuid) or str(index), _text(model), handle))
        if only is None:
            return found
        chosen = [d for d in found if only in (str(d[0]), d[1])]
        if not chosen:
            names = ", ".join(f"{index} ({uuid})" for index, uuid, _, _ in found) or "none"
            raise ConfigError(f"no NVIDIA device {only}; NVML lists: {names}")
        return chosen

    def _try(self, ask: Callable[..., Any], *args: Any) -> Any:
        """The answer, or None where the driver, the device or the permission lacks it."""
        try:
            return ask(*args)
        except self._nvml.NVMLError:
            return None

    def read(self, pids: Sequence[int] = ()) -> Snapshot:
        """Read the devices and all processes that compute on them (NVML lists them by device)."""
        del pids
        now = time.monotonic_ns()
        devices: list[DeviceReading] = []
        processes: list[ProcessReading] = []
        failures: list[Failure] = []
        for index, name, model, handle in self._devices:
            lost = self._lost(handle)
            if lost:
                failures.append(Failure(device=name, reason=lost))
                continue
            devices.append(self._device(index, name, model, handle))
            processes += self._processes(name, handle)
        return Snapshot(
            time_ns=now, devices=tuple(devices), processes=tuple(processes), failures=tuple(failures)
        )

    def _lost(self, handle: Any) -> str:
        """Why a device gives no readings at all; empty if it does."""
        if handle is None:
            return "the driver gives no handle for it"
        try:
            self._nvml.nvmlDeviceGetUtilizationRates(handle)
        except self._nvml.NVMLError as error:
            gone = (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_UNINITIALIZED)
            return str(error) if error.value in gone else ""
        return ""

    def _device(self, index: int, name: str, model: str, handle: Any) -> DeviceReading:
        nvml = self._nvml
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        mig = self._try(nvml.nvmlDeviceGetMigMode, handle)
        cut = bool(mig and mig[0])
        rates = None if cut else self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        power = _value(self._try(nvml.nvmlDeviceGetPowerUsage, handle))
        return DeviceReading(
            device=name,
            index=index,
            model=model,
            mig=cut,
            busy_pct=_value(rates and rates.gpu),
            memory_busy_pct=_value(rates and rates.memory),
            memory_used_mib=_mib(memory and memory.used),
            memory_total_mib=_mib(memory and memory.total),
            power_w=None if power is None else power / 1000.0,
        )

    def _processes(self, name: str, handle: Any) -> list[ProcessReading]:
        listed = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        busy = self._busy_by_pid(name, handle)
        return [
            ProcessReading(
                device=name,
                pid=int(p.pid),
                busy_pct=busy.get(int(p.pid)),
                memory_used_mib=_mib(p.usedGpuMemory),
            )
            for p in listed
        ]

    def _busy_by_pid(self, name: str, handle: Any) -> dict[int, float]:
        """Mean SM share of each process over the driver's samples since the last reading."""
        samples = self._try(self._nvml.nvmlDeviceGetProcessUtilization, handle, self._last_us.get(name, 0))
        shares: dict[int, list[float]] = {}
        for sample in samples or ():
            value = _value(sample.smUtil)
            if value is not None and value <= 100.0:
                shares.setdefault(int(sample.pid), []).append(value)
            self._last_us[name] = max(self._last_us.get(name, 0), int(sample.timeStamp))
        return {pid: sum(values) / len(values) for pid, values in shares.items()}

    def close(self) -> None:
        """Shut NVML down."""
        if self._open:
            self._open = False
            self._try(self._nvml.nvmlShutdown)


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value or "")


def _value(value: Any) -> float | None:
    if value is None or abs(float(value)) >= BLANK_FROM:
        return None
    return float(value)


def _mib(value: Any) -> float | None:
    size = _value(value)
    return None if size is None else size / _MIB
