"""What a mean does not show: jobs without a result of their own, and runs that were cut short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.model.quantities import format_duration
from cotenant.report.rundir import Run

__all__ = ["cut_short", "outcome_lines", "outcomes", "usable"]

_SERIOUS = ("jobs_rejected", "jobs_lost", "jobs_preempted", "jobs_waiting", "jobs_running")
"""What a scheduler or cluster did; that jobs fail or are cancelled is in the workload."""

_COUNTS = (
    ("jobs_rejected", "rejected"),
    ("jobs_failed", "failed"),
    ("jobs_cancelled", "cancelled"),
    ("jobs_lost", "lost"),
    ("jobs_preempted", "preempted for good"),
    ("jobs_waiting", "still waiting"),
    ("jobs_running", "still running"),
)


def outcomes(policy: str, summaries: Sequence[Mapping[str, Any]]) -> str | None:
    """Jobs that did not end as done, all seeds together; None if there are none.

    >>> outcomes("fifo", [{"jobs_submitted": 9, "jobs_rejected": 3, "jobs_failed": 2,
    ...                    "rejected_by_reason": {"never-fits": 1, "device-type": 2}}])
    'fifo: of 9 jobs 3 rejected (2 device-type, 1 never-fits), 2 failed'
    """
    kinds = ("jobs_submitted", *(key for key, _ in _COUNTS))
    if len({tuple(summary.get(kind) for kind in kinds) for summary in summaries}) == 1:
        summaries = summaries[:1]  # the same under every seed: told once, not added up
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for summary in summaries:
        total.update({key: int(summary.get(key) or 0) for key, _ in (("jobs_submitted", ""), *_COUNTS)})
        reasons.update(summary.get("rejected_by_reason") or {})
    parts = []
    for key, word in _COUNTS:
        if not total[key]:
            continue
        text = f"{total[key]:,} {word}"
        if key == "jobs_rejected" and reasons:
            order = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
            text += f" ({', '.join(f'{count:,} {reason}' for reason, count in order)})"
        parts.append(text)
    together = f", {len(summaries)} seeds together" if len(summaries) > 1 else ""
    return f"{policy}: of {total['jobs_submitted']:,} jobs {', '.join(parts)}{together}" if parts else None


def outcome_lines(policies: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, bool]]:
    """A line for each policy, or one for all where they agree; and whether the policy had a part in it.

    >>> same = {"jobs_submitted": 9, "jobs_failed": 2}
    >>> outcome_lines({"fifo": [same], "las": [same]})
    [('every policy: of 9 jobs 2 failed', False)]
    """
    told = {policy: outcomes("", summaries) for policy, summaries in policies.items()}
    grave = any(s.get(key) for own in policies.values() for s in own for key in _SERIOUS)
    if len(told) > 1 and len(set(told.values())) == 1:
        text = next(iter(told.values()))
        return [(f"every policy{text}", grave)] if text else []
    return [
        (f"{policy}{text}", any(s.get(key) for s in policies[policy] for key in _SERIOUS))
        for policy, text in told.items()
        if text
    ]


def usable(runs: Sequence[Run]) -> list[Run]:
    """Complete runs; of a policy that has none, those that were cut short.

    A run cut short has seen other jobs than a complete one, so the two are never averaged.
    """
    whole = {run.policy for run in runs if run.complete}
    return [run for run in runs if run.complete or run.policy not in whole]


def cut_short(policy: str, runs: Sequence[tuple[int, bool, Mapping[str, Any]]]) -> str | None:
    """A sentence on the runs of a policy that were cut short; None if there are none.

    Parameters
    ----------
    runs : sequence of (seed, complete, summary)
        ``summary`` is empty for a run that never began.

    Examples
    --------
    >>> cut_short("las", [(0, True, {}), (1, False, {"window_s": 120.0})])
    'las: seed 1 cut short after 2m of simulated time; left out of the means'
    """
    torn = [(seed, summary) for seed, complete, summary in runs if not complete]
    if not torn:
        return None
    parts = [
        f"seed {seed} cut short after {format_duration(summary.get('window_s') or 0.0)} of simulated time"
        if summary
        else f"seed {seed} without a result"
        for seed, summary in torn
    ]
    if any(complete for _, complete, _ in runs):
        end = "left out of the means"
    elif any(summary for _, summary in torn):
        end = "no run is complete, so all numbers are those up to there and cannot be compared"
    else:
        end = "no number is known"
    return f"{policy}: {', '.join(parts)}; {end}"
