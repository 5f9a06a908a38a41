"""Clusters from the node lists that public traces carry.

Recognised by their header: openb (Alibaba 2023), spot (Alibaba 2026), the cluster specs of
Tiresias and Muri, and Philly's machine list. Units follow the publishers' documentation.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from cotenant.errors import ConfigError, QuantityError
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.quantities import GIB, MIB, parse_bytes

__all__ = ["MAX_LIST_BYTES", "read_node_list"]

MAX_LIST_BYTES = 50_000_000
"""Largest node list, before and after decompression."""
MAX_COUNT = 10_000_000

Row = dict[str, str]


def read_node_list(path: Path) -> Cluster:
    """Read a node list (``.csv`` or ``.csv.gz``).

    Raises
    ------
    ConfigError
        If the file cannot be read, its header is none of the known ones, or a row is bad.
    """
    rows = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = tuple(cell.strip() for cell in next(rows, []))
        build = _KNOWN.get(header)
        if build is None:
            known = "; ".join(",".join(columns) for columns in _KNOWN)
            raise ConfigError(
                f"{path}:1: not a node list known here ({', '.join(header)[:120]}); known: {known}"
            )
        return build(path, _rows(path, rows, header)).check()
    except csv.Error as error:
        raise ConfigError(f"{path}:{rows.line_num}: not valid CSV: {error}") from None


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a directory; name a file in it")
        with path.open("rb") as raw:
            data = raw.read(MAX_LIST_BYTES + 1)
        if path.suffix == ".gz" and len(data) <= MAX_LIST_BYTES:
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(MAX_LIST_BYTES + 1)
        if len(data) > MAX_LIST_BYTES:
            raise ConfigError(f"{path} is larger than the limit of {MAX_LIST_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not text.strip():
        raise ConfigError(f"{path} is empty")
    return text


def _rows(path: Path, rows: Iterator[list[str]], header: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    for number, cells in enumerate(rows, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise ConfigError(f"{path}:{number}: {len(cells)} cells, but the header has {len(header)}")
        yield number, dict(zip(header, (cell.strip() for cell in cells), strict=True))


def _count(path: Path, line: int, row: Row, column: str, *, scale: int = 1) -> int:
    text = row[column]
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text):
        raise ConfigError(f"{path}:{line} [{column}]: expected a number, 0 or more, found {text!r}")
    value = float(text) * scale
    if scale == 1 and (value != int(value) or value > MAX_COUNT * 1000):
        raise ConfigError(f"{path}:{line} [{column}]: expected a whole number, found {text!r}")
    return round(value)


def _devices(path: Path, line: int, row: Row, column: str) -> int:
    count = _count(path, line, row, column)
    if count > 1024:
        raise ConfigError(f"{path}:{line} [{column}]: {count} devices in one node; at most 1,024")
    return count


def _with_types(nodes: list[Node], name: str, memory: dict[str, int] | None = None) -> Cluster:
    from cotenant.traces.clusterfile import known_type

    names = dict.fromkeys(kind for node in nodes for kind, _ in node.gpus)
    types = []
    for kind in names:
        if memory and memory.get(kind):
            types.append(DeviceType(name=kind, memory_bytes=memory[kind]))
        else:
            types.append(known_type(kind) or DeviceType(name=kind))
    return Cluster(nodes=tuple(nodes), types=tuple(types), name=name)


def _openb(path: Path, rows: Iterator[tuple[int, Row]]) -> Cluster:
    nodes = []
    for line, row in rows:
        gpus = _devices(path, line, row, "gpu")
        if gpus and not row["model"]:
            raise ConfigError(f"{path}:{line} [model]: {gpus} devices, but no model is named")
        nodes.append(
            Node(
                name=row["sn"],
                gpus=((row["model"], gpus),) if gpus else (),
                cpu_milli=_count(path, line, row, "cpu_milli"),
                host_memory_bytes=_count(path, line, row, "memory_mib", scale=MIB),
            )
        )
    return _with_types(nodes, "openb2023")


def _spot(path: Path, rows: Iterator[tuple[int, Row]]) -> Cluster:
    nodes = []
    for line, row in rows:
        gpus = _devices(path, line, row, "gpu_capacity_num")
        nodes.append(
            Node(
                name=row["node_name"],
                gpus=((row["gpu_model"], gpus),) if gpus else (),
                cpu_milli=_count(path, line, row, "cpu_num", scale=1000),
            )
        )
    return _with_types(nodes, "spot2026")


def _spec(path: Path, rows: Iterator[tuple[int, Row]]) -> Cluster:
    """Tiresias and Muri: equal nodes below switches; ``mem_p_node`` is read as GiB."""
    nodes: list[Node] = []
    for line, row in rows:
        switches, each = (_count(path, line, row, c) for c in ("num_switch", "num_node_p_switch"))
        if switches * each + len(nodes) > 1_000_000:
            raise ConfigError(f"{path}:{line}: {switches * each:,} nodes; at most 1,000,000")
        gpus = _devices(path, line, row, "num_gpu_p_node")
        cpu_milli = _count(path, line, row, "num_cpu_p_node", scale=1000)
        memory_bytes = _count(path, line, row, "mem_p_node", scale=GIB)
        start, racks = len(nodes), len({node.rack for node in nodes})
        nodes += [
            Node(
                name=f"n{start + i}",
                gpus=(("gpu", gpus),) if gpus else (),
                cpu_milli=cpu_milli,
                host_memory_bytes=memory_bytes,
                rack=f"switch{racks + i // each}",
            )
            for i in range(switches * each)
        ]
    return _with_types(nodes, path.name.split(".")[0])


def _philly(path: Path, rows: Iterator[tuple[int, Row]]) -> Cluster:
    """Machines with the memory of one card as text; the card has no name, so its size names it."""
    nodes, memory = [], {}
    for line, row in rows:
        text = row["single GPU mem"]
        try:
            size = parse_bytes(text)
        except QuantityError as error:
            raise ConfigError(f"{path}:{line} [single GPU mem]: {error}") from None
        kind = f"gpu-{text}"
        memory[kind] = size
        gpus = _devices(path, line, row, "number of GPUs")
        nodes.append(Node(name=row["machineId"], gpus=((kind, gpus),) if gpus else ()))
    return _with_types(nodes, "philly", memory)


_KNOWN: dict[tuple[str, ...], Callable[[Path, Iterator[tuple[int, Row]]], Cluster]] = {
    ("sn", "cpu_milli", "memory_mib", "gpu", "model"): _openb,
    ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name"): _spot,
    ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node"): _spec,
    ("machineId", "number of GPUs", "single GPU mem"): _philly,
}
