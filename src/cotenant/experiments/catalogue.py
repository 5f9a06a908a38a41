"""The experiments there are, by name."""

from __future__ import annotations

import importlib

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.experiments.base import Experiment

__all__ = ["EXPERIMENTS", "find"]

EXPERIMENTS: dict[str, str] = {
    "aip": "cotenant.experiments.aip:Aip",
    "easyscale": "cotenant.experiments.easyscale:EasyScale",
    "gaiagpu": "cotenant.experiments.gaiagpu:GaiaGpu",
    "gandiva": "cotenant.experiments.gandiva:Gandiva",
    "harmony": "cotenant.experiments.harmony:Harmony",
    "horus": "cotenant.experiments.horus:Horus",
    "polardb": "cotenant.experiments.polardb:PolarDb",
    "tong": "cotenant.experiments.tong:Tong",
}
"""Name to ``module:Class``, in the order in which ``all`` runs them; one line each."""


def find(name: str) -> Experiment:
    """The experiment of this name, or ``file.py:Class`` for one of your own.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.
    ConfigError
        If a class of one's own is no experiment.
    """
    if ":" in name:
        from cotenant.registry import load_object

        found = load_object(name, "measure")
        if not (isinstance(found, type) and issubclass(found, Experiment)):
            raise ConfigError(f"{name} is no class derived from cotenant.experiments.base.Experiment")
        return found()
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    module, _, attribute = EXPERIMENTS[name].partition(":")
    built: Experiment = getattr(importlib.import_module(module), attribute)()
    return built
