"""Modules that a leader needs, loaded while it waits: a takeover then takes no time for them."""

from __future__ import annotations

from importlib import import_module

__all__ = ["everything"]

_MODULES = (
    "cotenant.live.works",
    "cotenant.predictors.forecast",
    "cotenant.predictors.adaptive",
    "cotenant.predictors.recent",
    "cotenant.profiles.samplers.cpu",
    "cotenant.profiles.samplers.nvml",
    "polars",
    "uvicorn",
    "litestar",
)


def everything() -> None:
    """Load them."""
    for name in _MODULES:
        import_module(name)
