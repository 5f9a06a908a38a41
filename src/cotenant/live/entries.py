"""One job as the read model keeps it, and as people see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from cotenant.live.views import JobView
from cotenant.model.asking import asked_share
from cotenant.model.events import Sampled
from cotenant.model.jobs import Job
from cotenant.model.placement import WHOLE, Share, counts_on
from cotenant.model.quantities import format_bytes, format_duration
from cotenant.report.phrases import facts_in_words
from cotenant.report.reasons import meaning

__all__ = ["ENDED", "Entry", "Triple", "saved_words", "view_of"]

Triple = tuple[float, float, float]
"""An estimate: mean, and the ends of its 90% range."""

ENDED = frozenset({"done", "failed", "cancelled", "rejected", "lost"})
"""Statuses after which nothing more happens to a job."""

_OVERDUE = "runs longer than expected"
_SUSPENDED = 85
"""Exit code of a job that saved its state as asked."""


class Entry(msgspec.Struct, gc=False, eq=False):
    """What is known of one job. Times on the log's clock; owned by the picture.

    ``settles`` are the devices on which it will be once a resize in place is done, while one is under way;
    ``wish`` is the job as its owner wants it while it runs, until that is granted;
    ``rate`` is the speed relative to alone, as last told; ``steps`` and what follows it come from
    the job itself and are not in the log; ``killed`` counts
    the processes of an elastic job that were killed and replaced, ``killed_of`` those of its last serial; ``own`` is whether it goes on from a checkpoint of its own, if any.
    """

    job: Job
    wish: Job | None = None
    status: str = "waiting"
    priority: int = 0
    held: bool = False
    reason: str = ""
    hold: str = ""
    facts: dict[str, object] = {}
    expected_s: Triple | None = None
    started_s: float = -1.0
    since_s: float = -1.0
    ended_s: float = -1.0
    attempt: int = 0
    devices: tuple[int, ...] = ()
    settles: tuple[int, ...] = ()
    share: Share = WHOLE
    node: int = -1
    rate: float = 1.0
    rated_s: float = 0.0
    work_s: float = 0.0
    sample: Sampled | None = None
    suspensions: int = 0
    killed: int = 0
    killed_of: tuple[int, int] = (-1, 0)
    own: bool = False
    exit_code: int | None = None
    detail: str = ""
    why: str = ""
    serial: int = 0
    steps: int = 0
    total_steps: int = 0
    step_s: float = 0.0
    memory_used_bytes: int = 0
    cpu_s: float = 0.0
    after: tuple[int, ...] = ()
    command: tuple[str, ...] = ()

    def work_at(self, now: float) -> float:
        """Useful work of this attempt so far, in reference-device seconds."""
        if self.status not in ("running", "paused"):
            return self.work_s
        return self.work_s + self.rate * max(now - self.rated_s, 0.0)

    def left(self, now: float) -> Triple | None:
        """Seconds until it ends at its present speed; None if nothing is predicted or it stands still."""
        done, rate = self.work_at(now), self.rate
        if self.status != "running" or rate <= 0.0:
            return None
        if self.total_steps > self.steps > 0 and self.step_s > 0.0:
            seconds = (self.total_steps - self.steps) * self.step_s
            return seconds, 0.9 * seconds, 1.1 * seconds
        if self.sample is not None:
            ends: Triple | None = (self.sample.work_s, self.sample.low_s, self.sample.high_s)
        else:
            ends = self.expected_s
        if ends is None:
            return None
        if ends[0] <= done:
            return None  # it runs on, longer than expected: how long, nobody knows
        mean, low, high = (max(end - done, 0.0) / rate for end in ends)
        return mean, low, high

    def overdue(self, now: float) -> bool:
        """Whether it does more work than was expected of it; not said of one that has made all its steps."""
        ends = self.expected_s if self.sample is None else (self.sample.work_s,)
        if self.status != "running" or ends is None or 0 < self.total_steps <= self.steps:
            return False
        return self.left(now) is None and self.work_at(now) >= ends[0]


def sentence(entry: Entry, ahead: int) -> str:
    """Why it waits, or how it ended, in one sentence.

    Parameters
    ----------
    ahead : int
        Waiting jobs that were submitted earlier.
    """
    if entry.status in ENDED or entry.status in ("paused", "stopping"):
        return entry.reason
    if entry.status == "held" or entry.held:
        return "suspended by its owner; resume lets it go on"
    if entry.status == "running":
        return ""
    numbers = f" ({facts_in_words(entry.facts)})" if entry.facts else ""
    kept = saved_words(entry)
    if entry.hold:
        return f"{kept}not now: {meaning(entry.hold)}{numbers}"
    if entry.after:
        return f"waits for {_numbers(entry.after)} to end well"
    if ahead:
        word = "job is" if ahead == 1 else "jobs are"
        return f"{kept}not now: {ahead} {word} ahead of it in the queue"
    return f"{kept}its turn is next"


def saved_words(entry: Entry) -> str:
    """What a job that was suspended goes on from, before why it waits; empty for others.

    >>> from cotenant.model.jobs import Job
    >>> saved_words(Entry(Job(0, "a", 0.0), status="suspended")), saved_words(Entry(Job(0, "a", 0.0)))
    ('its state is saved; ', '')
    """
    if entry.status != "suspended":
        return ""
    return (
        "it was ended to make room, and what it saved is its own affair; "
        if entry.own
        else "its state is saved; "
    )


def _numbers(jobs: tuple[int, ...]) -> str:
    listed = ", ".join(str(job) for job in jobs)
    return f"job {listed}" if len(jobs) == 1 else f"jobs {listed}"


def view_of(
    entry: Entry,
    *,
    now: float,
    wall: Callable[[float], float],
    names: Callable[[int], str],
    predicted: Triple | None,
    ahead: int,
    beside: Sequence[Sequence[Share]] = ((),),
) -> JobView:
    """The job as people see it.

    Parameters
    ----------
    now : float
        On the log's clock.
    wall : callable
        A time of that clock as seconds since 1970.
    names : callable
        What a device is called.
    predicted : tuple or None
        Its speed beside its present neighbours, as foretold.
    ahead : int
        Waiting jobs before it.
    beside : sequence
        For each of its devices, the shares of the others there.
    """
    job, left = entry.job, entry.left(now)
    ends = None if left is None else (wall(now + left[0]), wall(now + left[1]), wall(now + left[2]))
    speed = entry.sample.co_speed if entry.sample is not None and entry.sample.co_speed else None
    share = entry.share if entry.devices else asked_share(job)
    milli = counts_on(share, beside)
    return JobView(
        id=job.id,
        name=job.name,
        tenant=job.tenant,
        user=job.user,
        status=entry.status,
        reason=sentence(entry, ahead) or (_OVERDUE if entry.overdue(now) else ""),
        gpus=job.gpus,
        devices=tuple(names(device) for device in entry.devices),
        priority=entry.priority,
        model=job.model,
        command=entry.command,
        submitted=wall(job.submit_s),
        started=None if entry.started_s < 0 else wall(entry.started_s),
        ended=None if entry.ended_s < 0 else wall(entry.ended_s),
        attempt=entry.attempt,
        steps=entry.steps,
        total_steps=entry.total_steps,
        step_s=entry.step_s or None,
        predicted_s=_finite(entry.expected_s),
        ends_at=_finite(ends),
        predicted_speed=predicted,
        measured_speed=speed if entry.status in ("running", "paused", "stopping") else None,
        memory_bytes=entry.share.memory_bytes or job.memory_bytes,
        memory_used_bytes=entry.memory_used_bytes,
        compute_milli=milli,
        compute_limit_milli=share.compute_limit_milli,
        suspensions=entry.suspensions,
        killed_processes=entry.killed,
        exit_code=entry.exit_code,
        after=entry.after,
    )


def _finite(three: Triple | None) -> Triple | None:
    return three if three is not None and all(map(math.isfinite, three)) else None


def ended_words(outcome: str, entry: Entry, lasted_s: float) -> str:
    """How it ended, in one sentence.

    >>> from cotenant.model.jobs import Job
    >>> ended_words("failed", Entry(Job(0, "a", 0.0), exit_code=3), 61.0)
    'failed with exit code 3 after 1m 1s'
    """
    after = f" after {format_duration(lasted_s)}"
    told = f": {entry.detail}" if entry.detail else ""
    if outcome == "done":
        return f"done{after}"
    if outcome == "cancelled":
        return f"cancelled{after}{told}"
    if outcome == "lost":
        return f"lost{after}{told or ': its process or device vanished'}"
    if entry.exit_code and (not entry.detail or entry.detail == f"left with code {entry.exit_code}"):
        code = entry.exit_code
        how = f" by signal {-code}" if code < 0 else f" with exit code {code}"
        return f"failed{how}{after}"
    if entry.memory_used_bytes and "memory" in entry.detail:
        told += f" (it used {format_bytes(entry.memory_used_bytes)})"
    return f"failed{after}{told}"
