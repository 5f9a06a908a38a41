"""How an elastic run was asked for."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, NamedTuple

from cotenant.elastic import ddp, identity
from cotenant.elastic.gradients import Order
from cotenant.errors import InputError

__all__ = ["Settings", "check_wanted", "check_words", "whole"]


class Settings(NamedTuple):
    """How a run was asked for; see ``Run``.

    Attributes
    ----------
    leaves : int
        Units that processes share out: blocks, or workers.
    """

    workers: int
    leaves: int
    most: int
    seed: int
    order: Order
    folder: Path | None
    every_steps: int
    keep: int
    least: identity.Grade
    adopt_threads: bool

    @property
    def turns(self) -> int:
        """Logical workers of a leaf."""
        return self.workers // self.leaves


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number, also one of NumPy's or PyTorch's.

    Raises
    ------
    InputError
        If it is another kind of thing (True is none, and 2.0 neither), or less than ``least``.

    >>> whole("epochs", 3, 1)
    3
    """
    wanted = "a whole number" if least is None else f"a whole number, at least {least}"
    try:
        # Of a tensor or array of one truth value an index would be made, too.
        number = None if "bool" in str(getattr(value, "dtype", type(value))) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InputError(f"{name} is {value!r}, of type {type(value).__name__}: it must be {wanted}")
    if least is not None and number < least:
        raise InputError(f"{name} is {number}: it must be {wanted}")
    return number


def check_wanted(leaves: int, most: str) -> None:
    """See that the supervisor will not start more processes than can share the work."""
    if most.isdigit() and int(most) > leaves:
        raise InputError(
            f"up to {most} processes are to be started, the run is made for {leaves} at most: raise"
            f" elastic.Run(max_processes=...), or ask for fewer, --elastic 1:{leaves}"
        )


def check_words(order: Any, least: Any) -> None:
    """See that they are among those that ``Run`` knows."""
    if order not in ("blocks", "sequence", "ddp"):
        raise InputError(f"order is {order!r}: it must be blocks, sequence or ddp")
    if str(least).upper() not in identity.Grade.__members__:
        raise InputError(f"least is {least!r}: it must be bitwise, statistical or changed")
    if order == "ddp":
        ddp.check_version(strict=least == "bitwise")
