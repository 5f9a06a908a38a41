"""What a scheduler stands on before it leads: devices, the cluster they make, and a forecast that is warm.

All of it can be made while another leads, so that a takeover takes no time for it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import msgspec

from cotenant.errors import CotenantError
from cotenant.live.knowledge import LiveForecast, first_forecast, warmed
from cotenant.live.machine import LiveDevice, cluster_of, discover, numbered
from cotenant.live.options import UpOptions
from cotenant.live.tenants import Tenants
from cotenant.model.cluster import Cluster

__all__ = ["Ground", "prepare"]

_log = logging.getLogger("cotenant.live")


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Made once in the life of a daemon.

    Parameters
    ----------
    present, missing, devices : tuple of LiveDevice
        Found now; known from before and not found; all of them, by number.
    cluster : Cluster
    forecast : LiveForecast
    """

    present: tuple[LiveDevice, ...]
    missing: tuple[LiveDevice, ...]
    devices: tuple[LiveDevice, ...]
    cluster: Cluster
    forecast: LiveForecast


def prepare(options: UpOptions, state: Path, tenants: Tenants) -> Ground:
    """Find the devices and build the forecast.

    With ``auto`` whoever does not stand by begins with the contention model at once, and exchanges it
    for the adaptive predictor a second or two later: to read and warm that takes so long.

    Raises
    ------
    CotenantError
        If a device that was asked for is not there, or the forecast cannot be built.
    """
    present, missing = numbered(discover(options.devices), state)
    devices = sorted([*present, *missing], key=lambda d: d.device)
    cluster = cluster_of(devices, tenants.cluster_tenants())
    later = options.forecast == "auto" and not options.standby
    forecast = LiveForecast(first_forecast("contention" if later else options.forecast, cluster, state))
    if later:
        arguments = (forecast, cluster, state)
        threading.Thread(target=_exchange, args=arguments, name="cotenant-warm", daemon=True).start()
    else:
        forecast.warm(cluster)
    return Ground(
        present=tuple(present),
        missing=tuple(missing),
        devices=tuple(devices),
        cluster=cluster,
        forecast=forecast,
    )


def _exchange(forecast: LiveForecast, cluster: Cluster, state: Path) -> None:
    """In a thread of its own: the better forecast, ready to be asked."""
    try:
        better = first_forecast("auto", cluster, state)
        if better.describe().get("kind") != forecast.describe().get("kind"):
            forecast.offer(warmed(better, cluster))
    except CotenantError as error:
        _log.warning("the predictor fitted here cannot be used (%s); the contention model instead", error)
