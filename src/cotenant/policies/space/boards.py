"""What devices have left, in arrays, so that all of them are compared at once.

For each device type a *board*: free memory, the sum of predicted utilisations, who may join. Some
microseconds for hundreds of devices, a tenth of a millisecond for ten thousand. Utilisations are
whole thousandths, so that sums do not depend on the order in which jobs came.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.model.layout import Layout
from cotenant.model.placement import Placement
from cotenant.model.plan import Reason
from cotenant.model.ports import Forecast, shares_of
from cotenant.model.records import JobRecord
from cotenant.model.shape import host_fits
from cotenant.model.view import Index, View
from cotenant.policies.queues.circles import Circle, circle_of
from cotenant.policies.queues.points import Point
from cotenant.policies.space.rooms import hosts_fit

__all__ = ["Board", "Boards", "Company", "forecast_of", "pick"]

Company = tuple[tuple[str, int], ...]
"""Models on a device and how many devices each of the jobs holds, sorted."""

_EMPTY, _CLOSED = -1, -2


def forecast_of(view: View) -> Forecast | None:
    """The run's forecast of speeds, if it has one."""
    try:
        return view.forecast
    except RuntimeError:
        return None


class Board:
    """The devices of one type, bay after bay.

    Attributes
    ----------
    kind, capacity : int
        Device type, and memory of each device in bytes (0 if unknown).
    devices : list of int
    blocks : list of (bay, first, end)
        Where the devices of each bay lie.
    size : int
        Devices of each bay; 0 if bays differ.
    free, util, milli, circle, company : ndarray of int64
        Free bytes, summed predicted utilisation in thousandths, free guaranteed compute, with whom
        it is shared, and number of the company on it.
    """

    __slots__ = (
        "blocks",
        "capacity",
        "circle",
        "company",
        "devices",
        "free",
        "kind",
        "milli",
        "size",
        "util",
    )

    def __init__(self, layout: Layout, kind: int) -> None:
        self.kind, self.capacity = kind, layout.types[kind].memory_bytes
        self.devices: list[int] = []
        self.blocks: list[tuple[int, int, int]] = []
        for bay in layout.type_bays[kind]:
            first, count = layout.bay_first[bay], layout.bay_size[bay]
            self.blocks.append((bay, len(self.devices), len(self.devices) + count))
            self.devices += range(first, first + count)
        sizes = {end - first for _, first, end in self.blocks}
        self.size = sizes.pop() if len(sizes) == 1 else 0
        n = len(self.devices)
        self.free, self.util, self.milli, self.circle, self.company = np.zeros((5, n), np.int64)

    def empty(self) -> NDArray[np.bool_]:
        """Devices that nobody is on and anybody may have."""
        found: NDArray[np.bool_] = self.circle == _EMPTY
        return found


class Boards(Index):
    """All boards.

    Parameters
    ----------
    view : View
    most : int
        Most jobs on one device.
    most_util : int
        Summed utilisation in thousandths beyond which nobody joins; 0 knows no such bound.
    spare_milli : int
        Thousandths of a device's memory that are left free where jobs share.

    Attributes
    ----------
    boards : list of Board
        By device type.
    companies : list of Company
        By number; number 0 is nobody. Numbers mean nothing outside.
    """

    def __init__(self, view: View, most: int, most_util: int = 0, spare_milli: int = 0) -> None:
        self._view, self._ledger, self._layout = view, view.ledger, view.layout
        self.most, self._most_util = most, most_util
        self._spare = [kind.memory_bytes * spare_milli // 1000 for kind in view.layout.types]
        self._forecast = forecast_of(view)
        self._version = self._forecast.version if self._forecast else 0
        self.boards = [Board(view.layout, kind) for kind in range(len(view.layout.types))]
        self._at = [0] * view.layout.device_count
        for board in self.boards:
            for at, device in enumerate(board.devices):
                self._at[device] = at
        self.companies: list[Company] = [()]
        self._number_of: dict[Company, int] = {(): 0}
        self._circles: dict[Circle, int] = {}
        self._loads: dict[tuple[str, int], int] = {}
        self.kept: frozenset[int] = frozenset()
        self.refresh(range(view.layout.device_count))

    def stale(self) -> bool:
        """Whether the forecast has changed since."""
        return self._forecast is not None and self._forecast.version != self._version

    def load(self, model: str, kind: int) -> int:
        """Predicted utilisation of a model alone on a device type, in thousandths."""
        found = self._loads.get((model, kind))
        if found is None:
            share = shares_of(self._forecast, model, self._layout.types[kind].name)[0]
            found = self._loads[model, kind] = round(1000.0 * share)
        return found

    def _number(self, circle: Circle) -> int:
        return self._circles.setdefault(circle, len(self._circles))

    def room(self, board: Board, point: Point) -> NDArray[np.bool_]:
        """Devices of a board with room for one more of a demand, whoever the neighbours are."""
        empty = board.empty()
        if point.circle is None or not board.capacity:
            return empty
        need = point.shape.memory_bytes + self._spare[board.kind]
        room: NDArray[np.bool_] = (board.free >= need) & (board.milli >= point.milli)
        room &= board.circle == self._number(point.circle)
        if self._most_util:
            room &= board.util <= self._most_util - self.load(point.model, board.kind)
        room |= empty
        return room

    def spare_bytes(self, kind: int) -> int:
        """What is left free on a shared device of a type."""
        return self._spare[kind]

    def keep(self, devices: frozenset[int]) -> None:
        """Close these devices to all, and open those that were closed before."""
        if devices != self.kept:
            changed = devices ^ self.kept
            self.kept = devices
            self.refresh(changed)

    def util_after(self, device: int, model: str) -> int:
        """Summed utilisation of a device's residents and one more, in thousandths."""
        kind = self._layout.device_type[device]
        return int(self.boards[kind].util[self._at[device]]) + self.load(model, kind)

    def company_on(self, device: int) -> Company:
        """Who is on a device."""
        return self.companies[int(self.boards[self._layout.device_type[device]].company[self._at[device]])]

    def blocked(self, record: JobRecord, point: Point) -> tuple[Reason, dict[str, Any]]:
        """Why a job has no place, with the numbers: as of a whole device, or of a share of one."""
        shape = record.shape
        boards = [self.boards[kind] for kind in shape.types]
        if point.circle is None or shape.gpus != 1 or any(not board.capacity for board in boards):
            return self._view.why_not(record)
        number, need = self._number(point.circle), shape.memory_bytes
        joinable = [(board, board.circle == number) for board in boards]
        holes = [int(b.free[may].max()) - self._spare[b.kind] for b, may in joinable if may.any()]
        if max(holes, default=0) < need:
            return Reason.MEMORY, {"needs_bytes": need, "largest_hole_bytes": max([*holes, 0])}
        if self._most_util:
            load = min([self.load(point.model, board.kind) for board in boards])
            facts = {"utilisation_percent": load / 10.0, "most_percent": self._most_util / 10.0}
            return Reason.SLOWDOWN, facts
        return self._view.why_not(record)

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self.refresh(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self.refresh(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed, returned, or were kept for somebody."""
        self.refresh(devices)

    def refresh(self, devices: range | tuple[int, ...] | frozenset[int] | list[int]) -> None:
        """Read these devices from the books again."""
        ledger, types, at = self._ledger, self._layout.device_type, self._at
        for device in devices:
            kind, i = types[device], at[device]
            board, residents = self.boards[kind], ledger.residents[device]
            board.free[i] = ledger.free_memory[device]
            board.milli[i] = ledger.free_milli[device]
            if not residents:
                board.util[i] = board.company[i] = 0
                board.circle[i] = _CLOSED if self._shut(device) else _EMPTY
                continue
            records = self._view.records
            jobs = [records[job_id].job for job_id in residents]
            board.util[i] = sum([self.load(job.model, kind) for job in jobs])
            company = tuple(sorted([(job.model, job.gpus) for job in jobs]))
            number = self._number_of.get(company)
            if number is None:
                number = self._number_of[company] = len(self.companies)
                self.companies.append(company)
            board.company[i] = number
            board.circle[i] = self._circle_on(device, residents)

    def _shut(self, device: int) -> bool:
        ledger = self._ledger
        if device in self.kept or device in ledger.reserved:
            return True
        return ledger.impaired and (
            not ledger.usable[device] or ledger.draining[ledger.layout.device_node[device]]
        )

    def _circle_on(self, device: int, residents: tuple[int, ...]) -> int:
        """With whom the residents share; closed if with nobody more."""
        if len(residents) >= self.most or self._shut(device):
            return _CLOSED
        if self._ledger.share_on(residents[0], device).mode != "spatial":
            return _CLOSED
        records = self._view.records
        circles = {circle_of(records[job_id].job) for job_id in residents}
        circle = circles.pop()
        return _CLOSED if circles or circle is None else self._number(circle)

    def could(self, point: Point, bay: int) -> bool:
        """Whether a demand may fit a bay, perhaps with others: never wrongly no."""
        shape, ledger = point.shape, self._ledger
        if not shape.gpus:
            return True
        if self._layout.bay_type[bay] not in shape.types:
            return False
        first, found = self._layout.bay_first[bay], 0
        kind = self._layout.bay_type[bay]
        need = math.inf if point.circle is None else shape.memory_bytes + self._spare[kind]
        cap = self._most_util - self.load(point.model, kind) if self._most_util else math.inf
        util, at = self.boards[kind].util, self._at
        for device in range(first, first + self._layout.bay_size[bay]):
            residents = ledger.residents[device]
            if not residents or (
                len(residents) < self.most
                and ledger.free_memory[device] >= need
                and (cap == math.inf or util[at[device]] <= cap)
            ):
                found += 1
        return found >= shape.gpus or (shape.spans and found > 0)


def pick(
    view: View, board: Board, cost: NDArray[np.float64], record: JobRecord
) -> tuple[float, tuple[int, ...]] | None:
    """The cheapest devices for a job, and what they cost together; None if there are too few.

    On one node where that is possible, else, if the gang may span, wherever. Of equals the lowest
    numbers.

    Parameters
    ----------
    view : View
    board : Board
    cost : ndarray of float64, shape (devices of the board,)
        Infinite where the job cannot go.
    record : JobRecord
    """
    shape = record.shape
    host = bool(shape.cpu_milli or shape.host_bytes)
    if shape.gpus == 1 and not host:
        at = int(cost.argmin())
        value = float(cost[at])
        return None if value == math.inf else (value, view.layout.alone[board.devices[at]])
    if shape.single:
        found = (
            _in_bays(view, board, cost, record, host)
            if host or not board.size
            else _rows(board, cost, shape.gpus)
        )
        if found is not None:
            return found
    if not shape.spans or len(board.devices) < shape.gpus:
        return None
    order = np.argsort(cost, kind="stable")[: shape.gpus]
    total = float(cost[order].sum())
    devices = tuple(sorted([board.devices[i] for i in order.tolist()]))
    return None if total == math.inf or not hosts_fit(view, record.job, devices) else (total, devices)


def _rows(board: Board, cost: NDArray[np.float64], gpus: int) -> tuple[float, tuple[int, ...]] | None:
    """The cheapest bay, all bays being of one size."""
    if gpus > board.size:
        return None
    rows = cost.reshape(-1, board.size)
    totals = np.sort(rows, axis=1)[:, :gpus].sum(axis=1)
    best = int(totals.argmin())
    total = float(totals[best])
    return None if total == math.inf else (total, _cheapest(board, cost, best * board.size, gpus, board.size))


def _in_bays(
    view: View, board: Board, cost: NDArray[np.float64], record: JobRecord, host: bool
) -> tuple[float, tuple[int, ...]] | None:
    """The cheapest bay, one after the other."""
    gpus, best, chosen = record.shape.gpus, math.inf, (0, 0)
    for bay, first, end in board.blocks:
        if end - first < gpus:
            continue
        total = float(np.sort(cost[first:end])[:gpus].sum())
        if total < best and (not host or host_fits(view.ledger, record.shape, bay, gpus)):
            best, chosen = total, (first, end)
    if best == math.inf:
        return None
    return best, _cheapest(board, cost, chosen[0], gpus, chosen[1] - chosen[0])


def _cheapest(board: Board, cost: NDArray[np.float64], first: int, gpus: int, size: int) -> tuple[int, ...]:
    order = np.argsort(cost[first : first + size], kind="stable")[:gpus]
    return tuple(sorted([board.devices[first + i] for i in order.tolist()]))
