"""Whose error was it, and where: the policy's own file and line in one sentence."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from cotenant.errors import CotenantError

__all__ = ["asks_in_vain", "is_inside", "place_of", "sentence"]


def place_of(owner: Any, problem: BaseException) -> str:
    """``file:line, in function`` of the last step of the error inside the owner's own code.

    Parameters
    ----------
    owner : object or class
        The policy. Its code is every file that its class and its bases lie in, those of
        cotenant left out; where there is none, every method called on it.

    Returns
    -------
    str
        Empty if the error did not come out of that code.
    """
    steps = list(traceback.walk_tb(problem.__traceback__))
    files = _files(owner if inspect.isclass(owner) else type(owner))
    own = [step for step in steps if step[0].f_code.co_filename in files]
    if not own:
        own = [step for step in steps if _called_on(step[0], owner)]
    if not own:
        return ""
    frame, line = own[-1]
    return f"{_shown(frame.f_code.co_filename)}:{line}, in {frame.f_code.co_name}"


def is_inside(owner: Any, problem: BaseException) -> bool:
    """True if the error came out of the owner, or out of what it called."""
    return bool(place_of(owner, problem))


def _shown(file: str) -> str:
    """Relative to the working folder, or the name alone: manifests name nobody's home."""
    path = Path(file)
    if not path.is_absolute():
        return file
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name


def _called_on(frame: FrameType, owner: Any) -> bool:
    names = frame.f_code.co_varnames[:1]
    return bool(names) and frame.f_locals.get(names[0]) is owner


def _files(cls: type) -> set[str]:
    found = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in {"cotenant", "builtins", "abc", "typing"}:
            continue
        for member in vars(base).values():
            function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
            code = getattr(function, "__code__", None)
            if code is not None:
                found.add(code.co_filename)
    return found


def asks_in_vain(problem: BaseException) -> bool:
    """True if a policy asked for a forecast of speeds in a run that has none."""
    return isinstance(problem, RuntimeError) and "no forecast of speeds" in str(problem)


def sentence(policy: Any, label: str, problem: Exception) -> str:
    """What went wrong in a run, whose code it was, and where."""
    place = place_of(policy, problem)
    if asks_in_vain(problem):
        return (
            f"policy {label} asks for a forecast of speeds, but this run has none (forecast=None); "
            'give a name such as forecast="lookup" or "contention", or an object'
        )
    if isinstance(problem, CotenantError):
        return f"{problem} ({place})" if place else str(problem)
    if not place:
        return f"fault of cotenant: {type(problem).__name__}: {problem}"
    return f"policy {label} raised {type(problem).__name__}: {problem} ({place})"
