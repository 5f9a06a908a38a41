"""Goodput-driven sizes of elastic jobs, after Pollux (OSDI'21); a greedy search takes the genetic one's place.

Card: ``docs/policies/pollux.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Plan, Resize, Start, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_resize
from cotenant.model.view import View
from cotenant.policies.elastic.goodput import Want, allot, efficiency, realloc_factor
from cotenant.policies.elastic.newcomers import Running
from cotenant.policies.elastic.workplan import Planner, is_elastic
from cotenant.policies.fifo import Fifo
from cotenant.policies.preemption.repack import Wish, fixed, repack, sound_devices

__all__ = ["Pollux"]

_FILL, _STRICT = Fifo(head_of_line=False), Fifo()
_LOOK = 1000
"""Waiting jobs looked at in a round."""


class _Elastics(Running):
    """Elastic jobs that run (``jobs``) and that wait."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.waiting = {r.id for r in view.queue if is_elastic(r.job)}

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        if is_elastic(record.job):
            self.waiting.add(record.id)

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        self.waiting.discard(record.id)


class _Sizing(NamedTuple):
    """A job in a round: the type it is or will be on, and the least and most devices."""

    record: JobRecord
    kind: int
    least: int
    most: int


class Pollux(Params):
    """Every ``period_s``, elastic jobs get as many devices as raise the harmonic mean of speedups most.

    Parameters
    ----------
    period_s : float
        Seconds between two allocations.
    noise_scale : float
        Gradient noise scale in declared batches: how much larger a batch may be before examples are worth
        less. A job's batch grows with its devices beyond ``gpus``, unless logical workers keep it.
    patience_s : float
        If the head of the queue has waited longer than this, nobody starts or grows before it has its devices.

    Raises
    ------
    ConfigError
        If a parameter is out of range.

    References
    ----------
    A. Qiao and others, "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI
    2021, usenix.org/conference/osdi21/presentation/qiao.
    """

    made_for = "elastic-jobs"

    def __init__(
        self, *, period_s: float = 60.0, noise_scale: float = 10.0, patience_s: float = 28800.0
    ) -> None:
        for name, value in (("period_s", period_s), ("noise_scale", noise_scale), ("patience_s", patience_s)):
            if not 0.0 < value < math.inf:
                raise ConfigError(f"{name} of pollux must be positive and finite, found {value}")
        self.period_s, self.noise_scale, self.patience_s = period_s, noise_scale, patience_s

    def decide(self, view: View) -> Plan:
        """Allocate anew if that is due; else carry it out; else start what fits."""
        elastic = view.index(_Elastics)
        memo, number = view.memo, math.floor(view.now / self.period_s)
        fresh = False
        if (elastic.jobs or elastic.waiting) and (memo is None or memo["round"] < number):
            memo, fresh = self._allocate(view, number), True
        plan = _carry_out(view, memo) if memo and memo["round"] == number else None
        if plan is None and view.pending_count:
            plan = (_STRICT if self._overdue(view) else _FILL).decide(view)
        plan = plan or EMPTY
        wake = (number + 1) * self.period_s if elastic.jobs and not plan.again else None
        if fresh:
            return Plan(plan.decisions, memo, wake, again=plan.again)
        return Plan(plan.decisions, wake_at_s=wake, again=plan.again) if wake is not None else plan

    def _overdue(self, view: View) -> bool:
        head = view.head()
        return head is not None and view.now - head.queued_s > self.patience_s

    # -- the allocation --------------------------------------------------------------------

    def _allocate(self, view: View, number: int) -> dict[str, Any]:
        planner = Planner(view, hetero=False, most_waste=1.0)
        pinned, sizings, left = self._admit(view)
        moves = {int(j): n for j, n in (view.memo or {}).get("moves", ()) if int(j) in view.records}
        jobs = len(view.running) + view.pending_count
        parts = tuple(count / max(jobs, 1) for count in sound_devices(view))
        wants = [
            Want(s.record.id, s.kind, s.least, s.most, self._speedups(view, planner, s, moves, parts))
            for s in sizings
            if s.most > s.least
        ]
        counts = allot(wants, [0] * len(left) if self._overdue(view) else left)
        # Running jobs first: they are in the order of their start.
        wishes = [Wish(s.record, s.kind, counts.get(s.record.id, s.least)) for s in sizings]
        to = _placed(view, wishes, sizings, pinned)
        for job_id in to:
            if view.records[job_id].status == Status.RUNNING:
                moves[job_id] = moves.get(job_id, 0) + 1
        return {
            "round": number,
            "at_s": view.now,
            "moves": [[j, n] for j, n in sorted(moves.items())],
            "to": [[j, *at] for j, at in sorted(to.items())],
        }

    def _admit(self, view: View) -> tuple[set[int], list[_Sizing], list[int]]:
        """Who keeps all that it has; the others with the least that they need; and what is left."""
        layout, books = view.layout, view.books
        left, used = list(sound_devices(view)), Counter[str]()
        pinned, sizings = set[int](), list[_Sizing]()
        for record in view.running.values():
            if record.place is None or not record.place.devices:
                continue
            held, kind = len(record.place.devices), layout.device_type[record.place.devices[0]]
            if not is_elastic(record.job) or fixed(view, record):
                pinned.add(record.id)
                left[kind] -= _sound(view, record)
                used[record.job.tenant] += held
                continue
            least, most = _range(view, record, kind)
            sizings.append(_Sizing(record, kind, least, min(most, max(least, 2 * held))))
            left[kind] -= least
            used[record.job.tenant] += least
        overdue = self._overdue(view)
        for record in islice(view.queue, 1 if overdue else _LOOK):
            if not any(n > 0 for n in left):
                break
            if not record.shape.gpus:
                continue
            tenant, limit = record.job.tenant, books.limits.get(record.job.tenant, math.inf)
            for kind in record.shape.types:
                least, most = _range(view, record, kind)
                if least <= left[kind] and used[tenant] + least <= limit:
                    sizings.append(_Sizing(record, kind, least, most))
                    left[kind] -= least
                    used[tenant] += least
                    break
        return pinned, _within_limits(sizings, books.limits, used), [max(0, n) for n in left]

    def _speedups(
        self,
        view: View,
        planner: Planner,
        sizing: _Sizing,
        moves: dict[int, int],
        parts: tuple[float, ...],
    ) -> tuple[float, ...]:
        """Goodput of each size over that of an equal part of the type's devices; less the price of a change."""
        record, kind = sizing.record, sizing.kind
        fair = min(max(parts[kind], record.job.min_gpus), record.job.max_gpus)
        yardstick = self._goodput(view, planner, record, kind, max(1, round(fair)))
        held = len(record.place.devices) if record.place is not None else 0
        factor = 1.0
        if held:
            age_s, price_s = view.now - record.job.submit_s, view.settings.reload_s(record.job)
            factor = realloc_factor(age_s, moves.get(record.id, 0), price_s)
        return tuple(
            self._goodput(view, planner, record, kind, n) / yardstick * (factor if n != held else 1.0)
            for n in range(sizing.least, sizing.most + 1)
        )

    def _goodput(self, view: View, planner: Planner, record: JobRecord, kind: int, count: int) -> float:
        throughput = planner.outcome(record.job, Counter({kind: count}))[0]
        if view.settings.elastic_speed == "workers":
            return throughput
        return throughput * efficiency(count / record.job.gpus, self.noise_scale)


def _sound(view: View, record: JobRecord) -> int:
    """Devices of a job that are counted as there."""
    ledger, layout = view.ledger, view.layout
    devices = record.place.devices if record.place is not None else ()
    return sum(ledger.usable[d] and not ledger.draining[layout.device_node[d]] for d in devices)


def _range(view: View, record: JobRecord, kind: int) -> tuple[int, int]:
    """Least and most devices of a type for a job; a gang that may not span stays within a node."""
    job = record.job
    if not is_elastic(job):
        return job.gpus, job.gpus
    layout = view.layout
    widest = max(layout.bay_size[b] for b in layout.type_bays[kind])
    most = job.max_gpus if record.shape.spans else min(job.max_gpus, widest)
    return job.min_gpus, max(most, job.min_gpus)


def _within_limits(sizings: list[_Sizing], limits: dict[str, int], used: Counter[str]) -> list[_Sizing]:
    """Jobs of tenants with a ceiling may grow by what is left of it, the first of them first."""
    found = []
    for sizing in sizings:
        limit = limits.get(sizing.record.job.tenant)
        if limit is not None:
            spare = max(0, limit - used[sizing.record.job.tenant])
            most = min(sizing.most, sizing.least + spare)
            used[sizing.record.job.tenant] += most - sizing.least
            sizing = sizing._replace(most=most)  # noqa: PLW2901
        found.append(sizing)
    return found


def _placed(
    view: View, wishes: list[Wish], sizings: list[_Sizing], pinned: set[int]
) -> dict[int, tuple[int, ...]]:
    """Devices of those that get others than they hold; who finds no room in one piece gets fewer."""
    least = {s.record.id: s.least for s in sizings}
    placed: dict[int, tuple[int, ...]] = {}
    for _ in range(4):
        placed, _way = repack(view, wishes, pinned)
        short = {w.record.id for w in wishes if w.record.id not in placed and w.gpus > least[w.record.id]}
        if not short:
            break
        wishes = [
            w._replace(gpus=max(least[w.record.id], w.gpus // 2)) if w.record.id in short else w
            for w in wishes
        ]
    found = {}
    for job_id, devices in placed.items():
        place = view.records[job_id].place
        if place is None or place.devices != devices:
            found[job_id] = devices
    return found


def _carry_out(view: View, memo: dict[str, Any]) -> Plan | None:
    """The first step of the allocation that is possible now; shrinking makes room for the rest.

    Who has started since, elsewhere, stays there.
    """
    for job_id, *listed in memo["to"]:
        record, devices = view.records.get(job_id), tuple(listed)
        if record is None:
            continue
        if record.status == Status.PENDING:
            if view.refusal(record, devices) is None:
                why = Why("goodput-start", {"gpus": len(devices)})
                return Plan((Start(job_id, devices, why=why),), again=True)
        elif record.place is not None and record.place.devices != devices and record.started_s < memo["at_s"]:
            held = record.place
            if check_resize(view.books, record, devices, held.share, view.now) is None:
                rule = "goodput-grow" if len(devices) > len(held.devices) else "goodput-shrink"
                rule = "goodput-move" if len(devices) == len(held.devices) else rule
                why = Why(rule, {"gpus_before": len(held.devices), "gpus_after": len(devices)})
                return Plan((Resize(job_id, devices, why=why),), again=True)
    return None
