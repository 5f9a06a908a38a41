"""What GaiaGPU's fractions may use beyond their guarantee, and what tenants may hold of each device type."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.plan import Decision, Resize, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_resize
from cotenant.model.view import Index, View

__all__ = ["Ceilings", "Charged", "ceiling_milli", "read_quota"]


def ceiling_milli(own_milli: int, guaranteed_milli: int, most_milli: int) -> int:
    """Ceiling of a fraction: its guarantee, and its part of what nobody on the device is guaranteed.

    >>> ceiling_milli(300, 300, 900), ceiling_milli(300, 600, 900), ceiling_milli(300, 1000, 900)
    (900, 450, 300)
    """
    return max(own_milli, own_milli * most_milli // guaranteed_milli)


class Ceilings(Index):
    """Devices whose fractions may have other ceilings than they should.

    Parameters
    ----------
    view : View
    most_milli : int
        What elastic use fills of a device at most.
    """

    def __init__(self, view: View, most_milli: int) -> None:
        self._view, self._most = view, most_milli
        self._marked: dict[int, None] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if place.share.mode == "spatial":
            for device in place.devices:
                self._marked[device] = None

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self.placed(record, place)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """What was refused before, as on a node being drained, may be possible now."""
        for device in devices:
            self._marked[device] = None

    def due(self) -> tuple[Decision, ...]:
        """Changes that give each fraction the ceiling it should have; what the rules refuse stays due."""
        found: list[Decision] = []
        refused: dict[int, None] = {}
        for device in sorted(self._marked):
            for record, decision in self._on(device):
                devices, share = decision.devices, decision.share
                if check_resize(self._view.books, record, devices, share, self._view.now) is None:
                    found.append(decision)
                else:
                    refused[device] = None
        self._marked = refused
        return tuple(found)

    def at_start(self, device: int, milli: int) -> int:
        """The ceiling of a newcomer with this guarantee."""
        guaranteed = DEVICE_MILLI - self._view.ledger.free_milli[device] + milli
        return ceiling_milli(milli, guaranteed, self._most)

    def _on(self, device: int) -> Iterable[tuple[JobRecord, Resize]]:
        view = self._view
        guaranteed = DEVICE_MILLI - view.ledger.free_milli[device]
        for job_id in view.ledger.residents[device]:
            record, share = view.records[job_id], view.ledger.share_on(job_id, device)
            if share.mode != "spatial" or not share.compute_milli or record.place is None:
                continue
            before = share.compute_limit_milli
            after = ceiling_milli(share.compute_milli, guaranteed, self._most)
            new = msgspec.structs.replace(share, compute_limit_milli=after)
            if after == before:
                continue
            rule = "idle-compute-lent" if after > before else "idle-compute-back"
            facts = {"limit_milli_before": before, "limit_milli_after": after}
            facts["residents"] = len(view.ledger.residents[device])
            yield record, Resize(job_id, record.place.devices, new, Why(rule, facts))


class Charged(Index):
    """Compute that each tenant holds of each device type, in thousandths of a device."""

    def __init__(self, view: View) -> None:
        self._kinds = view.layout.device_type
        self._held: dict[tuple[str, int], int] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    def held(self, tenant: str, kind: int) -> int:
        """What a tenant holds of a type."""
        return self._held.get((tenant, kind), 0)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self._charge(record, place, 1)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self._charge(record, place, -1)

    def _charge(self, record: JobRecord, place: Placement, sign: int) -> None:
        for device in place.devices:
            key = (record.job.tenant, self._kinds[device])
            milli = DEVICE_MILLI if place.share.mode == "exclusive" else place.share.compute_milli
            self._held[key] = self._held.get(key, 0) + sign * milli


def read_quota(entries: tuple[str, ...]) -> dict[tuple[str, str], int]:
    """Quotas in thousandths of a device, by tenant and device type.

    Raises
    ------
    ConfigError
        If an entry is not ``TENANT/TYPE/DEVICES``.
    """
    found: dict[tuple[str, str], int] = {}
    for entry in entries:
        tenant, _, rest = entry.partition("/")
        kind, _, count = rest.rpartition("/")
        try:
            milli = round(float(count) * DEVICE_MILLI)
        except (ValueError, OverflowError):
            milli = -1
        if not kind or milli < 0 or (tenant, kind) in found:
            raise ConfigError(
                f'quota of gaiagpu: write TENANT/TYPE/DEVICES, each tenant and type once, found "{entry}"'
            )
        found[tenant, kind] = milli
    return found
