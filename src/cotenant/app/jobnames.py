"""Jobs as people name them, ``model/bBATCH``, and those of the measurements that are meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from cotenant.app.console import warn
from cotenant.errors import UsageError

if TYPE_CHECKING:
    from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
    from cotenant.profiles.runs import JobConfig

__all__ = ["check_names", "find_job", "set_measured"]

_NO_BATCH = re.compile(r"/b(?:0+|-.*)?$", re.IGNORECASE)


def check_names(names: Collection[str]) -> None:
    """Refuse names that can stand for no job.

    Raises
    ------
    UsageError
        If a name has no model, or a batch of no samples.
    """
    for name in names:
        if not name.strip() or name.strip().startswith("/"):
            raise UsageError(f"job {name!r} names no model; write model/bBATCH, for example ResNet-50/b64")
        if _NO_BATCH.search(name.strip()):
            raise UsageError(
                f"job {name!r}: a batch has at least one sample; write model/bBATCH, for example ResNet-50/b64, "
                "or the model alone"
            )


def find_job(predictor: AdaptiveInterferencePredictor, world: tuple[str, str], name: str) -> JobConfig:
    """The measured configuration of this name, one of this world if there is one, else a new one.

    A model that no measurement names is answered as one of which nothing is known; a warning says
    so, and which one may have been meant.
    """
    from cotenant.predictors.adaptive import config_of
    from cotenant.profiles.kinds import canonical_model

    known = {job for run in predictor.runs for job in run.key}
    known |= {run.job for run in predictor.solos}
    here = {run.job for run in predictor.solos if (run.source, run.device_type) == world}
    for pool in (sorted(here), sorted(known)):
        for job in pool:
            if name in (job.label, job.model) or canonical_model(name) == canonical_model(job.label):
                return job
    job = config_of(name)
    if job.model not in {one.model for one in known} | {one.group for one in known}:
        warn(f"{name}: no measurement names this model{_nearest(name, known)}")
    return job


def _nearest(name: str, known: Collection[JobConfig]) -> str:
    by_label = {job.label.casefold(): job.label for job in sorted(known)}
    by_model = {job.model.casefold(): job.model for job in sorted(known)}
    wanted = name.strip().casefold()
    for names in (by_label, by_model) if "/" in wanted else (by_model, by_label):
        near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.75)
        if near:
            return f'; did you mean "{names[near[0]]}"?'
    return ""


def set_measured(
    predictor: AdaptiveInterferencePredictor, world: tuple[str, str], jobs: Collection[JobConfig]
) -> bool:
    """Whether this very set was measured in this world."""
    from cotenant.profiles.runs import pair_key

    key = pair_key(jobs)
    return any(
        run.status == "ok" and (run.source, run.device_type) == world and run.key == key
        for run in predictor.runs
    )
