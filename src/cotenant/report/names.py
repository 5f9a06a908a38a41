"""Names of the metrics for people, and which way is better."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["METRICS", "METRIC_BY_KEY", "Metric"]


class Metric(msgspec.Struct, frozen=True):
    """One line of a summary.

    Parameters
    ----------
    key : str
        Key in ``RunMetrics.summary``; its suffix is the unit.
    label : str
        What people read.
    better : {"low", "high", ""}
        Which direction is an improvement; empty where neither is.
    group : str
        Heading it stands under.
    note : str
        One sentence of definition.
    """

    key: str
    label: str
    better: Literal["low", "high", ""]
    group: str
    note: str


def _group(group: str, *rows: tuple[str, str, Literal["low", "high", ""], str]) -> list[Metric]:
    return [Metric(key, label, better, group, note) for key, label, better, note in rows]


METRICS: tuple[Metric, ...] = (
    *_group(
        "Completion",
        ("jct_s_mean", "Completion time, mean", "low", "From submission to end, of jobs that ran to an end."),
        ("jct_s_median", "Completion time, median", "low", "Half of the jobs complete sooner."),
        ("jct_s_p95", "Completion time, 95th percentile", "low", "One job in twenty takes longer."),
        ("makespan_s", "Makespan", "low", "From the first submission to the last end."),
        (
            "bounded_slowdown_mean",
            "Bounded slowdown, mean",
            "low",
            "Completion time over work, work of at least 10 s.",
        ),
    ),
    *_group(
        "Waiting",
        ("wait_s_mean", "Wait, mean", "low", "From submission to first start."),
        ("wait_s_p95", "Wait, 95th percentile", "low", "One job in twenty waits longer."),
        (
            "queued_s_mean",
            "Time queued, mean",
            "low",
            "First wait plus all waits after suspensions and lost attempts, of jobs that started.",
        ),
        ("longest_wait_s", "Wait, longest", "low", "Includes jobs that still wait when the log ends."),
        (
            "rho_p95",
            "Finish-time fairness rho, 95th percentile",
            "low",
            "Completion time over what a fair share gives.",
        ),
        ("jain_tenants", "Jain index over tenants", "high", "1 when all tenants got work by their weights."),
    ),
    *_group(
        "Sharing",
        (
            "corun_slowdown_mean",
            "Co-run slowdown (vs ref. device), mean",
            "low",
            "Running time over work; below 1 on devices faster than the reference device.",
        ),
        (
            "corun_slowdown_p95",
            "Co-run slowdown (vs ref. device), 95th percentile",
            "low",
            "One job in twenty is slowed down more.",
        ),
        (
            "corun_slowdown_p99",
            "Co-run slowdown (vs ref. device), 99th percentile",
            "low",
            "One job in a hundred is slowed down more.",
        ),
        ("shared_share", "Devices shared", "", "Device time with two or more residents."),
    ),
    *_group(
        "Capacity",
        (
            "goodput_share",
            "Goodput (ref. devices)",
            "high",
            "Useful reference device time over available device time; above 100 % where devices are faster or shared.",
        ),
        ("allocated_share", "Devices allocated", "", "Device time with a resident."),
        ("busy_share", "Devices busy", "", "Device time in which a resident makes progress."),
        ("stranded_share", "Devices stranded", "low", "Free where not even the smallest waiting job fits."),
        (
            "fragmentation_mean",
            "Fragmentation, mean",
            "low",
            "1 - largest hole / largest hole there could be.",
        ),
        (
            "largest_placeable_gpus_mean",
            "Largest placeable job, mean",
            "high",
            "Whole free devices in one node.",
        ),
        ("gpu_hours_useful", "GPU-hours useful", "high", "Work kept, in hours of the reference device."),
        (
            "gpu_hours_overhead",
            "GPU-hours of overhead",
            "low",
            "Held while nobody progressed: starting, saving.",
        ),
        ("gpu_hours_lost", "GPU-hours lost", "low", "Work that had to be done again."),
        ("energy_kwh", "Energy, kWh", "low", "Board power, busy or idle, from datasheets."),
    ),
    *_group(
        "Disruption",
        ("preemptions", "Suspensions", "low", "Times a running job left its devices."),
        ("preemption_cycles", "Preemption cycles", "low", "A evicts B after B evicted A."),
        ("moves", "Moves", "", "Migrations of running jobs."),
        ("refused", "Decisions refused", "low", "By the rules, whoever decided."),
    ),
    *_group(
        "Forecast of speeds",
        (
            "forecast_error_mean",
            "Foretold speeds, mean error",
            "low",
            "Speed beside others relative to alone, foretold against happened; every set counts once.",
        ),
        (
            "forecast_inside_share",
            "Inside the 90 % interval",
            "",
            "Of the speeds foretold; 90 % is what the forecast promises.",
        ),
        (
            "forecast_inside_hours_share",
            "The same by job-hours",
            "",
            "Of the time that jobs ran beside others.",
        ),
        ("forecast_width_mean", "Interval width, mean", "", "High end less low end of what was foretold."),
        ("forecast_bias_mean", "Foretold less happened, mean", "", "Above 0: too optimistic."),
    ),
    *_group(
        "Forecast of running times",
        (
            "runtime_factor_median",
            "Running times, off by a factor of (median)",
            "low",
            "The larger of expected and happened over the smaller, of jobs that were done; 1 is right.",
        ),
        (
            "runtime_bias_factor",
            "Expected over happened, median",
            "",
            "Above 1: jobs were expected to run longer than they did.",
        ),
        (
            "runtime_inside_share",
            "Running times inside the 90 % interval",
            "",
            "Of the jobs that were done; 90 % is what the forecast promises.",
        ),
        ("runtime_factor_width_median", "High over low end, median", "", "Width of the interval."),
    ),
    *_group(
        "Jobs",
        ("jobs_submitted", "Submitted", "", "All jobs of the workload."),
        ("jobs_finished", "Finished", "high", "Ended as done."),
        ("jobs_failed", "Failed", "", "Ended by an error of their own, as in the trace."),
        ("jobs_cancelled", "Cancelled", "", "Ended by their owner."),
        ("jobs_lost", "Lost", "low", "Ended by the failure of a device, for good."),
        ("jobs_preempted", "Preempted for good", "low", "Taken off and never put back."),
        ("jobs_rejected", "Rejected", "low", "Never fits, or left before it started."),
        ("jobs_waiting", "Still waiting", "low", "When the log ends."),
        ("jobs_running", "Still running", "", "When the log ends."),
    ),
)
METRIC_BY_KEY = {metric.key: metric for metric in METRICS}
