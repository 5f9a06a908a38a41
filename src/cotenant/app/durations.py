"""Durations given as options: one wording and one exit code (2, usage) for all commands."""

from __future__ import annotations

from cotenant.errors import UsageError

__all__ = ["duration_of"]

_ADVICE = "write one such as 230ms, 90s, 5min or 2h"


def duration_of(option: str, text: str, *, zero: bool = False) -> float:
    """Seconds of an option's value.

    Parameters
    ----------
    option : str
        As it is typed, for the message.
    text : str
    zero : bool
        Whether no time at all makes sense.

    Raises
    ------
    UsageError
        If it is no duration, or not positive.
    """
    from cotenant.errors import QuantityError
    from cotenant.model.quantities import parse_duration

    try:
        seconds = parse_duration(text)
    except QuantityError:
        raise UsageError(f"{option} {text}: is no duration; {_ADVICE}") from None
    if seconds == 0 and not zero:
        raise UsageError(f"{option} {text}: must be positive; {_ADVICE}")
    return seconds
