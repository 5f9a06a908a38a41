"""What went wrong in a person's own model, told in one line with its place."""

from __future__ import annotations

import logging
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant.errors import ConfigError

__all__ = ["OF_LOSS", "LossError", "quiet", "raised", "reason", "untraceable", "value_of_loss"]

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


OF_LOSS = "the loss function "
"""How a graph's note begins that says that a person's loss function failed."""


class LossError(Exception):
    """A person's loss function failed: the answer is then without it, and the message says so."""


_WITHOUT = (
    "a real run fails there. What is told is of the forward pass, and of a backward pass derived from it by "
    "rules, without the loss"
)


def value_of_loss(loss: Callable[[Any], Any], out: Any) -> Any:
    """What a person's loss function makes of a module's outputs.

    Raises
    ------
    LossError
        If it raises, or returns nothing from which a backward pass can begin.
    Exception
        As it came, where it only asked for numbers that fake tensors do not have.
    """
    try:
        value = loss(out)
    except (Exception, SystemExit) as error:
        if type(error).__name__ in _OF_FAKE_TENSORS:
            raise
        raise LossError(f"{OF_LOSS}raised {reason(error)}{_place(error)}; {_WITHOUT}") from error
    if not getattr(value, "requires_grad", False):
        what = "a tensor" if hasattr(value, "requires_grad") else type(value).__name__
        raise LossError(f"{OF_LOSS}returned {what} that leads back to no weight; {_WITHOUT}")
    return value


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
    return ConfigError(f"{label} raised {reason(error)}{_place(error)}")


def _place(error: BaseException) -> str:
    """The innermost line of a person's own code in which it was raised, if there is one."""
    theirs = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_theirs(frame.filename)
    ]
    return f" at {theirs[-1]}" if theirs else ""


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
