"""Shortest predicted service first; pairs by sharing scores, when the cluster is loaded.

Card: ``docs/policies/lucid.md``. Source: Hu, Zhang, Sun, Wen and Zhang, "Lucid: A Non-intrusive, Scalable and
Interpretable Scheduler for Deep Learning Training Jobs", ASPLOS 2023.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Hold, Plan, Reason, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.published.lucid_pairs import Hosts, Scores, Shortest, service_s
from cotenant.policies.queues.circles import share_of

__all__ = ["Lucid"]

_NODE_WHY = Why("cpu-only")
_ALONE = Why("shortest-service")
_NOBODY = -1


class Lucid(Params):
    """Take jobs by predicted length times devices; pair those that hardly disturb each other.

    Parameters
    ----------
    gss : int
        Most that the sharing scores of a pair may add up to: tiny 0, medium 1, jumbo 2. 0 to 4.
    tiny_compute, tiny_bandwidth : float
        A job that uses less than both, as shares of a device, is tiny.
    jumbo_compute, jumbo_bandwidth : float
        A job that uses as much as either is jumbo.
    longer : float
        A newcomer may have at most this many times the predicted service of whom it joins.
    pair_first : bool
        Whether a partner goes before free devices.
    light, heavy : float
        Below ``light`` (demand over devices) nobody is paired; from ``heavy`` on pairs may score one more.
    period_s : float
        How often load is looked at, and how far ahead it is forecast.
    smoothing : float
        Weight of the latest period in the forecast of arrivals, in (0, 1].

    Raises
    ------
    ConfigError
        For a value out of range.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def __init__(
        self,
        *,
        gss: int = 2,
        tiny_compute: float = 0.25,
        tiny_bandwidth: float = 0.08,
        jumbo_compute: float = 0.6,
        jumbo_bandwidth: float = 0.3,
        longer: float = 2.0,
        pair_first: bool = True,
        light: float = 0.5,
        heavy: float = 2.0,
        period_s: float = 600.0,
        smoothing: float = 0.3,
    ) -> None:
        if not 0 <= gss <= 4:
            raise ConfigError(f"gss of lucid must be 0 to 4, found {gss}")
        scores = Scores(tiny_compute, tiny_bandwidth, jumbo_compute, jumbo_bandwidth)
        if not all(0.0 <= bound < math.inf for bound in scores):
            raise ConfigError(f"the bounds of lucid's classes must be zero or more, found {tuple(scores)}")
        if tiny_compute > jumbo_compute or tiny_bandwidth > jumbo_bandwidth:
            raise ConfigError(
                f"what is tiny for lucid must be less than what is jumbo, found {tuple(scores)}"
            )
        if not 0.0 <= light <= heavy:
            raise ConfigError(f"lucid needs 0 <= light <= heavy, found {light} and {heavy}")
        if not (longer > 0.0 and 0.0 < period_s < math.inf and 0.0 < smoothing <= 1.0):
            raise ConfigError(
                "longer and period_s of lucid must be positive and smoothing in (0, 1], "
                f"found {longer}, {period_s} and {smoothing}"
            )
        self.gss, self.longer, self.pair_first = gss, longer, pair_first
        self.tiny_compute, self.tiny_bandwidth = tiny_compute, tiny_bandwidth
        self.jumbo_compute, self.jumbo_bandwidth = jumbo_compute, jumbo_bandwidth
        self.light, self.heavy = light, heavy
        self.period_s, self.smoothing = period_s, smoothing
        self._scores = scores

    def decide(self, view: View) -> Plan:
        """Start the shortest that finds a place."""
        if not len(view.queue):
            return EMPTY
        hosts = view.index(Hosts, self._scores)
        if hosts.stale():
            view.drop_indexes()
            hosts = view.index(Hosts, self._scores)
        queue = view.index(Shortest, hosts, self.longer)
        memo = self._load(view, queue)
        most_score = self._most_score((memo or view.memo)["pressure"])
        if view.settings.max_sharers < 2:
            most_score = _NOBODY
        queue.use(most_score)
        queue.review(queue.could)
        heads = [(service_s(head), head.key, point) for point in queue.open for head in (point.head(),)]
        heads.sort(key=lambda entry: entry[:2])
        limited = bool(view.books.limits)
        for _, _, point in heads:
            record = point.head()
            start = None
            if not (limited and view.limit_refusal(record)):
                start = self._place(view, hosts, record, most_score)
            if start is not None:
                return Plan((start,), memo, again=True)
            queue.settle(point)
        holds = tuple([self._hold(view, hosts, head, most_score) for head in queue.blocked()])
        wake = None
        if queue.living and view.running and self.light > 0.0:
            wake = self.period_s * (math.floor(view.now / self.period_s) + 1)
        return Plan(holds, memo, wake)

    # -- load ------------------------------------------------------------------------

    def _load(self, view: View, queue: Shortest) -> dict[str, Any] | None:
        """Forecast the load anew if a period has begun since the last time; what to remember of it, if so.

        Demand is what is in use, what waits, and what is expected to be asked for within a period, smoothed
        exponentially over past periods.
        """
        memo, period = view.memo, math.floor(view.now / self.period_s)
        if memo is not None and memo["period"] == period:
            return None
        asked = sum([shape.gpus * shape.seen for shape in view.shapes if not shape.never])
        rate = 0.0
        if memo is not None:
            passed = period - memo["period"]
            kept = (1.0 - self.smoothing) ** passed
            rate = kept * memo["rate"] + (1.0 - kept) * (asked - memo["asked"]) / passed
        total = view.layout.device_count
        used = total - sum(view.ledger.free_count)
        pressure = (used + queue.asked_devices() + rate) / max(total, 1)
        return {
            "period": period,
            "asked": asked,
            "rate": round(rate, 6),
            "pressure": round(pressure, 6),
        }

    def _most_score(self, pressure: float) -> int:
        """What pairs may score at this load."""
        if pressure < self.light:
            return _NOBODY
        return self.gss + 1 if pressure >= self.heavy else self.gss

    # -- places ----------------------------------------------------------------------

    def _place(self, view: View, hosts: Hosts, record: JobRecord, most_score: int) -> Start | None:
        if not record.shape.gpus:
            node = view.find_node(record)
            return Start(record.id, (), why=_NODE_WHY, node=node) if node >= 0 else None
        if self.pair_first:
            return self._pair(view, hosts, record, most_score) or self._alone(view, record)
        return self._alone(view, record) or self._pair(view, hosts, record, most_score)

    @staticmethod
    def _alone(view: View, record: JobRecord) -> Start | None:
        devices = view.find(record)
        if devices is None:
            return None
        share = share_of(record.job, view.layout.device_memory[devices[0]])
        return Start(record.id, devices, share, _ALONE)

    def _pair(self, view: View, hosts: Hosts, record: JobRecord, most_score: int) -> Start | None:
        for host, (mine, theirs) in hosts.partners(record, most_score, self.longer):
            if host.place is None:
                continue
            devices = host.place.devices
            share = share_of(record.job, view.layout.device_memory[devices[0]])
            if view.refusal(record, devices, share) is None:
                facts = {"beside": host.id, "score": mine, "beside_score": theirs, "most": most_score}
                return Start(record.id, devices, share, Why("low-sharing-score", facts))
        return None

    @staticmethod
    def _hold(view: View, hosts: Hosts, record: JobRecord, most_score: int) -> Hold:
        refusal = view.limit_refusal(record) if view.books.limits else None
        if refusal is not None:
            return Hold(record.id, refusal.reason, refusal.facts)
        scores = hosts.refused_score(record) if most_score >= 0 else None
        if scores is not None and sum(scores) > most_score:
            facts = {"score": scores[0], "beside_score": scores[1], "most": most_score}
            return Hold(record.id, Reason.SLOWDOWN, facts)
        return Hold(record.id, *view.why_not(record))
