"""Pools in a cluster file: ``[[host_pools]]``, ``[[state_tiers]]``, ``[[autoscale]]``; see ``docs/clusters.md``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from cotenant.errors import QuantityError
from cotenant.model.cluster import Cluster, Node
from cotenant.model.pools import GPUS, HostPool, Scaling, StateTier
from cotenant.model.quantities import parse_bytes, parse_duration
from cotenant.traces.documents import Document

__all__ = ["AutoscaleEntry", "HostPoolEntry", "StateTierEntry", "pool_lines", "read_pools"]

_Size = str | int
_Time = str | float


class HostPoolEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One ``[[host_pools]]``; ``nodes`` are names, ``*`` stands for anything."""

    name: str
    nodes: list[str] = []
    cpus: float = 0.0
    memory: _Size = 0
    link_bandwidth: str | None = None
    link_latency_s: float | None = None
    local_memory: _Size = 0
    touch: _Time | None = None
    core_bandwidth: str | None = None
    block: _Size | None = None


class StateTierEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One ``[[state_tiers]]``."""

    name: str
    bandwidth: str
    capacity: _Size | None = None
    latency_s: float = 0.0


class AutoscaleEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One ``[[autoscale]]``."""

    of: str
    least: _Size
    most: _Size
    rule: str | None = None
    every: _Time | None = None
    delay: _Time | None = None
    idle: _Time | None = None
    high: float | None = None
    low: float | None = None
    step: float | None = None
    hit_rate: float | None = None
    retention: _Time | None = None
    headroom: float | None = None


def read_pools(
    document: Document,
    at: tuple[str | int, ...],
    nodes: Sequence[Node],
    entries: tuple[list[HostPoolEntry], list[StateTierEntry], list[AutoscaleEntry]],
) -> dict[str, Any]:
    """The pools of a cluster, as fields of ``Cluster``.

    Raises
    ------
    ConfigError
        For a size, time or name that cannot be used.
    """
    reader = _Reader(document, at)
    hosts, tiers, scaling = entries
    return {
        "host_pools": tuple(reader.host(i, entry, nodes) for i, entry in enumerate(hosts)),
        "state_tiers": tuple(reader.tier(i, entry) for i, entry in enumerate(tiers)),
        "scaling": tuple(
            reader.scaling(i, entry, [tier.name for tier in tiers]) for i, entry in enumerate(scaling)
        ),
    }


class _Reader:
    def __init__(self, document: Document, at: tuple[str | int, ...]) -> None:
        self._document, self._at = document, at

    def host(self, index: int, entry: HostPoolEntry, nodes: Sequence[Node]) -> HostPool:
        where = ("host_pools", index)
        names: list[str] = []
        for pattern in entry.nodes:
            found = [node.name for node in nodes if fnmatchcase(node.name, pattern)]
            if not found:
                raise self._document.error(
                    f'no node is called "{pattern}"', (*where, "nodes"), within=self._at
                )
            names += [name for name in found if name not in names]
        changes: dict[str, Any] = {
            "link_bytes_per_s": self._rate(entry.link_bandwidth, (*where, "link_bandwidth")),
            "link_latency_s": entry.link_latency_s,
            "touch_s": self._time(entry.touch, (*where, "touch")),
            "core_bytes_per_s": self._rate(entry.core_bandwidth, (*where, "core_bandwidth")),
            "block_bytes": self._size(entry.block, (*where, "block")),
        }
        return HostPool(
            name=entry.name,
            nodes=tuple(names),
            cpu_milli=round(entry.cpus * 1000),
            host_memory_bytes=self._size(entry.memory, (*where, "memory")) or 0,
            local_bytes=self._size(entry.local_memory, (*where, "local_memory")) or 0,
            **{key: value for key, value in changes.items() if value is not None},
        )

    def tier(self, index: int, entry: StateTierEntry) -> StateTier:
        where = ("state_tiers", index)
        return StateTier(
            name=entry.name,
            bytes_per_s=self._rate(entry.bandwidth, (*where, "bandwidth")) or 0.0,
            capacity_bytes=self._size(entry.capacity, (*where, "capacity")),
            latency_s=entry.latency_s,
        )

    def scaling(self, index: int, entry: AutoscaleEntry, tiers: Sequence[str]) -> Scaling:
        where = ("autoscale", index)
        known = (GPUS, *tiers)
        if entry.of not in known:
            # Before its bounds, whose kind hangs on what they are of.
            raise self._document.error(
                f'no such pool "{entry.of}"; write one of {", ".join(known)}', (*where, "of"), within=self._at
            )
        bounds = []
        for key in ("least", "most"):
            value = getattr(entry, key)
            if entry.of == GPUS and not isinstance(value, int):
                raise self._document.error(
                    f"bounds of gpus are numbers of nodes, found {value!r}", (*where, key), within=self._at
                )
            bounds.append(value if entry.of == GPUS else self._size(value, (*where, key)))
        changes: dict[str, Any] = {"rule": entry.rule or ("queue" if entry.of == GPUS else "fill")}
        for key in ("every", "delay", "idle", "retention"):
            changes[f"{key}_s"] = self._time(getattr(entry, key), (*where, key))
        for key in ("high", "low", "step", "hit_rate", "headroom"):
            changes[key] = getattr(entry, key)
        given = {key: value for key, value in changes.items() if value is not None}
        return Scaling(of=entry.of, least=bounds[0] or 0, most=bounds[1] or 0, **given)

    def _size(self, value: _Size | None, where: tuple[str | int, ...]) -> int | None:
        if value is None or value == 0:
            return value
        try:
            return parse_bytes(value)
        except QuantityError as error:
            raise self._document.error(str(error), where, within=self._at) from None

    def _rate(self, value: str | None, where: tuple[str | int, ...]) -> float | None:
        if value is None:
            return None
        if not value.endswith("/s"):
            raise self._document.error(
                f'a bandwidth is a size for each second, such as "10GB/s", found {value!r:.40}',
                where,
                within=self._at,
            )
        return float(self._size(value[:-2].strip(), where) or 0)

    def _time(self, value: _Time | None, where: tuple[str | int, ...]) -> float | None:
        try:
            return None if value is None else parse_duration(value)
        except QuantityError as error:
            raise self._document.error(str(error), where, within=self._at) from None


def pool_lines(cluster: Cluster) -> list[str]:
    """The pools of a cluster as lines of TOML that ``read_pools`` reads back to equal ones."""
    lines = []
    for pool in cluster.host_pools:
        lines += ["", "[[host_pools]]", f"name = {_text(pool.name)}"]
        lines += [f"nodes = [{', '.join(_text(name) for name in pool.nodes)}]"] if pool.nodes else []
        lines += [f"cpus = {pool.cpu_milli / 1000!r}"] if pool.cpu_milli else []
        for key, size in (("memory", pool.host_memory_bytes), ("local_memory", pool.local_bytes)):
            lines += [f'{key} = "{size}B"'] if size else []
        lines += [
            f'link_bandwidth = "{round(pool.link_bytes_per_s)}B/s"',
            f"link_latency_s = {float(pool.link_latency_s)!r}",
            f'touch = "{float(pool.touch_s)!r}s"',
            f'core_bandwidth = "{round(pool.core_bytes_per_s)}B/s"',
            f'block = "{pool.block_bytes}B"',
        ]
    for tier in cluster.state_tiers:
        lines += ["", "[[state_tiers]]", f"name = {_text(tier.name)}"]
        lines += [f'bandwidth = "{round(tier.bytes_per_s)}B/s"', f"latency_s = {float(tier.latency_s)!r}"]
        lines += [] if tier.capacity_bytes is None else [f'capacity = "{tier.capacity_bytes}B"']
    for rule in cluster.scaling:
        lines += ["", "[[autoscale]]", f"of = {_text(rule.of)}", f"rule = {_text(rule.rule)}"]
        unit = "" if rule.of == GPUS else '"'
        for key in ("least", "most"):
            lines.append(f"{key} = {unit}{getattr(rule, key)}{unit and 'B' + unit}")
        lines += [
            f'{key} = "{float(getattr(rule, key + "_s"))!r}s"'
            for key in ("every", "delay", "idle", "retention")
        ]
        lines += [
            f"{key} = {float(getattr(rule, key))!r}"
            for key in ("high", "low", "step", "hit_rate", "headroom")
        ]
    return lines


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, too."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
