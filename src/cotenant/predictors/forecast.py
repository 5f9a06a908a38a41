"""Choosing what is true and what is forecast, from what is at hand.

Truth and forecast are different objects with different data, always: the two halves of a table
of measured pairs, or two campaigns, or the contention model with noise and the same model with
wrong utilisations. A table's halves share no pair of models, on any device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster
from cotenant.model.ports import Forecast, RuntimeForecast, Truth
from cotenant.model.workload import Workload
from cotenant.predictors.base import SpeedSetup
from cotenant.profiles.table import CoRunTable
from cotenant.profiles.truth import MeasuredTruth, ModelledTruth
from cotenant.registry import load, names

__all__ = ["TruthName", "build_runtime", "build_speeds", "file_named", "split_forecast"]

TruthName = Literal["auto", "measured", "campaign", "modelled"]
_TRUTHS = ("auto", "measured", "campaign", "modelled")


def build_speeds(
    seed: int,
    profiles: Path | str | None = None,
    forecast: str = "lookup",
    truth: str = "auto",
    cluster: Cluster | None = None,
) -> tuple[Truth, Forecast]:
    """What jobs do to each other, and what a policy may know of it.

    Parameters
    ----------
    seed : int
        Of splits, noise and measurement errors.
    profiles : Path, optional
        A table of measured pairs (``profiles.table``).
    forecast : str
        A registered predictor, with what it takes after a colon (``adaptive:fit.json``), or
        ``file.py:Class``. ``lookup`` without measurements to look
        up is ``contention``; the forecast's description says which it is.
    truth : {"auto", "measured", "campaign", "modelled"}
        ``measured``: half of the table's pairs, the forecast gets the other half.
        ``campaign``: the table's first campaign, the forecast gets the second.
        ``modelled``: the contention model with noise; the forecast gets no table.
        ``auto``: measured if there is a table, else modelled.
    cluster : Cluster, optional
        For the speeds of jobs alone.

    Returns
    -------
    Truth, Forecast

    Raises
    ------
    UnknownNameError
        For a forecast that no registry knows.
    ConfigError
        For an unknown truth, a table that is missing or too small, or a forecast class without
        ``from_setup``.
    """
    if truth not in _TRUTHS:
        raise ConfigError(f'no truth "{truth}"; known: {", ".join(_TRUTHS)}')
    if truth == "auto":
        truth = "modelled" if profiles is None else "measured"
    fit, world = _worlds(seed, profiles, truth, cluster)
    name = "contention" if forecast == "lookup" and fit is None else forecast
    name, argument = split_forecast(name)
    found = load("predictor", name)
    build = _method(found, name, "from_setup")
    setup = SpeedSetup(seed=seed, fit=fit, cluster=cluster, truth=world, argument=argument)
    built: Forecast = build(setup)
    return world, built


def split_forecast(forecast: str) -> tuple[str, str]:
    """A forecast's name, and what it takes after a colon: nothing for ``file.py:Class``.

    >>> split_forecast("adaptive:fit.json"), split_forecast("mine.py:Mine")
    (('adaptive', 'fit.json'), ('mine.py:Mine', ''))
    """
    name, _, argument = forecast.partition(":")
    return (name, argument) if argument and name in names("predictor") else (forecast, "")


def file_named(forecast: str) -> str | None:
    """The file that a forecast of speeds or of running times is read from, if its name holds one.

    >>> file_named("adaptive:fit.json"), file_named("mine.py:Mine"), file_named("lookup")
    ('fit.json', 'mine.py', None)
    """
    name, argument = split_forecast(forecast)
    source = name.rpartition(":")[0]
    return argument or (source if source.endswith(".py") else None)


def build_runtime(name: str, workload: Workload, seed: int = 0) -> RuntimeForecast:
    """The runtime forecast of this name.

    Parameters
    ----------
    name : str
        A registered runtime forecast, or ``file.py:Class`` with a class method
        ``from_workload(workload, seed)``.
    workload : Workload
        True durations are read from it only by forecasts that are labelled so.
    seed : int

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.
    ConfigError
        For a class without ``from_workload``.
    """
    build = _method(load("runtime forecast", name), name, "from_workload")
    built: RuntimeForecast = build(workload, seed)
    return built


def _worlds(
    seed: int, profiles: Path | str | None, truth: str, cluster: Cluster | None
) -> tuple[CoRunTable | None, Truth]:
    if truth == "modelled":
        return None, ModelledTruth(seed, cluster=cluster)
    if profiles is None:
        raise ConfigError(f'truth "{truth}" needs a table of measured pairs (--profiles)')
    table = CoRunTable.load(profiles)
    if truth == "campaign":
        if len(table.campaigns) < 2:
            raise ConfigError(
                f'{profiles}: truth "campaign" needs two campaigns in column "source", '
                f"found {', '.join(table.campaigns)}"
            )
        fit, real = table.by_campaign(table.campaigns[1], table.campaigns[0])
    else:
        fit, real = table.one_campaign_each().split(seed)
    return fit, MeasuredTruth(real, seed=seed, cluster=cluster)


def _method(found: Any, name: str, method: str) -> Any:
    build = getattr(found, method, None)
    if build is None:
        raise ConfigError(f'forecast "{name}" has no class method {method}; see docs/interference.md')
    return build
