"""Clusters from files: our own TOML or YAML, and the node lists that traces come with.

``docs/clusters.md`` shows the file format. Sizes carry their unit, in the value
(``memory = "80GiB"``) or in the key (``memory_mib = 81559``); unknown keys are errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError, QuantityError, UnknownNameError
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.quantities import parse_bytes
from cotenant.profiles.catalogue import canonical_type, device_type, under_name
from cotenant.profiles.catalogue import known as catalogue
from cotenant.traces.clusterpools import AutoscaleEntry, HostPoolEntry, StateTierEntry, read_pools
from cotenant.traces.clusterwrite import to_toml
from cotenant.traces.documents import Document, read_document
from cotenant.traces.nodelists import read_node_list

__all__ = [
    "MAX_DEVICES",
    "MAX_NODES",
    "cluster_from_options",
    "known_type",
    "parse_cluster",
    "read_cluster",
    "to_toml",
]

MAX_NODES = 1_000_000
MAX_DEVICES = 10_000_000
_MAX_BYTES = 1 << 60
_ANY = "gpu"
"""A device type of which nothing is known."""


class _Type(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    memory: str | int | float | None = None
    memory_mib: int | None = None
    memory_bytes: int | None = None
    speed: float | None = None
    power_w: float | None = None
    idle_w: float | None = None


class _Slot(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: str
    count: int = 1


class _Node(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str = "n"
    count: int | None = None
    first: int = 0
    gpus: int | dict[str, int] | list[str | _Slot] = 0
    type: str | None = None
    cpus: float | None = None
    memory: str | int | float | None = None
    memory_mib: int | None = None
    memory_bytes: int | None = None
    rack: str = ""


class _Tenant(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    weight: float = 1.0
    quota_gpus: int = 0
    limit_gpus: int | None = None
    parent: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str = ""
    types: list[_Type] = []
    nodes: list[_Node]
    tenants: list[_Tenant] = []
    host_pools: list[HostPoolEntry] = []
    state_tiers: list[StateTierEntry] = []
    autoscale: list[AutoscaleEntry] = []


def known_type(name: str) -> DeviceType | None:
    """A device type of the catalogue, by name or alias; None if it is not there."""
    # Whatever spelling the catalogue prefers, the cluster keeps the one in the file.
    return under_name(name) if canonical_type(name) else None


def cluster_from_options(gpus: int, gpus_per_node: int = 8, gpu_type: str = "gpu") -> Cluster:
    """Equal nodes of one device type, as the command line asks for them.

    Parameters
    ----------
    gpu_type : str
        A name or alias of the catalogue, which becomes the catalogue's name; or ``gpu``, a
        device of unknown memory: nothing is decided on memory.

    Raises
    ------
    ConfigError
        If a count is not positive or too large.
    UnknownNameError
        If the catalogue does not know the type; a cluster file can describe others.

    Examples
    --------
    >>> cluster_from_options(20, 8, "tesla v100").nodes[-1].gpus
    (('V100', 4),)
    """
    if gpus > MAX_DEVICES:
        raise ConfigError(f"{gpus:,} devices asked for; the most is {MAX_DEVICES:,}")
    if gpu_type == _ANY:
        kind = DeviceType(name=_ANY)
    elif canonical_type(gpu_type) is None:
        raise UnknownNameError(
            "device type", gpu_type, catalogue(), advice="describe others in a cluster file"
        )
    else:
        kind = device_type(gpu_type)
    return Cluster.uniform(gpus, gpus_per_node=gpus_per_node, gpu_type=kind)


def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster: ``.toml``, ``.yaml``, ``.yml``, or a trace's node list (``.csv``, ``.csv.gz``).

    Raises
    ------
    ConfigError
        Naming file, line (YAML, CSV) and key, and what to write instead.
    """
    path = Path(path)
    if path.name.lower().endswith((".csv", ".csv.gz")):
        return read_node_list(path)
    return parse_cluster(read_document(path))


def parse_cluster(document: Document, at: tuple[str | int, ...] = ()) -> Cluster:
    """Build a cluster from a document, or from the table at ``at`` inside it.

    Raises
    ------
    ConfigError
        As ``read_cluster``.
    """
    data: Any = document.data
    for step in at:
        data = data[step]
    file = document.convert(_File, data, at)
    types = {}
    for index, entry in enumerate(file.types):
        if entry.name in types:
            raise document.error(f'device type "{entry.name}" appears twice', ("types", index), within=at)
        types[entry.name] = _type(document, entry, (*at, "types", index))
    declared = tuple(types)
    nodes: list[Node] = []
    for index, node in enumerate(file.nodes):
        place = (*at, "nodes", index)
        gpus = _gpus(document, node, declared, place)
        for kind, _ in gpus:
            if kind not in types:
                types[kind] = _undeclared(document, kind, declared, place)
        nodes.extend(_nodes(document, node, gpus, place, room=MAX_NODES - len(nodes)))
    if sum(count for node in nodes for _, count in node.gpus) > MAX_DEVICES:
        raise document.error(f"more than {MAX_DEVICES:,} devices in all", within=at)
    tenants = [_tenant(document, tenant, (*at, "tenants", i)) for i, tenant in enumerate(file.tenants)]
    pools = read_pools(document, at, nodes, (file.host_pools, file.state_tiers, file.autoscale))
    cluster = Cluster(
        nodes=tuple(nodes), types=tuple(types.values()), tenants=tuple(tenants), name=file.name, **pools
    )
    try:
        _acyclic(cluster)
        return cluster.check()
    except ConfigError as error:
        raise document.error(str(error), within=at) from None


def _type(document: Document, entry: _Type, at: tuple[str | int, ...]) -> DeviceType:
    known = known_type(entry.name) or DeviceType(name=entry.name)
    changes: dict[str, Any] = {"name": entry.name}
    memory = _memory(document, entry, at)
    if memory is not None:
        changes["memory_bytes"] = memory
    for field in ("speed", "power_w", "idle_w"):
        value = getattr(entry, field)
        if value is None:
            continue
        if not (math.isfinite(value) and value >= 0 and (value > 0 or field != "speed")):
            raise document.error(
                f"must be {'positive' if field == 'speed' else '0 or more'}, found {value}",
                (field,),
                within=at,
            )
        changes[field] = value
    return msgspec.structs.replace(known, **changes)


def _undeclared(
    document: Document, kind: str, declared: tuple[str, ...], at: tuple[str | int, ...]
) -> DeviceType:
    known = known_type(kind)
    if known is None and (declared or kind != "gpu"):
        listed = ", ".join(declared) or "none"
        raise document.error(
            f'device type "{kind}" is not declared (declared: {listed}); add [[types]] name = "{kind}"',
            within=at,
        )
    return known or DeviceType(name=kind)


def _memory(document: Document, entry: _Type | _Node, at: tuple[str | int, ...]) -> int | None:
    given = [k for k in ("memory", "memory_mib", "memory_bytes") if getattr(entry, k) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise document.error(f"{' and '.join(given)} say the same thing; keep one", within=at)
    value = getattr(entry, given[0])
    unit = {"memory": None, "memory_mib": "MiB", "memory_bytes": "B"}[given[0]]
    try:
        if value is not None and not isinstance(value, str) and value < 0:
            raise QuantityError(f"size {value} is negative")
        size: int = value if unit == "B" else parse_bytes(value, unit=unit)
        if size > _MAX_BYTES:
            raise QuantityError(f"size {value!r:.40} is above an exbibyte")
        return size
    except QuantityError as error:
        raise document.error(str(error), (given[0],), within=at) from None


def _gpus(
    document: Document, node: _Node, declared: tuple[str, ...], at: tuple[str | int, ...]
) -> tuple[tuple[str, int], ...]:
    if isinstance(node.gpus, int):
        kind = node.type
        if kind is None and node.gpus:
            if len(declared) > 1:
                raise document.error(f"say which type: type = one of {', '.join(declared)}", within=at)
            kind = declared[0] if declared else "gpu"
        slots = [(kind or "", node.gpus)] if node.gpus else []
    elif node.type is not None:
        raise document.error("type goes with a number of gpus; here gpus names the types itself", within=at)
    elif isinstance(node.gpus, dict):
        slots = list(node.gpus.items())
    else:
        slots = [(s, 1) if isinstance(s, str) else (s.type, s.count) for s in node.gpus]
    for kind, count in slots:
        if not 0 < count <= MAX_DEVICES:
            raise document.error(
                f'{count} devices of type "{kind}"; a count must be 1 or more', ("gpus",), within=at
            )
    return tuple(slots)


def _nodes(
    document: Document,
    node: _Node,
    gpus: tuple[tuple[str, int], ...],
    at: tuple[str | int, ...],
    *,
    room: int,
) -> Iterator[Node]:
    memory = _memory(document, node, at) or 0
    cpus = node.cpus or 0.0
    if not (math.isfinite(cpus) and 0 <= cpus <= 1e6):
        raise document.error(f"{cpus} cores; must be 0 or more", ("cpus",), within=at)
    if node.count is not None and not 0 < node.count <= room:
        raise document.error(f"{node.count} nodes; must be 1 to {room:,}", ("count",), within=at)
    if node.first < 0:
        raise document.error(f"first is {node.first}; must be 0 or more", ("first",), within=at)
    names: list[str]
    if node.count is None:
        names = [node.name]
    else:
        pattern = node.name if "{}" in node.name else node.name + "{}"
        names = [pattern.replace("{}", str(node.first + i)) for i in range(node.count)]
    for name in names:
        yield Node(
            name=name, gpus=gpus, cpu_milli=round(cpus * 1000), host_memory_bytes=memory, rack=node.rack
        )


def _tenant(document: Document, entry: _Tenant, at: tuple[str | int, ...]) -> Tenant:
    if entry.quota_gpus < 0 or (entry.limit_gpus is not None and entry.limit_gpus < entry.quota_gpus):
        raise document.error(
            f"quota_gpus {entry.quota_gpus} must lie between 0 and limit_gpus {entry.limit_gpus}", within=at
        )
    return Tenant(**msgspec.structs.asdict(entry))


def _acyclic(cluster: Cluster) -> None:
    parents = {tenant.name: tenant.parent for tenant in cluster.tenants}
    for start, parent in parents.items():
        seen, name = {start}, parent
        while name:
            if name in seen:
                raise ConfigError(f'tenant "{start}" is its own ancestor, through "{name}"')
            seen.add(name)
            name = parents.get(name, "")
