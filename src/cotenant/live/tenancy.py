"""A changed ``tenants.toml`` while the scheduler runs: into the log first, then in force."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from cotenant.live.tenants import Tenants
from cotenant.model import events as ev
from cotenant.model.cluster import Tenant

__all__ = ["TenantWatch"]

_log = logging.getLogger("cotenant.live")
_LOOK_S = 1.0


class TenantWatch:
    """Looks at the file once a second, and makes an event of what changed.

    Parameters
    ----------
    tenants : Tenants
    in_force : tuple of Tenant
        What the log of a new scheduler begins with.
    """

    def __init__(self, tenants: Tenants, in_force: tuple[Tenant, ...]) -> None:
        self._tenants, self._known = tenants, in_force
        self._next_s = -math.inf
        self._warned = ""

    def recall(self, events: Iterable[ev.Event]) -> None:
        """Learn from the log what is in force."""
        for event in events:
            if isinstance(event, ev.Opened):
                self._known = event.cluster.tenants
            elif isinstance(event, ev.TenantsChanged):
                self._known = event.tenants

    def read(self, t: float) -> list[ev.Event]:
        """What is to hold from now on; empty if nothing changed, or the file cannot be used."""
        if t < self._next_s:
            return []
        self._next_s = t + _LOOK_S
        found = self._tenants.cluster_tenants()
        if (broken := self._tenants.broken) != self._warned:
            self._warned = broken
            if broken:
                _log.warning("tenants are not taken over, what was read before holds: %s", broken)
        if found == self._known:
            return []
        self._known = found
        return [ev.TenantsChanged(t, found)]
