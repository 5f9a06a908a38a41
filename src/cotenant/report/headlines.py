"""The result in plain sentences, with its doubt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.model.quantities import format_duration
from cotenant.report.compare import Estimate, Pairing
from cotenant.report.phrases import plural
from cotenant.report.rundir import Run
from cotenant.report.tables import percent

__all__ = ["expected_in_words", "foretold_in_words", "headline", "nobody_waits", "single", "stuck"]

_EVEN = 0.005
"""A mean error that is told as none in either direction."""
_LEVEL = 0.02
"""The same of the logarithm of a factor."""
_PROMISED = 0.9
"""Share that should lie inside an interval; far from it by more than chance, the intervals are called wrong."""
_FAR = 0.05
_NEARLY_ALL = 0.9
"""Share of the time beside others above which it is not told how much of it could be judged."""
_WIDE = 0.05
"""A narrower interval than this costs nobody anything."""


def _percent(share: float | None) -> str:
    if share is None:
        return "n/a"
    return percent(share, 1 if 0 < share < 0.1 else 0)


def _longest(runs: Sequence[Run]) -> str:
    # Waits after a suspension count: the first wait alone flatters policies that preempt.
    waits = [w for r in runs if (w := r.metrics.summary.get("longest_queued_s")) is not None]
    return format_duration(max(waits)) if waits else "n/a"


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 9.995 else f"{value:.0f}x"


def _doubt(ratio: Estimate, invert: bool) -> str:
    if ratio.low is None or ratio.high is None:
        return "one seed, so no interval"
    if ratio.low == ratio.high:
        return f"the same under all {ratio.n} seeds, so n = 1 in effect"
    low, high = (1 / ratio.high, 1 / ratio.low) if invert else (ratio.low, ratio.high)
    return f"95 % interval {_times(low)} to {_times(high)}, {ratio.n} seeds"


def _torn(runs: Sequence[Run]) -> str | None:
    """Where the runs of a policy were cut short, if all of them were."""
    if not runs or any(run.complete for run in runs):
        return None
    ends = [format_duration(run.metrics.summary.get("window_s") or 0.0) for run in runs]
    at = ", ".join(f"{end} (seed {run.seed})" for run, end in zip(runs, ends, strict=True))
    return f"{runs[0].policy} was cut short at {at} of simulated time"


def headline(pairing: Pairing, base: Sequence[Run], other: Sequence[Run]) -> tuple[str, str]:
    """One sentence on a policy against the first one, and one on who pays for it."""
    name, against, ratio = pairing.other, pairing.base, pairing.speedup
    torn = [cut for runs in (base, other) if (cut := _torn(runs))]
    if torn and not pairing.seeds:
        return f"{' and '.join(torn)}: not compared.", ""
    if ratio.mean is None or ratio.n == 0:
        return f"{name} and {against} have no finished jobs in common to compare.", ""
    sure = ratio.low is None or ratio.high is None or ratio.low > 1 or ratio.high < 1
    if not sure or abs(ratio.mean - 1) < 0.005:
        lead = f"{name} completes jobs about as soon as {against} on average ({_doubt(ratio, False)})."
    elif ratio.mean > 1:
        lead = f"{name} completes jobs {_times(ratio.mean)} sooner than {against} on average ({_doubt(ratio, False)})."
    else:
        lead = f"{name} completes jobs {_times(1 / ratio.mean)} later than {against} on average ({_doubt(ratio, True)})."
    detail = (
        f"{_percent(pairing.worse)} of jobs complete later and {_percent(pairing.better)} sooner (by more than 1 %)."
        f" The longest time in the queue is {_longest(other)}; with {against} it is {_longest(base)}."
    )
    left = [sum(r.metrics.summary.get(k) or 0 for k in ("jobs_waiting", "jobs_running")) for r in other]
    if any(left):
        detail += f" {sum(left):,} of its jobs had not ended when the logs did; they are not in these times."
    slow = [s for r in other if (s := r.metrics.summary.get("corun_slowdown_p95")) is not None]
    if slow and sum(slow) / len(slow) >= 1.005:
        detail += f" While running, one job in twenty is slowed down {sum(slow) / len(slow):.2f}x or more against a reference device of its own."
    return lead, detail


def nobody_waits(summaries: Sequence[Mapping[str, Any]]) -> str | None:
    """A sentence for results in which policies cannot differ, and what to try instead; else None."""
    waits = [s.get("longest_wait_s") for s in summaries]
    if not waits or any(w is None or w >= 1.0 for w in waits):
        return None
    gpus, used = summaries[0].get("gpus"), summaries[0].get("goodput_gpus_mean")
    if not gpus or used is None:
        return None
    smaller = max(1, math.ceil(used * 1.25 / 8) * 8)
    advice = f" Policies differ only where jobs wait: try a smaller cluster, for example --gpus {smaller}."
    return f"No job ever waits: of {gpus:,} devices {used:,.0f} do useful work on average." + (
        advice if smaller < gpus else ""
    )


def stuck(policy: str, summaries: Sequence[Mapping[str, Any]]) -> str | None:
    """A sentence where jobs never started or decisions were refused, all seeds together; else None.

    >>> stuck("p", [{"jobs_submitted": 9, "jobs_never_started": 9, "refused_by_reason": {"memory": 8}}])
    'p: 9 of 9 jobs never started; 8 decisions refused: memory (8).'
    """
    submitted = sum(s.get("jobs_submitted") or 0 for s in summaries)
    never = sum(s.get("jobs_never_started") or 0 for s in summaries)
    reasons: Counter[str] = Counter()
    for summary in summaries:
        reasons.update(summary.get("refused_by_reason") or {})
    parts = []
    if never:
        parts.append(f"{never:,} of {submitted:,} jobs never started")
    if reasons:
        order = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{reason} ({count:,})" for reason, count in order)
        parts.append(f"{plural(reasons.total(), 'decision')} refused: {listed}")
    together = f", {len(summaries)} seeds together" if len(summaries) > 1 else ""
    return f"{policy}: {'; '.join(parts)}{together}." if parts else None


def foretold_in_words(summaries: Sequence[Mapping[str, Any]]) -> str | None:
    """How right the forecast of speeds was, mean over seeds; None where it was never put to the test.

    >>> foretold_in_words([{"forecast_sides": 4, "forecast_error_mean": 0.05, "forecast_bias_mean": 0.02,
    ...     "forecast_width_mean": 0.2, "forecast_inside_share": 0.875, "forecast_inside_hours_share": 0.9,
    ...     "forecast_judged_share": 1.0}])
    'right within 0.05 on average; 88 % inside the 90 % interval (90 % by job-hours); too optimistic by 0.02; of 4 speeds'
    """
    kept = [s for s in summaries if s.get("forecast_sides")]
    if not kept:
        return None

    def mean(key: str) -> float:
        return sum(float(s[f"forecast_{key}"]) for s in kept) / len(kept)

    inside, sides = mean("inside_share"), sum(s["forecast_sides"] for s in kept)
    reading = _reading(inside, sides, wide=mean("width_mean") > _WIDE)
    bias, judged = mean("bias_mean"), mean("judged_share")
    if abs(bias) < _EVEN:
        lean = "neither too optimistic nor too pessimistic"
    else:
        lean = f"too {'optimistic' if bias > 0 else 'pessimistic'} by {abs(bias):.2g}"
    return (
        f"right within {mean('error_mean'):.2g} on average; {percent(inside, 0)} inside the 90 % interval"
        f" ({percent(mean('inside_hours_share'), 0)} by job-hours){reading}; {lean}; of {plural(sides, 'speed')}"
        + (f" ({percent(judged, 0)} of the time beside others can be judged)" if judged < _NEARLY_ALL else "")
    )


def _reading(inside: float, count: int, *, wide: bool) -> str:
    far = max(_FAR, 2 * math.sqrt(_PROMISED * (1 - _PROMISED) / count))
    if inside < _PROMISED - far:
        return ", so the intervals are too narrow"
    return ", so the intervals are wider than need be" if inside > _PROMISED + far and wide else ""


def expected_in_words(summaries: Sequence[Mapping[str, Any]]) -> str | None:
    """How right the forecast of running times was, mean over seeds; None where nobody was done that it told of.

    >>> expected_in_words([{"runtime_jobs": 90, "runtime_jobs_not_done": 10, "runtime_factor_median": 1.32,
    ...     "runtime_bias_factor": 1.1, "runtime_inside_share": 0.89, "runtime_factor_width_median": 71.0}])
    'within x1.32 (median); 89 % inside the 90 % interval, its ends x71 apart; too long by x1.1; of 90 jobs done (10 ended otherwise)'
    """
    kept = [s for s in summaries if s.get("runtime_jobs")]
    if not kept:
        return None

    def mean(key: str) -> float:
        return sum(float(s[f"runtime_{key}"]) for s in kept) / len(kept)

    jobs, others = (sum(s[key] for s in kept) for key in ("runtime_jobs", "runtime_jobs_not_done"))
    known = all(s["runtime_factor_width_median"] is not None for s in kept)
    width = mean("factor_width_median") if known else math.inf
    inside, bias = mean("inside_share"), mean("bias_factor")
    apart = f", its ends x{width:.3g} apart" if known and width >= 1 + _EVEN else ""
    lean = "neither too long nor too short"
    if abs(math.log(bias)) >= _LEVEL:
        lean = f"too long by x{bias:.3g}" if bias > 1 else f"too short by x{1 / bias:.3g}"
    return (
        f"within x{mean('factor_median'):.3g} (median); {percent(inside, 0)} inside the 90 % interval{apart}"
        f"{_reading(inside, jobs, wide=width > 1 + _WIDE)}; {lean}; of {plural(jobs, 'job')} done"
        + (f" ({others:,} ended otherwise)" if others else "")
    )


def single(runs: Sequence[Run]) -> tuple[str, str]:
    """The sentence for a report on one policy alone."""
    summary = runs[0].metrics.summary
    jct, wait = summary.get("jct_s_mean"), summary.get("wait_s_mean")
    if jct is None:
        return f"No job ran to its end under {runs[0].policy}.", ""
    waited = "n/a" if wait is None else format_duration(wait)
    return (
        f"Under {runs[0].policy}, {summary['jobs_finished']:,} of {summary['jobs_submitted']:,} jobs finished;"
        f" a job completes after {format_duration(jct)} on average, {waited} of it waiting to start.",
        f"The longest time in the queue is {_longest(runs)}. Seed {runs[0].seed}.",
    )
