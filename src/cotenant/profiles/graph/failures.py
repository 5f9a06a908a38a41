"""What went wrong in a person's own model, told in one line with its place."""

from __future__ import annotations

import logging
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cotenant.errors import ConfigError

__all__ = ["quiet", "raised", "reason", "untraceable"]

_NOT_THEIRS = (Path(__file__).parents[2], Path(sysconfig.get_path("stdlib")))
_OF_FAKE_TENSORS = frozenset(
    (
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "GuardOnDataDependentSymNode",
        "UnsupportedFakeTensorException",
        "UnsupportedOperatorException",
    )
)
"""What torch raises where a module is sound, but asks for numbers that do not exist."""


@contextmanager
def quiet() -> Iterator[None]:
    """PyTorch's own loggers print nothing meanwhile: what they would say is raised as well."""
    found = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger)
    ]
    before = [(logger, logger.disabled) for logger in found]
    for logger in found:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in before:
            logger.disabled = disabled


def reason(error: BaseException) -> str:
    """Type and first line of an error."""
    if isinstance(error, SystemExit):
        return f"SystemExit: it ends the program (sys.exit({'' if error.code is None else error.code}))"
    line = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def raised(label: str, error: BaseException) -> ConfigError:
    """An error of a person's own code, with the innermost line of it if one is known."""
    theirs = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_theirs(frame.filename)
    ]
    place = f" at {theirs[-1]}" if theirs else ""
    return ConfigError(f"{label} raised {reason(error)}{place}")


def _is_theirs(name: str) -> bool:
    path = Path(name)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not (name.startswith("<") or installed or any(path.is_relative_to(place) for place in _NOT_THEIRS))


def untraceable(label: str, error: BaseException) -> ConfigError:
    """Why a step could not be traced: numbers that fake tensors lack, or an error of the module's own."""
    if type(error).__name__ not in _OF_FAKE_TENSORS:
        return raised(label, error)
    return ConfigError(
        f"{label} cannot be traced on fake tensors: {reason(error)}; "
        "give a module whose forward pass does not depend on the values of its inputs, or an ONNX file"
    )
