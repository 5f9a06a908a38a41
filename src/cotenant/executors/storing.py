"""Suspended state in the simulated world: saved to tiers, loaded from them, moved when they shrink."""

from __future__ import annotations

import math

from cotenant.executors.attempt import Attempt
from cotenant.executors.progress import READY, SAVED, TRANSFER, Progress
from cotenant.executors.transfers import Transfers
from cotenant.model.layout import Layout
from cotenant.model.placement import Placement
from cotenant.model.poolevents import Loaded, Spilled, Stored, TierResized
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings
from cotenant.model.tiers import TierBooks

__all__ = ["Storing"]

_INF = math.inf


class Storing(Progress):
    """What a simulated executor does with state in clusters that declare tiers.

    ``_store`` is None in all others: state is then saved and loaded at ``Settings.state_bytes_per_s``, and
    its room is not bounded. Copies kept by periodic checkpoints, and by suspensions from which a job has
    gone on since, lie outside of the tiers, and are loaded at that speed, too.
    """

    def __init__(self, layout: Layout, truth: Truth | None, settings: Settings, seed: int = 0) -> None:
        super().__init__(layout, truth, settings, seed)
        self._store: TierBooks | None = None
        tiers = layout.cluster.state_tiers
        if tiers:
            self._store = TierBooks(tiers, settings)
            self._ways = Transfers(tiers, lambda t, job_id, token: self._push(t, job_id, TRANSFER, token))
            self._transfers = self._ways

    def _saved(self, run: Attempt) -> None:
        """State is saved: leave the devices."""
        raise NotImplementedError

    def _save_to(self, store: TierBooks, run: Attempt) -> None:
        """Begin to save a job's state in the first tier with room; the rules have seen to it that there is one."""
        job_id, now = run.job.id, self._now
        if job_id in store.copies:
            # It was still loading: what was saved before is whole, and there is nothing new.
            self._ways.end(now, job_id)
            self._saved(run)
            return
        size = store.size_of(run.job)
        tier = store.find(size)
        self._out.append(Stored(now, job_id, tier, size))
        store.stored(job_id, tier, size)
        latency = self._latency_s(tier, run.place)
        if size:
            self._pause(run, _INF, SAVED)
            self._ways.begin(now, job_id, tier, size, self._most(run.place))
        elif latency:
            self._pause(run, latency, SAVED)
        else:
            self._saved(run)

    def _load_from(self, store: TierBooks, run: Attempt) -> bool:
        """Begin to load a job's state, if it lies in a tier."""
        job_id, now = run.job.id, self._now
        copy = store.copies.get(job_id)
        if copy is None:
            return False
        self._ways.end(now, job_id)  # a copy on its way to another tier is given up
        store.starts(job_id)
        if copy.size_bytes:
            self._pause(run, _INF, READY)
            self._ways.begin(now, job_id, copy.home, copy.size_bytes, self._most(run.place))
        else:
            self._loaded(store, run, copy.home)
        return True

    def _loaded(self, store: TierBooks, run: Attempt, tier: int) -> None:
        self._out.append(Loaded(self._now, run.job.id, tier))
        store.drop(run.job.id)
        rest = self.settings.decision_latency_s + self.settings.restore_s + self._latency_s(tier, run.place)
        self._pause(run, rest, READY)

    def _transferred(self, job_id: int) -> None:
        """A transfer is over."""
        store, now = self._store, self._now
        self._ways.end(now, job_id)
        if store is None:
            return
        copy, run = store.copies[job_id], self._runs.get(job_id)
        if run is None:
            self._out.append(Spilled(now, job_id, copy.coming))
            store.complete(job_id)
        elif copy.home >= 0:
            self._loaded(store, run, copy.home)
        elif latency := self._latency_s(copy.coming, run.place):
            self._pause(run, latency, SAVED)
        else:
            self._saved(run)

    def _lost_copy(self, store: TierBooks, job_id: int, kept_s: float) -> None:
        """A job left its devices without saving, perhaps while it loaded or saved."""
        if job_id in store.copies:
            self._ways.end(self._now, job_id)
            store.left(job_id, final=False, work_s=kept_s)

    def _forget_copy(self, store: TierBooks, job_id: int) -> None:
        """A job has ended."""
        self._ways.end(self._now, job_id)
        store.drop(job_id)

    def _resize_tier(self, store: TierBooks, event: TierResized) -> None:
        """A tier changes its size; what has no room there any more goes to later tiers, if they have room."""
        tier = event.tier
        store.resized(tier, event.capacity_bytes)
        for job_id in store.overflow(tier):
            if job_id in self._runs:
                continue  # it is being loaded, and leaves by itself
            size = store.copies[job_id].size_bytes
            to = store.find(size, tier + 1)
            if to < 0:
                continue
            self._out.append(Stored(self._now, job_id, to, size))
            store.stored(job_id, to, size)
            self._ways.begin(self._now, job_id, to, size, _INF)

    def _most(self, place: Placement) -> float:
        """How fast a place can send or receive state, on all its devices together."""
        return self._physics.state_bytes_per_s(place) * max(len(place.devices), 1)

    def _latency_s(self, tier: int, place: Placement) -> float:
        return self.layout.cluster.state_tiers[tier].latency_s + self._physics.link_latency_s(place)
