"""Packing judged by measurement: try a pair in one turn, compare speeds before and after, undo what does not pay.

Gandiva (OSDI'18, section 4.2): in overload only, after each job has run alone in its turns for a while;
the least busy jobs first. What did not pay is remembered by models, so that the memory stays small
and is not tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cotenant.model.plan import Decision, Move, Resize, Why
from cotenant.model.ports import Forecast, shares_of
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_move, check_resize
from cotenant.model.view import View
from cotenant.policies.published.slots import Slots, is_settled, measured_alone, turns_at, without_switching
from cotenant.policies.queues.demands import domain_of

__all__ = ["Memory", "Packing", "Step"]

_LOOK_AT = 8
"""How many hosts of a kind are looked at for a guest from elsewhere."""


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What is remembered from call to call, as the policy's memo.

    Parameters
    ----------
    alone : dict of str to dict of str to float
        Measured speed alone, by size and device type, and by model.
    bad : dict of str to dict of str to float
        Measured sums of both speeds relative to alone that did not pay, by size and device type, and by
        pair of models.
    trials : dict of str to list
        Pairs now being measured: by guest, the host and since when.
    idle : dict of str to float
        Bays in which an elastic job could grow: seen with free devices since when.
    """

    alone: dict[str, dict[str, float]] = {}
    bad: dict[str, dict[str, float]] = {}
    trials: dict[str, list[float]] = {}
    idle: dict[str, float] = {}

    @classmethod
    def of(cls, memo: Any) -> Memory:
        """From a view's memo."""
        return cls(**memo) if memo else cls()

    def tried(self) -> set[int]:
        """Jobs of pairs that are being measured."""
        return {int(i) for i in self.trials} | {int(host) for host, _ in self.trials.values()}

    def plain(self) -> dict[str, Any]:
        """As plain JSON, without what is empty."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}


class Step(NamedTuple):
    """Decisions, what to remember (None: nothing new), and when to look again."""

    decisions: tuple[Decision, ...] = ()
    memory: Memory | None = None
    wake_at_s: float | None = None


class _Kind(NamedTuple):
    """Jobs that are alike for packing: the least busy first."""

    busy: float
    memory_bytes: int
    model: str
    domain: tuple[str, ...]


class Packing(NamedTuple):
    """How pairs are tried and judged.

    Parameters
    ----------
    trial_s : float
        Seconds of undisturbed running after which a pair is judged, and turns of which a job must have run alone.
    least_sum : float
        What both speeds relative to alone must add up to, at least a little more than this.
    most_loss : float
        See ``slots.is_settled``; for pairs that need a move.
    most : int
        Most residents of a slot.
    period_s : float
        Seconds between two looks.
    """

    trial_s: float
    least_sum: float
    most_loss: float
    most: int
    period_s: float

    # -- judging -----------------------------------------------------------------------

    def judge(self, view: View, memory: Memory) -> Step:
        """Pairs whose trial is over: keep those that pay, undo the others."""
        if not memory.trials:
            return Step()
        bad, left, undo = memory.bad, {}, []
        wake = None
        for guest_id, (host_id, since_s) in memory.trials.items():
            guest, host = view.running.get(int(guest_id)), view.running.get(int(host_id))
            if guest is None or host is None or not _together(guest, host):
                continue
            due = max(since_s, guest.rated_s, host.rated_s) + self.trial_s
            if view.now < due or guest.rate <= 0.0 or host.rate <= 0.0:
                left[guest_id] = [host_id, since_s]
                if guest.rate > 0.0 and host.rate > 0.0:
                    wake = due if wake is None else min(wake, due)
                continue
            measured = _sum(view, memory, guest, host)
            if measured <= self.least_sum:
                if measured:  # 0: how fast they are alone there is not known
                    bad = _with(bad, view, guest, _pair(guest.job.model, host.job.model), measured)
                undo += self._apart(view, guest, host, measured)
        if len(left) == len(memory.trials):
            return Step(wake_at_s=wake)
        new = msgspec.structs.replace(memory, bad=bad, trials=left)
        return Step(tuple(undo), new, wake)

    def watch(self, view: View, memory: Memory) -> Step:
        """Pairs kept before that do not pay any more."""
        slots, running = view.index(Slots), view.running
        tried = memory.tried()
        bad, undo = memory.bad, list[Decision]()
        for slot in tuple(slots.packed):
            for mates in slots.groups[slot].values():
                if len(mates) != 2 or not tried.isdisjoint(mates):
                    continue
                host, guest = running[mates[0]], running[mates[1]]
                measured_s = view.now - max(guest.rated_s, host.rated_s)
                # What has gone on unchanged for longer was judged at the last look.
                if not self.trial_s <= measured_s <= self.trial_s + self.period_s or not _together(
                    guest, host
                ):
                    continue
                measured = _sum(view, memory, guest, host)
                if 0.0 < measured <= self.least_sum:
                    bad = _with(bad, view, guest, _pair(guest.job.model, host.job.model), measured)
                    undo += self._apart(view, guest, host, measured)
        return Step(tuple(undo), msgspec.structs.replace(memory, bad=bad) if undo else None)

    @staticmethod
    def _apart(view: View, guest: JobRecord, host: JobRecord, measured: float) -> list[Decision]:
        if guest.place is None:
            return []
        devices, share = guest.place.devices, msgspec.structs.replace(guest.place.share, turn=-1)
        if check_resize(view.books, guest, devices, share, view.now) is not None:
            return []
        facts = {"with": host.id, "sum_of_speeds": measured, "sum_of_turns": 1.0}
        return [Resize(guest.id, devices, share, Why("unpack", facts))]

    # -- trying ------------------------------------------------------------------------

    def seek(self, view: View, memory: Memory) -> Step:
        """Put new pairs on trial, none whose models did not pay before."""
        decisions: list[Decision] = []
        alone, trials = memory.alone, dict(memory.trials)
        search = _Search(view, self, memory)
        for size in sorted(search.slots.levels):
            for guest, host in search.pairs(size):
                packed = self._pack(view, guest, host)
                if not packed:
                    continue
                decisions += packed
                search.used |= {guest.id, host.id}
                for record in (guest, host):
                    alone = _with(alone, view, record, record.job.model, measured_alone(view, record))
                trials[str(guest.id)] = [host.id, view.now]
                if (
                    guest.place is not None
                    and host.place is not None
                    and guest.place.devices != host.place.devices
                ):
                    search.moved |= {guest.place.devices, host.place.devices}
        if not decisions:
            return Step()
        new = msgspec.structs.replace(memory, alone=alone, trials=trials)
        return Step(tuple(decisions), new, view.now + self.trial_s)

    @staticmethod
    def _pack(view: View, guest: JobRecord, host: JobRecord) -> list[Decision]:
        """Both in the host's turn; the guest comes over if it is elsewhere."""
        if guest.place is None or host.place is None:
            return []
        turn, devices = host.id, host.place.devices
        theirs = msgspec.structs.replace(host.place.share, turn=turn)
        mine = msgspec.structs.replace(guest.place.share, turn=turn)
        before = {"guest_speed": guest.rate, "host_speed": host.rate}
        before["guest_alone"], before["host_alone"] = measured_alone(view, guest), measured_alone(view, host)
        decisions: list[Decision] = []
        if host.place.share != theirs:
            if check_resize(view.books, host, devices, theirs, view.now) is not None:
                return []
            decisions.append(Resize(host.id, devices, theirs, Why("pack", {"with": guest.id} | before)))
        why = Why("pack", {"with": host.id} | before)
        if guest.place.devices == devices:
            # The rules must agree to what follows from both, so they are asked as if the host had moved already.
            if (
                not _fits(view, guest, host)
                or check_resize(view.books, guest, devices, mine, view.now) is not None
            ):
                return []
            return [*decisions, Resize(guest.id, devices, mine, why)]
        if not _fits(view, guest, host) or check_move(view.books, guest, devices, mine, view.now) is not None:
            return []
        return [*decisions, Move(guest.id, devices, mine, why)]


class _Search:
    """One look for pairs.

    ``used`` (jobs) and ``moved`` (slots that somebody leaves or enters) grow while it goes on.
    """

    def __init__(self, view: View, rules: Packing, memory: Memory) -> None:
        self._view, self._rules, self._bad = view, rules, memory.bad
        self.slots = view.index(Slots)
        self.used: set[int] = set()
        self.moved: set[tuple[int, ...]] = set()
        self._forecast = _forecast(view)
        self._busy: dict[tuple[str, str], float] = {}
        self._kinds: dict[int, _Kind] = {}

    def pairs(self, size: tuple[int, int]) -> Iterator[tuple[JobRecord, JobRecord]]:
        """Guest and host: least busy guests first, hosts on the same slot before others."""
        jobs = self._candidates(size)
        room = self._view.layout.types[size[0]].memory_bytes
        order, some = sorted(jobs), {kind: records[0] for kind, records in jobs.items()}
        for kind in order:
            bad = self._bad.get(_where(self._view, some[kind]), {})
            good = {
                other: None
                for other in order
                if other.domain == kind.domain
                and kind.memory_bytes + other.memory_bytes <= room
                and _pair(kind.model, other.model) not in bad
            }
            for guest in tuple(jobs[kind]):
                if guest.id not in self.used and (host := self._host(guest, jobs, good)) is not None:
                    yield guest, host

    def _host(
        self, guest: JobRecord, jobs: dict[_Kind, list[JobRecord]], good: dict[_Kind, None]
    ) -> JobRecord | None:
        if guest.place is None:
            return None
        here = guest.place.devices
        mates = [
            (kind, job_id)
            for job_id in self._view.ledger.residents[here[0]]
            if job_id not in self.used and job_id != guest.id and (kind := self._kinds.get(job_id)) in good
        ]
        if mates:
            return self._view.records[min(mates)[1]]
        if here in self.moved or not is_settled(self._view, guest, self._rules.most_loss):
            return None
        for kind in good:
            if (host := self._elsewhere(jobs[kind], here)) is not None:
                return host
        return None

    def _elsewhere(self, hosts: list[JobRecord], here: tuple[int, ...]) -> JobRecord | None:
        """The first of some hosts that is not taken and has room for a resident; few are looked at."""
        while hosts and hosts[0].id in self.used:
            hosts.pop(0)
        residents = self._view.ledger.residents
        for host in hosts[:_LOOK_AT]:
            place = host.place
            if host.id in self.used or place is None or place.devices == here or place.devices in self.moved:
                continue
            if len(residents[place.devices[0]]) < self._rules.most:
                return host
        return None

    def _candidates(self, size: tuple[int, int]) -> dict[_Kind, list[JobRecord]]:
        """Jobs of crowded slots that are alone in their turn and have been profiled, by kind."""
        view, found = self._view, dict[_Kind, list[JobRecord]]()
        name = view.layout.types[size[0]].name
        for slot in self.slots.crowded(size):
            groups = self.slots.groups[slot]
            for mates in groups.values():
                record = view.records[mates[0]]
                model, place = record.job.model, record.place
                if len(mates) > 1 or not model or place is None or place.devices != slot:
                    continue
                profiled = view.now - record.started_s >= self._rules.trial_s * len(groups)
                if not profiled or not measured_alone(view, record):
                    continue
                busy = self._busy.get((model, name))
                if busy is None:
                    busy = self._busy[model, name] = shares_of(self._forecast, model, name)[0]
                kind = _Kind(busy, record.job.memory_bytes, model, domain_of(record.job))
                self._kinds[record.id] = kind
                found.setdefault(kind, []).append(record)
        for records in found.values():
            records.sort(key=lambda r: r.id)
        return found


def _fits(view: View, guest: JobRecord, host: JobRecord) -> bool:
    """Whether the memory of both lies within each device."""
    if guest.place is None or host.place is None:
        return False
    need = guest.place.share.memory_bytes + host.place.share.memory_bytes
    return all(need <= view.layout.device_memory[d] for d in host.place.devices)


def _together(guest: JobRecord, host: JobRecord) -> bool:
    mine, theirs = guest.place, host.place
    if mine is None or theirs is None or guest.status != Status.RUNNING or host.status != Status.RUNNING:
        return False
    return mine.devices == theirs.devices and mine.share.turn == theirs.share.turn >= 0


def _sum(view: View, memory: Memory, guest: JobRecord, host: JobRecord) -> float:
    """Both speeds while their turn lasts, relative to alone; 0 if it is not known how fast they are alone."""
    turns, _ = turns_at(view, guest)
    total = 0.0
    for record in (guest, host):
        alone = memory.alone.get(_where(view, record), {}).get(record.job.model, 0.0)
        if not alone:
            return 0.0
        total += without_switching(view, record.rate, turns) / alone
    return round(total, 6)


def _where(view: View, record: JobRecord) -> str:
    """Size and type of a running job's devices, and whether they are spread over nodes."""
    place, layout = record.place, view.layout
    if place is None:
        return ""
    spread = " spread" if len(layout.nodes_of(place.devices)) > 1 else ""
    return f"{len(place.devices)} {layout.types[layout.device_type[place.devices[0]]].name}{spread}"


def _pair(one: str, other: str) -> str:
    """Name of a pair of models."""
    return f"{one} with {other}" if one <= other else f"{other} with {one}"


def _with(
    table: dict[str, dict[str, float]], view: View, record: JobRecord, name: str, value: float
) -> dict[str, dict[str, float]]:
    """The table with one value more, for where a job runs."""
    where = _where(view, record)
    return {**table, where: {**table.get(where, {}), name: round(value, 6)}}


def _forecast(view: View) -> Forecast | None:
    try:
        return view.forecast
    except RuntimeError:
        return None
