"""One round of Gavel: allocation, who is behind what he is due, and what to remember of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.preemption.repack import Wish, fixed, sound_devices
from cotenant.policies.published.gavel_lp import JobClass, Shares, max_min, merged
from cotenant.policies.space.fit import Speeds

if TYPE_CHECKING:
    from cotenant.policies.gavel import Gavel

__all__ = ["Round"]

_LEAST = 1e-6
_Row = list[float]
"""Of a job: id, seconds it had held devices, then for each type the seconds it was due and those it had."""


class Round:
    """What is worked out at the start of a round.

    Attributes
    ----------
    shares : dict of int to tuple of float
        For each live job, the share of time that it should run on each type.
    rows : dict of int to list of float
        What is remembered of jobs that have run, brought up to date.
    count : int
        How many rounds this one lasts, if nobody new comes.
    """

    def __init__(self, view: View, policy: Gavel) -> None:
        self.view, self._policy = view, policy
        self._types = range(len(view.layout.types))
        self._tenants = {t.name: t.weight for t in view.cluster.tenants}
        self.devices = sound_devices(view)
        self._widest = [
            max((view.layout.bay_size[b] for b in bays), default=0) for bays in view.layout.type_bays
        ]
        self.jobs = [r for r in view.records.values() if r.shape.gpus]
        youngest_s = view.now - max((r.job.submit_s for r in self.jobs), default=view.now)
        self.count = max(1, math.floor(policy.stretch * youngest_s / policy.round_s))
        self._since_s = view.now - (view.memo or {}).get("at_s", view.now)
        self.shares = self._allocate()
        old = {int(row[0]): row for row in (view.memo or {}).get("jobs", ())}
        self.rows = {r.id: self._row(r, old.get(r.id)) for r in self.jobs if r.started_s >= 0.0}

    # -- allocation --------------------------------------------------------------------

    def _allocate(self) -> dict[int, Shares]:
        speeds, known = Speeds(self.view), dict[Any, JobClass]()
        kinds: dict[int, JobClass] = {}
        for record in self.jobs:
            weight = self._weight(record)
            key = (record.shape, record.job.model, weight)
            kind = known.get(key)
            if kind is None:
                kind = known[key] = JobClass(record.shape.gpus, weight, self._speeds(record, speeds))
            if any(kind.speeds):
                kinds[record.id] = kind
        classes = sorted(set(kinds.values()))
        reckoned = dict(zip(classes, merged(classes, self._policy.max_classes), strict=True))
        counts: dict[JobClass, int] = {}
        for kind in kinds.values():
            counts[reckoned[kind]] = counts.get(reckoned[kind], 0) + 1
        listed = tuple(sorted(counts.items()))
        solved = max_min(listed, self.devices)
        found = {kind: shares for (kind, _), shares in zip(listed, solved, strict=True)}
        return {job_id: found[reckoned[kind]] for job_id, kind in kinds.items()}

    def _speeds(self, record: JobRecord, speeds: Speeds) -> tuple[float, ...]:
        """Forecast speed on each type; 0 where the job cannot run at all."""
        shape, row = record.shape, [0.0] * len(self._types)
        for kind in shape.types:
            if shape.gpus <= self.devices[kind] and (shape.gpus <= self._widest[kind] or shape.spans):
                row[kind] = speeds.of(record.job.model, kind)
        return tuple(row)

    def _weight(self, record: JobRecord) -> float:
        if self._policy.weights == "priorities":
            return float(max(1, record.priority))
        if self._policy.weights == "tenants":
            return self._tenants.get(record.job.tenant, 1.0)
        return 1.0

    # -- what each is due ----------------------------------------------------------------

    def _row(self, record: JobRecord, old: _Row | None) -> _Row:
        """Bring a job up to date: what it has run since goes to the type that it is on."""
        types = len(self._types)
        total = self.view.attained_s(record) / record.shape.gpus
        if old is None:
            shares, age = self._shares(record), self.view.now - record.job.submit_s
            row = [float(record.id), 0.0, *(s * age for s in shares), *([0.0] * types)]
        else:
            row = list(old)
            for kind, share in enumerate(self._shares(record)):
                row[2 + kind] += share * self._since_s
        if record.place is not None:
            kind = self.view.layout.device_type[record.place.devices[0]]
        else:
            kind = next((k for k in self._types if old is not None and self._shares(record)[k] > 0.0), -1)
            kind = record.shape.types[0] if kind < 0 else kind
        row[2 + types + kind] += max(0.0, total - row[1])
        row[1] = total
        return row

    def _shares(self, record: JobRecord) -> Shares:
        return self.shares.get(record.id, (0.0,) * len(self._types))

    def ranked(self) -> list[tuple[tuple[int, float, int], JobRecord, int]]:
        """Jobs with types that they should run on, those first that are most behind."""
        size, types, now = self.count * self._policy.round_s, len(self._types), self.view.now
        found: list[tuple[tuple[int, float, int], JobRecord, int]] = []
        for record in self.jobs:
            if record.status == Status.STOPPING or record.id not in self.shares:
                continue
            row = self.rows.get(record.id)
            for kind, share in enumerate(self.shares[record.id]):
                if share <= _LEAST:
                    continue
                if row is None:
                    # As in the paper: who has received nothing goes before all that have.
                    place = (0, -share * (now - record.job.submit_s + size), record.id)
                else:
                    due = row[2 + kind] + share * size
                    place = (1, -due / (row[2 + types + kind] + size), record.id)
                found.append((place, record, kind))
        found.sort(key=lambda entry: (entry[0], entry[2]))
        return found

    def wishes(self) -> list[Wish]:
        """Who should run in this round, and on which type: as many as the devices suffice for."""
        view, books = self.view, self.view.books
        left, used, chosen = list(self.devices), dict[str, int](), set[int]()
        for record in view.running.values():
            if record.shape.gpus and fixed(view, record):
                chosen.add(record.id)
                used[record.job.tenant] = used.get(record.job.tenant, 0) + record.shape.gpus
                if record.place is not None:
                    left[view.layout.device_type[record.place.devices[0]]] -= record.shape.gpus
        wishes: list[Wish] = []
        for _, record, kind in self.ranked():
            gpus, tenant = record.shape.gpus, record.job.tenant
            if left[kind] < gpus or record.id in chosen:
                continue
            if used.get(tenant, 0) + gpus > books.limits.get(tenant, math.inf):
                continue
            chosen.add(record.id)
            left[kind] -= gpus
            used[tenant] = used.get(tenant, 0) + gpus
            wishes.append(Wish(record, kind, gpus))
        return wishes

    def memo(self, number: int, to: dict[int, tuple[int, ...]]) -> dict[str, Any]:
        """What to remember: when this was, each job's account, and who goes where.

        While nobody waits, nobody is behind: accounts begin anew.
        """
        rows = self.rows.values() if self.view.pending_count else ()
        return {
            "round": number,
            "next": number + self.count,
            "seen": self.view.shapes.jobs,
            "at_s": self.view.now,
            "jobs": sorted([int(row[0]), *(round(v, 2) for v in row[1:])] for row in rows),
            "to": [[job_id, *devices] for job_id, devices in sorted(to.items())],
        }
