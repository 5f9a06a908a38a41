"""Job lists of the Tiresias simulator (Gu et al., "Tiresias", NSDI 2019; SymbioticLab/Tiresias).

``job_id,num_gpu,submit_time,iterations,model_name,duration,interval`` or, in older lists,
``job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name,model_scale``;
seconds. Its ``yarn-gput1000.csv`` is a list of durations alone: nothing says when those jobs came.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import TraceError
from cotenant.model.workload import Workload
from cotenant.profiles.kinds import canonical_model
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines, plain_name, read_head
from cotenant.traces.finish import finish
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.table import Rows, header_score, read_rows

__all__ = ["TiresiasReader", "canonical_models"]

_NEEDED = ("job_id", "num_gpu", "submit_time", "duration")
_OPTIONAL = ("iterations", "interval", "model_name", "start_time")
_SIGNS = (
    ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"),
    ("job_id", "num_gpu", "submit_time", "start_time", "duration", "model_size", "aggr_interval"),
)
_OTHERS: Others = {
    ("num_switch", "num_node_p_switch", "num_gpu_p_node"): (
        "a cluster spec; read it as a cluster (--cluster FILE), beside a job list"
    ),
}
_NO_ARRIVALS = (
    "a list of durations without submission times: replaying arrivals is refused, since any would be "
    "invented. Either pass mean_gap_s=SECONDS (and seed=) to draw Poisson arrivals, which every report then "
    "says, or take the durations as a law of the synthetic generator (docs/workloads.md)"
)


def canonical_models(rows: Rows, column: str, batch: str | None = None) -> None:
    """Add ``model``: the column (with its batch size, if given) in the spelling of ``profiles.kinds``."""
    text = pl.col(column).str.strip_chars()
    if batch is not None:
        size = pl.col(batch).str.strip_chars()
        named = size.str.contains(r"^[1-9][0-9]{0,8}$") & (text != "")
        text = pl.when(named).then(pl.format("{}/b{}", text, size)).otherwise(text)
    rows.add(model=text)
    spelling = {name: canonical_model(name) for name in rows.frame["model"].unique() if name}
    rows.add(model=pl.col("model").replace(spelling))


class TiresiasReader:
    """Reads Tiresias job lists.

    A repeated row with the same id is the same job listed twice and is dropped, unless
    ``duplicates="keep"``. A list of durations alone needs ``mean_gap_s`` (and ``seed``).
    """

    format: ClassVar[str] = "tiresias"
    title: ClassVar[str] = "Tiresias simulator job list"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure by the header; Muri's lists have more columns and are more sure of themselves."""
        lines = first_lines(head, 1)
        if any(header_score(lines, sign) == 1 for sign in _SIGNS):
            return 0.8
        if is_other(lines, _OTHERS):
            return 0.5
        return 0.6 if lines[:1] == ["duration"] and plain_name(path).startswith("yarn") else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; options as in the class and in ``traces.options.ReadOptions``.

        Raises
        ------
        TraceError
            If the table cannot be read or has no submission times, or under ``strict`` at the
            first bad row.
        """
        common, own = take_options(self.format, options, {"mean_gap_s": 0.0, "seed": 0.0})
        refuse_other(path, _OTHERS)
        report = DataReport(format=self.format, path=str(path), strict=common.strict, time_zone="none")
        if first_lines(read_head(path), 1) == ["duration"]:
            return _durations_only(path, report, common, own)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates([*_NEEDED, *_OPTIONAL], common.duplicates, "drop")
        rows.number("submit_time", low=0, into="submit_s")
        rows.number("duration", low=0, into="duration_s")
        rows.number("num_gpu", low=0, high=1e6, integer=True, into="gpus")
        rows.number("start_time", empty="null", into="start_s")
        rows.flag(pl.col("start_s") < pl.col("submit_s"), "starts before it is submitted; start is not used")
        canonical_models(rows, "model_name")
        rows.add(job_id=pl.col("job_id").str.strip_chars())
        rows.unique_names("job_id", ("submit_s", "gpus", "duration_s", "model"))
        return finish(rows, common, keep=("gpus", "model"), clock="trace")


def _durations_only(path: Path, report: DataReport, common: ReadOptions, own: dict[str, Any]) -> Workload:
    import numpy as np

    gap_s, seed = float(own["mean_gap_s"]), float(own["seed"])
    if not 0 < gap_s < 1e9:
        raise TraceError(_NO_ARRIVALS, path=path, line=1)
    if not (0 <= seed < 2**63 and seed == int(seed)):
        raise TraceError(f"option seed must be a whole number, 0 or more, found {seed:g}", path=path)
    rows = read_rows(path, report, common, needed=("duration",))
    rows.number("duration", low=0, into="duration_s")
    rows.frame = rows.frame.sort("duration_s", maintain_order=True)
    rng = np.random.Generator(np.random.PCG64(int(seed)))
    submit = np.cumsum(rng.exponential(gap_s, rows.frame.height))
    # A random order, so that running times do not grow along the trace.
    rows.frame = rows.frame.with_columns(pl.Series("submit_s", rng.permutation(submit), dtype=pl.Float64))
    rows.add(name=pl.format("d{}", pl.int_range(pl.len())), gpus=1)
    report.assumptions.append(
        f"The file has durations only: arrivals are invented, Poisson with a mean gap of {gap_s:g} s, "
        f"seed {int(seed)}; each job is taken to use 1 GPU."
    )
    return finish(rows, common, keep=("gpus",), zero="trace", clock="trace")
