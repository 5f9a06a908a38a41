"""How ``cotenant up`` was called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings

__all__ = ["LIVE_SETTINGS", "UpOptions", "allowed_names", "live_settings"]

LIVE_SETTINGS: dict[str, Any] = {"restore_s": 5.0, "sample_s": 10.0, "retry_lost": 3, "undo_after_s": 60.0}
"""Where a machine of one's own differs from a simulated cluster."""
_NAME = re.compile(r"([A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


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
    allow_hosts : tuple of str
        Further names under which the API is asked, as of a proxy: ``NAME`` or ``NAME:PORT`` each.
    open_metrics : bool
        ``/metrics`` needs no token.
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
    allow_hosts: tuple[str, ...] = ()
    open_metrics: bool = False
    store: str = ""
    standby: bool = False
    state_memory_bytes: int = GIB
    state_disk_bytes: int | None = None
    seed: int = 0
    quiet: bool = False


def allowed_names(given: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names for ``Host`` (without port), and the origins of pages that are served under them.

    Both schemes are origins: a proxy may end TLS, and then the API itself is asked without.

    Raises
    ------
    ConfigError
        For what is not a name or address, with or without a port.

    >>> allowed_names(("gpu.example:8443",))
    (('gpu.example',), ('http://gpu.example:8443', 'https://gpu.example:8443'))
    """
    hosts, origins = [], []
    for text in given:
        found = _NAME.fullmatch(text)
        if found is None or int(found[2] or 0) > 65535:
            raise ConfigError(
                f"--allow-host {text!r}: write NAME or NAME:PORT, as browsers and clients ask for it: "
                "gpu.example, 10.0.0.7:8443 or [fd00::7]; no scheme, no path, no wildcard"
            )
        hosts.append(found[1])
        origins += [f"http://{text}", f"https://{text}"]
    return tuple(hosts), tuple(origins)


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
