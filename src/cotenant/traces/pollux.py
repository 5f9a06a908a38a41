"""Workloads of Pollux (Qiao et al., OSDI 2021; petuum/adaptdl ``benchmark/workloads``), also Sia's format.

``name,time,application,num_replicas,batch_size``. There is no running time: in that simulator it follows
from each application's own scaling model, which is not part of the trace.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import InputError
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish
from cotenant.traces.options import take_options
from cotenant.traces.table import Rows, header_score, read_rows
from cotenant.traces.tiresias import canonical_models

__all__ = ["TYPICAL_GPU_S", "PolluxReader"]

_NEEDED = ("name", "time", "application", "num_replicas", "batch_size")

TYPICAL_GPU_S = {
    "cifar10": 0.75 * 3600,
    "ncf": 0.5 * 3600,
    "deepspeech2": 5.0 * 3600,
    "bert": 5.0 * 3600,
    "yolov3": 50.0 * 3600,
    "imagenet": 150.0 * 3600,
}
"""Assumed GPU-seconds of one run, by application.

Not measured: the middle, or a round figure inside, of the paper's size categories by GPU time (small 0-1 h,
medium 1-10 h, large 10-100 h, extra large 100-1,000 h; Pollux, section 5.1, table of models).
"""

_SIGMA = 0.5


class PolluxReader:
    """Reads Pollux workloads.

    Running times are assumed by default, and every report says so: ``TYPICAL_GPU_S`` of the
    application, times exp(N(0, 0.5)), divided by the replicas; the draw belongs to ``seed`` and the job's
    name. ``seconds=600`` gives every job that time; ``seconds="cifar10:900,bert:7200"`` by
    application; ``seconds="none"`` assumes nothing, and the jobs count as not simulated.
    """

    format: ClassVar[str] = "pollux"
    title: ClassVar[str] = "Pollux workload (no running times)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds all five columns."""
        return 0.95 if header_score(first_lines(head, 1), _NEEDED) == 1 else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; options as in the class and in ``traces.options.ReadOptions``.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        InputError
            If ``seconds`` makes no sense.
        """
        common, own = take_options(self.format, options, {"seconds": "typical", "seed": 0.0})
        report = DataReport(format=self.format, path=str(path), strict=common.strict, time_zone="none")
        rows = read_rows(path, report, common, needed=_NEEDED)
        rows.duplicates(_NEEDED, common.duplicates, "drop")
        rows.number("time", low=0, into="submit_s")
        rows.number("num_replicas", low=1, high=1e6, integer=True, into="gpus")
        rows.add(application=pl.col("application").str.strip_chars(), label=pl.col("name").str.strip_chars())
        canonical_models(rows, "application")
        rows.unique_names("label", ("submit_s", "gpus", "model"))
        _durations(rows, own["seconds"], own["seed"])
        return finish(rows, common, keep=("gpus", "model"), clock="trace")


def _durations(rows: Rows, seconds: Any, seed: float) -> None:
    report = rows.report
    reason = "no running time in the trace (application scaling model); pass seconds= to assume one"
    if str(seconds) == "typical":
        made = [
            TYPICAL_GPU_S[app] * math.exp(_SIGMA * _normal(seed, name)) / gpus
            if app in TYPICAL_GPU_S
            else None
            for app, name, gpus in rows.frame.select("application", "name", "gpus").iter_rows()
        ]
        rows.frame = rows.frame.with_columns(pl.Series("duration_s", made, dtype=pl.Float64))
        report.assumptions.append(
            "Running times are assumed, not observed: typical GPU time of the application x exp(N(0, "
            f"{_SIGMA:g})) / replicas, seed {seed:g} (docs/traces.md, Pollux)."
        )
        rows.flag(pl.col("duration_s").is_not_null(), "running time assumed from the application")
    else:
        table, every = _given(seconds)
        rows.add(
            duration_s=pl.col("application").replace_strict(table, default=every, return_dtype=pl.Float64)
        )
        if table or every is not None:
            report.assumptions.append(f"Running times are assumed, not observed: seconds={seconds}.")
            rows.flag(pl.col("duration_s").is_not_null(), "running time assumed by option seconds")
    rows.set_aside(pl.col("duration_s").is_null(), reason)


def _given(seconds: Any) -> tuple[dict[str, float], float | None]:
    if seconds is None or str(seconds).strip().lower() in {"none", ""}:
        return {}, None
    if isinstance(seconds, dict):
        pairs = [(str(key), value) for key, value in seconds.items()]
    elif ":" in str(seconds):
        pairs = [
            (key.strip(), value) for key, _, value in (p.partition(":") for p in str(seconds).split(","))
        ]
    else:
        return {}, _positive(seconds, seconds)
    return {key: _positive(value, seconds) for key, value in pairs}, None


def _positive(value: Any, given: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < 1e10:
        raise InputError(
            f"option seconds={given!r}: write seconds=600, seconds=cifar10:900,bert:7200 or none"
        )
    return number


def _normal(seed: float, name: str) -> float:
    """A standard normal number that belongs to seed and name, whatever other jobs there are."""
    digest = hashlib.blake2b(f"{seed:g}/{name}".encode(), digest_size=8).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest, "big") + 0.5) / 2**64)
