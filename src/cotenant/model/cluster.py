"""Clusters as people describe them: device types, nodes, tenants.

Memory and speed belong to devices, never to nodes: two cards of one node may differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.pools import HostPool, Scaling, StateTier, check_pools

__all__ = ["Cluster", "DeviceType", "Node", "Tenant"]


class DeviceType(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A kind of device.

    Parameters
    ----------
    name : str
    memory_bytes : int
        Usable memory; 0 means unknown: nothing is decided on memory there, and jobs get
        such devices whole.
    speed : float
        Speed of a job alone on it, relative to the reference device (1.0), where no
        measurement says otherwise.
    power_w, idle_w : float
        Board power when busy and idle, in watts; 0 if unknown (energy is then n/a).
    """

    name: str
    memory_bytes: int = 0
    speed: float = 1.0
    power_w: float = 0.0
    idle_w: float = 0.0


class Node(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A machine.

    Parameters
    ----------
    name : str
    gpus : tuple of (str, int)
        Device type and count, in slot order; several entries where cards differ.
    cpu_milli, host_memory_bytes : int
        0 means not declared: then nothing is decided on it.
    rack : str
    """

    name: str
    gpus: tuple[tuple[str, int], ...] = ()
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    rack: str = ""


class Tenant(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Who shares the cluster.

    Parameters
    ----------
    name : str
    weight : float
        Relative claim on capacity beyond quotas; must be positive.
    quota_gpus : int
        Devices guaranteed; may be lent while unused and reclaimed.
    limit_gpus : int or None
        Hard ceiling, checked on every start; None is no ceiling.
    parent : str
        Name of the parent tenant in a hierarchy; empty for a root.
    """

    name: str
    weight: float = 1.0
    quota_gpus: int = 0
    limit_gpus: int | None = None
    parent: str = ""


class Cluster(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Nodes, the device types they name, and the tenants that share them.

    ``host_pools``, ``state_tiers`` and ``scaling`` say what is pooled and resized (``model.pools``).
    """

    nodes: tuple[Node, ...]
    types: tuple[DeviceType, ...]
    tenants: tuple[Tenant, ...] = ()
    name: str = ""
    host_pools: tuple[HostPool, ...] = ()
    state_tiers: tuple[StateTier, ...] = ()
    scaling: tuple[Scaling, ...] = ()

    @classmethod
    def uniform(
        cls,
        gpus: int,
        *,
        gpus_per_node: int = 8,
        gpu_type: DeviceType | None = None,
        tenants: Iterable[Tenant] = (),
    ) -> Cluster:
        """Build a cluster of equal nodes; the last node takes the remainder.

        Raises
        ------
        ConfigError
            If a count is not positive, or the type is not a ``DeviceType``.

        Examples
        --------
        >>> Cluster.uniform(20, gpus_per_node=8).gpu_count
        20
        """
        if gpu_type is not None and not isinstance(gpu_type, DeviceType):
            raise ConfigError(
                f"gpu_type is a DeviceType, found {gpu_type!r:.60}; a name is looked up by "
                f'cotenant.simulate(jobs, {gpus}, gpu_type="V100"), or by '
                'cotenant.profiles.catalogue.device_type("V100")'
            )
        for name, count in (("gpus", gpus), ("gpus_per_node", gpus_per_node)):
            if not isinstance(count, int) or isinstance(count, bool):
                raise ConfigError(f"{name} must be a whole number, found {count!r:.60}")
        if gpus < 1 or gpus_per_node < 1:
            raise ConfigError(
                f"a cluster needs at least one device, found gpus={gpus}, gpus_per_node={gpus_per_node}"
            )
        kind = gpu_type or DeviceType(name="gpu")
        sizes = [gpus_per_node] * (gpus // gpus_per_node)
        if gpus % gpus_per_node:
            sizes.append(gpus % gpus_per_node)
        nodes = tuple(Node(name=f"n{i}", gpus=((kind.name, size),)) for i, size in enumerate(sizes))
        return cls(nodes=nodes, types=(kind,), tenants=tuple(tenants))

    @property
    def gpu_count(self) -> int:
        """Number of devices in all."""
        return sum(count for node in self.nodes for _, count in node.gpus)

    def check(self) -> Cluster:
        """Return self if consistent.

        Raises
        ------
        ConfigError
            On a repeated name, an unknown device type or tenant parent, or a number out of range.
        """
        known = _unique("device type", (t.name for t in self.types))
        _unique("node", (n.name for n in self.nodes))
        tenants = _unique("tenant", (t.name for t in self.tenants))
        for node in self.nodes:
            for kind, count in node.gpus:
                if kind not in known:
                    raise ConfigError(
                        f'node "{node.name}" names device type "{kind}"; known: {", ".join(sorted(known))}'
                    )
                if count < 1:
                    raise ConfigError(f'node "{node.name}" has {count} devices of type "{kind}"')
        for tenant in self.tenants:
            if not 0 < tenant.weight < float("inf"):
                raise ConfigError(f'tenant "{tenant.name}" needs a positive weight, found {tenant.weight}')
            if tenant.parent and tenant.parent not in tenants:
                raise ConfigError(f'tenant "{tenant.name}" has unknown parent "{tenant.parent}"')
        for device_type in self.types:
            if not 0 < device_type.speed < float("inf"):
                raise ConfigError(
                    f'device type "{device_type.name}" needs a positive speed, found {device_type.speed}'
                )
        if self.host_pools or self.state_tiers or self.scaling:
            devices = {node.name: sum(count for _, count in node.gpus) for node in self.nodes}
            check_pools(self.host_pools, self.state_tiers, self.scaling, devices)
        return self


def _unique(what: str, names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f'{what} "{name}" appears twice')
        seen.add(name)
    return seen
