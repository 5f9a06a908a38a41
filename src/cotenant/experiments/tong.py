"""Tong's method against sequential execution and other ways of sharing, on one node of four GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl

from cotenant.experiments.base import Claim, Place, ratio
from cotenant.experiments.utilisation import Compared, Run
from cotenant.model.cluster import Cluster
from cotenant.model.quantities import MIB
from cotenant.model.settings import Settings
from cotenant.profiles.catalogue import device_type
from cotenant.profiles.kinds import KINDS, usage_of
from cotenant.report.metrics import RunMetrics
from cotenant.runs.prepare import Prepared
from cotenant.traces.synthetic import generate

__all__ = ["Tong", "one_after_another"]

_SOURCE = "doi.org/10.1007/s11227-024-06849-5 (J. Supercomputing 81(2), 2025), abstract"
_GPUS = 4
MODELS = ("ResNet-50/b16", "ResNet-50/b32", "ResNet-50/b64", "VGG-16/b16", "VGG-19/b16", "MobileNet/b128")
"""Image classification; Inception-v3 and small batches of MobileNet are in no table of ours."""

_BURST = "One job a second"
_QUEUE, _SHORTEST = "first come, first served, a GPU for each", "shortest job first, a GPU for each"
_FIRST, _BEST = "first fit by memory", "best fit by memory"
_CAPPED, _TURNS, _TONG = "packing up to 100% utilisation", "turns of 60 s", "tong"
_OURS, _BOUND_S = "cotenant", 14_400.0
_BOUNDED = "cotenant, longest wait 4 h"
_COMPARED = (("", _TONG), ("_ours", _OURS))
_BUSY = (
    "the jobs here keep two thirds to nine tenths of a V100 busy alone (hardware counters); theirs ran TF-Slim on cards of which "
    "one job uses less, so that sharing has more to give"
)


def _prepared(seed: int, jobs: int, arrivals: dict[str, Any]) -> Prepared:
    workload = generate(
        "steady",
        jobs=jobs,
        seed=seed,
        arrivals=arrivals,
        sizes=[{"gpus": 1, "weight": 0.9}, {"gpus": 2, "weight": 0.07}, {"gpus": 4, "weight": 0.03}],
        duration={"kind": "lognormal", "median_s": 800.0, "sigma": 1.5},
        min_s=60.0,
        max_s=4 * 3600.0,
        models=[
            {"name": name, "weight": 1.0, "memory": f"{KINDS[name].memory_bytes // MIB} MiB"}
            for name in MODELS
        ],
    )
    return Prepared(
        workload=workload,
        cluster=Cluster.uniform(_GPUS, gpus_per_node=_GPUS, gpu_type=device_type("V100")),
        settings=Settings(sample_s=30.0),
        runtime="noisy",
    )


def _published_utilisation(suffix: str, label: str) -> Claim:
    return Claim(
        key=f"utilisation{suffix}",
        what=f"GPU utilisation, {label} over one job at a time",
        paper="4.1 x",
        low=4.1,
        high=4.1,
        unit="x",
        source=_SOURCE,
        how="ratio of mean utilisations of all four GPUs over the makespan, jobs one a second",
        differs=_BUSY,
        better="high",
    )


def _published_jct(suffix: str, label: str) -> Claim:
    return Claim(
        key=f"jct{suffix}",
        what=f"Mean completion time, one job at a time over {label}",
        paper="3.6 x",
        low=3.6,
        high=3.6,
        unit="x",
        source=_SOURCE,
        how="ratio of mean completion times, jobs one a second",
        differs="of this the node's four GPUs alone give about four, and shortest first gives more: what 'sequential' means there is not known",
        better="high",
    )


def one_after_another(run: RunMetrics, gpus: int) -> dict[str, float]:
    """What the same jobs take if only one of them runs at a time, first come first served, and at what utilisation.

    Worked out, not simulated: nothing shares, so each takes its ideal time.
    """
    jobs = run.jobs.sort("submit_s", "id")
    submit, work = jobs["submit_s"].to_numpy(), jobs["work_s"].to_numpy()
    end_s, ends = 0.0, []
    for at_s, seconds in zip(submit.tolist(), work.tolist(), strict=True):
        end_s = max(end_s, at_s) + seconds
        ends.append(end_s)
    shares = np.array([usage_of(model)[0] for model in jobs["model"].to_list()])
    busy_s = float((work * jobs["gpus"].to_numpy() * shares).sum())
    makespan_s = end_s - float(submit.min())
    return {
        "utilisation": busy_s / (gpus * makespan_s),
        "jct_s_mean": float((np.array(ends) - submit).mean()),
        "makespan_s": makespan_s,
    }


def _largest(run: RunMetrics) -> pl.DataFrame:
    """The tenth of all jobs with most GPU time."""
    jobs = run.jobs.with_columns(size=run.jobs["work_s"] * run.jobs["gpus"])
    return jobs.sort("size", "id", descending=True).head(max(len(jobs) // 10, 1))


def largest_jct_s(run: RunMetrics) -> float:
    """99th percentile of the completion times of the tenth of all jobs with most GPU time."""
    return float(np.percentile(_largest(run)["jct_s"].to_numpy(), 99))


def first_wait_s(run: Run) -> float:
    """The longest wait of any of them for its first start."""
    return float(max(_largest(run.metrics)["wait_s"].to_list()))


def largest_wait_s(run: Run) -> float:
    """The longest wait at a stretch of any of them."""
    return max([run.waited_s[job] for job in _largest(run.metrics)["id"].to_list()])


class Tong(Compared):
    """A hundred image-classification jobs on four GPUs."""

    name: ClassVar[str] = "tong"
    title: ClassVar[str] = "Tong: fine-grained scheduling on shared GPUs"
    paper: ClassVar[str] = (
        "Jobs share each GPU; they are suspended and resumed, sampled briefly to predict their end, large ones are kept from starving, "
        "fragments are reused. Against sequential execution without sharing, utilisation is 4.1 times as high and completion 3.6 times "
        "as fast."
    )
    source: ClassVar[str] = _SOURCE
    reconstruction: ClassVar[tuple[str, ...]] = (
        "One node of 4 GPUs (V100, 16 GB); 100 jobs for each of 3 seeds, all within 100 seconds, and as a Poisson process with means of 30, 60 and 120 s.",
        "Lengths: lognormal with the median of single-GPU jobs of the published Philly list (800 s), sigma 1.5, clipped to 1 minute and 4 hours; 90% on one "
        "GPU, 7% on two, 3% on four. The paper draws sizes from that list; how it scales them to one node is not known.",
        "Users say how many iterations a job has, and how long one takes is predicted: lengths are known beforehand with an error of a factor 2.3 nine "
        "times in ten, to all methods alike. Six configurations of ResNet-50, VGG and MobileNet. Each is sampled 30 s after it really works, and after each change of neighbours; it "
        "keeps the work. A resumption costs 10 s and twice the transfer of its memory at 1 GB/s.",
        "The seven methods' names are not known. 'One job at a time' is worked out from the jobs' lengths: only one of them runs on the node. "
        "The stricter baseline, each job alone on as many GPUs as it asks for, is simulated.",
        "Utilisation is what a device's counter shows: the sum of the shares that its residents would use alone, at most 100%.",
    )
    columns: ClassVar[tuple[str, ...]] = (
        "goodput_share",
        "makespan_s",
        "jct_s_mean",
        "queued_s_mean",
        "queued_s_p99",
        "longest_queued_s",
        "corun_slowdown_mean",
        "preemptions",
        "jobs_finished",
    )
    policies: ClassVar[dict[str, str]] = {
        _QUEUE: "fifo",
        _SHORTEST: "sjf",
        _FIRST: "first-fit",
        _BEST: "best-fit",
        _CAPPED: "horus:variant=makespan:max_utilisation=100",
        _TURNS: "time-slice",
        _TONG: "tong",
        _OURS: "cotenant",
        _BOUNDED: f"cotenant:longest_wait_s={_BOUND_S:g}",
    }
    claims: ClassVar[tuple[Claim, ...]] = (
        *(_published_utilisation(key, label) for key, label in _COMPARED),
        *(_published_jct(key, label) for key, label in _COMPARED),
        Claim(
            key="utilisation_most",
            what="GPU utilisation, all four GPUs at 100% until the end over one job at a time: the most that can be shown",
            paper="no number",
            unit="x",
            source=_SOURCE,
            how="one over the utilisation of one job at a time",
            differs="the last jobs, which nothing is left to share with, keep every policy below it",
        ),
        Claim(
            key="utilisation_queue",
            what="Utilisation, tong over first come, first served with a GPU for each: a fair baseline",
            paper="no number for it",
            unit="x",
            source=_SOURCE,
            how="the same ratio, simulated",
            differs="no more than to 100% can be shown, and alone the jobs show two thirds and more",
            better="high",
        ),
        Claim(
            key="jct_queue",
            what="Mean completion time, first come, first served with a GPU for each over tong",
            paper="no number for it",
            unit="x",
            source=_SOURCE,
            how="the same ratio, simulated",
            differs="",
            better="high",
        ),
        Claim(
            key="jct_shared",
            what="Mean completion time, the best other way of sharing over tong",
            paper="no number in the abstract",
            unit="x",
            source=_SOURCE,
            how="first fit, best fit, capped packing and turns; the least of their means over tong's",
            differs="",
            better="high",
        ),
        Claim(
            key="jct_tong",
            what="Mean completion time, tong over cotenant",
            paper="no number: ours",
            unit="x",
            source=_SOURCE,
            how="the same ratio; the same forecast of speeds and lengths, of which tong asks less, and the same samples",
            differs="cotenant starts newcomers at once, in place of what has more left",
            better="high",
        ),
        Claim(
            key="largest",
            what="p99 completion time of the largest tenth, first come, first served over tong",
            paper="no starvation; no number",
            unit="x",
            source=_SOURCE,
            how="by GPU time, jobs one a second",
            differs="a large job that shares is slowed, which its earlier start does not always make up",
            better="high",
        ),
        Claim(
            key="largest_ours",
            what="p99 completion time of the largest tenth, first come, first served over cotenant",
            paper="no number: ours",
            unit="x",
            source=_SOURCE,
            how="by GPU time, jobs one a second",
            differs="what has most left gives way and so ends last, yet the whole ends sooner",
            better="high",
        ),
        *(
            Claim(
                key=f"largest_first_wait{suffix}",
                what=f"Longest wait of the largest tenth for the first start, {label}",
                paper="no starvation; no number",
                unit="h",
                source=_SOURCE,
                how="by GPU time, jobs one a second",
                differs=why,
                better="low",
            )
            for suffix, label, why in (
                ("_queue", _QUEUE, "who comes last waits for all others"),
                (
                    "",
                    _TONG,
                    "from its guard's limit on, devices are kept for a large job, one after the other",
                ),
                ("_ours", _OURS, "newcomers take the place of what has more left"),
            )
        ),
        *(
            Claim(
                key=f"largest_wait{suffix}",
                what=f"Longest wait of the largest tenth at a stretch, {label}",
                paper="no starvation; no number",
                unit="h",
                source=_SOURCE,
                how="by GPU time, before the first start or after a suspension, jobs one a second",
                differs=why,
                better="low",
            )
            for suffix, label, why in (
                ("_queue", _QUEUE, "who comes last waits for all others"),
                (
                    "",
                    _TONG,
                    "from its guard's limit on, devices are kept for a large job, one after the other",
                ),
                ("_ours", _OURS, "its default bound is half a day, which this workload does not reach"),
                (
                    "_bounded",
                    _BOUNDED,
                    "of jobs that were stopped and are overdue at once, one after the other has its turn; hence more than 4 h",
                ),
            )
        ),
        Claim(
            key="overhead",
            what="Part of the GPU time spent saving, loading and starting by tong",
            paper="no number in the abstract",
            unit="%",
            source=_SOURCE,
            how="time for which jobs on devices make no progress, over all time that jobs are on devices; jobs one a second",
            differs="",
            better="low",
        ),
    )

    def cases(self, seed: int, place: Place) -> dict[str, Prepared]:
        """A burst, and Poisson arrivals."""
        jobs = place.pick(100, 100, 12)
        found = {_BURST: _prepared(seed, jobs, {"kind": "fixed", "mean_gap_s": 1.0})}
        for gap_s in place.pick((30.0, 60.0, 120.0), (60.0,), ()):
            arrivals = {"kind": "poisson", "mean_gap_s": gap_s}
            found[f"Poisson arrivals, {gap_s:g} s apart on average"] = _prepared(seed, jobs, arrivals)
        return found

    def row(self, run: Run) -> dict[str, Any]:
        """The tail of large jobs, too."""
        return super().row(run) | {
            "largest_tenth_jct_s_p99": largest_jct_s(run.metrics),
            "largest_tenth_longest_wait_s": largest_wait_s(run),
        }

    def results(self, runs: Mapping[str, Mapping[str, Run]]) -> dict[str, float | None]:
        """Ratios of the burst."""
        burst = runs[_BURST]
        tong, ours, queue = burst[_TONG], burst[_OURS], burst[_QUEUE]
        alone = one_after_another(queue.metrics, _GPUS)
        jct_s = tong.summary["jct_s_mean"]
        shared = min([burst[label].summary["jct_s_mean"] for label in (_FIRST, _BEST, _CAPPED, _TURNS)])
        return {
            "utilisation": ratio(tong.utilisation, alone["utilisation"]),
            "jct": ratio(alone["jct_s_mean"], jct_s),
            "utilisation_ours": ratio(ours.utilisation, alone["utilisation"]),
            "jct_ours": ratio(alone["jct_s_mean"], ours.summary["jct_s_mean"]),
            "utilisation_most": ratio(1.0, alone["utilisation"]),
            "utilisation_queue": ratio(tong.utilisation, queue.utilisation),
            "jct_queue": ratio(queue.summary["jct_s_mean"], jct_s),
            "jct_shared": ratio(shared, jct_s),
            "jct_tong": ratio(jct_s, ours.summary["jct_s_mean"]),
            "largest": ratio(largest_jct_s(queue.metrics), largest_jct_s(tong.metrics)),
            "largest_ours": ratio(largest_jct_s(queue.metrics), largest_jct_s(ours.metrics)),
            "largest_first_wait_queue": first_wait_s(queue) / 3600.0,
            "largest_first_wait": first_wait_s(tong) / 3600.0,
            "largest_first_wait_ours": first_wait_s(ours) / 3600.0,
            "largest_wait_queue": largest_wait_s(queue) / 3600.0,
            "largest_wait": largest_wait_s(tong) / 3600.0,
            "largest_wait_ours": largest_wait_s(ours) / 3600.0,
            "largest_wait_bounded": largest_wait_s(burst[_BOUNDED]) / 3600.0,
            "overhead": 100.0 * tong.paused_share,
        }
