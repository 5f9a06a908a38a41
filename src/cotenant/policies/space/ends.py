"""When devices become free, as predicted: the other half of every reservation.

Predicted ends only move later while nothing happens (a job outlives its prediction and is
given as much again, see ``JobRecord.remaining_at``). So an answer is checked against the
clock when it is used, and the jobs that outlived theirs are then brought up to date.
"""

from __future__ import annotations

from cotenant.model.placement import WHOLE, Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.space.fit import UNKNOWN_S, Speeds, startup_s
from cotenant.policies.space.places import KindEnds, PlaceEnds

__all__ = ["Ends"]

_INF = float("inf")


class Ends(Index):
    """Predicted end of whatever holds each device.

    Attributes
    ----------
    device_s : list of float
        For each device: 0 if free, the predicted end of its resident, infinity if it takes
        no jobs (down, draining, kept for somebody).
    version, moves, gains : int
        Number of changes so far; of those that were more than a job taking devices; and of
        those after which there may be more room now.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.version = self.moves = self.gains = 0
        self._log: list[int] = []
        self._log_start = -1
        self.build()

    def build(self) -> None:
        """Build again from the view."""
        view = self._view
        self.version += 1
        self.moves += 1
        self.gains += 1
        self.speeds = Speeds(view)
        self._node_of = view.layout.device_node
        self.device_s = [0.0] * view.layout.device_count
        self._job_s: dict[int, float] = {}
        self._cpu_only: dict[int, dict[int, JobRecord]] = {}
        # Marks from before lie too far back to be answered: all has changed.
        self._log_start += len(self._log) + 1
        self._log.clear()
        self._log_limit = 4 * view.layout.node_count + 64
        self._trackers: dict[tuple[object, ...], PlaceEnds | KindEnds] = {}
        for record in view.running.values():
            self._job_s[record.id] = self._predict(record)
            if record.place is not None and record.place.node >= 0:
                self._cpu_only.setdefault(record.place.node, {})[record.id] = record
        for device in range(len(self.device_s)):
            self.device_s[device] = self._device(device)

    # -- kept up to date ---------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        end = self._job_s[record.id] = self._predict(record)
        if place.node >= 0:
            self._cpu_only.setdefault(place.node, {})[record.id] = record
        ends, share = self.device_s, place.share
        alone = share is WHOLE or share.mode == "exclusive"
        if alone:
            for device in place.devices:
                ends[device] = end
        else:
            for device in place.devices:
                ends[device] = self._device(device)
        self._touch(place)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        if record.place is None:
            self._job_s.pop(record.id, None)
        if place.node >= 0:
            del self._cpu_only[place.node][record.id]
        ledger, ends = self._view.ledger, self.device_s
        # Whole devices of a sound cluster are free now: no need to look at each.
        plain = place.share is WHOLE and not ledger.reserved and not ledger.impaired
        for device in place.devices:
            ends[device] = 0.0 if plain else self._device(device)
        self.moves += 1
        self.gains += 1
        self._touch(place)

    def rated(self, record: JobRecord) -> None:
        """A job's speed changed, and its end with it."""
        if record.place is not None:
            self._job_s[record.id] = self._predict(record)
            for device in record.place.devices:
                self.device_s[device] = self._device(device)
            self.moves += 1
            self._touch(record.place)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices changed hands or state."""
        for device in devices:
            self.device_s[device] = self._device(device)
            self._log.append(self._node_of[device])
        self.moves += 1
        self.gains += 1
        self.version += 1
        while len(self._log) > self._log_limit:
            self._shorten()

    def _touch(self, place: Placement) -> None:
        node_of, devices, log = self._node_of, place.devices, self._log
        if not devices:
            log.append(place.node)
        elif node_of[devices[0]] == node_of[devices[-1]]:
            # Devices ascend, and so do their nodes.
            log.append(node_of[devices[0]])
        else:
            log.extend(dict.fromkeys(node_of[device] for device in devices))
        if peers := self._view.layout.peers:  # whoever draws from the same host pool sees it, too
            nodes = self._view.layout.nodes_of(devices) if devices else (place.node,)
            for node in nodes:
                log.extend(peers.get(self._view.layout.home[node], ()))
        self.version += 1
        if len(log) > self._log_limit:
            self._shorten()

    def _shorten(self) -> None:
        """Forget the older half of the changes: whoever asks often must not start over."""
        old = len(self._log) // 2
        self._log_start += old
        del self._log[:old]

    def mark(self) -> int:
        """A mark to ask ``changes`` from later."""
        return self._log_start + len(self._log)

    def changes(self, since: int) -> tuple[list[int] | None, int]:
        """Nodes that changed since a mark (None: too long ago), and the mark to ask from next."""
        start, log = self._log_start, self._log
        mark = start + len(log)
        if since < start:
            return None, mark
        return log[since - start :], mark

    # -- what is predicted ---------------------------------------------------------------

    def _device(self, device: int) -> float:
        ledger = self._view.ledger
        residents = ledger.residents[device]
        node = ledger.layout.device_node[device]
        if not ledger.usable[device] or ledger.draining[node] or device in ledger.reserved:
            return _INF
        return max([self._job_s.get(j, UNKNOWN_S) for j in residents]) if residents else 0.0

    def _predict(self, record: JobRecord) -> float:
        """Predicted end: the prediction is doubled until that lies ahead."""
        work_s, place = record.predicted_s, record.place
        if work_s <= 0.0 or place is None:
            return UNKNOWN_S
        now, since, done, rate = self._view.now, record.rated_s, record.work_s, record.rate
        if rate > 0.0 and work_s > done:
            end_s = since + (work_s - done) / rate
            if end_s > now:  # as predicted: by far the most frequent case
                return end_s
        if rate <= 0.0:
            # Starting up, or saving: it will go on at the speed of its device type.
            since = record.started_s + startup_s(self._view.settings, record)
            kind = self._view.layout.device_type[place.devices[0]] if place.devices else -1
            rate = self.speeds.of(record.job.model, kind) if kind >= 0 else 1.0
        while work_s <= done or since + (work_s - done) / rate <= now:
            work_s *= 2.0
        return since + (work_s - done) / rate

    def refresh(self, node: int, now: float) -> bool:
        """Bring up to date what outlived its prediction on a node; True if anything did."""
        late = [r for r in self.jobs_on(node) if self._job_s[r.id] <= now]
        for record in late:
            self.rated(record)
        return bool(late)

    def jobs_on(self, node: int) -> list[JobRecord]:
        """Jobs that hold something on a node, by id."""
        ledger, records = self._view.ledger, self._view.records
        ids = {j for d in ledger.layout.node_devices[node] for j in ledger.residents[d]}
        ids.update(self._cpu_only.get(node, ()))
        return [records[j] for j in sorted(ids)]

    def job_s(self, record: JobRecord) -> float:
        """Predicted end of a running job, as of when it was last brought up to date."""
        return self._job_s[record.id]

    # -- earliest places -------------------------------------------------------------------

    def places(self, shape: Shape, kind: int) -> PlaceEnds:
        """When each bay of a type (each node, for CPU-only jobs) has room for a shape."""
        key = (kind, shape.gpus, shape.cpu_milli, shape.host_bytes)
        found = self._trackers.get(key)
        if not isinstance(found, PlaceEnds):
            found = self._trackers[key] = PlaceEnds(self._view, self, shape, kind)
        found.update()
        return found

    def kind(self, kind: int) -> KindEnds:
        """Ends of all devices of a type, in order."""
        found = self._trackers.get((kind,))
        if not isinstance(found, KindEnds):
            found = self._trackers[kind,] = KindEnds(self._view, self, kind)
        found.update()
        return found
