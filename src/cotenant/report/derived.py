"""Why a job waits where the log gives no reason: from how the cluster stands.

Policies name a reason for the jobs they look at. Of those behind them, and of jobs that a policy
leaves out before it looks, the log says nothing; the fold still knows the tenant's ceiling, what
is free, and who is ahead.
"""

from __future__ import annotations

from typing import Any

from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason
from cotenant.report.stage import Stage
from cotenant.report.waits import Cause

__all__ = ["derive", "free_in", "set_aside"]


def derive(job: Job, stage: Stage) -> Cause | None:
    """The first of these that holds at this moment; None if nothing seems to be in its way.

    Its tenant's ceiling; too few wholly free devices; enough of them, but not on one node (for a
    gang that fits one); jobs ahead of it, or better ranked ones where the policy ranks.
    """
    free, hole = stage.free()
    ahead_jobs, ahead_gpus = stage.ahead(job.id)
    reason, facts = _reason(job, stage, free, hole, ahead_jobs)
    if reason is None:
        return None
    return Cause(stage.now, str(reason), facts, free, hole, ahead_jobs, ahead_gpus, job.gpus)


def _reason(
    job: Job, stage: Stage, free: int, hole: int, ahead_jobs: int
) -> tuple[Reason | None, dict[str, Any]]:
    limit, used = stage.limit(job.tenant)
    if limit is not None and used + job.gpus > limit:
        facts = {"tenant": job.tenant, "limit_gpus": limit, "used_gpus": used, "needs_gpus": job.gpus}
        return (Reason.TENANT_CAPACITY_ZERO if limit == 0 else Reason.TENANT_LIMIT), facts
    if job.gpus > free:
        return Reason.NO_CAPACITY, {"needs_gpus": job.gpus, "free_gpus": free}
    if hole < job.gpus <= stage.largest_node():
        return Reason.FRAGMENTED, {"needs_gpus": job.gpus, "free_gpus": free, "largest_hole_gpus": hole}
    if stage.ranked and (others := stage.others(job.id)):
        return Reason.LOWER_RANK, {"other_waiting_jobs": others}
    return (Reason.BEHIND_HEAD, {}) if ahead_jobs else (None, {})


def free_in(facts: dict[str, Any], seen: tuple[int, int]) -> tuple[int, int]:
    """Free devices in all and in the largest hole: as a decision counted them, else as seen."""
    free = facts.get("free_gpus")
    if not isinstance(free, int):
        return seen
    hole = facts.get("largest_block_gpus", facts.get("largest_hole_gpus"))
    return free, hole if isinstance(hole, int) else min(free, seen[1])


def set_aside(event: ev.SuspendRequested | ev.ResumeRequested | ev.Awaited) -> tuple[Reason | None, str]:
    """Why a job takes no part from this event on (None: it takes part), and a sentence."""
    if isinstance(event, ev.Awaited):
        if not event.after:
            return None, "The jobs it waited for ended well."
        others = ", ".join(map(str, event.after))
        return Reason.AWAITS_JOBS, f"Waits for job {others} to end well."
    if isinstance(event, ev.SuspendRequested):
        return Reason.HELD_BY_USER, "Its owner asked that it stay away."
    return None, "Its owner lets it go on."
