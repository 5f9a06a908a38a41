"""A cluster expanded into flat lists: devices numbered node by node, grouped in bays.

A *bay* is the devices of one type inside one node. Bays are what the free index counts:
for a node of equal cards, the bay is the node.
"""

from __future__ import annotations

from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.pools import HostPool

__all__ = ["Block", "Layout"]

Block = tuple[int, int]
"""A bay and a bit mask of devices in it (bit 0 is the bay's first device)."""

_MEMO_LIMIT = 1 << 18


class Layout:
    """Numbering of a cluster's devices.

    Attributes
    ----------
    device_node, device_type, device_bay : list of int
        For each device.
    device_memory : list of int
        Bytes; 0 where unknown.
    device_bit : list of int
        For each device: its bit in the masks of its bay.
    bay_node, bay_type, bay_first, bay_size : list of int
        For each bay.
    bay_bit : list of int
        The bay's bit among the bays of its type.
    type_bays : list of list of int
        Bays of each type, in node order.
    node_bays, node_devices : list of tuple of int
    alone : list of tuple of int
        Each device by itself: one shared tuple for each.
    host_cpu, host_bytes : list of int
        For each node: thousandths of a core and bytes of its host, or of the pool it draws from.
    home : list of int
        For each node: the first node of its host pool, or itself. Empty without host pools.
    peers : dict of int to tuple of int
        All nodes of a host pool, by its first.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.types: tuple[DeviceType, ...] = cluster.types
        self.type_id = {kind.name: i for i, kind in enumerate(self.types)}
        self.device_node: list[int] = []
        self.device_type: list[int] = []
        self.device_bay: list[int] = []
        self.device_memory: list[int] = []
        self.device_bit: list[int] = []
        self.bay_node: list[int] = []
        self.bay_type: list[int] = []
        self.bay_first: list[int] = []
        self.bay_size: list[int] = []
        self.bay_bit: list[int] = []
        self.type_bays: list[list[int]] = [[] for _ in self.types]
        self.node_bays: list[tuple[int, ...]] = []
        self.node_devices: list[tuple[int, ...]] = []
        for number, node in enumerate(cluster.nodes):
            counts: dict[str, int] = {}
            for name, count in node.gpus:
                counts[name] = counts.get(name, 0) + count
            first = len(self.device_node)
            bays = tuple(self._add_bay(number, self.type_id[k], c) for k, c in counts.items())
            self.node_bays.append(bays)
            self.node_devices.append(tuple(range(first, len(self.device_node))))
        self.alone = [(device,) for device in range(len(self.device_node))]
        self.host_cpu = [node.cpu_milli for node in cluster.nodes]
        self.host_bytes = [node.host_memory_bytes for node in cluster.nodes]
        self.home: list[int] = list(range(len(cluster.nodes))) if cluster.host_pools else []
        self.peers: dict[int, tuple[int, ...]] = {}
        for pool in cluster.host_pools:
            self._add_pool(pool)
        self._by_devices: dict[tuple[int, ...], tuple[Block, ...] | None] = {}
        self._by_block: dict[Block, tuple[int, ...]] = {}

    def _add_pool(self, pool: HostPool) -> None:
        number = {node.name: i for i, node in enumerate(self.cluster.nodes)}
        nodes = tuple(sorted(number[name] for name in pool.nodes or number))
        cpu = pool.cpu_milli or sum(self.host_cpu[n] for n in nodes)
        memory = pool.host_memory_bytes or sum(self.host_bytes[n] for n in nodes)
        self.peers[nodes[0]] = nodes
        for node in nodes:
            self.home[node], self.host_cpu[node], self.host_bytes[node] = nodes[0], cpu, memory

    def _add_bay(self, node: int, kind: int, size: int) -> int:
        bay = len(self.bay_node)
        self.bay_node.append(node)
        self.bay_type.append(kind)
        self.bay_first.append(len(self.device_node))
        self.bay_size.append(size)
        self.bay_bit.append(1 << len(self.type_bays[kind]))
        self.type_bays[kind].append(bay)
        for place in range(size):
            self.device_bit.append(1 << place)
            self.device_node.append(node)
            self.device_type.append(kind)
            self.device_bay.append(bay)
            self.device_memory.append(self.types[kind].memory_bytes)
        return bay

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self.device_node)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.node_bays)

    def blocks(self, devices: tuple[int, ...]) -> tuple[Block, ...] | None:
        """Devices as blocks, one for each bay they touch.

        None if they are not ascending, not distinct, or not devices at all; remembered, as
        policies choose from few combinations.
        """
        try:
            return self._by_devices[devices]
        except KeyError:
            pass
        if len(self._by_devices) > _MEMO_LIMIT:
            self._by_devices.clear()
        found = self._split(devices)
        self._by_devices[devices] = found
        return found

    def _split(self, devices: tuple[int, ...]) -> tuple[Block, ...] | None:
        masks: dict[int, int] = {}
        last = -1
        for device in devices:
            if not last < device < len(self.device_bay):
                return None
            last = device
            bay = self.device_bay[device]
            masks[bay] = masks.get(bay, 0) | self.device_bit[device]
        return tuple(masks.items())

    def devices(self, bay: int, mask: int) -> tuple[int, ...]:
        """The devices of a block, one shared tuple for each block."""
        if not mask & (mask - 1) and mask:
            return self.alone[self.bay_first[bay] + mask.bit_length() - 1]
        key = (bay, mask)
        found = self._by_block.get(key)
        if found is None:
            if len(self._by_block) > _MEMO_LIMIT:
                self._by_block.clear()
            first = self.bay_first[bay]
            found = tuple(first + i for i in range(mask.bit_length()) if mask >> i & 1)
            self._by_block[key] = found
            self._by_devices[found] = (key,)
        return found

    def nodes_of(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """Distinct nodes of these devices, ascending."""
        blocks = self.blocks(devices)
        if blocks is None:
            return ()
        if len(blocks) == 1:
            return (self.bay_node[blocks[0][0]],)
        return tuple(sorted({self.bay_node[bay] for bay, _ in blocks}))
