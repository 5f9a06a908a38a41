"""Device types that people have: memory, board power and a coarse training speed.

Memory is what the vendor's tool prints as total (``nvidia-smi``, ``rocm-smi``); it differs by
a per cent or two between driver versions and with error correction, so the smaller of the
figures seen is kept. Power is the board's limit from its datasheet. Idle power is left at 0
(unknown), since no datasheet gives it.

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
import re
from functools import lru_cache

import msgspec

from cotenant.errors import UnknownNameError
from cotenant.model.cluster import DeviceType
from cotenant.model.quantities import MIB

__all__ = [
    "REFERENCE_TYPE",
    "canonical_type",
    "device_type",
    "known",
    "measured_as",
    "relative_speed",
    "under_name",
]

REFERENCE_TYPE = "V100"
"""The type whose speed is 1.0 in this catalogue, and the stand-in for types nobody knows."""

_V100_BANDWIDTH_GBS, _V100_TFLOPS = 900.0, 125.0


def _by_datasheet(bandwidth_gbs: float, tflops: float) -> float:
    return round(math.sqrt(bandwidth_gbs / _V100_BANDWIDTH_GBS * tflops / _V100_TFLOPS), 2)


# name: (memory in MiB, board power in W, speed, other names)
_TYPES: dict[str, tuple[int, float, float, tuple[str, ...]]] = {
    # One of the two dies of a board; the board takes 300 W. NVIDIA Tesla K80 board specification BD-07317.
    "K80": (11_441, 150, 0.20, ("Tesla K80",)),
    # PCIe, 16 GB; NVIDIA Tesla P100 PCIe datasheet. 0.66 = sqrt(0.773 x 0.559), measured.
    "P100": (16_280, 250, 0.66, ("P100-PCIE-16GB", "Tesla P100")),
    # SXM2; NVIDIA V100 datasheet (PCIe boards: 250 W).
    "V100": (16_160, 300, 1.0, ("V100-16GB", "V100M16", "V100-SXM2-16GB", "Tesla V100")),
    "V100-32GB": (32_480, 300, 1.0, ("V100M32", "V100-SXM2-32GB")),
    # NVIDIA T4 datasheet: 320 GB/s, 65 TFLOP/s.
    "T4": (15_079, 70, _by_datasheet(320, 65), ("Tesla T4",)),
    # Turing whitepaper (GeForce RTX 2080 Ti): 616 GB/s, 107.6 TFLOP/s.
    "RTX2080Ti": (10_989, 250, _by_datasheet(616, 107.6), ("2080Ti", "GeForce RTX 2080 Ti")),
    # Ampere GA102 whitepaper: 936 GB/s, 142 TFLOP/s.
    "RTX3090": (24_258, 350, _by_datasheet(936, 142), ("3090", "GeForce RTX 3090")),
    # Ada whitepaper: 1,008 GB/s, 330 TFLOP/s.
    "RTX4090": (24_564, 450, _by_datasheet(1008, 330), ("4090", "GeForce RTX 4090")),
    # NVIDIA A10 datasheet: 600 GB/s, 125 TFLOP/s.
    "A10": (22_731, 150, _by_datasheet(600, 125), ()),
    # NVIDIA A30 datasheet: 933 GB/s, 165 TFLOP/s.
    "A30": (24_258, 165, _by_datasheet(933, 165), ()),
    # NVIDIA A100 datasheet: SXM, 1,555 and 2,039 GB/s, 312 TFLOP/s.
    "A100": (40_536, 400, _by_datasheet(1555, 312), ("A100-40GB", "A100-SXM4-40GB")),
    "A100-80GB": (81_251, 400, _by_datasheet(2039, 312), ("A100-SXM4-80GB", "A800", "A800-80GB")),
    # NVIDIA L4 datasheet: 300 GB/s, 121 TFLOP/s dense.
    "L4": (23_034, 72, _by_datasheet(300, 121), ()),
    # NVIDIA L40S datasheet: 864 GB/s, 362 TFLOP/s dense.
    "L40S": (46_068, 350, _by_datasheet(864, 362), ()),
    # NVIDIA H100 datasheet: PCIe 2.0 TB/s, 756 TFLOP/s; SXM 3.35 TB/s, 989 TFLOP/s.
    "H100-PCIe": (81_559, 350, _by_datasheet(2000, 756), ("H100-PCIe-80GB",)),
    "H100": (81_559, 700, _by_datasheet(3350, 989), ("H100-SXM", "H100-SXM5", "H100-80GB", "H100-80GB-HBM3")),
    # NVIDIA H200 datasheet: 4.8 TB/s, 989 TFLOP/s.
    "H200": (143_771, 700, _by_datasheet(4800, 989), ("H200-SXM", "H200-141GB")),
    # NVIDIA HGX B200 datasheet: 8 TB/s, 2,250 TFLOP/s dense.
    "B200": (183_359, 1000, _by_datasheet(8000, 2250), ("B200-SXM", "B200-180GB")),
    # One of two dies, as drivers present it; module 560 W, 3.2 TB/s, 383 TFLOP/s. AMD Instinct MI250X data sheet.
    "MI250X": (65_520, 280, _by_datasheet(1638, 191.5), ("Instinct MI250X",)),
    # AMD Instinct MI300X data sheet: 5.3 TB/s, 1,307 TFLOP/s.
    "MI300X": (196_592, 750, _by_datasheet(5300, 1307.4), ("Instinct MI300X",)),
}


def _key(name: str) -> str:
    return re.sub(r"^(nvidia|amd)", "", re.sub(r"[^a-z0-9]", "", name.casefold()))


_ALIASES = {_key(alias): name for name, row in _TYPES.items() for alias in (name, *row[3])}


def known() -> tuple[str, ...]:
    """Names of the device types in the catalogue, in its order."""
    return tuple(_TYPES)


@lru_cache(maxsize=1024)
def canonical_type(name: str) -> str | None:
    """The catalogue's name for a device type, or None if it is not there.

    Case, spaces and punctuation do not matter, nor does the vendor's name in front.

    >>> canonical_type("NVIDIA A100-SXM4-40GB"), canonical_type("v100m32"), canonical_type("G2")
    ('A100', 'V100-32GB', None)
    """
    return _ALIASES.get(_key(name))


def device_type(name: str) -> DeviceType:
    """The device type of this name or alias.

    Returns
    -------
    DeviceType
        Under the catalogue's name. Idle power is 0: unknown.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.

    Examples
    --------
    >>> device_type("h100-sxm").memory_bytes // 2**20
    81559
    """
    found = canonical_type(name)
    if found is None:
        raise UnknownNameError("device type", name, _TYPES)
    memory_mib, power_w, speed, _ = _TYPES[found]
    return DeviceType(name=found, memory_bytes=memory_mib * MIB, speed=speed, power_w=float(power_w))


def relative_speed(name: str) -> float:
    """Coarse training speed of a type relative to a V100; 1.0 for types nobody knows."""
    found = canonical_type(name)
    return 1.0 if found is None else _TYPES[found][2]


def under_name(name: str) -> DeviceType:
    """The device type of this name, kept under the name that was asked for."""
    return msgspec.structs.replace(device_type(name), name=name)


_SAME_CHIP = {"V100-32GB": "V100", "A100-80GB": "A100"}


@lru_cache(maxsize=1024)
def measured_as(name: str) -> str:
    """The type under which measurements of this one are filed.

    Cards that differ in memory alone share their measurements; a type that nobody knows is
    taken for a V100, which every report must say.

    >>> measured_as("A100-80GB"), measured_as("gpu")
    ('A100', 'V100')
    """
    found = canonical_type(name) or REFERENCE_TYPE
    return _SAME_CHIP.get(found, found)
