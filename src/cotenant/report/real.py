"""What the story of a job says where jobs are real: processes, pauses, wishes of their owners, exit codes."""

from __future__ import annotations

from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.quantities import format_bytes, format_duration
from cotenant.report.phrases import devices_named, plural
from cotenant.report.tables import show

__all__ = [
    "ITSELF",
    "REAL",
    "amount",
    "goes_to",
    "how_ended",
    "seen_late",
    "sentence",
    "work_in_words",
]

Real = ev.Launched | ev.Paused | ev.ProcessKilled | ev.ResizeRequested | ev.Resettled
REAL: tuple[type, ...] = (ev.Launched, ev.Paused, ev.ProcessKilled, ev.ResizeRequested, ev.Resettled)
"""Events that ``sentence`` tells of."""
_SEEN_LATE_S = 5.0
ITSELF = "from a checkpoint of its own if it keeps one, else from the beginning"
"""Where a job goes on whose state nobody saves but itself."""


def sentence(event: Real) -> tuple[str, str]:
    """A kind of step, and a sentence.

    >>> sentence(ev.ResizeRequested(1.0, 3, compute_milli=300, gpus=2))
    ('asked', 'Its owner asks for 30 % of each device, 2 devices.')
    >>> sentence(ev.Launched(1.0, 3, 1, 2, pid=77))
    ('launched', 'Its process runs (pid 77).')
    """
    if isinstance(event, ev.Launched):
        return "launched", f"Its process runs (pid {event.pid})."
    if isinstance(event, ev.Paused):
        if event.paused:
            return "paused", "Stopped by signal; it holds its memory and does no work."
        return "paused", "Goes on where it was stopped."
    if isinstance(event, ev.ProcessKilled):
        when = f", {format_duration(event.ago_s)} before that was seen" if event.ago_s >= _SEEN_LATE_S else ""
        total = f"; {event.count} since it was launched" if event.count > 1 else ""
        return (
            "killed",
            f"One of its processes was killed (signal {event.signal}){when}; another takes its place{total}.",
        )
    if isinstance(event, ev.Resettled):
        named = devices_named(event.devices)
        if not event.again:
            return "resettled", f"Its processes are on {named}, and on no other device any more."
        return (
            "resettled",
            f"It could not be moved in place ({show(event.detail)}): it saves and starts anew on {named}.",
        )
    asked = []
    if event.compute_milli >= 0:
        asked.append(f"{event.compute_milli / 10:g} % of each device")
    if event.compute_limit_milli >= 0:
        asked.append(f"at most {event.compute_limit_milli / 10:g} % of each device")
    if event.memory_bytes >= 0:
        asked.append(f"{format_bytes(event.memory_bytes)} on each device")
    if event.gpus >= 0:
        asked.append(plural(event.gpus, "device"))
    return "asked", f"Its owner asks for {', '.join(asked) or 'nothing else'}."


def goes_to(event: ev.Resized) -> str:
    """Where a resize takes a job, without the full stop.

    >>> goes_to(ev.Resized(1.0, 3, 1, (0,))), goes_to(ev.Resized(1.0, 3, 1, (0, 1), in_place=True))
    ('Now holds device 0', 'Goes to devices 0, 1 without a restart, holding what it leaves until it is there')
    """
    named = devices_named(event.devices)
    if event.in_place:
        return f"Goes to {named} without a restart, holding what it leaves until it is there"
    return f"Now holds {named}"


def how_ended(event: ev.Ended) -> str:
    """Exit code, signal and what else is known of an end, in brackets; empty in simulations.

    >>> how_ended(ev.Ended(1.0, 0, 1, "failed", 5.0, code=-9, detail="out of memory"))
    ' (signal 9: out of memory)'
    >>> how_ended(ev.Ended(1.0, 0, 1, "failed", 5.0, code=3, detail="left with code 3"))
    ' (exit code 3)'
    """
    code = f"signal {-event.code}" if event.code < 0 else f"exit code {event.code}" if event.code else ""
    detail = "" if event.detail == f"left with code {event.code}" else event.detail
    told = ": ".join(part for part in (code, show(detail) if detail else "") if part)
    return f" ({told})" if told else ""


def seen_late(event: ev.Ended) -> str:
    """How much later an end was seen, if no scheduler ran then; empty if one did.

    >>> seen_late(ev.Ended(41.0, 0, 1, "done", 5.0, ago_s=40.0)), seen_late(ev.Ended(41.0, 0, 1, "done", 5.0))
    (' Seen 40s later.', '')
    """
    return f" Seen {format_duration(event.ago_s)} later." if event.ago_s >= _SEEN_LATE_S else ""


def amount(work_s: float, job: Job | None) -> str:
    """So much work; of an elastic job with the size that it is counted for.

    >>> amount(40.0, Job(0, "a", 0.0)), amount(40.0, Job(0, "a", 0.0, min_gpus=1, max_gpus=2))
    ('40s of work', '40s of work (as on 1 device alone)')
    """
    size = f" (as on {plural(job.gpus, 'device')} alone)" if job is not None and job.max_gpus else ""
    return f"{format_duration(work_s)} of work{size}"


def work_in_words(event: ev.Ended, job: Job | None = None, saved_s: float = 0.0) -> str:
    """What an attempt did, and what of it must be done again.

    Parameters
    ----------
    event : Ended
    job : Job, optional
        Whose it was.
    saved_s : float
        How much of the work is in a state that was saved when it last made room.

    >>> work_in_words(ev.Ended(1.0, 0, 1, "failed", 5.0, 5.0)), work_in_words(ev.Ended(1.0, 0, 1, "lost", 2.0, 3.0))
    ('5s of work, all of it lost', '2s of useful work, 3s of work lost')
    >>> work_in_words(ev.Ended(1.0, 0, 1, "lost", 2.0, 3.0, final=False, own=True))
    '5s of work; it goes on from a checkpoint of its own if it keeps one, else from the beginning'
    """
    done = amount(event.work_s, job)
    if event.own and not event.final:
        whole = event.work_s if event.outcome == "failed" else event.work_s + event.lost_s
        return f"{amount(whole, job)}; it goes on {ITSELF}"
    if event.outcome == "failed" and 0.0 < event.work_s <= event.lost_s:
        if event.final and saved_s:
            return f"{done}, of no use as it failed; the state it last saved holds {format_duration(saved_s)} of it"
        return f"{done}, all of it lost"
    lost = f", {format_duration(event.lost_s)} of work lost" if event.lost_s else ""
    return f"{done.replace(' of work', ' of useful work', 1)}{lost}"
