"""EasyScale's trace simulation: 64 GPUs of three types, elastic jobs, three schemes, and fairer baselines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from cotenant.experiments.base import Claim, Experiment, Measured, Place, Table, change, ratio
from cotenant.experiments.elasticjobs import Elastic, as_workload, drawn, read
from cotenant.experiments.minibatches import SYNC, TYPES, Speeds
from cotenant.experiments.simulate import metrics_of
from cotenant.model.cluster import Cluster, Node
from cotenant.model.settings import Settings
from cotenant.profiles.catalogue import device_type
from cotenant.runs.prepare import Prepared

__all__ = ["ARTIFACT", "EasyScale"]

ARTIFACT = "COTENANT_EASYSCALE"
"""Environment variable that names a folder with the artifact's workload."""
_REPOSITORY = "github.com/sUntvoOk/EasyScale_info_for_SC23"
_TABLE = f"{_REPOSITORY}, simulator/plot/jct_makespan.csv"
_NODES = (("V100", 4), ("P100", 2), ("T4", 2))
_YARN, _HOMO, _HETERO = (
    "YARN-CS: one job at a time",
    "easyscale, one type for each job",
    "easyscale, types mixed",
)
_BACKFILL, _SRTF = "first come, first served, with backfill", "shortest remaining first, lengths known"
_LAS, _POLLUX, _OURS, _OURS_FREE = (
    "least attained service first",
    "pollux, one type for each job",
    "cotenant, one type for each job",
    "cotenant, types free",
)
_FREE = (_HETERO, _OURS_FREE)
"""Those that may put jobs whose results do not hang on the type on another than the one they prefer."""
_SCHEMES = ((_YARN, "yarn"), (_HOMO, "homo"), (_HETERO, "hetero"))
_LABELS = {key: label for label, key in _SCHEMES}
_TIMES = (
    "the mini-batch times that the artifact's simulator reads are not in its repository; ours are put together from other tables of "
    f"it; and without {ARTIFACT} the workload is drawn, so other jobs queue behind other jobs"
)
_PUBLISHED = {
    "yarn": (8904.97, 16560.0),
    "homo": (1070.50, 6720.0),
    "hetero": (676.75, 6000.0),
}


def _absolute(key: str, jct: bool, number: float) -> Claim:
    return Claim(
        key=f"{key}_{'jct' if jct else 'makespan'}",
        what=f"{'Mean completion time' if jct else 'Makespan'}, {_LABELS[key]}"
        + (" (calibrated)" if key == "yarn" and not jct else ""),
        paper=f"{number:,.0f} s",
        low=number,
        high=number,
        unit="s",
        tolerance=0.05,
        source=_TABLE,
        how="mean over jobs"
        if jct
        else "from the start of the trace to the last end"
        + ("; the times of mini-batches are calibrated on this number" if key == "yarn" else ""),
        differs=_TIMES,
    )


def _relative(key: str, jct: bool, number: float) -> Claim:
    return Claim(
        key=f"{key}_{'jct' if jct else 'makespan'}_ratio",
        what=f"{'Mean completion time' if jct else 'Makespan'}, YARN-CS over {_LABELS[key]}",
        paper=f"{number:g} x",
        low=number,
        high=number,
        unit="x",
        tolerance=0.05,
        source=_TABLE,
        how="quotient",
        differs="ours pays 20 s whenever the devices of a job change, as the text has it; the artifact's code only once "
        "for each job; " + _TIMES,
    )


class EasyScale(Experiment):
    """Three schemes on the artifact's workload, or on one drawn like it."""

    name: ClassVar[str] = "easyscale"
    title: ClassVar[str] = "EasyScale: elastic jobs of logical workers on three types of GPUs"
    paper: ClassVar[str] = (
        "Jobs train with a fixed number of logical workers on any number and mix of GPUs, with the same result. On a trace of 68 jobs "
        "and 64 GPUs the mean completion time is 8.3 times shorter than with YARN-CS if each job stays on one type, "
        "13.2 times if types are mixed; the makespan 2.5 and 2.8 times."
    )
    source: ClassVar[str] = f"doi.org/10.1145/3581784.3607054; {_REPOSITORY}"
    reconstruction: ClassVar[tuple[str, ...]] = (
        "32 V100, 16 P100 and 16 T4 in nodes of 8, rounds of 60 s, 20 s whenever a job starts or its devices change; spreading over "
        "nodes costs nothing, as in the artifact.",
        f"The artifact has no licence, so its workload is not in this package. If {ARTIFACT} names a folder that holds it, that is what is run. "
        "Else 62 jobs are drawn that agree with it in counts, ranges and sums for each application, with one long job on 4 GPUs at the "
        "beginning, as there. (Of its 68 rows six share a name with another and are lost when its simulator reads them.)",
        "A mini-batch takes what the artifact's tables of overheads say: two batch sizes on V100 and a straight line through them, one on P100 and "
        f"T4, and {100 * SYNC:.0f}% of what synchronising 8 workers adds. That share is calibrated, so that YARN-CS, in which no elastic scheduler has a "
        "part, has its published makespan; nothing else is. The last table shows none and all of it.",
        "Times of jobs that may mix types are those of kernels that are the same on all types (D2), of the others those of deterministic "
        "kernels (D1).",
    )
    folders: ClassVar[tuple[str, ...]] = (ARTIFACT,)
    policies: ClassVar[dict[str, str]] = {
        _YARN: "cotenant.experiments.single:OneAtATime",
        "first come, first served": "fifo",
        _BACKFILL: "backfill",
        _SRTF: "srtf",
        _LAS: "las",
        _POLLUX: "pollux",
        _OURS: "cotenant",
        _OURS_FREE: "cotenant",
        _HOMO: "easyscale:hetero=no",
        _HETERO: "easyscale",
    }
    claims: ClassVar[tuple[Claim, ...]] = (
        *(
            _absolute(key, jct, number)
            for _, key in _SCHEMES
            for jct, number in zip((True, False), _PUBLISHED[key], strict=True)
        ),
        *(
            _relative(key, jct, number)
            for key, jct, number in (
                ("homo", True, 8.3),
                ("hetero", True, 13.2),
                ("homo", False, 2.5),
                ("hetero", False, 2.8),
            )
        ),
        *(
            Claim(
                key=f"{key}_gpus",
                what=f"Mean GPUs in use, {label}",
                paper=f"{number} of 64",
                low=number,
                high=number,
                tolerance=0.05,
                source=f"{_REPOSITORY}, simulator/plot/trace_alloc.csv",
                how="GPU-seconds held, over the makespan",
                differs="the artifact lets jobs keep GPUs for which no worker is left, and starts a job only on one type; "
                + _TIMES,
            )
            for label, key, number in ((_HOMO, "homo", 32.2), (_HETERO, "hetero", 40.8))
        ),
        *(
            Claim(
                key=f"fair_{key}",
                what=f"Mean completion time, easyscale with types mixed against {label}",
                paper="no number: the only baseline runs one job at a time",
                unit="%",
                better="low",
                source=_REPOSITORY,
                how="change of the mean; the baseline's jobs are not elastic and on their preferred type",
                differs="YARN-CS leaves four fifths of the cluster idle, so most of the published gain is over that",
            )
            for label, key in ((_BACKFILL, "backfill"), (_SRTF, "srtf"))
        ),
        Claim(
            key="fair_pollux",
            what=f"Mean completion time, {_HOMO} against pollux",
            paper="no number",
            unit="%",
            better="low",
            source=_REPOSITORY,
            how="change of the mean; both resize jobs, and both keep each on the type it prefers",
            differs="pollux gives the next GPU where it adds most to a job's speed, in rounds of its own",
        ),
        *(
            Claim(
                key=f"ours_{key}",
                what=f"{what}, cotenant against easyscale: {how}",
                paper="no number: ours",
                unit="%",
                better="low",
                source=_REPOSITORY,
                how="change; both know all speeds and lengths",
                differs="easyscale plans all workers anew at each arrival; cotenant grows a job only where that gains ten times the price, and keeps it on one type of device",
            )
            for key, what, how in (
                ("jct_homo", "Mean completion time", "one type for each job"),
                ("makespan_homo", "Makespan", "one type for each job"),
                ("jct_hetero", "Mean completion time", "types free"),
                ("makespan_hetero", "Makespan", "types free"),
            )
        ),
    )

    def measure(self, seed: int, place: Place) -> Measured:
        """Run all policies, then the three schemes under other assumptions; a second or two at any size."""
        folder = os.environ.get(ARTIFACT)
        jobs = read(Path(folder)) if folder else drawn(seed)
        rows = {label: _run(jobs, label, spec, seed) for label, spec in self.policies.items()}
        others = [
            {"times": times, "policy": label, **_run(jobs, label, self.policies[label], seed, **how)}
            for times, how in (
                ("20 s once for each job, as the artifact's code", {"restart_s": 0.0}),
                ("mini-batches with all of the synchronisation", {"sync": 1.0}),
                ("mini-batches without synchronisation", {"sync": 0.0}),
            )
            for label, _ in _SCHEMES
        ]
        note = (
            f"Workload: the artifact's, {len(jobs)} jobs."
            if folder
            else f"Workload: {len(jobs)} jobs drawn like the artifact's, as {ARTIFACT} is not set: where many jobs meet, times differ from those published. "
            "docs/reproduction_easyscale.md has the artifact's own workload."
        )
        return Measured(
            values=_values(rows),
            tables=[
                Table(title="Policies", rows=[{"policy": label, **row} for label, row in rows.items()]),
                Table(title="The three schemes under other assumptions", rows=others),
            ],
            notes=[note],
        )


def _run(
    jobs: list[Elastic], label: str, spec: str, seed: int, *, restart_s: float = 20.0, sync: float = SYNC
) -> dict[str, Any]:
    """One policy."""
    prepared = Prepared(
        workload=as_workload(jobs, pinned=label not in _FREE, sync=sync),
        cluster=Cluster(
            nodes=tuple(
                Node(name=f"{kind}-{i}", gpus=((kind, 8),)) for kind, count in _NODES for i in range(count)
            ),
            types=tuple(device_type(kind) for kind in TYPES),
        ),
        settings=Settings(
            elastic_speed="workers",
            mixed_types=True,
            gang_span="any",
            span_speed=1.0,
            start_s=20.0,
            restore_s=restart_s,
            round_s=60.0,
        ),
        runtime="perfect",
    )
    speeds = Speeds(sync=sync)
    summary = metrics_of(prepared, spec, seed, speeds=(speeds, speeds)).summary
    first_s = min(job.submit_s for job in jobs)
    return {
        "jct_s_mean": summary["jct_s_mean"],
        "jct_s_median": summary["jct_s_median"],
        "makespan_s": summary["makespan_s"] + first_s,
        "queued_s_mean": summary["queued_s_mean"],
        "gpus_busy": 64 * summary["busy_share"],
        "jobs_finished": summary["jobs_finished"],
    }


def _values(rows: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for label, key in _SCHEMES:
        values[f"{key}_jct"], values[f"{key}_makespan"] = (
            rows[label]["jct_s_mean"],
            rows[label]["makespan_s"],
        )
        if key != "yarn":
            values[f"{key}_gpus"] = rows[label]["gpus_busy"]
            for what, column in (("jct", "jct_s_mean"), ("makespan", "makespan_s")):
                values[f"{key}_{what}_ratio"] = ratio(rows[_YARN][column], rows[label][column])
    ours = rows[_HETERO]["jct_s_mean"]
    values["fair_backfill"] = change(ours, rows[_BACKFILL]["jct_s_mean"])
    values["fair_srtf"] = change(ours, rows[_SRTF]["jct_s_mean"])
    values["fair_pollux"] = change(rows[_HOMO]["jct_s_mean"], rows[_POLLUX]["jct_s_mean"])
    for key, mine, theirs in (("homo", _OURS, _HOMO), ("hetero", _OURS_FREE, _HETERO)):
        for what, column in (("jct", "jct_s_mean"), ("makespan", "makespan_s")):
            values[f"ours_{what}_{key}"] = change(rows[mine][column], rows[theirs][column])
    return values
