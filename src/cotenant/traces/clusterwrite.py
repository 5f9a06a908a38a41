"""Write a cluster in the format that ``clusterfile`` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cotenant.model.cluster import Cluster, Node
from cotenant.model.quantities import MIB
from cotenant.traces.clusterpools import pool_lines

__all__ = ["to_toml"]


def to_toml(cluster: Cluster) -> str:
    """Write a cluster as TOML that ``read_cluster`` reads back to an equal cluster.

    Runs of equal nodes named ``prefix0, prefix1, ...`` become one entry with a count.
    """
    lines = [f"name = {_text(cluster.name)}"] if cluster.name else []
    for kind in cluster.types:
        lines += ["", "[[types]]", f"name = {_text(kind.name)}", f"memory = {_size(kind.memory_bytes)}"]
        lines += [f"{f} = {float(getattr(kind, f))!r}" for f in ("speed", "power_w", "idle_w")]
    if not cluster.nodes:
        lines[:0] = ["nodes = []"]
    for node, first, count in _runs(cluster.nodes):
        lines += ["", "[[nodes]]"]
        if count > 1:
            prefix = node.name[: len(node.name) - len(str(first))]
            lines += [f"name = {_text(prefix)}", f"first = {first}", f"count = {count}"]
        else:
            lines.append(f"name = {_text(node.name)}")
        lines += _node_lines(node)
    for tenant in cluster.tenants:
        lines += ["", "[[tenants]]", f"name = {_text(tenant.name)}", f"weight = {float(tenant.weight)!r}"]
        lines.append(f"quota_gpus = {tenant.quota_gpus}")
        lines += [] if tenant.limit_gpus is None else [f"limit_gpus = {tenant.limit_gpus}"]
        lines += [f"parent = {_text(tenant.parent)}"] if tenant.parent else []
    lines += pool_lines(cluster)
    return "\n".join(lines).lstrip("\n") + "\n"


def _node_lines(node: Node) -> list[str]:
    lines = []
    kinds = [kind for kind, _ in node.gpus]
    if len(set(kinds)) == len(kinds):
        pairs = ", ".join(f"{_text(kind)} = {count}" for kind, count in node.gpus)
        lines.append(f"gpus = {{ {pairs} }}" if pairs else "gpus = 0")
    else:
        pairs = ", ".join(f"{{ type = {_text(kind)}, count = {count} }}" for kind, count in node.gpus)
        lines.append(f"gpus = [{pairs}]")
    if node.cpu_milli:
        lines.append(f"cpus = {node.cpu_milli / 1000!r}")
    if node.host_memory_bytes:
        lines.append(f"memory = {_size(node.host_memory_bytes)}")
    if node.rack:
        lines.append(f"rack = {_text(node.rack)}")
    return lines


def _runs(nodes: Sequence[Node]) -> Iterator[tuple[Node, int, int]]:
    """Yield (first node, its number, how many follow each other) for equal neighbours."""
    start = 0
    while start < len(nodes):
        node = nodes[start]
        prefix, number = _numbered(node.name)
        count = 1
        while number is not None and start + count < len(nodes):
            other = nodes[start + count]
            same = (other.gpus, other.cpu_milli, other.host_memory_bytes, other.rack) == (
                node.gpus,
                node.cpu_milli,
                node.host_memory_bytes,
                node.rack,
            )
            if not same or other.name != f"{prefix}{number + count}":
                break
            count += 1
        yield node, number or 0, count
        start += count


def _numbered(name: str) -> tuple[str, int | None]:
    """Split ``n12`` into its prefix and number; no number where it would not read back."""
    prefix = name.rstrip("0123456789")
    digits = name[len(prefix) :]
    if not digits.isascii() or "{}" in prefix or not digits or str(int(digits[:18])) != digits:
        return name, None
    return prefix, int(digits)


def _size(size_bytes: int) -> str:
    whole, rest = divmod(size_bytes, MIB)
    return f'"{size_bytes}B"' if rest else f'"{whole}MiB"'


def _text(value: str) -> str:
    """A TOML basic string."""
    out = []
    for char in value:
        if char in '"\\':
            out.append("\\" + char)
        elif ord(char) < 32 or ord(char) == 127:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'
