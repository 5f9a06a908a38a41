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
from cotenant.policies.gavel_round import Round
from cotenant.policies.repack import repack

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
        max_classes: int = 256,
    ) -> None:
        if not 0.0 < round_s < math.inf:
            raise ConfigError(f"round_s of gavel must be positive and finite, found {round_s}")
        if weights not in _WEIGHTS:
            raise ConfigError(f'weights of gavel must be one of {", ".join(_WEIGHTS)}, found "{weights}"')
        if max_classes < 1:
            raise ConfigError(f"max_classes of gavel must be 1 or more, found {max_classes}")
        self.round_s, self.weights, self.max_classes = round_s, weights, max_classes

    def decide(self, view: View) -> Plan:
        """Begin a round if one is due; else bring those to their devices who go there; else fill what is idle."""
        if not view.records or (not view.pending_count and len(view.layout.types) == 1):
            return EMPTY
        number = math.floor(view.now / self.round_s)
        memo = view.memo
        if memo is None or memo["round"] < number:
            return self._begin(view, number)
        plan = self._arrive(view, memo) or _BETWEEN.decide(view)
        if plan.again:
            return plan
        # Where nothing runs, only an event can change anything.
        wake = (number + 1) * self.round_s if view.running else None
        return Plan(plan.decisions, wake_at_s=wake)

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
        wake = (number + 1) * self.round_s if view.running and not plan.again else None
        return Plan(plan.decisions, memo, wake, again=plan.again)

    @staticmethod
    def _arrive(view: View, memo: dict[str, Any]) -> Plan | None:
        """Start one of those that a round sends somewhere; an empty plan while one waits for its devices."""
        waits = False
        for job_id, *devices in memo["to"]:
            record = view.records.get(job_id)
            if record is None or record.status == Status.RUNNING:
                continue
            at = tuple(devices)
            if record.status == Status.PENDING and view.refusal(record, at) is None:
                return Plan((Start(job_id, at, why=_TURN),), again=True)
            waits = waits or record.status == Status.STOPPING or _emptying(view, at)
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
