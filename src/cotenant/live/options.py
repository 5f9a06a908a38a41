"""How ``cotenant up`` was called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings

__all__ = ["LIVE_SETTINGS", "UpOptions", "live_settings"]

LIVE_SETTINGS: dict[str, Any] = {"restore_s": 5.0, "sample_s": 10.0, "retry_lost": 3, "undo_after_s": 60.0}
"""Where a machine of one's own differs from a simulated cluster."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the daemon.

    Parameters
    ----------
    state : Path
        The state folder.
    devices : tuple of str
        Which; none: all that are found.
    policy : str
        As in ``simulate``: a name, or ``file.py:Class``, with parameters after colons.
    forecast : str
        Of speeds; ``auto`` is the predictor that was fitted here, else the contention model.
    runtime : str
        Of running times.
    settings : tuple of str
        ``key=value`` each.
    bind, port : str, int
        Where the API listens; port 0 takes any free one.
    allow_plain : bool
        Listen without TLS where other machines can reach it.
    certificate, key : Path or None
        For TLS.
    store : str
        URL of a PostgreSQL database; empty: a file in the state folder.
    standby : bool
        Wait until nobody leads, then take over.
    state_memory_bytes, state_disk_bytes : int, int or None
        Most that saved states of waiting jobs take in host memory, and on disk (None: no limit). Memory 0: only
        on disk; disk 0: they stay in their jobs' folders.
    seed : int
    quiet : bool
        Nothing on standard error.
    """

    state: Path
    devices: tuple[str, ...] = ()
    policy: str = "cotenant"
    forecast: str = "auto"
    runtime: str = "recent"
    settings: tuple[str, ...] = ()
    bind: str = "127.0.0.1"
    port: int = 0
    allow_plain: bool = False
    certificate: Path | None = None
    key: Path | None = None
    store: str = ""
    standby: bool = False
    state_memory_bytes: int = GIB
    state_disk_bytes: int | None = None
    seed: int = 0
    quiet: bool = False


def live_settings(given: tuple[str, ...]) -> Settings:
    """Settings of a live cluster, with what was given as ``key=value`` in their place.

    Raises
    ------
    ConfigError
        For a setting that is not known, or a value that it cannot have.
    """
    import difflib

    values: dict[str, Any] = dict(LIVE_SETTINGS)
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigError(f"--settings {text}: write name=value")
        if name not in Settings.__struct_fields__:
            near = difflib.get_close_matches(name, Settings.__struct_fields__, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ConfigError(f"--settings {text}: no such setting{hint} (docs/settings.md lists them)")
        values[name] = value.strip()
    try:
        return msgspec.convert(values, Settings, strict=False).check()
    except msgspec.ValidationError as error:
        raise ConfigError(f"--settings: {error}") from None
