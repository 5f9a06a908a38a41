"""What a batch came to: rows for a table, and one JSON object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cotenant.model.quantities import format_duration
from cotenant.report.headlines import expected_in_words, foretold_in_words, nobody_waits, stuck
from cotenant.report.tables import percent
from cotenant.report.unfinished import cut_short, outcome_lines
from cotenant.runs.batch import Batch
from cotenant.runs.single import Outcome

__all__ = ["COLUMNS", "batch_json", "batch_rows", "closing_lines", "same_for_all_seeds"]

COLUMNS = (
    "policy",
    "seeds",
    "done",
    "mean JCT",
    "p95 JCT",
    "mean wait",
    "mean queued",
    "slowdown",
    "allocated",
    "goodput (ref. devices)",
)
_SHORT = {
    "mean_jct_s": "jct_s_mean",
    "median_jct_s": "jct_s_median",
    "p95_jct_s": "jct_s_p95",
    "mean_wait_s": "wait_s_mean",
    "p95_wait_s": "wait_s_p95",
    "mean_queued_s": "queued_s_mean",
    "makespan_s": "makespan_s",
    "mean_slowdown": "slowdown_mean",
}
"""The names most often asked for, beside the full summary."""


def mean_summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Mean over seeds of every number of the summaries; None where a seed has none."""
    kept = [o.summary for o in outcomes if o.summary]
    found: dict[str, Any] = {}
    for key in kept[0] if kept else ():
        values = [summary.get(key) for summary in kept]
        if key in {"seed", "log_complete", "interrupted"} or any(
            isinstance(v, (str, dict, list, bool)) for v in values
        ):
            continue
        numbers = [value for value in values if value is not None]
        found[key] = math.fsum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return found


def same_for_all_seeds(outcomes: Sequence[Outcome]) -> bool:
    """True if several seeds gave one and the same result: then they are one observation."""
    kept = [{k: v for k, v in o.summary.items() if k != "seed"} for o in outcomes if o.summary]
    return len(kept) > 1 and all(summary == kept[0] for summary in kept)


def batch_json(batch: Batch) -> dict[str, Any]:
    """All of it, for programs."""
    manifest = batch.manifest
    policies = []
    for policy in manifest.policies:
        outcomes = batch.of_policy(policy)
        mean = mean_summary(_kept(outcomes))
        complete = sum(o.status == "complete" for o in outcomes)
        policies.append(
            {
                "policy": policy,
                "params": manifest.params[policy],
                "runs_complete": complete,
                "independent_runs": 1 if same_for_all_seeds(_kept(outcomes)) else complete,
                "means_of": "complete runs" if complete else "runs cut short",
                **{short: mean.get(name) for short, name in _SHORT.items()},
                "mean": mean,
                "runs": [_run_json(outcome) for outcome in outcomes],
            }
        )
    return {
        "folder": str(batch.folder),
        "complete": manifest.complete,
        "interrupted": batch.interrupted,
        "workload": manifest.workload,
        "forecast": manifest.forecast,
        "runtime": manifest.runtime,
        "seeds": manifest.seeds,
        "seeds_vary": manifest.seeds_vary,
        "assumptions": manifest.assumptions,
        "warnings": manifest.warnings,
        "policies": policies,
    }


def _run_json(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": outcome.seed, "status": outcome.status}
    found |= {short: outcome.summary.get(name) for short, name in _SHORT.items()}
    found["log_sha256"] = outcome.log_sha256
    if outcome.error:
        found["error"] = outcome.error
    return found | {"summary": outcome.summary}


def batch_rows(batch: Batch) -> list[tuple[str, ...]]:
    """One row for each policy, means over its seeds."""
    rows: list[tuple[str, ...]] = []
    for policy in batch.manifest.policies:
        outcomes = batch.of_policy(policy)
        mean = mean_summary(_kept(outcomes))
        rows.append(
            (
                policy,
                _count(outcomes),
                _whole(mean.get("jobs_finished")),
                _time(mean.get("jct_s_mean")),
                _time(mean.get("jct_s_p95")),
                _time(mean.get("wait_s_mean")),
                _time(mean.get("queued_s_mean")),
                _times(mean.get("slowdown_mean")),
                _share(mean.get("allocated_share")),
                _share(mean.get("goodput_share")),
            )
        )
    return rows


def closing_lines(batch: Batch) -> list[str]:
    """What a reader of the table must also know."""
    manifest = batch.manifest
    vary = "; ".join(manifest.seeds_vary)
    lines = [
        f"policies know: speeds {manifest.forecast}, running times {manifest.runtime}",
        f"n = 1: one seed, so no interval (--seeds 5 gives one); seeds vary {vary}"
        if len(manifest.seeds) == 1
        else f"seeds vary {vary}; where a policy meets none of it, all count as 1 in effect",
    ]
    for policy in reversed(manifest.policies):
        kept = [o.summary for o in _kept(batch.of_policy(policy)) if o.summary]
        if expected := expected_in_words(kept):
            lines.insert(1, f"{policy}: running times were expected {expected}")
        if foretold := foretold_in_words(kept):
            lines.insert(1, f"{policy}: speeds beside others were foretold {foretold}")
    idle = nobody_waits([o.summary for o in batch.outcomes if o.summary])
    if idle:
        lines.insert(0, idle)
    ended = {p: [o.summary for o in _kept(batch.of_policy(p)) if o.summary] for p in manifest.policies}
    lines[:0] = [line for line, _ in outcome_lines({p: own for p, own in ended.items() if own})]
    for policy in reversed(manifest.policies):
        torn = _torn(batch, policy)
        if torn:
            lines.insert(0, torn)
        told_of = stuck(policy, [o.summary for o in batch.of_policy(policy) if o.summary])
        if told_of:
            lines.insert(0, told_of)
    told = set((manifest.data_report or {}).get("assumptions", []))
    lines += [f"assumed: {sentence}" for sentence in manifest.assumptions if sentence not in told]
    return lines


def _kept(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Complete runs, or else those cut short: the two are never averaged."""
    complete = [o for o in outcomes if o.status == "complete"]
    return complete or [o for o in outcomes if o.summary]


def _torn(batch: Batch, policy: str) -> str | None:
    runs = [o for o in batch.of_policy(policy) if o.status != "failed"]
    said = cut_short(policy, [(o.seed, o.status == "complete", o.summary) for o in runs])
    return f"* {said}" if said else None


def _count(outcomes: Sequence[Outcome]) -> str:
    kept = _kept(outcomes)
    text = "1 in effect" if same_for_all_seeds(kept) else str(len(kept))
    return text + ("*" if any(o.status in {"interrupted", "pending"} for o in outcomes) else "")


def _known(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _whole(value: Any) -> str:
    return f"{value:,.0f}" if _known(value) else "n/a"


def _time(value: Any) -> str:
    return format_duration(value) if _known(value) else "n/a"


def _times(value: Any) -> str:
    return f"{value:.2f}x" if _known(value) else "n/a"


def _share(value: Any) -> str:
    return percent(value).replace(" ", "") if _known(value) else "n/a"
