"""Names to classes, from entry points.

An unknown name gets the nearest match and the full list, never a silent default.
``mine.py:MyPolicy`` and ``package.module:MyPolicy`` load a plug-in of one's own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from cotenant.errors import ConfigError, UnknownNameError

__all__ = ["load", "load_object", "names"]

_GROUPS = {
    "policy": "cotenant.policies",
    "trace format": "cotenant.traces",
    "predictor": "cotenant.predictors",
    "runtime forecast": "cotenant.runtimes",
    "executor": "cotenant.executors",
}


def _points(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUPS[kind])}


def names(kind: str) -> list[str]:
    """Registered names of a kind (``policy``, ``trace format``, ``predictor``, ``executor``)."""
    return sorted(_points(kind))


def load(kind: str, name: str) -> Any:
    """The class behind a name.

    Raises
    ------
    UnknownNameError
        With the nearest match and the full list.
    ConfigError
        If ``file.py:Class`` cannot be loaded.
    """
    if ":" in name:
        return load_object(name)
    points = _points(kind)
    if name not in points:
        raise UnknownNameError(kind, name, points)
    return points[name].load()


def load_object(spec: str) -> Any:
    """Load ``file.py:Object`` or ``package.module:Object``; the code of that file is run.

    Raises
    ------
    ConfigError
        If the file, module or object is not there, or the code raises while loading.
    """
    source, _, attribute = spec.rpartition(":")
    try:
        if source.endswith(".py"):
            path = Path(source)
            if not path.is_file():
                raise ConfigError(f"{source}: no such file (looked for object {attribute!r} in it)")
            # A name of its own, so that a file called random.py shadows nothing.
            label = f"cotenant_plugin_{path.stem}"
            found = importlib.util.spec_from_file_location(label, path)
            if found is None or found.loader is None:
                raise ConfigError(f"{source}: cannot be loaded as Python")
            module = importlib.util.module_from_spec(found)
            sys.modules[label] = module
            found.loader.exec_module(module)
        else:
            module = importlib.import_module(source)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{source}: {type(error).__name__} while loading: {error}") from error
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ConfigError(f"{source} has no {attribute!r}; it has: {', '.join(public)}")
    return getattr(module, attribute)
