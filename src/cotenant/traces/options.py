"""Options that every reader understands, and the check of those that only one does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from cotenant.errors import InputError
from cotenant.traces.files import Progress

__all__ = ["ReadOptions", "Window", "take_options"]

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Window(msgspec.Struct, frozen=True):
    """Part of a trace, ``[low, high)``.

    Parameters
    ----------
    low, high : float
        Seconds from the first submission (or the trace's own zero); with ``dates``, seconds
        since 1970.
    """

    low: float
    high: float
    dates: bool = False


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What all readers understand.

    Parameters
    ----------
    strict : bool
        Refuse what would otherwise be repaired or dropped.
    encoding : str
        Of a file that is not UTF-8.
    progress : callable, optional
        Called with (bytes read, bytes in all).
    window : Window, optional
        Keep jobs submitted in it, count the others. Given as ``(low, high)`` or ``"low..high"``: two
        numbers of seconds from time 0, or two dates (``2017-10-01``, ``2017-10-01 12:00:00``, read as
        UTC, or as written where the trace has no zone).
    cpu_jobs : {"keep", "drop"}
        Jobs that ask for no GPU.
    duplicates : {"", "keep", "drop"}
        Rows that repeat another one exactly; empty leaves it to the format.
    time_zone : str
        Zone of times written without one, an IANA name; empty reads them as written.
    """

    strict: bool = False
    encoding: str = ""
    progress: Progress | None = None
    window: Window | None = None
    cpu_jobs: str = "keep"
    duplicates: str = ""
    time_zone: str = ""


def take_options(
    format_name: str, given: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> tuple[ReadOptions, dict[str, Any]]:
    """Split options into the common ones and the format's ``own``, given with their defaults.

    Text is accepted for each (from a command line) and read by the type of the default.

    Raises
    ------
    InputError
        For an option that the format does not have, or a value that makes no sense.
    """
    own = dict(own or {})
    defaults = {f: getattr(ReadOptions(), f) for f in ReadOptions.__struct_fields__}
    unknown = [name for name in given if name not in defaults and name not in own]
    if unknown:
        known = ", ".join([*own, *defaults])
        raise InputError(f'trace format "{format_name}" has no option "{unknown[0]}"; it has: {known}')
    common = {n: _typed(format_name, n, v, defaults[n]) for n, v in given.items() if n in defaults}
    own.update({n: _typed(format_name, n, v, own[n]) for n, v in given.items() if n in own})
    options = ReadOptions(**common)
    _check(format_name, options)
    return options, own


def _typed(format_name: str, name: str, value: Any, default: Any) -> Any:
    try:
        if isinstance(default, bool) and isinstance(value, str):
            return _WORDS[value.strip().lower()]
        if isinstance(default, float) and not isinstance(default, bool):
            return float(value)
        if name == "window" and value is not None:
            return _window(value)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f'trace format "{format_name}": option {name}={value!r} cannot be read') from error
    return value


def _window(value: Any) -> Window:
    if isinstance(value, Window):
        return value
    parts = value.split("..") if isinstance(value, str) else list(value)
    low, high = parts
    try:
        return Window(float(low), float(high))
    except ValueError:
        moments = [datetime.fromisoformat(str(part).strip()) for part in (low, high)]
    seconds = [(m if m.tzinfo else m.replace(tzinfo=UTC)).timestamp() for m in moments]
    return Window(seconds[0], seconds[1], dates=True)


def _check(format_name: str, options: ReadOptions) -> None:
    for name, allowed in (("cpu_jobs", ("keep", "drop")), ("duplicates", ("", "keep", "drop"))):
        value = getattr(options, name)
        if value not in allowed:
            words = " or ".join(f'"{a}"' for a in allowed if a)
            raise InputError(f'trace format "{format_name}": option {name} is {words}, found {value!r}')
    window = options.window
    if window is not None and not window.low < window.high:
        raise InputError(
            f'trace format "{format_name}": window {window.low:.15g} to {window.high:.15g} is empty; '
            "write (low, high)"
        )
