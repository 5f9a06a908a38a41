"""The common trace: one generated workload on which published simulators were compared.

Columns ``job_id,submit_s,num_gpu,duration_s,model_u1000``; times in whole seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import InputError
from cotenant.model.workload import Workload
from cotenant.profiles.kinds import MIXES
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish
from cotenant.traces.options import take_options
from cotenant.traces.table import header_score, read_rows

__all__ = ["CommonReader"]

_NEEDED = ("job_id", "submit_s", "num_gpu", "duration_s")
_U1000 = "model_u1000"


class CommonReader:
    """Reads the common trace.

    ``model_u1000`` modulo the number of models picks a model. Option ``models`` is the list:
    names with commas between, or a mix of ``profiles.kinds`` (default ``gavel``); ``none`` leaves
    models out.
    """

    format: ClassVar[str] = "common"
    title: ClassVar[str] = "Common trace for comparing simulators"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds all five columns."""
        return 0.95 if header_score(first_lines(head, 1), (*_NEEDED, _U1000)) == 1 else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; options as in the class and in ``traces.options.ReadOptions``.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"models": "gavel"})
        report = DataReport(format=self.format, path=str(path), strict=common.strict, time_zone="none")
        rows = read_rows(path, report, common, needed=_NEEDED, optional=(_U1000,))
        rows.duplicates((*_NEEDED, _U1000), common.duplicates, "drop")
        rows.number("submit_s", low=0)
        rows.number("duration_s", low=0)
        rows.number("num_gpu", low=0, high=1e6, integer=True, into="gpus")
        keep = ["gpus"]
        models = _models(own["models"])
        if models and _U1000 in rows.present:
            rows.number(_U1000, low=0, high=1e9, integer=True, empty="bad")
            picked = (pl.col(_U1000) % len(models)).replace_strict(
                dict(enumerate(models)), default="", return_dtype=pl.String
            )
            rows.add(model=picked)
            keep.append("model")
            report.assumptions.append(
                f"Models are not observed: {_U1000} modulo {len(models)} picks one of a list ({own['models']})."
            )
        rows.add(job_id=pl.col("job_id").str.strip_chars())
        rows.unique_names("job_id", ("submit_s", "gpus", "duration_s"))
        return finish(rows, common, keep=keep, clock="trace")


def _models(given: Any) -> tuple[str, ...]:
    names = given if isinstance(given, list | tuple) else str(given).split(",")
    names = tuple(str(name).strip() for name in names)
    if len(names) == 1 and names[0] in MIXES:
        return tuple(MIXES[names[0]])
    if names in {("none",), ("",), ()}:
        return ()
    if not all(names):
        raise InputError(f'option models="{given}" has an empty name in it')
    return names
