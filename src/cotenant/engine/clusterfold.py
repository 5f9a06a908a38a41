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
            up = device not in self._down_devices and node[device] not in self._down_nodes
            self.ledger.set_usable((device,), up)
        for hook in self.hooks["capacity"]:
            hook(devices)

    def _drained(self, event: ev.Drained | ev.Undrained) -> None:
        self.ledger.set_draining(event.node, isinstance(event, ev.Drained))
        for hook in self.hooks["capacity"]:
            hook(self.ledger.layout.node_devices[event.node])
