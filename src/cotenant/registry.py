"""Names to classes, from entry points.

An unknown name gets the nearest match and the full list, never a silent default.
``mine.py:MyPolicy`` and ``package.module:MyPolicy`` load a plug-in of one's own.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
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

_METHODS = {
    "policy": "decide",
    "trace format": "sniff",
    "predictor": "from_setup",
    "runtime forecast": "from_workload",
}
"""What a class of that kind has, so that lists of a file's classes name no others."""


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
    method = _METHODS.get(kind, "")
    if name.endswith(".py"):
        known = ", ".join(_classes(_module(name), method)) or f"no {kind}"
        raise ConfigError(f"name a class: {name}:Class (it has: {known})")
    if ":" in name:
        return load_object(name, method)
    points = _points(kind)
    if name not in points:
        raise UnknownNameError(kind, name, points)
    return points[name].load()


def load_object(spec: str, method: str = "") -> Any:
    """Load ``file.py:Object`` or ``package.module:Object``; the code of that file is run.

    A file finds modules in its own folder, after those that are installed.

    Parameters
    ----------
    method : str
        What the object should have; the list of others names only those that do. Without one
        functions are listed, too.

    Raises
    ------
    ConfigError
        If the file, module or object is not there, or the code raises while loading.
    """
    source, _, attribute = spec.rpartition(":")
    module = _module(source)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, _classes(module, method), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ";"
        known = ", ".join(_classes(module, method)) or "none that would do"
        raise ConfigError(f"{source} has no {attribute!r}{hint} it has: {known}")
    return getattr(module, attribute)


def _module(source: str) -> ModuleType:
    if not source.endswith(".py"):
        try:
            return _imported(source)
        except (Exception, SystemExit) as error:
            raise _failed(source, error) from error
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"no such file: {source}")
    # A name of its own, so that a file called random.py shadows nothing.
    label = f"cotenant_plugin_{path.stem}"
    found = importlib.util.spec_from_file_location(label, path)
    if found is None or found.loader is None:
        raise ConfigError(f"{source}: cannot be loaded as Python")
    module = importlib.util.module_from_spec(found)
    sys.modules[label] = module
    # For what it imports from beside it, now or when it is called. Last, as for the working folder.
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failed(source, error) from error
    return module


def _imported(name: str) -> ModuleType:
    """An installed module, else one of the working folder, as ``python -m`` would find it."""
    top = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        here = Path.cwd()
        if error.name != top or not ((here / top).is_dir() or (here / f"{top}.py").is_file()):
            raise
        # Last, so that nothing in this folder stands before what is installed.
        sys.path.append(str(here))
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _failed(source: str, error: BaseException) -> ConfigError:
    advice = ""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        advice = '; pip install "cotenant[torch]"'
    return ConfigError(f"{source}: {type(error).__name__} while loading: {error}{advice}")


def _classes(module: ModuleType, method: str) -> list[str]:
    """Public classes that the module itself defines with the method; if none is named, functions, too."""
    return [
        name
        for name, found in vars(module).items()
        if (inspect.isclass(found) or (not method and inspect.isfunction(found)))
        and not name.startswith("_")
        and found.__module__ == module.__name__
        and (not method or hasattr(found, method))
    ]
