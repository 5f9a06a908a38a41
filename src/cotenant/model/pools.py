"""What a cluster may declare as pools: host capacity, room for saved state, and rules that resize them.

Everything here is optional; a cluster without pools has hosts that belong to their node, and
state that is saved somewhere without bounds (``Settings.state_bytes_per_s``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.errors import ConfigError

__all__ = ["GPUS", "HostPool", "Scaling", "StateTier", "check_pools"]

GPUS = "gpus"
"""What ``Scaling.of`` calls the pool of devices."""

_INF = float("inf")


class HostPool(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Cores and host memory that several nodes draw from, over links, instead of having their own.

    Parameters
    ----------
    name : str
    nodes : tuple of str
        Names of the nodes that draw from it; empty means all.
    cpu_milli, host_memory_bytes : int
        Capacity; 0 means the sum of what its nodes declare (the hardware they had, pooled).
    link_bytes_per_s, link_latency_s : float
        Of the link between each device and the pool.
    local_bytes : int
        Memory beside each device that holds the hottest part of its job's host memory: a cache, not
        counted in the pool.
    touch_s : float
        A job at full speed goes once over its host memory in this time: an assumption.
    core_bytes_per_s : float
        What each remote core sends over the link (prepared input, say): an assumption.
    block_bytes : int
        Bytes fetched at one latency.
    """

    name: str
    nodes: tuple[str, ...] = ()
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    link_bytes_per_s: float = 12.5e9
    link_latency_s: float = 5e-6
    local_bytes: int = 0
    touch_s: float = 60.0
    core_bytes_per_s: float = 0.0
    block_bytes: int = 1 << 20

    def speed(self, host_bytes: int, cpu_milli: int, devices: int) -> float:
        """Speed factor of a job whose host part lies in this pool.

        ``1 / (1 + remote / devices * (1 / link bandwidth + latency / block))``, where ``remote`` is the
        bytes it fetches for each second of work: the uncached part of its host memory once in
        ``touch_s``, and what its cores send. Waiting for the link is not hidden by computing.

        Examples
        --------
        >>> HostPool(name="p", link_bytes_per_s=1e9, link_latency_s=0.0, touch_s=10.0).speed(10**10, 0, 2)
        0.6666666666666666
        """
        near = min(host_bytes, self.local_bytes * devices)
        remote = (host_bytes - near) / self.touch_s + self.core_bytes_per_s * cpu_milli / 1000.0
        wait_s = 1.0 / self.link_bytes_per_s + self.link_latency_s / self.block_bytes
        return 1.0 / (1.0 + remote / max(devices, 1) * wait_s)


class StateTier(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A place where the state of suspended jobs is kept: host memory, NVMe, an object store.

    Tiers are tried in the order of the cluster: the first with room takes the state.

    Parameters
    ----------
    name : str
    bytes_per_s : float
        All transfers to and from it together.
    capacity_bytes : int or None
        None is no bound.
    latency_s : float
        Added to each saving and loading.
    """

    name: str
    bytes_per_s: float
    capacity_bytes: int | None = None
    latency_s: float = 0.0


class Scaling(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A rule that resizes one pool, whatever the policy (``engine.autoscaler``).

    Parameters
    ----------
    of : str
        ``"gpus"``, or the name of a state tier.
    least, most : int
        Bounds: nodes with devices for ``"gpus"``, bytes for a tier.
    rule : {"queue", "fill", "retention"}
        ``queue`` (gpus): nodes come for the devices that waiting and running jobs ask for, and go when
        nobody needs them. ``fill`` (tiers): by the share of the room that is held, and by the hit
        rate. ``retention`` (tiers): the most held in the last ``retention_s``, plus ``headroom``.
    every_s, delay_s, idle_s : float
        How often it looks; how long growth takes; for how long there must be too much before it shrinks.
    high, low, step : float
        Of ``fill``: shares of the room at which it grows and shrinks, and the factor by which it does.
    hit_rate : float
        Of ``fill``: it grows, too, where fewer of the states since the last look found room in this tier; 0: not looked at.
    retention_s, headroom : float
        Of ``retention``.
    """

    of: str
    least: int
    most: int
    rule: str = "queue"
    every_s: float = 60.0
    delay_s: float = 120.0
    idle_s: float = 600.0
    high: float = 0.8
    low: float = 0.3
    step: float = 2.0
    hit_rate: float = 0.0
    retention_s: float = 86400.0
    headroom: float = 0.25


def check_pools(
    pools: Iterable[HostPool],
    tiers: Iterable[StateTier],
    scaling: Iterable[Scaling],
    nodes: Mapping[str, int],
) -> None:
    """Check what a cluster declares of pools; ``nodes`` are devices by node name.

    Raises
    ------
    ConfigError
        On an unknown or repeated name, or a number out of range.
    """
    _check_hosts(pools, nodes)
    names: set[str] = set()
    for tier in tiers:
        if tier.name in names or tier.name == GPUS:
            raise ConfigError(f'state tier "{tier.name}" appears twice, or is called as the devices are')
        names.add(tier.name)
        for field in ("bytes_per_s", "latency_s", "capacity_bytes"):
            value = getattr(tier, field)
            if value is not None and not (0 <= value < _INF and (value > 0 or field != "bytes_per_s")):
                raise ConfigError(f'state tier "{tier.name}": {field} is out of range, found {value}')
    ruled: set[str] = set()
    for rule in scaling:
        if rule.of in ruled:
            raise ConfigError(f'two autoscaling rules for "{rule.of}"; keep one')
        ruled.add(rule.of)
        _check_scaling(rule, names, sum(1 for devices in nodes.values() if devices))


def _check_hosts(pools: Iterable[HostPool], nodes: Mapping[str, int]) -> None:
    owner: dict[str, str] = {}
    for pool in pools:
        for name in pool.nodes or nodes:
            if name not in nodes:
                raise ConfigError(f'host pool "{pool.name}" names node "{name}", which is not there')
            if name in owner:
                raise ConfigError(f'node "{name}" is in host pools "{owner[name]}" and "{pool.name}"')
            owner[name] = pool.name
        for field in ("link_bytes_per_s", "touch_s", "block_bytes"):
            if not 0 < getattr(pool, field) < _INF:
                raise ConfigError(
                    f'host pool "{pool.name}": {field} must be positive, found {getattr(pool, field)}'
                )
        for field in ("cpu_milli", "host_memory_bytes", "link_latency_s", "local_bytes", "core_bytes_per_s"):
            if not 0 <= getattr(pool, field) < _INF:
                raise ConfigError(
                    f'host pool "{pool.name}": {field} must be 0 or more, found {getattr(pool, field)}'
                )


def _check_scaling(rule: Scaling, tiers: set[str], most_nodes: int) -> None:
    allowed = {"queue"} if rule.of == GPUS else {"fill", "retention"}
    if rule.of != GPUS and rule.of not in tiers:
        known = ", ".join([GPUS, *sorted(tiers)])
        raise ConfigError(f'autoscaling of "{rule.of}", which is no pool; there are: {known}')
    if rule.rule not in allowed:
        raise ConfigError(
            f'autoscaling of "{rule.of}" goes by {" or ".join(sorted(allowed))}, found "{rule.rule}"'
        )
    least_allowed = 1 if rule.of == GPUS else 0
    if not least_allowed <= rule.least <= rule.most or (rule.of == GPUS and rule.most > most_nodes):
        raise ConfigError(f'autoscaling of "{rule.of}": bounds {rule.least} to {rule.most} are out of range')
    for field in ("every_s", "retention_s"):
        if not 0 < getattr(rule, field) < _INF:
            raise ConfigError(
                f'autoscaling of "{rule.of}": {field} must be positive, found {getattr(rule, field)}'
            )
    for field in ("delay_s", "idle_s", "headroom"):
        if not 0 <= getattr(rule, field) < _INF:
            raise ConfigError(
                f'autoscaling of "{rule.of}": {field} must be 0 or more, found {getattr(rule, field)}'
            )
    if not (0 <= rule.low < rule.high <= 1 and 1 < rule.step < _INF and 0 <= rule.hit_rate <= 1):
        raise ConfigError(
            f'autoscaling of "{rule.of}": low < high <= 1, step > 1 and hit_rate from 0 to 1 are needed'
        )
