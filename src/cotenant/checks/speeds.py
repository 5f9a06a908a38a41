"""The contracts of truths and forecasts."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Sequence

from cotenant.checks.policies import ContractError
from cotenant.model.jobs import Job
from cotenant.model.ports import Forecast, LearnsSpeeds, RuntimeForecast, Truth

__all__ = ["check_forecast", "check_runtime", "check_truth"]

_FASTEST = 1.2
"""Measurements beside a neighbour may come out a little above alone; more is a mistake."""


def _sets(models: Sequence[str], most: int) -> Iterable[tuple[str, tuple[str, ...]]]:
    for size in range(1, most):
        for beside in itertools.combinations_with_replacement(sorted(models), size):
            for model in models:
                yield model, beside


def check_truth(truth: Truth, models: Sequence[str], device_types: Sequence[str]) -> None:
    """Speeds lie in (0, 1.2], alone ones are positive, answers repeat, sources are named.

    Raises
    ------
    ContractError
    """
    for kind in device_types:
        for model in models:
            _positive(truth.solo_speed(model, kind), f"solo_speed({model!r}, {kind!r})")
        for model, beside in _sets(models, 4):
            what = f"co_speed({model!r}, {beside!r}, {kind!r})"
            speed = truth.co_speed(model, beside, kind)
            _positive(speed, what)
            if speed > _FASTEST:
                raise ContractError(f"{what} is {speed}, faster than alone")
            if speed != truth.co_speed(model, beside, kind):
                raise ContractError(f"{what} gives two answers")
            if truth.source(model, beside, kind) not in ("measured", "composed", "modelled"):
                raise ContractError(f"{what} has the unknown source {truth.source(model, beside, kind)!r}")
    _plain(truth.describe(), "describe()")


def check_forecast(forecast: Forecast, models: Sequence[str], device_types: Sequence[str]) -> None:
    """Intervals hold their mean, lie in (0, 1.2], and repeat while the version stays.

    A copy of one that learns from samples (``LearnsSpeeds``) is taught, and held to the same; what
    it says may change only together with its version.

    Raises
    ------
    ContractError
    """
    _check_answers(forecast, models, device_types)
    for kind in device_types:
        for model in models:
            _positive(forecast.solo_speed(model, kind), f"solo_speed({model!r}, {kind!r})")
    _plain(forecast.describe(), "describe()")
    if isinstance(forecast, LearnsSpeeds):
        _check_lessons(forecast, models, device_types[0])


def _check_answers(forecast: Forecast, models: Sequence[str], device_types: Sequence[str]) -> None:
    version = forecast.version
    for kind in device_types:
        for model, beside in _sets(models, 4):
            what = f"co_speed({model!r}, {beside!r}, {kind!r})"
            found = forecast.co_speed(model, beside, kind)
            if not (found.low <= found.mean <= found.high):
                raise ContractError(f"{what}: the interval {found} does not hold its mean")
            _positive(found.mean, what)
            if found.mean > _FASTEST:
                raise ContractError(f"{what} is {found.mean}, faster than alone")
            if found != forecast.co_speed(model, beside, kind):
                raise ContractError(f"{what} gives two answers")
    if version != forecast.version:
        raise ContractError("asking changed the forecast's version")


def _check_lessons(forecast: Forecast, models: Sequence[str], kind: str) -> None:
    pupil = copy.deepcopy(forecast)
    if not isinstance(pupil, LearnsSpeeds):
        raise ContractError("a copy of the forecast learns no more")
    asked = (models[0], tuple(sorted(models[1:3])), kind)
    for model, beside in _sets(models, 3):
        version, said = pupil.version, pupil.co_speed(*asked)
        # Beside many it is slow, and one came out faster than alone.
        pupil.learn(model, beside, kind, 0.2 if len(beside) > 1 else 1.1)
        if pupil.version == version and pupil.co_speed(*asked) != said:
            raise ContractError(f"learn({model!r}, {beside!r}) changed what is said, but not the version")
    _check_answers(pupil, models[:3], [kind])


def check_runtime(runtime: RuntimeForecast, jobs: Sequence[Job]) -> None:
    """Predictions are positive and hold their mean, and observing any job is accepted.

    Raises
    ------
    ContractError
    """
    for job in jobs:
        found = runtime.predict_s(job)
        if not (0 <= found.low <= found.mean <= found.high):
            raise ContractError(f"predict_s({job.name!r}): the interval {found} does not hold its mean")
        runtime.observe(job, 60.0)
    _plain(runtime.describe(), "describe()")


def _positive(value: float, what: str) -> None:
    if not (0 < value < math.inf):
        raise ContractError(f"{what} is {value}; speeds are positive and finite")


def _plain(value: object, what: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _plain(key, what)
            _plain(item, what)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _plain(item, what)
    elif not (value is None or isinstance(value, (str, int, float, bool))):
        raise ContractError(f"{what} holds {type(value).__name__}, which is not plain JSON")
