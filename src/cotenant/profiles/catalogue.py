"""Device types that people have: memory, rates, power and a coarse training speed.

The facts are in ``data/devices.toml``, each with its source; a file of one's own, named by
``--devices`` or ``COTENANT_DEVICES``, adds types or replaces built-in ones.

``speed`` is relative to a V100 and **coarse**. K80 and P100 are measured: geometric mean, over
21 job types alone (recommendation left out, its solo speeds are disputed) and over two
campaigns, of the solo throughputs of stanford-futuredata/gavel (MIT), ``scheduler/
simulation_throughputs.json`` (K80 0.209, P100 0.773) and ``scheduler/oracle_throughputs.json``
at 48eceb7 (K80 0.196, P100 0.559). All others are **approximations from datasheets**: the
geometric mean of the ratio of memory bandwidth and the ratio of dense 16-bit matrix
throughput to a V100's (900 GB/s, 125 TFLOP/s), because training is bound now by one and now by
the other. Real jobs may differ by a factor of two; declare your own in the cluster file.
"""

from __future__ import annotations

import math
import os
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.cluster import DeviceType
from cotenant.model.quantities import MIB

__all__ = [
    "DEVICES_VARIABLE",
    "PRECISIONS",
    "REFERENCE_TYPE",
    "Datasheet",
    "add_types",
    "canonical_type",
    "datasheet",
    "device_type",
    "filed_as",
    "known",
    "measured_as",
    "read_devices",
    "relative_speed",
    "under_name",
    "use_devices",
]

REFERENCE_TYPE = "V100"
"""The type whose speed is 1.0 in this catalogue, and the stand-in for types nobody knows."""

DEVICES_VARIABLE = "COTENANT_DEVICES"
"""Environment variable that names a file with types of one's own."""

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
"""Names of the rates in ``Datasheet.tflops``."""

_V100_BANDWIDTH_GBS, _V100_TFLOPS = 900.0, 125.0
_FALLBACK = {"fp8": "fp16", "bf16": "fp16", "fp16": "fp32", "tf32": "fp32"}

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class Datasheet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the maker says about a device type.

    Parameters
    ----------
    name : str
    memory_mib : int
        Usable memory as the driver reports it, in MiB.
    bandwidth_gbs : float
        Peak memory bandwidth, GB/s.
    tflops : dict of str to float
        Dense peak rates by precision (``PRECISIONS``), TFLOP/s.
    source : str
    aliases : tuple of str
        Other names; case and punctuation do not matter.
    maker : str
    units : int
        Streaming multiprocessors or compute units; 0 unknown.
    cache_mib : float
        Last-level cache; 0 unknown.
    link : str
        Bus to the host.
    link_gbs, peer_gbs : float
        Host link in one direction; between devices in both; GB/s, 0 unknown or none.
    power_w, idle_w : float
        Board power; 0 unknown.
    speed : float or None
        Measured coarse training speed relative to a V100; None: from the rates.
    measured_as : str
        The type under which measurements of it are filed; empty: its own.
    host : bool
        Whether it is a set of CPU cores, which launch nothing and wait for no launch.
    note : str
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    memory_mib: Annotated[int, msgspec.Meta(gt=0)]
    bandwidth_gbs: _Positive
    tflops: dict[str, _Positive]
    source: str
    aliases: tuple[str, ...] = ()
    maker: str = ""
    units: int = 0
    cache_mib: float = 0.0
    link: str = ""
    link_gbs: float = 0.0
    peer_gbs: float = 0.0
    power_w: float = 0.0
    idle_w: float = 0.0
    speed: float | None = None
    measured_as: str = ""
    host: bool = False
    note: str = ""

    @property
    def memory_bytes(self) -> int:
        """Usable memory in bytes."""
        return self.memory_mib * MIB

    @property
    def relative_speed(self) -> float:
        """Coarse training speed relative to a V100."""
        if self.speed is not None:
            return self.speed
        ratio = self.bandwidth_gbs / _V100_BANDWIDTH_GBS * self.peak_tflops("fp16") / _V100_TFLOPS
        return round(math.sqrt(ratio), 2)

    def peak_tflops(self, precision: str) -> float:
        """Dense peak rate in TFLOP/s; of the next wider precision where it has none of its own.

        Raises
        ------
        UnknownNameError
            If that is no precision.

        Examples
        --------
        >>> datasheet("K80").peak_tflops("fp16")
        4.37
        """
        if precision not in PRECISIONS:
            raise UnknownNameError("precision", precision, PRECISIONS)
        while precision not in self.tflops and precision in _FALLBACK:
            precision = _FALLBACK[precision]
        if precision in self.tflops:
            return self.tflops[precision]
        return max(self.tflops.values())


class _File(msgspec.Struct, forbid_unknown_fields=True):
    device: list[Datasheet] = []


def read_devices(path: Path | str) -> tuple[Datasheet, ...]:
    """Device types of a TOML file, in its order.

    Raises
    ------
    ConfigError
        If there is no such file, or it is no TOML of the form of ``data/devices.toml``.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; {DEVICES_VARIABLE} or --devices names it") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not a text file in UTF-8") from error
    return _decoded(text, str(path))


def _decoded(text: str, path: str) -> tuple[Datasheet, ...]:
    try:
        found = msgspec.toml.decode(text, type=_File).device
    except msgspec.DecodeError as error:
        hint = "; docs/devices.md shows the form"
        raise ConfigError(f"{path}: {_field(str(error))}{hint}") from error
    for sheet in found:
        wrong = [name for name in sheet.tflops if name not in PRECISIONS]
        if wrong or not sheet.tflops:
            told = f'"{wrong[0]}" is none' if wrong else "it has none"
            raise ConfigError(
                f'{path}: device "{sheet.name}": tflops by precision: {", ".join(PRECISIONS)}; {told}'
            )
    return tuple(found)


def _field(text: str) -> str:
    return text.replace(" - at `$.", " at `")


class _Catalogue:
    """Types by name, and names by alias; later files win."""

    def __init__(self, sheets: tuple[Datasheet, ...]) -> None:
        self.types: dict[str, Datasheet] = {}
        self.names: dict[str, str] = {}
        for sheet in sheets:
            self.types[sheet.name] = sheet
            for alias in (sheet.name, *sheet.aliases):
                self.names[_key(alias)] = sheet.name


def use_devices(path: Path | str) -> None:
    """Add the types of a file to the catalogue of this process and of those it starts.

    Raises
    ------
    ConfigError
        As ``read_devices``.
    """
    read_devices(path)
    os.environ[DEVICES_VARIABLE] = str(path)


_added: dict[str, Datasheet] = {}


def add_types(*sheets: Datasheet) -> None:
    """Add types to the catalogue of this process alone, such as its own core sets, measured just now."""
    _added.update({sheet.name: sheet for sheet in sheets})
    _built.cache_clear()


@lru_cache(maxsize=8)
def _built(own: str) -> _Catalogue:
    text = (files("cotenant") / "data" / "devices.toml").read_text(encoding="utf-8")
    sheets = _decoded(text, "devices.toml")
    mine = read_devices(own) if own else ()
    return _Catalogue((*sheets, *mine, *_added.values()))


def _catalogue() -> _Catalogue:
    return _built(os.environ.get(DEVICES_VARIABLE, ""))


def _key(name: str) -> str:
    return re.sub(r"^(nvidia|amd)", "", re.sub(r"[^a-z0-9]", "", name.casefold()))


def known() -> tuple[str, ...]:
    """Names of the device types in the catalogue, in its order."""
    return tuple(_catalogue().types)


def canonical_type(name: str) -> str | None:
    """The catalogue's name for a device type, or None if it is not there.

    Case, spaces and punctuation do not matter, nor does the vendor's name in front.

    >>> canonical_type("NVIDIA A100-SXM4-40GB"), canonical_type("v100m32"), canonical_type("G2")
    ('A100', 'V100-32GB', None)
    """
    return _catalogue().names.get(_keyed(name))


_keyed = lru_cache(maxsize=1024)(_key)


def datasheet(name: str) -> Datasheet:
    """The facts about the device type of this name or alias.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.

    Examples
    --------
    >>> datasheet("h100-sxm").memory_mib, datasheet("l4").bandwidth_gbs
    (81559, 300.0)
    """
    catalogue = _catalogue()
    found = catalogue.names.get(_keyed(name))
    if found is None:
        raise UnknownNameError("device type", name, catalogue.types)
    return catalogue.types[found]


def device_type(name: str) -> DeviceType:
    """The device type of this name or alias, for a cluster.

    Returns
    -------
    DeviceType
        Under the catalogue's name. Idle power is 0 unless a file of one's own gives it.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.

    Examples
    --------
    >>> device_type("h100-sxm").memory_bytes // 2**20
    81559
    """
    sheet = datasheet(name)
    return DeviceType(
        name=sheet.name,
        memory_bytes=sheet.memory_bytes,
        speed=sheet.relative_speed,
        power_w=sheet.power_w,
        idle_w=sheet.idle_w,
    )


def relative_speed(name: str) -> float:
    """Coarse training speed of a type relative to a V100; 1.0 for types nobody knows."""
    catalogue = _catalogue()
    found = catalogue.names.get(_keyed(name))
    return 1.0 if found is None else catalogue.types[found].relative_speed


def under_name(name: str) -> DeviceType:
    """The device type of this name, kept under the name that was asked for."""
    return msgspec.structs.replace(device_type(name), name=name)


def measured_as(name: str) -> str:
    """The type under which measurements of this one are filed.

    Cards that differ in memory alone share their measurements; a type that nobody knows is
    taken for a V100, which every report must say.

    >>> measured_as("A100-80GB"), measured_as("gpu")
    ('A100', 'V100')
    """
    catalogue = _catalogue()
    found = catalogue.types.get(catalogue.names.get(_keyed(name), REFERENCE_TYPE))
    if found is None:
        return REFERENCE_TYPE
    return found.measured_as or found.name


def filed_as(name: str) -> str:
    """The type that a measurement is about: the catalogue's, or its own name, such as a CPU's.

    Unlike ``measured_as``, which answers for what is asked about, nobody's measurements are taken for a V100's.

    >>> filed_as("A100-80GB"), filed_as("AMD EPYC x1")
    ('A100', 'AMD EPYC x1')
    """
    return name if canonical_type(name) is None else measured_as(name)
