"""Gavel: max-min fairness over device types, realised in rounds (OSDI'20).

Card: ``docs/policies/gavel.md``.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Plan, Start, Stop, Why
from cotenant.model.records import Status
from cotenant.model.view import View
from cotenant.policies.fifo import Fifo
from cotenant.policies.preemption.repack import repack
from cotenant.policies.published.gavel_round import Round

__all__ = ["Gavel"]

_WEIGHTS = ("tenants", "priorities", "equal")
_BETWEEN = Fifo(head_of_line=False)
_TURN = Why("round-share")


class Gavel(Params):
    """Shares of time on each device type by max-min fairness; in each round those run that are most behind.

    Parameters
    ----------
    round_s : float
        Length of a round.
    weights : {"tenants", "priorities", "equal"}
        What a job may claim: its tenant's weight, its priority (at least 1), or the same as any other.
    stretch : float
        A round lasts at least this part of the youngest job's age, unless somebody new comes; 0: always one round.
    max_classes : int
        Beyond so many classes of jobs, speeds are told apart by fewer digits.

    Raises
    ------
    ConfigError
        If a parameter is out of range.

    References
    ----------
    D. Narayanan and others, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
    OSDI 2020, usenix.org/conference/osdi20/presentation/narayanan-deepak.
    """

    def __init__(
        self,
        *,
        round_s: float = 360.0,
        weights: Literal["tenants", "priorities", "equal"] = "tenants",
        stretch: float = 0.02,
        max_classes: int = 256,
    ) -> None:
        if not 0.0 < round_s < math.inf:
            raise ConfigError(f"round_s of gavel must be positive and finite, found {round_s}")
        if weights not in _WEIGHTS:
            raise ConfigError(f'weights of gavel must be one of {", ".join(_WEIGHTS)}, found "{weights}"')
        if not 0.0 <= stretch < 1.0:
            raise ConfigError(f"stretch of gavel must lie in [0, 1), found {stretch}")
        if max_classes < 1:
            raise ConfigError(f"max_classes of gavel must be 1 or more, found {max_classes}")
        self.round_s, self.weights = round_s, weights
        self.stretch, self.max_classes = stretch, max_classes

    def decide(self, view: View) -> Plan:
        """Begin a round if one is due; else bring those to their devices who go there; else fill what is idle."""
        if not view.records or (not view.pending_count and len(view.layout.types) == 1):
            return EMPTY
        number = math.floor(view.now / self.round_s)
        memo = view.memo
        if memo is None or number >= self._due(view, memo):
            return self._begin(view, number)
        plan = self._arrive(view, memo) or _BETWEEN.decide(view)
        if plan.again:
            return plan
        return Plan(plan.decisions, wake_at_s=self._wake(view, memo))

    def _begin(self, view: View, number: int) -> Plan:
        this = Round(view, self)
        to, leaving = repack(view, this.wishes())
        new = {j: at for j, at in to.items() if (p := view.records[j].place) is None or p.devices != at}
        owner = {device: job_id for job_id, devices in new.items() for device in devices}
        stops: list[Decision] = []
        stopped = {r.id for r in leaving} | {j for j in new if view.records[j].status == Status.RUNNING}
        for job_id in sorted(stopped):
            record = view.records[job_id]
            devices = record.place.devices if record.place else ()
            beneficiary = next((owner[d] for d in devices if owner.get(d, job_id) != job_id), -1)
            facts: dict[str, Any] = {"round": number, "price_s": round(view.settings.reload_s(record.job), 1)}
            rule = "round-moves" if job_id in new else "round-over"
            stops.append(Stop(job_id, True, beneficiary, Why(rule, facts)))
        memo = this.memo(number, new)
        if stops:
            return Plan(tuple(stops), memo, again=True)
        plan = self._arrive(view, memo) or _BETWEEN.decide(view)
        wake = None if plan.again else self._wake(view, memo)
        return Plan(plan.decisions, memo, wake, again=plan.again)

    @staticmethod
    def _due(view: View, memo: dict[str, Any]) -> int:
        """Number of the next round: at once if somebody new has come, else when this one has lasted long enough."""
        return int(memo["next"] if view.shapes.jobs == memo["seen"] else memo["round"] + 1)

    def _wake(self, view: View, memo: dict[str, Any]) -> float | None:
        """The next round; none where only an event can change anything: nothing runs, or nobody waits and all were in place."""
        waits = view.running and (view.pending_count or memo["to"])
        return self._due(view, memo) * self.round_s if waits else None

    @staticmethod
    def _arrive(view: View, memo: dict[str, Any]) -> Plan | None:
        """Start those that a round sends somewhere; an empty plan while one waits for its devices."""
        waits, starts, residents = False, list[Decision](), view.ledger.residents
        for row in memo["to"]:
            record = view.records.get(row[0])
            if record is None or record.status == Status.RUNNING or (waits and residents[row[1]]):
                continue
            at = tuple(row[1:])
            if record.status == Status.PENDING and not residents[at[0]] and view.refusal(record, at) is None:
                starts.append(Start(record.id, at, why=_TURN))
                if not record.shape.plain or view.books.limits:
                    # The next may not have what it needs of a node or a ceiling once this one runs.
                    break
            waits = waits or record.status == Status.STOPPING or _emptying(view, at)
        if starts:
            return Plan(tuple(starts), again=True)
        return EMPTY if waits else None


def _emptying(view: View, devices: tuple[int, ...]) -> bool:
    """Whether all devices work, and those on them are all about to leave."""
    ledger, running = view.ledger, view.running
    busy = False
    for device in devices:
        if not ledger.usable[device] or ledger.draining[view.layout.device_node[device]]:
            return False
        for resident in ledger.residents[device]:
            if running[resident].status != Status.STOPPING:
                return False
            busy = True
    return busy
