"""GaiaGPU: fractions by best fit, whole devices by topology, quotas by device type, elastic ceilings.

Card: ``docs/policies/gaiagpu.md``. Source: Gu, Song, Li and others, "GaiaGPU: Sharing GPUs in Container Clouds",
ISPA/IUCC/BDCloud 2018; tkestack/gpu-manager and tkestack/gpu-admission.
"""

from __future__ import annotations

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.placement import DEVICE_MILLI, WHOLE, Share
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Reason, Reject, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.published.gaia_places import NodeRoom, Requests, is_fraction
from cotenant.policies.published.gaia_shares import Ceilings, Charged, read_quota
from cotenant.policies.queues.points import Point
from cotenant.policies.space.boards import Boards

__all__ = ["GaiaGpu"]

_NODE_WHY = Why("cpu-only")
_FRACTION = Why("best-fit-fraction")
_BRANCH = Why("closest-on-tree")
_SPREAD = Why("whole-device")
_NO_QUOTA = 1 << 62


class GaiaGpu(Params):
    """Put each request on the fullest node that has room; lend fractions what nobody is guaranteed.

    Parameters
    ----------
    elastic : bool
        Whether ceilings of fractions follow what is idle; else a fraction is all that a job may use.
    most : float
        Part of a device that elastic use fills at most.
    groups : tuple of int
        Sizes of the branches of a node's topology tree, descending; each holds neighbouring slots.
    quota : tuple of str
        ``TENANT/TYPE/DEVICES``: what a tenant may hold of a device type; types not named are free for it.

    Raises
    ------
    ConfigError
        For a value out of range, or a quota that cannot be read.
    """

    uses_predictions = False
    uses_service = False
    made_for = "fractions"

    def __init__(
        self,
        *,
        elastic: bool = True,
        most: float = 0.9,
        groups: tuple[int, ...] = (4, 2),
        quota: tuple[str, ...] = (),
    ) -> None:
        if not 0.0 < most <= 1.0:
            raise ConfigError(f"most of gaiagpu must lie in (0, 1], found {most}")
        if any(size < 1 for size in groups) or list(groups) != sorted(set(groups), reverse=True):
            raise ConfigError(f"groups of gaiagpu must be positive and descend, found {groups}")
        self.elastic, self.most, self.groups, self.quota = elastic, most, groups, quota
        self._quota = read_quota(quota)
        self._most_milli = round(most * DEVICE_MILLI)

    def decide(self, view: View) -> Plan:
        """Start the first request that has a place; then set ceilings right."""
        holds: tuple[Decision, ...] = ()
        if len(view.queue):
            start, holds = self._next(view)
            if start is not None:
                return Plan((start,), again=True)
            if any(isinstance(decision, Reject) for decision in holds):
                return Plan(holds, again=True)
        due = view.index(Ceilings, self._most_milli).due() if self.elastic else ()
        return Plan((*holds, *due)) if holds or due else EMPTY

    def _next(self, view: View) -> tuple[Start | None, tuple[Decision, ...]]:
        """The first request in queue order that has a place; why others wait, if none has."""
        boards = view.index(Boards, view.settings.max_sharers)
        room, requests = view.index(NodeRoom, boards), view.index(Requests, bool(self._quota))
        requests.review(requests.could)
        limited = bool(view.books.limits)
        for point in sorted(requests.open, key=lambda point: point.head().key):
            record = point.head()
            start = None
            if not (limited and view.limit_refusal(record)):
                start = self._place(view, room, record, point)
            if start is not None:
                return start, ()
            requests.settle(point)
        heads = [point for point in requests.untold if point.head().hold is None]
        requests.untold.clear()
        heads.sort(key=lambda point: point.head().id)
        return None, tuple([self._hold(view, boards, point) for point in heads])

    # -- places ----------------------------------------------------------------------

    def _place(self, view: View, room: NodeRoom, record: JobRecord, point: Point) -> Start | None:
        shape = record.shape
        if not shape.gpus:
            node = view.find_node(record)
            return Start(record.id, (), why=_NODE_WHY, node=node) if node >= 0 else None
        kinds = self._kinds(view, record, point)
        if is_fraction(point):
            device = room.fraction(record, point, kinds)
            if device is not None:
                share = self._share(view, device, point)
                return Start(record.id, view.layout.alone[device], share, _FRACTION)
            # Devices of unknown memory are given whole.
            kinds = tuple([k for k in kinds if not view.layout.types[k].memory_bytes])
        if shape.single:
            devices = room.whole(record, kinds, self.groups)
            if devices is not None:
                return Start(record.id, devices, WHOLE, _BRANCH)
        if not shape.spans:
            return None
        devices = view.find(record)
        if devices is None or view.layout.device_type[devices[0]] not in kinds:
            return None
        return Start(record.id, devices, WHOLE, _SPREAD)

    def _share(self, view: View, device: int, point: Point) -> Share:
        limit = point.milli
        if self.elastic:
            limit = view.index(Ceilings, self._most_milli).at_start(device, point.milli)
        return Share("spatial", point.shape.memory_bytes, point.milli, limit)

    def _kinds(self, view: View, record: JobRecord, point: Point) -> tuple[int, ...]:
        """Device types of which the tenant's quota admits the job."""
        types = record.shape.types
        if not self._quota:
            return types
        charged, tenant, asked = view.index(Charged), record.job.tenant, self._asked(point)
        return tuple([k for k in types if charged.held(tenant, k) + asked <= self._limit(view, tenant, k)])

    @staticmethod
    def _asked(point: Point) -> int:
        """What a request is charged, in thousandths of a device."""
        return point.milli if is_fraction(point) else DEVICE_MILLI * point.shape.gpus

    def _limit(self, view: View, tenant: str, kind: int) -> int:
        """What a tenant may hold of a device type."""
        return self._quota.get((tenant, view.layout.types[kind].name), _NO_QUOTA)

    def _ever(self, view: View, point: Point) -> bool:
        """Whether the tenant's quota of some type, and that type's devices, suffice for a request."""
        shape, layout = point.shape, view.layout
        for kind in shape.types:
            sizes = [layout.bay_size[bay] for bay in layout.type_bays[kind]]
            room = sum(sizes) if shape.spans else max(sizes)
            if shape.gpus <= room and self._asked(point) <= self._limit(view, point.head().job.tenant, kind):
                return True
        return False

    # -- why not -------------------------------------------------------------------------

    def _hold(self, view: View, boards: Boards, point: Point) -> Hold | Reject:
        record = point.head()
        told = (Reason.TENANT_LIMIT, {"tenant": record.job.tenant, "needs_milli": self._asked(point)})
        # Quotas stand for the whole run: who has none that suffices will never start.
        if self._quota and record.shape.gpus and not self._ever(view, point):
            return Reject(record.id, *told)
        refusal = view.limit_refusal(record) if view.books.limits else None
        if refusal is not None:
            return Hold(record.id, refusal.reason, refusal.facts)
        if record.shape.gpus and not self._kinds(view, record, point):
            return Hold(record.id, *told)
        if is_fraction(point):
            milli = max([int(boards.boards[k].milli.max()) for k in record.shape.types])
            if milli < point.milli:
                free = {"needs_milli": point.milli, "most_free_milli": milli}
                return Hold(record.id, Reason.COMPUTE, free)
            return Hold(record.id, *boards.blocked(record, point))
        return Hold(record.id, *view.why_not(record))
