"""Campaigns that we measured ourselves and that come with the package.

Each is a folder ``measured_*`` in the package's data, as ``cotenant measure`` writes it: ``pairs.csv``,
``solo_profiles.csv``, ``intervals.csv`` and ``manifest.json``, which says on what machine, with what
versions and by which command.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.profiles.hashes import sha256_of
from cotenant.profiles.runs import CoRun, SoloRun
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

__all__ = ["read_campaign", "shipped_campaign", "shipped_campaigns"]

_PREFIX = "measured_"


def shipped_campaigns(root: Path | None = None) -> dict[str, Path]:
    """Name of each campaign (``cpu``, ...) and its folder.

    Parameters
    ----------
    root : Path, optional
        Where to look in place of the package's data.
    """
    place = root or Path(str(files("cotenant") / "data"))
    folders = sorted(path for path in place.glob(f"{_PREFIX}*") if (path / "manifest.json").is_file())
    return {path.name.removeprefix(_PREFIX): path for path in folders}


def shipped_campaign(name: str, root: Path | None = None) -> tuple[list[CoRun], list[SoloRun]]:
    """Co-runs and solo runs of one campaign.

    Raises
    ------
    UnknownNameError
        If there is none of that name.
    ConfigError
        If its tables are not those that its manifest names.
    """
    known = shipped_campaigns(root)
    if name not in known:
        raise UnknownNameError("shipped campaign", name, known)
    return read_campaign(known[name])


def read_campaign(folder: Path) -> tuple[list[CoRun], list[SoloRun]]:
    """Tables of a folder that ``cotenant measure`` wrote, checked against its manifest.

    Raises
    ------
    ConfigError
        If something is missing, or a table was changed since.
    """
    try:
        manifest: Any = msgspec.json.decode((folder / "manifest.json").read_bytes())
        hashes = manifest["sha256"]
        for file, expected in hashes.items():
            if sha256_of(folder / file) != expected:
                raise ConfigError(
                    f"{folder / file} is not what its manifest names; measure again, or restore it"
                )
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{folder} is no folder of measurements: {error}") from None
    return read_co_runs(folder), read_solo_runs(folder)
