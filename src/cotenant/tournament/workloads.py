"""The workloads of the tournament: windows of published traces, brought to a load.

A seed draws which window of a trace is played (or the jobs themselves, where they are drawn). What
differs between trace formats and bears on few policies only is left out, and said: priorities,
deadlines, device types asked for, host needs, failures of the jobs' own; jobs without GPUs and
gangs of more than half the devices. Running times are cut at a day: with a few hundred jobs one job
of three weeks would decide the makespan of every policy alike.

The load is set by stretching or squeezing submission times: device-seconds of work (fractions
counted as such) over the span of submissions, divided by the cluster's devices in reference devices.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from cotenant.errors import UnknownNameError
from cotenant.model.cluster import Cluster
from cotenant.model.workload import Workload

__all__ = ["SOURCES", "Source", "capacity", "offered_load", "window"]

_DAY_S = 86400.0
_KEPT = ("name", "submit_s", "duration_s", "gpus", "model", "memory_bytes", "compute_milli", "tenant")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a workload comes from.

    Parameters
    ----------
    title : str
    paths : tuple of str
        Files in the data folder; seed ``k`` takes the ``k``-th, again from the first after the last. Empty
        for one that is always drawn.
    options : dict
        Of the trace's reader.
    stand_in : dict
        Synthetic description (``traces.synthetic``) where the files are not there.
    note : str
    """

    title: str
    paths: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    stand_in: dict[str, Any]
    note: str = ""


def _drawn(preset: str, **changes: Any) -> dict[str, Any]:
    return {"preset": preset, **changes}


SOURCES: Mapping[str, Source] = {
    "philly": Source(
        title="Microsoft Philly",
        paths=("traces/philly/philly_first_half.csv.gz",),
        stand_in=_drawn("philly-like"),
    ),
    "helios": Source(
        title="Helios-like",
        stand_in=_drawn(
            "bursty",
            sizes=[
                {"gpus": g, "weight": w} for g, w in ((1, 0.6), (2, 0.1), (4, 0.1), (8, 0.15), (16, 0.05))
            ],
            duration={"kind": "lognormal", "median_s": 200.0, "sigma": 2.65},
        ),
        note="always drawn: the published job log is not among the data. Lognormal running times of median 200 s and mean "
        "6,700 s before the cut, gangs and bursts assumed (RECONSTRUCTION)",
    ),
    "openb": Source(
        title="Alibaba openb",
        paths=("traces/openb2023/openb_pod_list_default.csv",),
        stand_in=_drawn("steady", duration={"kind": "lognormal", "median_s": 480.0, "sigma": 2.0}),
        note="pods that ask for fractions of a GPU keep them",
    ),
    "gavel": Source(
        title="Gavel msr",
        paths=tuple(f"traces/gavel/msr_seed0/{name}.trace.gz" for name in ("103959", "ed69ec", "2869ce")),
        stand_in=_drawn("steady", duration={"kind": "lognormal", "median_s": 20000.0, "sigma": 1.5}),
    ),
    "muri": Source(
        title="Muri",
        paths=tuple(f"traces/muri/trace{number}.csv.gz" for number in (1, 3, 4)),
        stand_in=_drawn("bursty"),
    ),
    "tiresias": Source(
        title="Tiresias",
        paths=("traces/tiresias/yarn-gput1000.csv",),
        options={"mean_gap_s": 60.0},
        stand_in=_drawn("common-like"),
        note="the published list holds running times alone: one GPU each, Poisson arrivals",
    ),
    "pollux": Source(
        title="Pollux",
        paths=tuple(f"traces/pollux/workload-{number}.csv" for number in (1, 2, 3, 4)),
        stand_in=_drawn("steady", duration={"kind": "lognormal", "median_s": 1200.0, "sigma": 1.3}),
        note="each published list has 160 jobs",
    ),
}
"""The workloads by name."""


def capacity(cluster: Cluster) -> float:
    """Devices of a cluster, in reference devices."""
    speeds = {kind.name: kind.speed for kind in cluster.types}
    return sum(count * speeds[kind] for node in cluster.nodes for kind, count in node.gpus)


def offered_load(workload: Workload, cluster: Cluster) -> float:
    """Device-seconds of work over the span of submissions, per reference device."""
    frame = workload.frame
    span = float(frame["submit_s"][-1] - frame["submit_s"][0])
    return _demand(frame) / span / capacity(cluster)


def _demand(frame: pl.DataFrame) -> float:
    milli = frame["compute_milli"] if "compute_milli" in frame.columns else pl.Series([1000] * frame.height)
    part = pl.DataFrame({"m": milli}).select(pl.when(pl.col("m") > 0).then(pl.col("m")).otherwise(1000))["m"]
    return float((frame["duration_s"] * frame["gpus"] * part / 1000.0).sum())


def window(
    name: str, seed: int, *, jobs: int, load: float, cluster: Cluster, data: str | None
) -> tuple[Workload, str]:
    """Jobs for one seed at one load, and what must be said about them.

    Parameters
    ----------
    jobs : int
        How many at most; a shorter trace is played whole.

    Raises
    ------
    UnknownNameError
        For a workload that is not in ``SOURCES``.
    """
    if name not in SOURCES:
        raise UnknownNameError("workload", name, SOURCES)
    frame, said = _frame(name, seed, jobs, data)
    most = cluster.gpu_count // 2
    frame = frame.filter(pl.col("gpus").is_between(1, most))
    rng = np.random.default_rng((seed, 1))
    first = int(rng.integers(0, max(frame.height - jobs, 0) + 1))
    frame = frame.slice(first, jobs).with_columns(pl.col("duration_s").clip(1.0, _DAY_S))
    base, span = float(frame["submit_s"][0]), float(frame["submit_s"][-1] - frame["submit_s"][0])
    wanted = _demand(frame) / (load * capacity(cluster))
    at = (pl.col("submit_s") - base) * (wanted / span) if span > 0 else pl.lit(0.0)
    return Workload(frame.with_columns(at.alias("submit_s")), name=name), said


def _frame(name: str, seed: int, jobs: int, data: str | None) -> tuple[pl.DataFrame, str]:
    source = SOURCES[name]
    paths = [p for p in (Path(data or "") / path for path in source.paths) if data and p.is_file()]
    if paths:
        return _read(str(paths[seed % len(paths)]), tuple(source.options.items())), source.note
    from cotenant.traces.synthetic import generate

    missing = (
        ""
        if not source.paths
        else f"synthetic stand-in ({source.stand_in['preset']}): the published trace is not here"
    )
    frame = generate({**source.stand_in, "jobs": jobs, "seed": seed}).frame
    return _plain(frame), "; ".join(part for part in (missing, source.note if not missing else "") if part)


@functools.lru_cache(maxsize=4)
def _read(path: str, options: tuple[tuple[str, Any], ...]) -> pl.DataFrame:
    from cotenant.traces.load import read_trace

    return _plain(read_trace(path, None, False, **dict(options)).frame)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    if "gpus" not in frame.columns:
        frame = frame.with_columns(gpus=pl.lit(1, dtype=pl.Int64))
    return frame.select([c for c in _KEPT if c in frame.columns])
