"""What runs in the simulated world: how far it is, how fast, and when it ends."""

from __future__ import annotations

import math
from collections import defaultdict
from heapq import heapify, heappush

from cotenant.executors.attempt import Attempt
from cotenant.executors.company import ALONE, Companies, is_plain
from cotenant.executors.links import physics_of
from cotenant.executors.samples import Samples
from cotenant.executors.transfers import Transfers
from cotenant.model import events as ev
from cotenant.model.events import Rated
from cotenant.model.layout import Layout
from cotenant.model.placement import Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings

__all__ = ["END", "GAVE_UP", "LEFT_OLD", "READY", "SAMPLE", "SAVED", "TRANSFER", "Entry", "Progress"]

_INF = math.inf
# The end of a run, by far the most frequent, is told by being 0.
END, READY, SAVED, LEFT_OLD, GAVE_UP, SAMPLE, TRANSFER = range(7)
Entry = tuple[float, int, int, int]
"""What is to come: when, for which job, what, and the epoch that dates it."""


class Progress:
    """Runs and the heap of things to come for them.

    A run that slows down leaves its entry where it is: whoever takes it out too early puts
    it back at the true end. Only a run that hastens needs a new one.

    Parameters
    ----------
    layout : Layout
    truth : Truth or None
    settings : Settings
    seed : int
        Of what samples measure.

    Attributes
    ----------
    source_hours : dict of str to float
        Device-hours run alone, and under speeds that were measured, composed or modelled.
    """

    def __init__(self, layout: Layout, truth: Truth | None, settings: Settings, seed: int = 0) -> None:
        self.layout = layout
        self.settings = settings
        self._now = 0.0
        self._runs: dict[int, Attempt] = {}
        self._physics = physics_of(layout, truth, settings)
        self._companies = Companies(layout, truth, settings)
        self._transfers: Transfers | None = None  # of saved state, where the cluster has tiers
        self._samples: Samples | None = None
        if settings.sample_s:
            self._samples = Samples(
                settings, seed, self._companies, lambda t, job_id, token: self._push(t, job_id, SAMPLE, token)
            )
        self._leaving: dict[int, Placement] = {}
        self._left_at: dict[int, int] = {}  # epoch of the entry that ends each leaving
        self._patient: set[int] = set()
        self._heap: list[Entry] = []
        self._most_entries = 8192
        self._epoch = 0
        self._tells_rates = settings.rate_events
        self._out: list[ev.Event] = []
        self.source_hours: defaultdict[str, float] = defaultdict(float)

    # -- things to come ----------------------------------------------------------------

    def _push(self, t: float, job_id: int, kind: int, epoch: int) -> None:
        heap = self._heap
        heappush(heap, (t, job_id, kind, epoch))
        if len(heap) > self._most_entries:
            heap[:] = [e for e in heap if self._valid(e)]
            heapify(heap)
            self._most_entries = 2 * len(heap) + 8192

    def _valid(self, entry: Entry) -> bool:
        if entry[2] == GAVE_UP:
            return entry[1] in self._patient
        if entry[2] == SAMPLE:
            return self._samples is not None and self._samples.valid(entry[1], entry[3])
        if entry[2] == TRANSFER:
            return self._transfers is not None and self._transfers.valid(entry[1], entry[3])
        run = self._runs.get(entry[1])
        if entry[2] == LEFT_OLD:
            return entry[1] in self._leaving and self._left_at.get(entry[1]) == entry[3]
        return run is not None and run.epoch == entry[3]

    def _pause(self, run: Attempt, seconds: float, then: int) -> None:
        run.paused = True
        run.due_s = _INF
        self._epoch = run.epoch = self._epoch + 1
        if run.rate or run.since_s == self._now:
            run.rate = 0.0
            if self._tells_rates:
                self._out.append(Rated(self._now, run.job.id, 0.0))
        if seconds < _INF:  # else somebody will say when
            self._push(self._now + seconds, run.job.id, then, run.epoch)

    def _settle(self, run: Attempt) -> None:
        """Bring progress up to the present."""
        now = self._now
        elapsed = now - run.since_s
        if elapsed > 0.0:
            left = run.left_s - elapsed * run.rate
            run.left_s = left if left > 0.0 else 0.0
            self.source_hours[run.source] += elapsed * len(run.place.devices) / 3600.0
            run.since_s = now

    # -- places ------------------------------------------------------------------------

    def _put(self, run: Attempt, place: Placement) -> None:
        """Give a run another place."""
        run.place = place
        run.shared = place.share.mode != "exclusive"
        run.alone = self._physics.alone_speed(run.job, place)
        if run.shared:
            run.plain = is_plain(run)
            self._companies.join(run, place)

    def _part(self, run: Attempt, place: Placement) -> None:
        """A place is left; whoever shared it goes on at another speed."""
        if place.share.mode != "exclusive" and self._companies.part(run, place):
            self._rerate_devices(place.devices)

    # -- speeds ------------------------------------------------------------------------

    def _rerate(self, run: Attempt, before: float | None = None) -> None:
        """Work out a run's speed; ``before`` is what the log believes, if not its rate."""
        if run.paused:
            return
        if run.shared:
            speed, source = self._companies.pace(run)
            self._change(run, run.alone * speed, source, before)
        else:
            self._change(run, run.alone, run.source, before)

    def _rerate_devices(self, devices: tuple[int, ...], but: Attempt | None = None) -> None:
        """Work out the speeds of all who share these devices, but one."""
        companies = self._companies
        if self._samples is not None:
            for run in companies.neighbours(devices):
                if run is not but and not run.paused:
                    self._samples.begin(run, self._now)
        on = companies.on
        first = on.get(devices[0])
        if len(devices) > 1:
            for device in devices:
                if on.get(device) is not first:
                    for run in companies.neighbours(devices):
                        if run is not but:
                            self._rerate(run)
                    return
        if first is None:
            return
        # The same company everywhere: who has no other devices need not look at each.
        alone = len(first.members) == 1
        for run in first.members:
            if run is but or run.paused:
                continue
            own = run.place.devices
            if run.plain and (own == devices or (len(own) == 1 and on.get(own[0]) is first)):
                speed, source = ALONE if alone else (first.paces or companies.paces(first))[run.job.model]
            else:
                speed, source = companies.pace(run)
            if (rate := run.alone * speed) != run.rate or source != run.source:
                self._change(run, rate, source)

    def _change(self, run: Attempt, rate: float, source: str, before: float | None = None) -> None:
        """A run goes on at this speed."""
        old, now = run.rate, self._now
        elapsed = now - run.since_s
        if rate == old:
            if source != run.source:
                # What was run so far will be booked with the rest: move it to where it belongs.
                hours = elapsed * len(run.place.devices) / 3600.0
                self.source_hours[run.source] += hours
                self.source_hours[source] -= hours
                run.source = source
            return
        if self._samples is not None:
            self._samples.begin(run, now)
        left = run.left_s
        if elapsed > 0.0:
            # As _settle, without the call.
            left -= elapsed * old
            if left < 0.0:
                left = 0.0
            run.left_s = left
            self.source_hours[run.source] += elapsed * len(run.place.devices) / 3600.0
            run.since_s = now
        run.rate, run.source = rate, source
        run.end_s = end_s = now + left / rate
        if end_s < run.due_s:
            run.due_s = end_s
            self._epoch = run.epoch = self._epoch + 1
            self._push(end_s, run.job.id, END, run.epoch)
        if self._tells_rates and rate != (old if before is None else before):
            self._out.append(Rated(now, run.job.id, rate))
