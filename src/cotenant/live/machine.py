"""The devices of this machine as a cluster of one node: NVIDIA devices, else sets of CPU cores.

What identifies a device is its UUID, for core sets their name. Numbers, once given, are kept in
``devices.json``, whatever order the driver lists them in after a restart.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from cotenant.errors import ConfigError
from cotenant.live.tenants import write_private
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.quantities import MIB

__all__ = ["LiveDevice", "Readings", "cluster_of", "discover", "numbered"]

_FILE = "devices.json"
_FRESH_S = 1.0


class LiveDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device.

    Parameters
    ----------
    device : int
        Its number in the cluster.
    name : str
        What people call it: ``cpu:0-1``, or ``gpu0``.
    uuid : str
        What identifies it.
    index : int
        The driver's number, which may change; of core sets the first core.
    kind : {"nvidia", "cpu"}
    device_type : str
    memory_bytes : int
    cores : tuple of int
        Of a core set.
    """

    device: int
    name: str
    uuid: str
    index: int
    kind: str
    device_type: str
    memory_bytes: int
    cores: tuple[int, ...] = ()


def discover(asked: Sequence[str] = ()) -> tuple[LiveDevice, ...]:
    """Devices that are asked for (``cpu:0-1``, a UUID or index of NVML, ``nvidia``), else those there are.

    Without NVIDIA devices the cores that this process may use are cut into two sets of the same size.

    Raises
    ------
    ConfigError
        If one that is asked for is not there, or core sets overlap.
    """
    found = [device for name in asked for device in _named(name)] or _nvidia(None) or _halves()
    seen: dict[str, str] = {}
    for device in found:
        for unit in map(str, device.cores) if device.cores else (device.uuid,):
            if unit in seen:
                raise ConfigError(
                    f"--device {device.name} and {seen[unit]} overlap; each core or device once"
                )
            seen[unit] = device.name
    return tuple(msgspec.structs.replace(device, device=number) for number, device in enumerate(found))


def _named(name: str) -> list[LiveDevice]:
    if name.startswith("cpu:"):
        from cotenant.profiles.samplers.cpu import CpuSampler, parse_core_set

        return [_core_set(CpuSampler(parse_core_set(name)).cores)]
    found = _nvidia(None if name == "nvidia" else name, strict=True)
    if not found:
        raise ConfigError(f"--device {name}: NVML lists no device here")
    return found


def _nvidia(only: str | None, *, strict: bool = False) -> list[LiveDevice]:
    from cotenant.profiles.samplers.nvml import NvmlSampler

    try:
        sampler = NvmlSampler(only)
    except (ConfigError, ImportError):
        if strict:
            raise
        return []
    try:
        return [_gpu(reading) for reading in sampler.read().devices]
    finally:
        sampler.close()


def _gpu(reading: Any) -> LiveDevice:
    from cotenant.profiles import catalogue

    model = catalogue.canonical_type(reading.model.removeprefix("NVIDIA ").strip()) or reading.model or "gpu"
    return LiveDevice(
        device=0,
        name=f"gpu{reading.index}",
        uuid=reading.device,
        index=reading.index,
        kind="nvidia",
        device_type=model,
        memory_bytes=int((reading.memory_total_mib or 0) * MIB),
    )


def _halves() -> list[LiveDevice]:
    cores = _usable()
    half = (len(cores) + 1) // 2
    if len(cores) == 1:
        return [_core_set(cores)]
    # Sets of one size are of one type; with an odd number of cores one of them stays free for the rest.
    return [_core_set(cores[: len(cores) - half]), _core_set(cores[half:])]


def _usable() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _core_set(cores: tuple[int, ...]) -> LiveDevice:
    from cotenant.profiles.corerates import core_type
    from cotenant.profiles.samplers.cpu import core_set_name

    name = core_set_name(cores)
    memory = psutil.virtual_memory().total * len(cores) // max(len(_usable()), len(cores))
    return LiveDevice(
        device=0,
        name=name,
        uuid=name,
        index=cores[0],
        kind="cpu",
        device_type=core_type(cores),
        memory_bytes=memory // MIB * MIB,
        cores=cores,
    )


def cluster_of(devices: Sequence[LiveDevice], tenants: Sequence[Tenant] = ()) -> Cluster:
    """The cluster that these devices make, in their order."""
    from cotenant.profiles import catalogue

    least = min((len(d.cores) for d in devices if d.cores), default=1)
    types: dict[str, DeviceType] = {}
    gpus: list[tuple[str, int]] = []
    for device in devices:
        known = types.get(device.device_type)
        if known is None:
            speed = len(device.cores) / least if device.cores else 1.0
            if device.kind == "nvidia" and catalogue.canonical_type(device.device_type):
                speed = catalogue.relative_speed(device.device_type)
            types[device.device_type] = DeviceType(
                name=device.device_type, memory_bytes=device.memory_bytes, speed=speed
            )
        elif device.memory_bytes < known.memory_bytes:
            # Cards of one type differ by some MiB: nothing is promised that one of them lacks.
            types[device.device_type] = msgspec.structs.replace(known, memory_bytes=device.memory_bytes)
        if gpus and gpus[-1][0] == device.device_type:
            gpus[-1] = (device.device_type, gpus[-1][1] + 1)
        else:
            gpus.append((device.device_type, 1))
    node = Node(
        name="here",
        gpus=tuple(gpus),
        cpu_milli=1000 * len(_usable()),
        host_memory_bytes=psutil.virtual_memory().total // MIB * MIB,
    )
    return Cluster(nodes=(node,), types=tuple(types.values()), tenants=tuple(tenants), name="live").check()


def numbered(devices: Sequence[LiveDevice], state: Path) -> tuple[list[LiveDevice], list[LiveDevice]]:
    """Give devices the numbers that they had before; new ones follow.

    Returns
    -------
    present : list of LiveDevice
        In order of their numbers.
    missing : list of LiveDevice
        Known from before and not found now.

    Raises
    ------
    ConfigError
        If the file of numbers cannot be read.
    """
    path = state / _FILE
    known: list[LiveDevice] = []
    if path.is_file():
        try:
            known = msgspec.json.decode(path.read_bytes(), type=list[LiveDevice])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path} cannot be read: {error}; restore it, or use a new state folder"
            ) from None
    here = {device.uuid: device for device in devices}
    present = [
        msgspec.structs.replace(here[old.uuid], device=old.device) for old in known if old.uuid in here
    ]
    missing = [old for old in known if old.uuid not in here]
    free = len(known)
    for device in devices:
        if device.uuid not in {old.uuid for old in known}:
            present.append(msgspec.structs.replace(device, device=free))
            free += 1
    every = sorted([*present, *missing], key=lambda d: d.device)
    if every != known:
        write_private(path, msgspec.json.format(msgspec.json.encode(every), indent=2).decode() + "\n")
    return sorted(present, key=lambda d: d.device), missing


class Readings:
    """How busy devices are, read when somebody asks, at most once a second."""

    def __init__(self, devices: Sequence[LiveDevice]) -> None:
        self._devices = tuple(devices)
        self._lock = threading.Lock()
        self._at = -1e9
        self._last: dict[int, Any] = {}
        self._cores: dict[int, Any] = {}
        self._nvml: Any = None
        self.failed = ""

    def read(self) -> Mapping[int, Any]:
        """The latest ``DeviceReading`` of each device that gives one."""
        with self._lock:
            now = time.monotonic()
            if now - self._at >= _FRESH_S:
                self._at = now
                self._last = {**self._read_cores(), **self._read_nvml()}
            return self._last

    def _read_cores(self) -> dict[int, Any]:
        from cotenant.profiles.samplers.cpu import CpuSampler

        found = {}
        for device in self._devices:
            if device.kind == "cpu":
                sampler = self._cores.get(device.device)
                if sampler is None:
                    sampler = self._cores[device.device] = CpuSampler(device.cores, check=False)
                found[device.device] = sampler.read().devices[0]
        return found

    def _read_nvml(self) -> dict[int, Any]:
        by_uuid = {d.uuid: d.device for d in self._devices if d.kind == "nvidia"}
        if not by_uuid:
            return {}
        from cotenant.profiles.samplers.nvml import NvmlSampler

        try:
            if self._nvml is None:
                self._nvml = NvmlSampler()
            snapshot = self._nvml.read()
        except ConfigError as error:
            self.failed = str(error)
            return {}
        self.failed = "; ".join(f"{f.device}: {f.reason}" for f in snapshot.failures)
        return {by_uuid[r.device]: r for r in snapshot.devices if r.device in by_uuid}
