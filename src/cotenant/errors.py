"""Every exception of cotenant, in one tree.

::

    CotenantError
    ├── InputError            bad input from a person: file, option, quantity
    │   ├── QuantityError     a size, share or duration that cannot be read
    │   ├── TraceError        a trace row or file, with file, line and column
    │   ├── ConfigError       a run, cluster or job file
    │   │   └── UsageError    a policy's name, class or parameter as it was written
    │   ├── MissingDataError  measured tables or traces that are not here
    │   └── UnknownNameError  a name that no registry knows
    ├── InfeasibleError       the request can never be met here
    ├── PolicyError           a policy broke its contract
    │   └── StaleViewError    a view was read after the state had moved
    ├── LogError              an event log that cannot be read or folded
    │   └── IllegalEventError an event that the state refuses, with its history
    ├── ReplayMismatchError   a replay differs from its manifest
    ├── MissingExtraError     an optional dependency is not installed
    └── LiveError             the live scheduler
        ├── StoreError        its log could not be written or read: locked, corrupt
        │   └── FullError     there is no room on its disk: nothing was written, and later it can be
        ├── FencedError       another scheduler has taken over; this one must stop
        ├── ConflictError     the same request id with other content, or a state that does not allow it
        ├── DeniedError       no token, a wrong one, or not this tenant's
        ├── NotFoundError     no such job or device
        ├── StateError        saved state that cannot be used: torn, of another model, of a newer format
        └── UnreachableError  no scheduler answers

Expected refusals (no room, quota reached) are values, see ``model.plan.Refusal``;
exceptions are for bugs and for bad input.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "ConflictError",
    "CotenantError",
    "DeniedError",
    "FencedError",
    "FullError",
    "IllegalEventError",
    "InfeasibleError",
    "InputError",
    "LiveError",
    "LogError",
    "LostError",
    "MissingDataError",
    "MissingExtraError",
    "NotFoundError",
    "PolicyError",
    "QuantityError",
    "ReplayMismatchError",
    "StaleViewError",
    "StateError",
    "StoreError",
    "TraceError",
    "UnknownNameError",
    "UnreachableError",
    "UsageError",
]


class CotenantError(Exception):
    """Base of all errors raised on purpose by cotenant.

    ``exit_code`` is what the command line returns for it: 1 user error,
    2 usage, 3 infeasible.
    """

    exit_code = 1


class InputError(CotenantError):
    """Input from a person that cannot be used as it is."""


class QuantityError(InputError):
    """A size, share or duration that cannot be read."""


class TraceError(InputError):
    """A trace file or row that cannot be read.

    Parameters
    ----------
    message : str
        What was found and what to do.
    path, line, column : optional
        Where; ``line`` counts from 1 and includes the header.
    """

    def __init__(
        self,
        message: str,
        *,
        path: object = None,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        self.path, self.line, self.column = path, line, column
        where = "" if path is None else str(path)
        if line is not None:
            where += f":{line}"
        if column is not None:
            where += f" [{column}]"
        super().__init__(f"{where}: {message}" if where else message)


class ConfigError(InputError):
    """A run, cluster or job file that cannot be used."""


class UsageError(ConfigError):
    """A policy as it was written: its file, its class, a parameter."""

    exit_code = 2


class MissingDataError(InputError):
    """Measured tables or traces that are not here."""


class UnknownNameError(InputError):
    """A name that no registry knows; the message offers the nearest, the full list, and perhaps advice."""

    exit_code = 2

    def __init__(self, kind: str, name: str, known: Iterable[str], *, advice: str = "") -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        near = difflib.get_close_matches(name, self.known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ";"
        more = f"; {advice}" if advice else ""
        super().__init__(f'no {kind} "{name}"{hint} known: {", ".join(self.known)}{more}')


class InfeasibleError(CotenantError):
    """The request can never be met on this cluster."""

    exit_code = 3


class PolicyError(CotenantError):
    """A policy broke its contract."""


class StaleViewError(PolicyError):
    """A view was read after the state had moved on."""


class LogError(CotenantError):
    """An event log that cannot be read or folded."""


class IllegalEventError(LogError):
    """An event that the state refuses; carries the job's history for the report."""


class ReplayMismatchError(CotenantError):
    """A replay produced another log than its manifest records."""


class MissingExtraError(CotenantError):
    """An optional dependency is not installed; names the extra to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'cotenant[{extra}]'")


class LiveError(CotenantError):
    """Something of the live scheduler."""


class StoreError(LiveError):
    """The live log could not be written or read; says what failed and what to do."""


class FullError(StoreError):
    """There is no room on the disk of the live log: nothing was written, and it can be once there is."""


class LostError(StoreError):
    """The server of the live log is away; what was last written may or may not be in it. It may come back."""


class FencedError(LiveError):
    """A scheduler with a later epoch has taken over: whoever gets this must act no more."""


class ConflictError(LiveError):
    """A request that contradicts an earlier one, or the state of what it is about."""


class DeniedError(LiveError):
    """The token is missing, wrong, or does not allow this."""


class NotFoundError(LiveError):
    """No such job, device or request."""


class StateError(LiveError):
    """Saved state of a job that cannot be used; says what was found and what to do."""


class UnreachableError(LiveError):
    """No scheduler answers."""

    exit_code = 4
