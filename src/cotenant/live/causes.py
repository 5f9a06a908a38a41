"""Why a job waits now: what the policy said of it, as far as that still holds, else what stands in its way.

A policy says why a job waits when it first finds that it does, and that is logged once. What it then said of
devices, limits and of who is ahead can be held against the picture of now, whenever somebody asks: that costs the log
nothing, and what is shown is not older than the question. What only the policy can judge stays as it said it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.live.entries import Entry, saved_words, sentence
from cotenant.live.fold import LiveFold
from cotenant.model.plan import Reason
from cotenant.model.quantities import format_duration
from cotenant.report.phrases import facts_in_words, plural
from cotenant.report.reasons import meaning

__all__ = ["Causes", "Present"]

_CEILING = (Reason.TENANT_LIMIT, Reason.TENANT_CAPACITY_ZERO)
_CHECKED = frozenset(
    {"", Reason.NO_CAPACITY, Reason.FRAGMENTED, Reason.DEVICE_UNAVAILABLE, Reason.BEHIND_HEAD, *_CEILING}
)
"""What the picture alone can tell to hold or not."""
_BESIDE = frozenset(
    {Reason.MEMORY, Reason.COMPUTE, Reason.SHARERS, Reason.ISOLATION, Reason.SLOWDOWN, Reason.FOREIGN_USE}
)
"""What says that it cannot be beside others: over, once a device is free."""
_SHORT = (Reason.NO_CAPACITY, Reason.FRAGMENTED, Reason.DEVICE_UNAVAILABLE)


class Present(msgspec.Struct, frozen=True):
    """What stands in a job's way now; ``reason`` is empty if nothing that has a name does."""

    reason: str = ""
    facts: dict[str, Any] = {}
    words: str = ""


class Causes(LiveFold):
    """The part of the picture that says why jobs wait. Not locked: who asks holds the lock.

    Attributes
    ----------
    quantum_s : float
        So long the policy lets a job work at a stretch before it takes devices from it; 0: not known.
    """

    quantum_s = 0.0

    def name_of(self, device: int) -> str:
        """What a device is called."""
        raise NotImplementedError

    def _waits(self, entry: Entry) -> bool:
        return entry.status in ("waiting", "suspended") and not entry.held

    def _ranks(self) -> dict[int, int]:
        """How many jobs that take part are ahead of each waiting one: higher priority, else submitted before."""
        waiting = [self._entries[i] for i in self._waiting]
        part = sorted(
            (e for e in waiting if self._waits(e) and not e.after), key=lambda e: (-e.priority, e.job.id)
        )
        return {entry.job.id: rank for rank, entry in enumerate(part)}

    def _present(self, entry: Entry, ahead: int) -> Present:
        """Why a waiting job does not run."""
        if entry.after and not entry.hold:
            return Present(words=sentence(entry, ahead))
        if nothing := self._starts_nothing(entry):
            return Present(Reason.DEVICE_UNAVAILABLE, {}, f"{saved_words(entry)}{nothing}")
        reason, facts = self._cause(entry, ahead)
        if not reason:
            return Present(words=saved_words(entry) + self._undecided(entry))
        if reason == Reason.BEHIND_HEAD and ahead:
            told = f"{plural(ahead, 'job')} {'is' if ahead == 1 else 'are'} ahead of it in the queue"
        else:
            beside = self._giver(entry) if reason in _BESIDE or reason in _SHORT else ""
            told = meaning(reason) + beside + (f" ({facts_in_words(facts)})" if facts else "")
        if reason in _SHORT and entry.job.gpus and (drained := self._drained_words()):
            told = f"{drained}; {told}"
        return Present(reason, facts, f"{saved_words(entry)}not now: {told}")

    def _giver(self, entry: Entry) -> str:
        """Of an elastic job that could do with fewer devices, when it may be made to; empty if there is none."""
        if not entry.job.gpus or not self.quantum_s:
            return ""
        on = sorted({job_id for ids in self._on.values() for job_id in ids} - {entry.job.id})
        for one in map(self._entries.__getitem__, on):
            if one.status == "running" and one.job.max_gpus and len(one.devices) > one.job.min_gpus:
                held, worked = plural(len(one.devices), "device"), format_duration(self.quantum_s)
                return f"; job {one.job.id}, elastic on {held}, gives none of them before it has worked for {worked} at a stretch"
        return ""

    def _cause(self, entry: Entry, ahead: int) -> tuple[str, dict[str, Any]]:
        """A reason and its numbers; both empty if nothing is known that keeps it."""
        job, said = entry.job, (entry.hold, entry.facts)
        if found := self._ceiling(entry):
            return found
        if entry.hold not in _CHECKED | _BESIDE or (not job.gpus and entry.hold not in _CEILING):
            return said if entry.hold or not ahead else (Reason.BEHIND_HEAD, {})
        fits = [n for n, kind in enumerate(self._types) if self._fits(entry, n, kind)]
        taken = {d for i, devices in self._reserved.items() if i != job.id for d in devices}
        empty = set(self._free()[0]).intersection(fits)
        needs = job.min_gpus if job.max_gpus else job.gpus
        if len(empty - taken) >= needs:
            return (Reason.BEHIND_HEAD, {}) if ahead else ("", {})
        if entry.hold in _BESIDE:
            return said
        if not entry.hold and ahead:  # nobody has looked at it yet
            return Reason.BEHIND_HEAD, {}
        if len(empty) >= needs:
            return Reason.RESERVED, {"needs_gpus": needs, "free_gpus": len(empty)}
        usable = [d for d in fits if d not in self._down and d not in self._drained_devices]
        if len(usable) < needs:
            return Reason.DEVICE_UNAVAILABLE, {"needs_gpus": needs, "usable_gpus": len(usable)}
        if entry.hold == Reason.FRAGMENTED:
            return said
        return Reason.NO_CAPACITY, {"needs_gpus": needs, "free_gpus": len(empty)}

    def _fits(self, entry: Entry, device: int, kind: str) -> bool:
        """Whether a job could ever be there."""
        job, memory = entry.job, self._memory[device] if device < len(self._memory) else 0
        return (not job.device_types or kind in job.device_types) and (
            not memory or job.memory_bytes <= memory
        )

    def _ceiling(self, entry: Entry) -> tuple[str, dict[str, Any]] | None:
        limit = self._limits.get(entry.job.tenant)
        used = 0 if limit is None else self._held_by(entry.job.tenant)
        if limit is None or used + entry.job.gpus <= limit:
            return None
        facts = {
            "tenant": entry.job.tenant,
            "limit_gpus": limit,
            "used_gpus": used,
            "needs_gpus": entry.job.gpus,
        }
        return (Reason.TENANT_LIMIT if limit else Reason.TENANT_CAPACITY_ZERO), facts

    def _undecided(self, entry: Entry) -> str:
        """Nothing that is known keeps it; the policy has not started it yet."""
        if not entry.hold:
            return "its turn is next"
        free = plural(len(self._free()[0]), "device")
        return f"not now: {free} free, and the policy has not started it yet; before, it said: {meaning(entry.hold)}"

    def _starts_nothing(self, entry: Entry) -> str:
        """Why nothing at all is started, if that is so."""
        if self._drained:
            return "nothing new is started until cotenant undrain"
        if entry.job.gpus and self._types and len(self._drained_devices) == len(self._types):
            return "every device is drained until cotenant undrain --device NAME"
        return ""

    def _free(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Devices on which a job could start, and those that stand idle because they are drained."""
        empty = [
            device
            for device in range(len(self._types))
            if not self._on.get(device) and device not in self._down and device not in self._foreign
        ]
        away = set(empty) if self._drained else self._drained_devices.intersection(empty)
        return tuple(d for d in empty if d not in away), tuple(sorted(away))

    def _drained_words(self) -> str:
        """Idle devices that are drained, and what would let jobs start there; empty if there is none."""
        names = [self.name_of(device) for device in self._free()[1]]
        if not names or self._drained:
            return f"{names[0]} is drained until cotenant undrain" if names else ""
        if len(names) == 1:
            return f"{names[0]} is drained until cotenant undrain --device {names[0]}"
        return f"{', '.join(names[:8])} are drained until cotenant undrain --device NAME"

    def _held_by(self, tenant: str) -> int:
        holders = {job_id for there in self._on.values() for job_id in there}
        entries = [e for job_id in holders if (e := self._entries[job_id]).job.tenant == tenant]
        return sum(len(e.settles or e.devices) for e in entries)
