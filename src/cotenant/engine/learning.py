"""What samples measured beside others goes to the forecast of speeds, if it learns."""

from __future__ import annotations

from cotenant.engine.state import State
from cotenant.model.ports import Forecast, LearnsSpeeds
from cotenant.model.records import JobRecord

__all__ = ["Learning"]


class Learning:
    """Tells a forecast the speed of each sampled job, who is beside it, and on what.

    Only what one set explains: a gang whose devices have different company, or are of different
    types, runs as fast as the slowest of them, and which that is was not measured.

    Parameters
    ----------
    state : State
    forecast : Forecast or None
        Nothing happens unless it is ``LearnsSpeeds``.
    """

    def __init__(self, state: State, forecast: Forecast | None) -> None:
        self._state = state
        if state.settings.sample_learns and isinstance(forecast, LearnsSpeeds):
            self._forecast: LearnsSpeeds = forecast
            state.hooks["sampled"].append(self._sampled)

    def _sampled(self, record: JobRecord) -> None:
        sample, place = record.sample, record.place
        if sample is None or place is None or not sample.co_speed:
            return
        residents, layout, records = self._state.ledger.residents, self._state.layout, self._state.records
        first, *others = place.devices
        company, kind = residents[first], layout.device_type[first]
        if any(residents[d] != company or layout.device_type[d] != kind for d in others):
            return
        beside = tuple(sorted([records[i].job.model for i in company if i != record.id]))
        self._forecast.learn(record.job.model, beside, layout.types[kind].name, sample.co_speed)
