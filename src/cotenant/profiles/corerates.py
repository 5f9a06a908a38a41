"""Sets of this machine's CPU cores as device types: memory from the system, rates measured here.

No datasheet says what some cores of a shared machine do, so they are measured (``corebench``, a few
seconds) and kept in the user's cache folder, by processor and number of cores. A row says what was
measured, how, and when.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.catalogue import Datasheet
from cotenant.profiles.corebench import COPY_MIB, GEMM_SIZE, THREADS, TRIES
from cotenant.profiles.samplers.cpu import CpuSampler, core_set_name, cpu_model, parse_core_set
from cotenant.profiles.wholefile import write_whole

__all__ = ["cache_file", "core_set_of", "core_sets", "core_sheet", "core_type"]

_LEAST_BUSY = 0.5
_TIMEOUT_S = 120.0


class CoreRates(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.

    Parameters
    ----------
    flops : dict of str to float
        FLOP/s of matrix products by precision.
    copy_bytes_per_s : float
        Read and written.
    busy_share : float
        Share of the cores' time that the measurement got; the rest others had.
    numpy : str
        Its version: its matrix library sets the rates.
    date : str
        Day of the measurement, UTC.
    """

    flops: dict[str, float]
    copy_bytes_per_s: float
    busy_share: float
    numpy: str
    date: str


def cache_file() -> Path:
    """Where measurements are kept: ``cotenant/cores.json`` in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(folder) / "cotenant" / "cores.json"


def core_type(cores: tuple[int, ...]) -> str:
    """The name under which ``measure`` files these cores.

    >>> core_type((0, 3)).endswith(" x2")
    True
    """
    return f"{cpu_model() or 'CPU'} x{len(cores)}"


def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_sets() -> list[tuple[int, ...]]:
    """One core, and all that this process may use."""
    every = tuple(_usable())
    return [every[:1], every] if len(every) > 1 else [every]


def core_set_of(name: str) -> tuple[int, ...] | None:
    """The cores that ``cpu:0-1``, or this machine's ``AMD EPYC x2``, stand for; None for another type.

    Raises
    ------
    ConfigError
        If cores are named that are not there.
    """
    if name.startswith("cpu:"):
        return CpuSampler(parse_core_set(name)).cores
    model, _, count = name.rpartition(" x")
    every = _usable()
    if model.casefold() != (cpu_model() or "CPU").casefold() or not count.isdecimal():
        return None
    if not 1 <= int(count) <= len(every):
        raise ConfigError(f"{name}: this machine gives us {len(every)} of its cores")
    return tuple(every[: int(count)])


def core_sheet(cores: tuple[int, ...], *, again: bool = False) -> Datasheet:
    """The row of these cores, from the cache or measured now.

    Parameters
    ----------
    cores : tuple of int
    again : bool
        Measure even if there is a measurement.

    Raises
    ------
    ConfigError
        If they cannot be measured.
    """
    name = core_type(cores)
    known = _kept()
    rates = known.get(name)
    if again or rates is None or rates.numpy != version("numpy"):
        rates = _measure(cores)
        _keep(known | {name: rates})
    return _sheet(name, cores, rates)


def _sheet(name: str, cores: tuple[int, ...], rates: CoreRates) -> Datasheet:
    import psutil

    disturbed = rates.busy_share < _LEAST_BUSY
    return Datasheet(
        name=name,
        memory_mib=psutil.virtual_memory().total // 2**20,
        bandwidth_gbs=float(f"{rates.copy_bytes_per_s / 1e9:.3g}"),
        tflops={kind: float(f"{flops / 1e12:.3g}") for kind, flops in rates.flops.items()},
        units=len(cores),
        cache_mib=_last_cache_mib(cores[0]),
        host=True,
        source=(
            f"measured here on {rates.date} with numpy {rates.numpy}: products of {GEMM_SIZE} x {GEMM_SIZE} "
            f"matrices, and copies of {COPY_MIB} MiB counted as read and written, best of {TRIES}; memory is the "
            "machine's, as the system reports it"
        ),
        note=f"others had {1 - rates.busy_share:.0%} of the cores meanwhile; measure again when they are free"
        if disturbed
        else "reached rates, not the processor's peak",
    )


def _measure(cores: tuple[int, ...]) -> CoreRates:
    threads = dict.fromkeys(THREADS, str(len(cores)))
    words = [sys.executable, "-m", "cotenant.profiles.corebench", *map(str, cores)]
    try:
        done = subprocess.run(  # noqa: S603
            words,
            env={**os.environ, **threads},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        told = getattr(error, "stderr", "") or str(error)
        last = str(told).strip().splitlines()[-1:] or ["no reason given"]
        raise ConfigError(f"{core_set_name(cores)}: cannot be measured here: {last[0]}") from None
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return msgspec.convert({**found, "numpy": version("numpy"), "date": today}, CoreRates)


def _kept() -> dict[str, CoreRates]:
    """Measurements of earlier; none where they cannot be read, since they can be made again."""
    try:
        return msgspec.json.decode(cache_file().read_bytes(), type=dict[str, CoreRates])
    except (OSError, msgspec.DecodeError):
        return {}


def _keep(found: dict[str, CoreRates]) -> None:
    path = cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    except OSError:
        return  # a home that cannot be written to costs some seconds each time, nothing else


def _last_cache_mib(core: int) -> float:
    """Size of the last-level cache that the core sees, shared with others; 0 where the system does not say."""
    folder = Path(f"/sys/devices/system/cpu/cpu{core}/cache")
    sizes = {}
    for index in folder.glob("index*"):
        try:
            level, size = (index / "level").read_text().strip(), (index / "size").read_text().strip()
            sizes[int(level)] = float(size.removesuffix("K")) / 1024
        except (OSError, ValueError):
            continue
    return sizes[max(sizes)] if sizes else 0.0
