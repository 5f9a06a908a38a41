"""What the live scheduler may know of speeds: a forecast that can be exchanged while it runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from cotenant.model.cluster import Cluster
from cotenant.model.ports import Forecast, Interval, shares_of

__all__ = ["LiveForecast", "first_forecast", "warmed"]

LEARNED = "learned"
"""Folder of the state folder that holds measurements and the predictor fitted on them."""
FIT = "fit.json"


class LiveForecast:
    """Answers as the forecast inside does; another takes its place between two instants.

    A forecast is offered by any thread and taken by the loop's alone (``take``), so that nothing
    changes while a policy decides.

    Parameters
    ----------
    inner : Forecast
    """

    def __init__(self, inner: Forecast) -> None:
        self._inner = inner
        self._version = 1
        self._offered: Forecast | None = None
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """Changes when predictions change."""
        return self._version

    @property
    def inner(self) -> Forecast:
        """Who answers now."""
        return self._inner

    def offer(self, forecast: Forecast) -> None:
        """Put another in the place of the present one at the next ``take``; from any thread."""
        with self._lock:
            self._offered = forecast

    def warm(self, cluster: Cluster) -> None:
        """Make it work out now what it otherwise would at the first question about each type of device."""
        warmed(self._inner, cluster)

    def take(self) -> bool:
        """Exchange it, if another was offered; in the loop's thread, between two instants."""
        if self._offered is None:
            return False
        with self._lock:
            self._inner, self._offered = self._offered, None
            self._version += 1
        return True

    def solo_speed(self, model: str, device_type: str) -> float:
        """Predicted speed alone on this type, relative to the reference device."""
        return self._inner.solo_speed(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """Predicted speed beside these jobs (sorted), divided by speed alone."""
        return self._inner.co_speed(model, beside, device_type)

    def co_speeds(self, queries: Any) -> list[Interval]:
        """``co_speed`` for many sets at once: (model, beside, device type) each."""
        many = getattr(self._inner, "co_speeds", None)
        if many is not None:
            found: list[Interval] = many(queries)
            return found
        return [self._inner.co_speed(*query) for query in queries]

    def usage(self, model: str, device_type: str) -> tuple[float, float, float]:
        """Predicted shares of compute, memory bandwidth and host."""
        return shares_of(self._inner, model, device_type)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return self._inner.describe()


def warmed(forecast: Forecast, cluster: Cluster) -> Forecast:
    """The forecast after a first question for each type of device, which may take a second."""
    for kind in cluster.types:
        forecast.co_speed("", ("",), kind.name)
    return forecast


def first_forecast(name: str, cluster: Cluster, state: Path) -> Forecast:
    """The forecast to begin with.

    ``adaptive`` is the predictor that was fitted here, else one on the campaigns that come with the
    package; ``auto`` is that where it knows a device type or CPU cores are used, else ``contention``.

    Raises
    ------
    CotenantError
        For a forecast that is not known or cannot be built.
    """
    from cotenant.predictors.forecast import build_speeds

    if name == "auto":
        name = "adaptive" if (state / LEARNED / FIT).is_file() or _measured(cluster) else "contention"
    if name == "adaptive":
        return _adaptive(cluster, state)
    _, forecast = build_speeds(0, forecast=name, cluster=cluster)
    return forecast


def _measured(cluster: Cluster) -> bool:
    """Whether the package brings measurements of one of the types, or of cores like these."""
    from cotenant.profiles.catalogue import canonical_type

    return all(canonical_type(kind.name) is None for kind in cluster.types)


def _adaptive(cluster: Cluster, state: Path) -> Forecast:
    from cotenant.live.refit import fit
    from cotenant.live.statedir import private_folder
    from cotenant.predictors.adaptive import AdaptiveForecast
    from cotenant.predictors.interference.modelfile import load_predictor

    folder = private_folder(state / LEARNED)
    path = folder / FIT
    if not path.is_file():
        fit(folder)
    return AdaptiveForecast(load_predictor(path), cluster=cluster, source=path.name)
