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
    kind = "tenant-limit"     # limit_gpus = "none" lifts the ceiling
    at = "8h"
    tenant = "vision"
    limit_gpus = 64

    [[incident]]
    kind = "tier-resize"      # a state tier of the cluster
    at = "9h"
    tier = "memory"
    capacity = "80GB"

``docs/incidents.md`` describes every kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from cotenant.errors import ConfigError, QuantityError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.poolevents import TierResized
from cotenant.model.quantities import parse_bytes, parse_duration
from cotenant.model.workload import Workload
from cotenant.traces.documents import Document, read_document

__all__ = ["check_incidents", "read_incidents"]

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
    "tier-resize",
]
_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("node-down", "node-up", "drain", "undrain"), ("node",)),
    **dict.fromkeys(("device-down", "device-up"), ("node", "slot")),
    "cancel": ("job",),
    "priority": ("job", "priority"),
    "tenant-limit": ("tenant", "limit_gpus"),
    "tier-resize": ("tier", "capacity"),
}
"""What each kind needs beside ``kind`` and ``at``."""
_BACK: dict[str, Any] = {"node-down": "node-up", "drain": "undrain", "device-down": "device-up"}


class _Incident(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Kind
    at: str
    node: str | None = None
    slot: int | None = None
    job: str | None = None
    tenant: str | None = None
    priority: int | None = None
    limit_gpus: int | Literal["none"] | None = None
    tier: str | None = None
    capacity: str | None = None
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
    for index, item, at_s, lasts_s in _items(document):
        found.append(names.event(index, item, at_s))
        if lasts_s is not None:
            back = msgspec.structs.replace(item, kind=_BACK[item.kind])
            found.append(names.event(index, back, at_s + lasts_s))
    return tuple(sorted(found, key=lambda event: event.t))


def check_incidents(path: Path, cluster: Cluster | None = None) -> int:
    """Check a file of incidents without a workload, and count them.

    Names of nodes, slots and tenants are checked if there is a cluster, names of jobs never.

    Raises
    ------
    ConfigError
        As ``read_incidents``.
    """
    document = read_document(path)
    items = list(_items(document))
    if cluster is not None:
        names = _Names(document, cluster, None)
        for index, item, at_s, _ in items:
            if item.job is None:
                names.event(index, item, at_s)
    return len(items)


def _items(document: Document) -> Iterator[tuple[int, _Incident, float, float | None]]:
    """Each incident with its place in the file, its time and how long it lasts."""

    def duration(index: int, key: str, text: str) -> float:
        try:
            return parse_duration(text)
        except QuantityError as error:
            raise _error(document, index, f"{key}: {error}") from None

    if isinstance(document.data, dict) and "incidents" in document.data and "incident" not in document.data:
        raise document.error('write [[incident]] for each incident, not "incidents"', ("incidents",))
    for index, item in enumerate(document.convert(_File).incident):
        _check_keys(document, index, item)
        lasts_s = None if item.lasts is None else duration(index, "lasts", item.lasts)
        yield index, item, duration(index, "at", item.at), lasts_s


def _check_keys(document: Document, index: int, item: _Incident) -> None:
    needed = _KEYS[item.kind]
    every = ("node", "slot", "job", "tenant", "priority", "limit_gpus", "tier", "capacity")
    given = [key for key in every if getattr(item, key) is not None]
    missing = [key for key in needed if key not in given]
    surplus = [key for key in given if key not in needed]
    if missing:
        hint = ' (a number, or "none" to lift the ceiling)' if "limit_gpus" in missing else ""
        raise _error(document, index, f'"{item.kind}" needs {" and ".join(missing)}{hint}')
    if surplus:
        raise _error(document, index, f'{", ".join(surplus)} says nothing for "{item.kind}"; leave it out')
    if item.lasts is not None and item.kind not in _BACK:
        raise _error(document, index, f'"{item.kind}" does not last; leave out lasts')
    if isinstance(item.limit_gpus, int) and item.limit_gpus < 0:
        raise _error(document, index, f"limit_gpus must be 0 or more, found {item.limit_gpus}")


def _error(document: Document, index: int, message: str) -> ConfigError:
    return document.error(message, ("incident", index))


class _Names:
    """Turns names in the file into numbers of the cluster and the workload."""

    def __init__(self, document: Document, cluster: Cluster, workload: Workload | None) -> None:
        self._document = document
        self._cluster = cluster
        self._workload = workload
        self._nodes = {node.name: i for i, node in enumerate(cluster.nodes)}
        self._tenants = {tenant.name for tenant in cluster.tenants}
        self._jobs: dict[str, int] | None = None

    def error(self, index: int, message: str) -> ConfigError:
        return _error(self._document, index, message)

    def event(self, index: int, item: _Incident, t: float) -> ev.Event:
        if item.kind in {"cancel", "priority"}:
            return self._command(index, item, t)
        if item.kind == "tenant-limit":
            if item.tenant not in self._tenants:
                known = ", ".join(sorted(self._tenants)) or "none declared"
                raise self.error(index, f'no tenant "{item.tenant}"; known: {known}')
            limit = None if item.limit_gpus == "none" else item.limit_gpus
            return ev.TenantLimitChanged(t, item.tenant or "", limit)
        if item.kind == "tier-resize":
            return self._tier(index, item, t)
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

    def _tier(self, index: int, item: _Incident, t: float) -> ev.Event:
        names = [tier.name for tier in self._cluster.state_tiers]
        if item.tier not in names:
            raise self.error(
                index, f'no state tier "{item.tier}"; known: {", ".join(names) or "none declared"}'
            )
        try:
            size = parse_bytes(item.capacity or "")
        except QuantityError as error:
            raise self.error(index, f"capacity: {error}") from None
        return TierResized(t, names.index(item.tier), size, item.cause)

    def _command(self, index: int, item: _Incident, t: float) -> ev.Event:
        if self._jobs is None:
            if self._workload is None:
                raise self.error(index, "names of jobs need a workload")
            self._jobs = {name: i for i, name in enumerate(self._workload.frame["name"].to_list())}
        job = self._jobs.get(item.job or "")
        if job is None:
            raise self.error(index, f'no job "{item.job}" in this workload')
        if item.kind == "cancel":
            return ev.CancelRequested(t, job)
        return ev.PriorityChanged(t, job, item.priority or 0)

    def _device(self, index: int, item: _Incident, node: int) -> int:
        sizes = [sum(count for _, count in n.gpus) for n in self._cluster.nodes]
        if item.slot is None or not 0 <= item.slot < sizes[node]:
            raise self.error(
                index, f'node "{item.node}" has slots 0 to {sizes[node] - 1}, found slot = {item.slot}'
            )
        return sum(sizes[:node]) + item.slot
