"""Elastic jobs that run and may give devices to a waiting job, so that nobody is suspended for it."""

from __future__ import annotations

from cotenant.model.placement import Placement
from cotenant.model.plan import Resize, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_resize
from cotenant.model.view import View
from cotenant.policies.elastic.sizes import Elastics
from cotenant.policies.preemption.room import limit_of
from cotenant.policies.preemption.yielding import Yielding
from cotenant.policies.queues.levels import work_left_s

__all__ = ["Holders"]


class Holders:
    """Who may give, as of now: who gives way first gives first.

    Parameters
    ----------
    view : View
    giving : Yielding
        After ``turn``.
    elastics : Elastics
    margin : float
        A job is left with fewer devices than it declares only if it has work for this many times the price.
    """

    def __init__(self, view: View, giving: Yielding, elastics: Elastics, margin: float) -> None:
        self._view, self._standing = view, giving.standing
        self._given: dict[int, tuple[int, ...]] = {}
        self._declared: dict[int, int] = {}
        self._least: dict[int, int] = {}
        self._most: dict[int, int] = {}
        self._holders: list[tuple[JobRecord, Placement]] = []
        for job_id in sorted((i for i in elastics.grown if i in giving.standing), key=giving.standing.get):  # type: ignore[arg-type]
            self._add(view.records[job_id], margin)

    def _add(self, record: JobRecord, margin: float) -> None:
        view, job, place = self._view, record.job, record.place
        if place is None:
            return
        held = len(place.devices)
        left_s = work_left_s(record.predicted_s, record.work_at(view.now))
        pays = left_s > margin * view.settings.reload_s(job) * record.rate
        declared = min(held, job.gpus)
        least = min(job.min_gpus, declared) if pays else declared
        given = tuple([d for d in place.devices if self._can_go(d)])
        if least >= held or not given:
            return
        self._holders.append((record, place))
        self._given[record.id], self._declared[record.id], self._least[record.id] = given, declared, least
        here: dict[int, int] = {}
        for device in given:
            bay = view.layout.device_bay[device]
            here[bay] = here.get(bay, 0) + 1
        for bay, count in here.items():
            self._most[bay] = self._most.get(bay, 0) + min(count, held - least)

    def _can_go(self, device: int) -> bool:
        """Whether a device is free for others once its job gives it."""
        ledger = self._view.ledger
        if len(ledger.residents[device]) != 1 or device in ledger.reserved or not ledger.usable[device]:
            return False
        return not ledger.draining[self._view.layout.device_node[device]]

    def give(self, record: JobRecord, level_now: int) -> tuple[Resize, ...]:
        """Resizes after which a waiting job has its devices free, on the node (or type) where fewest are missing.

        First from what jobs hold beyond what they declare, else, from those that would give way to it, down to
        the least. Empty if there are none.
        """
        shape = record.shape
        if not self._holders or shape.cpu_milli or shape.host_bytes:
            return ()
        limit = limit_of(record, level_now)
        for beyond in (True, False):
            best: tuple[int, int] | None = None
            chosen: tuple[Resize, ...] = ()
            for missing, scope in self._scopes(record):
                if best is None or (missing, scope[0]) < best:
                    taken = self._taken(record, missing, frozenset(scope), limit, beyond=beyond)
                    if taken:
                        best, chosen = (missing, scope[0]), taken
            if chosen:
                return chosen
        return ()

    def _scopes(self, record: JobRecord) -> list[tuple[int, tuple[int, ...]]]:
        """Bays among which devices could be had if all gave what they can, and how many are missing there."""
        shape, ledger, layout = record.shape, self._view.ledger, self._view.layout
        found: list[tuple[int, tuple[int, ...]]] = []
        for kind in shape.types:
            bays = [bay for bay in sorted(self._most) if layout.bay_type[bay] == kind]
            if shape.single:
                found += [(shape.gpus - ledger.whole[bay].bit_count(), (bay,)) for bay in bays]
            if bays and shape.spans:
                found.append((shape.gpus - ledger.free_count[kind], tuple(bays)))
        return [(n, scope) for n, scope in found if 0 < n <= sum([self._most[bay] for bay in scope])]

    def _taken(
        self,
        record: JobRecord,
        missing: int,
        scope: frozenset[int],
        limit: tuple[int, float],
        *,
        beyond: bool,
    ) -> tuple[Resize, ...]:
        """So many devices of these bays, or nothing."""
        view, bay_of, found = self._view, self._view.layout.device_bay, list[Resize]()
        for holder, place in self._holders:
            standing, held = self._standing[holder.id], len(place.devices)
            if standing[0] > limit[0]:
                break
            least = (self._declared if beyond or not standing < limit else self._least)[holder.id]
            free = [d for d in self._given[holder.id] if bay_of[d] in scope]
            take = min(len(free), held - least, missing)
            if take <= 0:
                continue
            gone = set(free[-take:])
            kept = tuple([d for d in place.devices if d not in gone])
            if check_resize(view.books, holder, kept, place.share, view.now) is not None:
                continue
            facts = {"for_job": record.id, "gpus_before": held, "gpus_after": len(kept)}
            found.append(Resize(holder.id, kept, place.share, Why("gives-devices", facts)))
            missing -= take
            if not missing:
                return tuple(found)
        return ()
