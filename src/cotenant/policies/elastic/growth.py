"""Grow-shrink: elastic jobs take idle devices of their own server, and give them back at once.

Gandiva (OSDI'18, section 4.2): only for jobs that declare it, only inside one server, growing only after
the devices have been idle for a while.
"""

from __future__ import annotations

import msgspec

from cotenant.model.ledger import low_bits
from cotenant.model.placement import Placement
from cotenant.model.plan import Decision, Resize, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_resize
from cotenant.model.view import Index, View
from cotenant.policies.published.pairs import Memory, Step
from cotenant.policies.published.slots import is_settled

__all__ = ["Elastic", "grow", "shrink"]


class Elastic(Index):
    """Running jobs that may hold more devices than they asked for.

    Attributes
    ----------
    jobs : dict of int to None
    grown : dict of int to None
        Those that do.
    """

    def __init__(self, view: View) -> None:
        self.jobs: dict[int, None] = {}
        self.grown: dict[int, None] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if record.job.max_gpus > record.job.gpus > 0:
            self.jobs[record.id] = None
            if len(place.devices) > record.job.gpus:
                self.grown[record.id] = None
            else:
                self.grown.pop(record.id, None)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        if record.job.max_gpus > record.job.gpus > 0 and record.place in (None, place):
            self.jobs.pop(record.id, None)
            self.grown.pop(record.id, None)


def shrink(view: View, kinds: set[int]) -> Decision | None:
    """Take back what a grown job on one of these device types holds beyond what it asked for."""
    for job_id in sorted(view.index(Elastic).grown):
        record = view.records[job_id]
        place, gpus = record.place, record.job.gpus
        if place is None or view.layout.device_type[place.devices[0]] not in kinds:
            continue
        devices = place.devices[:gpus]
        if check_resize(view.books, record, devices, place.share, view.now) is None:
            facts = {"speed_before": record.rate, "gpus_before": len(place.devices), "gpus_after": gpus}
            return Resize(record.id, devices, place.share, Why("shrink-on-demand", facts))
    return None


def grow(view: View, memory: Memory, idle_s: float, most_loss: float) -> Step:
    """Let elastic jobs have the idle devices of their server, fastest per device first."""
    bays: dict[int, list[JobRecord]] = {}
    if not view.pending_count:
        for job_id in view.index(Elastic).jobs:
            record = view.records[job_id]
            bay = _bay(view, record)
            if bay >= 0 and view.ledger.whole[bay]:
                bays.setdefault(bay, []).append(record)
    idle = {str(bay): memory.idle.get(str(bay), view.now) for bay in sorted(bays)}
    decisions: list[Decision] = []
    for bay in sorted(bays):
        if view.now - idle[str(bay)] >= idle_s:
            decisions += _grown(view, bay, bays[bay], most_loss)
    new = msgspec.structs.replace(memory, idle=idle) if idle != memory.idle else None
    return Step(tuple(decisions), new)


def _bay(view: View, record: JobRecord) -> int:
    """The bay of a job that could grow there; -1 if it could not."""
    place = record.place
    if place is None or len(place.devices) >= record.job.max_gpus:
        return -1
    bays = {view.layout.device_bay[d] for d in place.devices}
    if len(bays) > 1 or any(view.ledger.residents[d] != (record.id,) for d in place.devices):
        return -1
    return bays.pop()


def _grown(view: View, bay: int, records: list[JobRecord], most_loss: float) -> list[Decision]:
    mask, layout = view.ledger.whole[bay], view.layout
    found: list[Decision] = []
    records.sort(key=lambda r: (-r.rate / len(r.place.devices), r.id))  # type: ignore[union-attr]
    for number, record in enumerate(records):
        place = record.place
        if place is None or not mask or not is_settled(view, record, most_loss):
            continue
        held = len(place.devices)
        part = -(-mask.bit_count() // (len(records) - number))
        more = min(part, record.job.max_gpus - held)
        taken = low_bits(mask, more)
        devices = tuple(sorted((*place.devices, *layout.devices(bay, taken))))
        if check_resize(view.books, record, devices, place.share, view.now) is not None:
            continue
        mask ^= taken
        facts = {"speed_before": record.rate, "gpus_before": held, "gpus_after": held + more}
        found.append(Resize(record.id, devices, place.share, Why("grow", facts)))
    return found
