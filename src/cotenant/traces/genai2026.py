"""Alibaba's generative-AI serving telemetry: GPU duty cycle and memory of pods.

Data of alibaba/clusterdata, cluster-trace-v2026-GenAI. Not a job list: what becomes a job
here is the presence of a pod in the samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import polars as pl

from cotenant.errors import InputError, TraceError
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines, plain_name
from cotenant.traces.finish import finish, within
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.table import LINE, Rows, header_score, read_rows

__all__ = ["GenAi2026Reader", "read_pod_usage"]

_COLUMNS = ("timestamp_anon", "value", "container_ip")
_DUTY, _MEMORY = "pod_gpu_duty_cycle_anon.csv", "pod_gpu_memory_used_bytes_anon.csv"
_DUTY_MAX_PERCENT = 100.0


class GenAi2026Reader:
    """Reads ``pod_gpu_duty_cycle_anon.csv`` or ``pod_gpu_memory_used_bytes_anon.csv``.

    Each pod becomes one row: present from its first sample to one sampling period after its
    last. The other file, beside the given one, adds peak memory or mean duty cycle. The report
    counts samples, and says that this is telemetry, not a job list.
    """

    format: ClassVar[str] = "genai2026"
    title: ClassVar[str] = "Alibaba generative-AI serving telemetry 2026"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds time, value and pod, and nothing else."""
        lines = first_lines(head, 1)
        if header_score(lines, _COLUMNS) == 1 and lines[0].count(",") == 2:
            return 0.95
        return 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read pods.

        Parameters
        ----------
        share : {"whole", "mean"}
            What a pod asks for: a whole device, or its mean duty cycle as a part of one.
        holds : {"", "duty", "memory"}
            What the file holds; empty tells it by name, else by values above 100.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"share": "whole", "holds": ""})
        _check(own)
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        samples = _samples(Path(path), report, common)
        duty = _is_duty(Path(path), samples, str(own["holds"]))
        rows = _pods(samples, report, duty)
        _join_other(rows, Path(path), common, duty)
        _requests(rows, share=str(own["share"]), duty=duty)
        report.time_zone = "seconds since 1970, shifted by the publisher"
        kept, pods = samples.frame.height, rows.frame.height
        report.assumptions.append(
            f"Telemetry, not a job list: {kept:,} samples of {pods:,} pods; rows are samples."
        )
        rows.flag(pl.lit(True), "pod of a telemetry file, not a job of a job list")
        return finish(
            rows,
            # Samples outside the window are left out already.
            msgspec.structs.replace(common, window=None),
            keep=("gpus", "compute_milli", "memory_bytes", "suspendable"),
            folded=kept - pods,
        )


def read_pod_usage(path: str | Path, **options: Any) -> pl.DataFrame:
    """Samples of one file summed up by pod.

    Returns
    -------
    polars.DataFrame
        ``pod``, ``first_s``, ``last_s``, ``samples``, ``mean``, ``peak`` (percent or bytes).
    """
    common, _ = take_options("genai2026", options)
    report = DataReport(format="genai2026", path=str(path), strict=common.strict)
    return _by_pod(_samples(Path(path), report, common).frame).drop(LINE)


def _check(own: dict[str, Any]) -> None:
    for name, allowed in (("share", ("whole", "mean")), ("holds", ("", "duty", "memory"))):
        if own[name] not in allowed:
            words = " or ".join(f'"{a}"' for a in allowed if a)
            raise InputError(f'trace format "genai2026": option {name} is {words}, found {own[name]!r}')


def _samples(path: Path, report: DataReport, options: ReadOptions) -> Rows:
    rows = read_rows(path, report, options, needed=_COLUMNS)
    rows.drop(pl.col("container_ip").str.strip_chars() == "", "container_ip is empty", column="container_ip")
    rows.number("timestamp_anon", high=1e15, into="time_s")
    rows.number("value", low=0, high=1e15, into="amount")
    if options.window is not None:
        first = rows.frame["time_s"].min()
        inside, words = within(options.window, "time_s", first, dates=True, format_name="genai2026")
        rows.exclude(~inside, f"sample outside the asked window {words}")
    return rows


def _is_duty(path: Path, samples: Rows, told: str) -> bool:
    if told:
        return told == "duty"
    name = plain_name(path)
    if "duty" in name or "memory" in name:
        return "duty" in name
    peak = samples.frame["amount"].max()
    return not isinstance(peak, int | float) or peak <= _DUTY_MAX_PERCENT


def _by_pod(frame: pl.DataFrame) -> pl.DataFrame:
    pods = frame.with_columns(pod=pl.col("container_ip").str.strip_chars()).sort("pod", "time_s", "amount")
    return pods.group_by("pod", maintain_order=True).agg(
        pl.col(LINE).min(),
        pl.col("time_s").min().alias("first_s"),
        pl.col("time_s").max().alias("last_s"),
        pl.len().alias("samples"),
        pl.col("amount").mean().alias("mean"),
        pl.col("amount").max().alias("peak"),
    )


def _pods(samples: Rows, report: DataReport, duty: bool) -> Rows:
    if duty:
        too_high = pl.col("amount") > _DUTY_MAX_PERCENT
        samples.drop(too_high, "value is above 100 percent duty cycle", column="value")
    frame = samples.frame
    times = frame.select(pl.col("time_s").unique().sort())["time_s"]
    # The usual step: how long a sample stands for.
    step = times.diff().drop_nulls().median() if len(times) > 1 else 0.0
    period = float(step) if isinstance(step, int | float) else 0.0
    pods = Rows(_by_pod(frame), report, frozenset())
    pods.add(
        name=pl.col("pod"),
        submit_s=pl.col("first_s"),
        duration_s=pl.col("last_s") - pl.col("first_s") + period,
    )
    report.assumptions.append(
        f"A pod is present from its first sample to {period:g} s (one sampling period) after its last."
    )
    return pods


def _join_other(rows: Rows, path: Path, options: ReadOptions, duty: bool) -> None:
    """Add ``other_mean`` and ``other_peak`` from the file of the other kind beside this one."""
    rows.add(other_mean=pl.lit(None, pl.Float64), other_peak=pl.lit(None, pl.Float64))
    if plain_name(path) not in (_DUTY, _MEMORY):
        return
    beside = path.parent / (_MEMORY if duty else _DUTY)
    found = next((p for p in (beside, beside.with_name(beside.name + ".gz")) if p.is_file()), None)
    if found is None:
        rows.report.assumptions.append(f"No {beside.name} beside the file.")
        return
    report = DataReport(format="genai2026", path=str(found), strict=options.strict)
    try:
        other = _by_pod(_samples(found, report, options).frame)
    except TraceError as error:
        if options.strict:
            raise
        rows.report.assumptions.append(f"{found.name} beside the file is not used: {error}")
        return
    columns = other.select("pod", pl.col("mean").alias("other_mean"), pl.col("peak").alias("other_peak"))
    bare = rows.frame.drop("other_mean", "other_peak")
    rows.frame = bare.join(columns, on="pod", how="left", maintain_order="left")
    lacking = rows.frame["other_mean"].null_count()
    rows.report.assumptions.append(f"{found.name} adds to the pods; {lacking} of them are not in it.")


def _requests(rows: Rows, *, share: str, duty: bool) -> None:
    mean = pl.col("mean" if duty else "other_mean")
    memory = pl.col("other_peak" if duty else "peak").fill_null(0.0)
    rows.add(
        gpus=1,
        memory_bytes=memory.ceil().clip(0, 1e15).cast(pl.Int64),
        compute_milli=(mean * 10).ceil().clip(1, 1000).fill_null(1000).cast(pl.Int64)
        if share == "mean"
        else pl.lit(1000),
        suspendable=False,
    )
    average = rows.frame.select(mean.mean().alias("m"))["m"][0]
    told = "unknown" if average is None else f"{average:.1f}% (mean over pods)"
    rows.report.assumptions += [
        f"Mean GPU duty cycle: {told}.",
        "Each pod is taken to hold one GPU; "
        + ("it asks for its mean duty cycle." if share == "mean" else "it asks for the whole device."),
    ]
