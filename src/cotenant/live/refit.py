"""Fits the predictor on what was measured here and on what comes with the package: a process of its own.

``python -m cotenant.live.refit FOLDER`` reads ``measured.json`` in that folder, writes the tables
``pairs.csv`` (as ``cotenant measure`` does, so ``cotenant fit`` and ``evaluate`` read it) and ``fit.json``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cotenant.live.learning import MEASURED, MeasuredSet
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun

__all__ = ["co_runs_of", "fit", "known_jobs"]

_SOURCE = "live"


def known_jobs(runs: Sequence[CoRun], solos: Sequence[SoloRun]) -> dict[str, JobConfig]:
    """Configurations by the names under which jobs declare their models."""
    found = {run.job.label: run.job for run in solos}
    for run in runs:
        for side in run.sides:
            found.setdefault(side.job.label, side.job)
    return found


def co_runs_of(
    sets: Sequence[MeasuredSet], known: dict[str, JobConfig], sources: dict[str, str]
) -> list[CoRun]:
    """Measured sets as co-runs.

    Parameters
    ----------
    known : dict of str to JobConfig
    sources : dict of str to str
        The campaign that a device type was measured in before: its scale is ours, both are relative to alone.
    """
    from cotenant.profiles.runsfile import config_of

    found = []
    for number, one in enumerate(sets):
        sides = []
        for model in one.models:
            _, speed = one.speeds.get(model, (0, 0.0))
            measured = speed if speed > 0.0 else None
            job = known.get(model) or config_of(model)
            sides.append(CoSide(job=job, speed=measured, label_ok=measured is not None))
        found.append(
            CoRun(
                row_id=f"live-{number}",
                source=sources.get(one.device_type, _SOURCE),
                device_type=one.device_type,
                sides=tuple(sides),
            )
        )
    return found


def fit(folder: Path) -> None:
    """Read, fit, write.

    Raises
    ------
    CotenantError
        If a table cannot be read, or there is nothing to fit on.
    """
    from cotenant.predictors.interference.modelfile import save_predictor
    from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
    from cotenant.profiles.runsfile import write_co_runs
    from cotenant.profiles.shipped import shipped_campaign, shipped_campaigns

    runs, solos = list[CoRun](), list[SoloRun]()
    for name in shipped_campaigns():
        more, alone = shipped_campaign(name)
        runs, solos = runs + more, solos + alone
    sources = {run.device_type: run.source for run in runs}
    path = folder / MEASURED
    sets = msgspec.json.decode(path.read_bytes(), type=list[MeasuredSet]) if path.is_file() else []
    mine = co_runs_of(sets, known_jobs(runs, solos), sources)
    if mine:
        write_co_runs(folder / "pairs.csv", mine)
    predictor = AdaptiveInterferencePredictor(zoo="quick").fit(runs + mine, solos)
    save_predictor(predictor, folder / "fit.json")


def main(argv: Sequence[str]) -> int:
    """Fit at the lowest priority; returns the exit code."""
    from cotenant.errors import CotenantError

    with contextlib.suppress(OSError):
        os.nice(19)
    try:
        fit(Path(argv[0]))
    except CotenantError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
