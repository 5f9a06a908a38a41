"""What kept a job in the queue: the reasons given, and the decisions refused."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.model.plan import Reason
from cotenant.model.quantities import format_duration
from cotenant.report.phrases import at, facts_in_words, plural
from cotenant.report.reasons import meaning, remedy
from cotenant.report.tables import show

__all__ = ["Cause", "Refusal", "Wait", "helped"]

_CEILING = (Reason.TENANT_LIMIT, Reason.TENANT_CAPACITY_ZERO)


class Cause(msgspec.Struct, frozen=True):
    """A reason the scheduler gave, with its numbers and what the cluster looked like then."""

    t: float
    reason: str
    facts: dict[str, Any]
    free_gpus: int
    largest_hole_gpus: int
    ahead_jobs: int
    ahead_gpus: int
    asks_gpus: int = 0

    @property
    def text(self) -> str:
        """The reason in words; one that no waiting can mend says so."""
        asks, limit = self.asks_gpus, self.facts.get("limit_gpus")
        if self.reason in _CEILING and isinstance(limit, int) and asks > limit:
            return f"never fits this tenant's ceiling (asks {asks}, limit {limit})"
        return meaning(self.reason)

    @property
    def remedy(self) -> str:
        """What would end a wait for this reason."""
        gpus, limit = self.asks_gpus, self.facts.get("limit_gpus")
        if self.reason in _CEILING and isinstance(limit, int):
            tenant = show(str(self.facts.get("tenant", "")))
            if gpus > limit:
                return f"a ceiling of {gpus} GPUs or more for tenant {tenant!r}, or a job that asks for {limit} or fewer"
            used = self.facts.get("used_gpus")
            return f"an end of jobs of tenant {tenant!r} (holds {used} of its {limit}), or a higher ceiling"
        text, missing = remedy(self.reason), gpus - self.free_gpus
        if self.reason == Reason.NO_CAPACITY and missing > 0:
            text += f" ({plural(missing, 'more free GPU')} needed at {at(self.t)})"
        return text


class Refusal(msgspec.Struct):
    """A decision about the job that the rules refused, ``count`` times for one and the same reason."""

    t: float
    decision: str
    reason: str
    facts: dict[str, Any]
    count: int = 1
    last_t: float = 0.0
    wished: bool = False

    @property
    def text(self) -> str:
        """One sentence."""
        numbers = f" ({facts_in_words(self.facts)})" if self.facts else ""
        again = f" Refused {self.count:,} times, last at {at(self.last_t)}." if self.count > 1 else ""
        whose = "its owner's wish" if self.wished else "the policy's decision"
        return (
            f"REFUSED {self.reason}: {whose} to {self.decision} it breaks a rule: "
            f"{meaning(self.reason)}{numbers}.{again}"
        )


class Wait(msgspec.Struct):
    """One stay in the queue; ``end_s`` is None while it lasts, ``ahead_jobs`` waited before it.

    ``derived`` is the reason seen in the state of the cluster, where the log gives none;
    ``stopped_for`` is the better ranked job for which it was stopped before, in words.
    """

    start_s: float
    ahead_jobs: int = 0
    end_s: float | None = None
    causes: list[Cause] = []
    refusals: list[Refusal] = []
    derived: Cause | None = None
    stopped_for: str = ""

    @property
    def silent(self) -> bool:
        """True if the log gives no reason for it."""
        return not self.causes and not self.refusals

    @property
    def in_force(self) -> Cause | Refusal | None:
        """The last reason given, or else the one derived."""
        given: list[Cause | Refusal] = [*self.causes, *self.refusals]
        return max(given, key=lambda g: g.t) if given else self.derived

    @property
    def longest_part(self) -> Cause | Refusal | None:
        """What was in force longest: a reason given, or before the first one what was derived."""
        given: list[Cause | Refusal] = sorted([*self.causes, *self.refusals], key=lambda g: g.t)
        begins = [self.start_s, *(g.t for g in given)]
        ends = [*begins[1:], self.start_s if self.end_s is None else self.end_s]
        longest = max(range(len(begins)), key=lambda i: (ends[i] - begins[i], i))
        return given[longest - 1] if longest else self.unstated

    @property
    def unstated(self) -> Cause | None:
        """What stood in its way before the log gives a reason; behind others, they did."""
        found = self.derived
        if found is None or found.reason in _CEILING or (self.silent and not self.stopped_for):
            return found
        if self.stopped_for:
            return msgspec.structs.replace(found, reason=str(Reason.LOWER_RANK), facts={})
        if self.ahead_jobs:
            return msgspec.structs.replace(found, reason=str(Reason.BEHIND_HEAD), facts={})
        return found

    def before_reasons(self, until_s: float) -> str:
        """A sentence on the part of the wait that ends with the first reason in the log."""
        lasted, found = format_duration(until_s - self.start_s), self.derived
        if self.stopped_for:
            return f"Stopped for {self.stopped_for}; waited for its rank for {lasted}."
        if found is not None and found.reason in _CEILING:
            return f"{found.reason} for {lasted}: {found.text}, as the cluster stood."
        if self.ahead_jobs:
            return f"Behind {plural(self.ahead_jobs, 'job')} of the queue for {lasted}."
        if found is None:
            return f"Waited {lasted}, for which the log gives no reason."
        return f"{found.reason} for {lasted}: {found.text}, as the cluster stood."

    @property
    def why(self) -> str:
        """The reason in force, in words; empty if none is known."""
        last = self.in_force
        if self.silent and self.stopped_for:
            return f"stopped for {self.stopped_for}; waits for its rank"
        if last is None:
            return ""
        word = "its start was refused, " if isinstance(last, Refusal) else ""
        text = last.text if isinstance(last, Cause) else meaning(last.reason)
        note = ", as the cluster stood; the log gives no reason of its own" if self.silent else ""
        return f"{word}{last.reason}: {text}{note}"


def helped(waits: tuple[Wait, ...]) -> str:
    """What would end the wait that lasts, or would have shortened the longest; empty if there was none."""
    if not waits:
        return ""
    wait = waits[-1]
    if wait.end_s is not None:
        wait = max(waits, key=lambda w: (w.end_s or w.start_s) - w.start_s)
    if wait.end_s == wait.start_s:
        return ""
    if wait.silent and wait.stopped_for:
        return f"{remedy(Reason.LOWER_RANK)}, or a policy that does not stop it for them"
    last = wait.in_force if wait.end_s is None else wait.longest_part
    if isinstance(last, Refusal):
        against = remedy(last.reason) or meaning(last.reason)
        return f"a policy that decides within the rules; against {last.reason}: {against}"
    if last is not None and wait.end_s is not None and last.reason == Reason.HELD_BY_USER:
        return ""
    if last is None:
        return "a policy that starts it: nobody was ahead of it, and the policy gave no reason to wait"
    if last not in wait.causes and last.reason == Reason.BEHIND_HEAD:
        return "an earlier start of the jobs ahead, or a policy that looks past the head of the queue"
    ahead = plural(last.ahead_jobs, "job")
    behind = (
        f"; {ahead} ahead of it" if wait.silent and last.ahead_jobs and last.reason not in _CEILING else ""
    )
    return last.remedy + behind
