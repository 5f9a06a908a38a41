"""What befalls the cluster, and what users ask for meanwhile, from a file.

::

    [[incident]]
    kind = "node-down"        # node-up, drain, undrain
    at = "2h"
    node = "n3"
    cause = "power supply"
    lasts = "30min"           # optional: the return is scheduled too

    [[incident]]
    kind = "device-down"      # device-up; bays count from 0 within a node
    at = "1d"
    node = "n0"
    slot = 5

    [[incident]]
    kind = "cancel"           # or priority, with priority = 10
    at = "3h"
    job = "j17"

    [[incident]]
    kind = "tenant-limit"     # without limit_gpus the ceiling is lifted
    at = "8h"
    tenant = "vision"
    limit_gpus = 64
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from cotenant.errors import ConfigError, QuantityError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.quantities import parse_duration
from cotenant.model.workload import Workload
from cotenant.traces.documents import Document, read_document

__all__ = ["read_incidents"]

Kind = Literal[
    "node-down",
    "node-up",
    "drain",
    "undrain",
    "device-down",
    "device-up",
    "cancel",
    "priority",
    "tenant-limit",
]
_BACK: dict[str, Any] = {"node-down": "node-up", "drain": "undrain", "device-down": "device-up"}


class _Incident(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Kind
    at: str
    node: str | None = None
    slot: int | None = None
    job: str | None = None
    tenant: str | None = None
    priority: int | None = None
    limit_gpus: int | None = None
    cause: str = ""
    lasts: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    incident: tuple[_Incident, ...]


def read_incidents(path: Path, cluster: Cluster, workload: Workload) -> tuple[ev.Event, ...]:
    """Read a file of incidents (TOML or YAML), in order of time.

    Raises
    ------
    ConfigError
        Naming file and entry, for a node, slot, job or tenant that is not there, or a key
        that is missing.
    """
    document = read_document(path)
    names = _Names(document, cluster, workload)
    found: list[ev.Event] = []
    for index, item in enumerate(document.convert(_File).incident):
        at_s = names.duration(index, "at", item.at)
        found.append(names.event(index, item, at_s))
        if item.lasts is not None:
            if item.kind not in _BACK:
                raise names.error(index, f'"{item.kind}" does not last; leave out lasts')
            back = msgspec.structs.replace(item, kind=_BACK[item.kind])
            found.append(names.event(index, back, at_s + names.duration(index, "lasts", item.lasts)))
    return tuple(sorted(found, key=lambda event: event.t))


class _Names:
    """Turns names in the file into numbers of the cluster and the workload."""

    def __init__(self, document: Document, cluster: Cluster, workload: Workload) -> None:
        self._document = document
        self._cluster = cluster
        self._workload = workload
        self._nodes = {node.name: i for i, node in enumerate(cluster.nodes)}
        self._tenants = {tenant.name for tenant in cluster.tenants}
        self._jobs: dict[str, int] | None = None

    def error(self, index: int, message: str) -> ConfigError:
        return self._document.error(message, ("incident", index))

    def duration(self, index: int, key: str, text: str) -> float:
        try:
            return parse_duration(text)
        except QuantityError as error:
            raise self.error(index, f"{key}: {error}") from None

    def event(self, index: int, item: _Incident, t: float) -> ev.Event:
        if item.kind in {"cancel", "priority"}:
            return self._command(index, item, t)
        if item.kind == "tenant-limit":
            if item.tenant not in self._tenants:
                known = ", ".join(sorted(self._tenants)) or "none declared"
                raise self.error(index, f'no tenant "{item.tenant}"; known: {known}')
            return ev.TenantLimitChanged(t, item.tenant or "", item.limit_gpus)
        node = self._nodes.get(item.node or "")
        if node is None:
            raise self.error(index, f'no node "{item.node}" in this cluster of {len(self._nodes):,} nodes')
        if item.kind == "node-down":
            return ev.NodeDown(t, node, item.cause)
        if item.kind == "node-up":
            return ev.NodeUp(t, node)
        if item.kind == "drain":
            return ev.Drained(t, node, item.cause)
        if item.kind == "undrain":
            return ev.Undrained(t, node)
        device = self._device(index, item, node)
        return ev.DeviceDown(t, device, item.cause) if item.kind == "device-down" else ev.DeviceUp(t, device)

    def _command(self, index: int, item: _Incident, t: float) -> ev.Event:
        if self._jobs is None:
            self._jobs = {name: i for i, name in enumerate(self._workload.frame["name"].to_list())}
        job = self._jobs.get(item.job or "")
        if job is None:
            raise self.error(index, f'no job "{item.job}" in this workload')
        if item.kind == "cancel":
            return ev.CancelRequested(t, job)
        if item.priority is None:
            raise self.error(index, "a change of priority needs priority = NUMBER")
        return ev.PriorityChanged(t, job, item.priority)

    def _device(self, index: int, item: _Incident, node: int) -> int:
        sizes = [sum(count for _, count in n.gpus) for n in self._cluster.nodes]
        if item.slot is None or not 0 <= item.slot < sizes[node]:
            raise self.error(
                index, f'node "{item.node}" has slots 0 to {sizes[node] - 1}, found slot = {item.slot}'
            )
        return sum(sizes[:node]) + item.slot
