"""Numbers and words of tools: a reading that is no number is missing.

Tools print ``[N/A]``, ``[Not Supported]``, ``Unknown Error`` or, in other versions and
languages, other words. So nothing here knows the words; it knows numbers.
"""

from __future__ import annotations

import math
import re
from typing import Any

from cotenant.profiles.samplers.readings import DeviceReading, Failure

__all__ = ["BLANK_FROM", "number", "read_query_gpu"]

BLANK_FROM = 2.0**62
"""DCGM writes values near 2**63 (and NVML near 2**64) for "blank": unsupported, not found, no
permission. No meter of a device comes near."""

_NUMBER = re.compile(r"^\s*([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(?:%|MiB|W|MHz)?\s*$")


def number(text: str) -> float | None:
    """The number that a cell holds, with or without its unit; None if it holds none.

    >>> number("37"), number(" 37 %"), number("24564 MiB"), number("[N/A]"), number("NaN")
    (37.0, 37.0, 24564.0, None, None)
    """
    found = _NUMBER.match(text)
    if found is None:
        return None
    value = float(found.group(1))
    return value if math.isfinite(value) and abs(value) < BLANK_FROM else None


def read_query_gpu(
    text: str,
    columns: tuple[str, ...] = (
        "index",
        "uuid",
        "memory_total_mib",
        "memory_used_mib",
        "busy_pct",
        "temperature",
    ),
) -> tuple[tuple[DeviceReading, ...], tuple[Failure, ...]]:
    """Read what ``nvidia-smi --query-gpu=... --format=csv,noheader[,nounits]`` prints.

    Parameters
    ----------
    text : str
        One line a device.
    columns : tuple of str
        What was asked for, in order, under our names; by default as from ``--query-gpu=index,uuid,
        memory.total,memory.used,utilization.gpu,temperature.gpu``. Names that are no field of
        a reading are passed over.

    Returns
    -------
    devices : tuple of DeviceReading
        A line with an index and as many cells as were asked for.
    failures : tuple of Failure
        Every other line that is not empty, word for word: a lost device, an error.
    """
    devices: list[DeviceReading] = []
    failures: list[Failure] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        named = dict(zip(columns, cells, strict=False))
        if len(cells) == len(columns) and (named.get("index", "0")).isdigit():
            devices.append(_reading(named, len(devices)))
        elif line.strip():
            failures.append(Failure(device="", reason=line.strip()))
    return tuple(devices), tuple(failures)


def _reading(named: dict[str, str], position: int) -> DeviceReading:
    index = int(named["index"]) if "index" in named else position
    meters: dict[str, Any] = {
        name: number(cell)
        for name, cell in named.items()
        if name.endswith(("_pct", "_mib", "_w")) and name in DeviceReading.__struct_fields__
    }
    return DeviceReading(
        device=named.get("uuid") or str(index), index=index, model=named.get("model", ""), **meters
    )
