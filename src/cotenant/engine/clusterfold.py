"""Folds what happens to devices and nodes: failures, returns, drains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.model import events as ev
from cotenant.model.view import Source

__all__ = ["ClusterFold"]


class ClusterFold(Source):
    """The part of the state that knows what of the cluster is there."""

    def __init__(self) -> None:
        self._down_nodes: set[int] = set()
        self._down_devices: set[int] = set()
        self._drained_devices: set[int] = set()

    @property
    def down_devices(self) -> frozenset[int]:
        """Devices that failed, or whose node did; those that are drained are not among them."""
        nodes = self.ledger.layout.node_devices
        return frozenset(self._down_devices.union(*(nodes[n] for n in self._down_nodes)))

    def cluster_appliers(self) -> dict[type, Callable[[Any], Any]]:
        """What each kind of event changes."""
        return {
            ev.NodeDown: self._node_down,
            ev.NodeUp: self._node_up,
            ev.DeviceDown: self._device_down,
            ev.DeviceUp: self._device_up,
            ev.Drained: self._drained,
            ev.Undrained: self._drained,
        }

    def _node_down(self, event: ev.NodeDown) -> None:
        self._down_nodes.add(event.node)
        self._set_usable(self.ledger.layout.node_devices[event.node])

    def _node_up(self, event: ev.NodeUp) -> None:
        self._down_nodes.discard(event.node)
        self._set_usable(self.ledger.layout.node_devices[event.node])

    def _device_down(self, event: ev.DeviceDown) -> None:
        self._down_devices.add(event.device)
        self._set_usable((event.device,))

    def _device_up(self, event: ev.DeviceUp) -> None:
        self._down_devices.discard(event.device)
        self._set_usable((event.device,))

    def _set_usable(self, devices: tuple[int, ...]) -> None:
        node = self.ledger.layout.device_node
        for device in devices:
            away = device in self._down_devices or device in self._drained_devices
            self.ledger.set_usable((device,), not away and node[device] not in self._down_nodes)
        for hook in self.hooks["capacity"]:
            hook(devices)

    def _drained(self, event: ev.Drained | ev.Undrained) -> None:
        drained = isinstance(event, ev.Drained)
        if event.device >= 0:
            (self._drained_devices.add if drained else self._drained_devices.discard)(event.device)
            self._set_usable((event.device,))
            return
        self.ledger.set_draining(event.node, drained)
        for hook in self.hooks["capacity"]:
            hook(self.ledger.layout.node_devices[event.node])
