"""Throughputs of job types alone, which turn numbers of steps into seconds."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cotenant.errors import InputError
from cotenant.profiles.kinds import canonical_model
from cotenant.traces.base import DataReport
from cotenant.traces.options import ReadOptions
from cotenant.traces.table import read_rows

__all__ = ["NO_GAIN", "STRETCHED", "Found", "Throughputs", "load_throughputs"]

STRETCHED = "throughput extrapolated in proportion from the largest gang measured"
NO_GAIN = "throughput of a gang was never measured for this job type: that of one device is used"

_NEEDED = ("gpu_type", "model", "batch", "num_gpus", "throughput")
_OPTIONAL = ("source", "placement", "tput_unit")


class Found(msgspec.Struct, frozen=True, gc=False):
    """A throughput, None if unknown, and what was assumed to get it."""

    steps_per_s: float | None
    assumed: str = ""


class Throughputs:
    """Steps per second on one device type.

    Parameters
    ----------
    table : mapping
        (canonical model, number of devices) to steps per second.
    label : str
        Where the figures come from.
    """

    def __init__(self, table: dict[tuple[str, int], float], label: str) -> None:
        self.label = label
        self._table = table
        self._largest: dict[str, int] = {}
        for (model, gpus), speed in table.items():
            if speed > 0:
                self._largest[model] = max(gpus, self._largest.get(model, 0))

    def find(self, model: str, gpus: int) -> Found:
        """Throughput of a gang.

        Beyond the largest gang measured, in proportion to that; where only one device was
        measured, that of one device.
        """
        exact = self._table.get((model, gpus))
        if exact is not None:
            return Found(exact)
        largest = self._largest.get(model, 0)
        if 1 < largest < gpus:
            return Found(self._table[model, largest] * gpus / largest, STRETCHED)
        if largest == 1:
            return Found(self._table[model, 1], NO_GAIN)
        return Found(None)


def load_throughputs(path: Any, campaign: str, gpu_type: str) -> Throughputs | None:
    """The table of one campaign and device type; None for ``path="none"``.

    Parameters
    ----------
    path : str or Path
        A table with columns ``gpu_type,model,batch,num_gpus,throughput`` and perhaps
        ``source,placement,tput_unit``; empty takes the bundled one.

    Raises
    ------
    InputError, TraceError
        If the table cannot be read, or has no row for that campaign and device type.
    """
    if str(path).strip().lower() == "none":
        return None
    place = Path(str(path)) if path else Path(str(files("cotenant") / "data" / "gavel_throughputs.csv"))
    report = DataReport(format="throughputs", path=str(place), strict=True)
    rows = read_rows(place, report, ReadOptions(strict=True), needed=_NEEDED, optional=_OPTIONAL)
    if "tput_unit" in rows.present:
        rows.exclude(~pl.col("tput_unit").is_in(["", "steps/s"]), "not in steps/s")
    if "placement" in rows.present:
        rows.exclude(~pl.col("placement").is_in(["", "consolidated"]), "gang over several nodes")
    rows.number("num_gpus", low=1, high=1e6, integer=True)
    rows.number("throughput", low=0)
    frame = rows.frame
    chosen = frame.filter(pl.col("gpu_type") == gpu_type)
    label = place.name
    if "source" in rows.present:
        chosen = chosen.filter(pl.col("source") == campaign)
        label = campaign
    if not chosen.height:
        types = ", ".join(sorted(frame["gpu_type"].unique()))
        campaigns = ", ".join(sorted(frame["source"].unique())) or "none"
        raise InputError(
            f'no throughputs of campaign "{campaign}" on device type "{gpu_type}" in {place.name}; '
            f"device types: {types}; campaigns: {campaigns}"
        )
    table = {
        (canonical_model(f"{model}/b{batch}" if batch.strip() else model), gpus): speed
        for model, batch, gpus, speed in chosen.select("model", "batch", "num_gpus", "throughput").iter_rows()
    }
    return Throughputs(table, label)
