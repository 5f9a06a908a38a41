"""What the forecast said of the jobs that share a device, put into the log beside what happens."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from cotenant.engine.state import State
from cotenant.model.events import Event, Foretold
from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.ports import Forecast, Interval
from cotenant.model.records import JobRecord

__all__ = ["Foretelling"]


class Foretelling:
    """Logs a ``Foretold`` for each set of models that comes together, once for each forecast version.

    It asks what a policy could ask, and of sets that exist only, so the log depends on the state
    alone. A device's set is known by the sum of its models' codes, kept up to date as jobs come and
    go; only a sum not met before is looked at. Where nobody shares side by side it is never called.

    Parameters
    ----------
    state : State
    forecast : Forecast or None
        None: nothing is ever told.
    happen : callable
        Logs and folds an event.

    Attributes
    ----------
    due : list of int
        Devices with a set not met before, since ``tell`` was last called.
    """

    def __init__(self, state: State, forecast: Forecast | None, happen: Callable[[Event], None]) -> None:
        self.due: list[int] = []
        self._state, self._forecast, self._happen = state, forecast, happen
        self._type_of = state.layout.device_type
        self._codes: dict[str, int] = {}
        self._sums: list[int] = []
        self._known: list[set[int]] = []
        self._version: int | None = None

    def came(self, record: JobRecord, place: Placement) -> None:
        """A job has got this place."""
        if place.share.mode != "spatial" or (forecast := self._forecast) is None:
            return
        if forecast.version != self._version:
            self._begin(forecast.version)
        sums, known, type_of, model = self._sums, self._known, self._type_of, record.job.model
        code = self._codes.get(model) or self._code(model)
        for device in place.devices:
            sums[device] = total = sums[device] + code
            if total not in known[type_of[device]]:
                self.due.append(device)

    def _left(self, record: JobRecord, place: Placement) -> None:
        if place.share.mode != "spatial":
            return
        sums, known, type_of, code = self._sums, self._known, self._type_of, self._codes[record.job.model]
        for device in place.devices:
            sums[device] = total = sums[device] - code
            if total not in known[type_of[device]]:
                self.due.append(device)

    def _begin(self, version: int) -> None:
        """Nothing is told yet under this version of the forecast."""
        self._version = version
        # Of an empty device and of a job alone there is nothing to tell.
        self._known = [{0, *self._codes.values()} for _ in self._state.layout.types]
        if not self._sums:
            self._sums = [0] * len(self._type_of)
            self._state.hooks["vacated"].append(self._left)  # nobody has left a neighbour behind before

    def _code(self, model: str) -> int:
        """Sums of codes are equal for equal sets only, but for one chance in 2**50 or so."""
        found = int.from_bytes(blake2b(model.encode(), digest_size=7).digest(), "big")
        self._codes[model] = found
        for known in self._known:
            known.add(found)
        return found

    def recall(self, event: Foretold) -> None:
        """This was told before a restart."""
        if event.version != self._version:
            return
        codes = [self._codes.get(model) or self._code(model) for model in event.models]
        for kind, known in zip(self._state.layout.types, self._known, strict=True):
            if kind.name == event.device_type:
                known.add(sum(codes))

    def tell(self) -> None:
        """Tell of the sets that are new on the devices noted; call it once an instant is over."""
        due, self.due = self.due, []
        residents = self._state.ledger.residents
        for device in due:
            known, total = self._known[self._type_of[device]], self._sums[device]
            if total not in known and self._is_company(device, residents[device]):
                known.add(total)
                self._tell(device)

    def _is_company(self, device: int, ids: tuple[int, ...]) -> bool:
        """Do they run side by side, not all of them in fractions they declared?"""
        ledger, records = self._state.ledger, self._state.records
        for job_id in ids:
            declared = records[job_id].job.compute_milli
            if not 0 < declared < DEVICE_MILLI or ledger.share_on(job_id, device).compute_milli < declared:
                return True
        return False

    def _tell(self, device: int) -> None:
        state, forecast, version = self._state, self._forecast, self._version
        assert forecast is not None and version is not None  # noqa: S101 - nothing is due without them
        name = state.layout.types[self._type_of[device]].name
        models = tuple(sorted([state.records[i].job.model for i in state.ledger.residents[device]]))
        of: dict[str, Interval] = {}
        for i, model in enumerate(models):
            if model not in of:
                of[model] = forecast.co_speed(model, models[:i] + models[i + 1 :], name)
        told = [of[model] for model in models]
        mean, low, high = (
            tuple([i.mean for i in told]),
            tuple([i.low for i in told]),
            tuple([i.high for i in told]),
        )
        self._happen(Foretold(state.now, name, models, mean, low, high, version))
