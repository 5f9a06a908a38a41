"""Host capacity of nodes, and its pools: who draws cores and memory from where.

In the books every node of a pool shows what the pool has free, so whoever asks a node for its free
cores reads the right answer; what a job takes is booked once, under the pool's first node.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.model.layout import Layout
from cotenant.model.ledger import Ledger
from cotenant.model.placement import Placement
from cotenant.model.pools import HostPool

__all__ = ["PooledLedger", "ledger_of", "pools_of"]


def ledger_of(layout: Layout) -> Ledger:
    """The books of a cluster, of the kind that its hosts need."""
    return PooledLedger(layout) if layout.home else Ledger(layout)


class PooledLedger(Ledger):
    """Books in which some nodes draw their host capacity from pools."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._home = layout.home
        self._ranges = {home: _ranges(peers) for home, peers in layout.peers.items()}

    def host_parts(self, place: Placement, cpu_milli: int, host_bytes: int) -> Iterator[tuple[int, int, int]]:
        """As of ``Ledger``, with one part for all nodes of a pool, under the pool's first node."""
        total, home = len(place.devices), self._home
        if place.node >= 0 or not total:
            yield home[place.node], cpu_milli, host_bytes
            return
        counts: dict[int, int] = {}
        for device in place.devices:
            at = home[self.layout.device_node[device]]
            counts[at] = counts.get(at, 0) + 1
        for at, count in counts.items():
            yield at, _portion(cpu_milli, count, total), _portion(host_bytes, count, total)

    def _charge_host(self, place: Placement, cpu_milli: int, host_bytes: int) -> None:
        for at, cpu, host in self.host_parts(place, cpu_milli, host_bytes):
            free_cpu, free_host = self.free_cpu[at] + cpu, self.free_host[at] + host
            for first, end in self._ranges.get(at) or ((at, at + 1),):
                self.free_cpu[first:end] = [free_cpu] * (end - first)
                self.free_host[first:end] = [free_host] * (end - first)


def pools_of(layout: Layout) -> list[HostPool | None]:
    """For each node: the pool that it draws from."""
    cluster = layout.cluster
    found: list[HostPool | None] = [None] * len(cluster.nodes)
    number = {node.name: i for i, node in enumerate(cluster.nodes)}
    for pool in cluster.host_pools:
        for name in pool.nodes or number:
            found[number[name]] = pool
    return found


def _portion(total: int, count: int, of: int) -> int:
    whole = -(-abs(total) * count // of)
    return whole if total >= 0 else -whole


def _ranges(nodes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, ends excluded."""
    found: list[tuple[int, int]] = []
    for node in nodes:
        if found and found[-1][1] == node:
            found[-1] = (found[-1][0], node + 1)
        else:
            found.append((node, node + 1))
    return found
