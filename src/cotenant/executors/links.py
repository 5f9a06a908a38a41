"""Speeds and prices where the hosts of jobs are pooled: what lies behind a link costs time.

A job's speed is that of ``executors.physics`` times ``HostPool.speed`` of the pool that its nodes draw
from (the slowest, if there are several). State that is saved or loaded crosses the same link.
"""

from __future__ import annotations

from cotenant.executors.physics import Physics
from cotenant.model.hosts import pools_of
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings

__all__ = ["PooledPhysics", "physics_of"]


def physics_of(layout: Layout, truth: Truth | None, settings: Settings) -> Physics:
    """The physics of a cluster, of the kind that its hosts need."""
    kind = PooledPhysics if layout.cluster.host_pools else Physics
    return kind(layout, truth, settings)


class PooledPhysics(Physics):
    """Physics of a cluster in which some nodes draw their hosts from pools."""

    def __init__(self, layout: Layout, truth: Truth | None, settings: Settings) -> None:
        super().__init__(layout, truth, settings)
        self._pools = pools_of(layout)
        self._factors: dict[tuple[int, int, int, int], float] = {}

    def alone_speed(self, job: Job, place: Placement) -> float:
        """As of ``Physics``, slowed down by the links to the host pools."""
        speed = super().alone_speed(job, place)
        if not place.devices or not (job.cpu_milli or job.host_memory_bytes):
            return speed
        return speed * min([self._factor(node, job, len(place.devices)) for node in self._homes(place)])

    def _homes(self, place: Placement) -> list[int]:
        """The nodes of a place, one for each pool."""
        return sorted({self.layout.home[node] for node in self.layout.nodes_of(place.devices)})

    def _factor(self, node: int, job: Job, devices: int) -> float:
        key = (node, job.host_memory_bytes, job.cpu_milli, devices)
        found = self._factors.get(key)
        if found is None:
            pool = self._pools[node]
            found = pool.speed(job.host_memory_bytes, job.cpu_milli, devices) if pool else 1.0
            self._factors[key] = found
        return found

    def state_bytes_per_s(self, place: Placement) -> float:
        """As of ``Physics``, but no faster than the slowest link."""
        speed = self.settings.state_bytes_per_s
        links = [p.link_bytes_per_s for n in self._homes(place) if (p := self._pools[n])]
        return min([speed, *links])

    def link_latency_s(self, place: Placement) -> float:
        """Of the slowest link."""
        return max([p.link_latency_s for n in self._homes(place) if (p := self._pools[n])], default=0.0)

    def save_s(self, job: Job, place: Placement) -> float:
        """Seconds to save a job's state, over the link."""
        slower = self.settings.state_bytes_per_s / self.state_bytes_per_s(place)
        return self.settings.transfer_s(job) * slower + self.link_latency_s(place)

    def restore_s(self, job: Job, place: Placement) -> float:
        """Seconds to load it again, over the link, and warm up."""
        return self.settings.restore_s + self.save_s(job, place)
