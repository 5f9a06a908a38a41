"""Output folders: what may be written over, and files that appear whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.wholefile import write_whole

__all__ = ["KIND", "MANIFEST", "claim", "earlier_runs", "is_ours", "write_json"]

MANIFEST = "manifest.json"
KIND = "cotenant-run"
_OURS = (MANIFEST, "runs", "report.html", "inputs")


def is_ours(folder: Path) -> bool:
    """True if the folder holds a manifest written by cotenant."""
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and found.get("kind") == KIND


def earlier_runs(folder: Path) -> list[tuple[str, int]]:
    """Policy and seed of every run that the folder holds, in the order of its manifest."""
    if not is_ours(folder):
        return []
    runs = msgspec.json.decode((folder / MANIFEST).read_bytes()).get("runs")
    listed = [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    return [(str(run.get("policy")), seed) for run in listed if isinstance(seed := run.get("seed"), int)]


def claim(folder: Path, *, force: bool = False, only: tuple[str, int] | None = None) -> str:
    """Make the folder ready for a new run; an earlier run of ours in it is removed.

    Parameters
    ----------
    force : bool
        Write beside what is not ours, and replace what ``only`` protects.
    only : (str, int), optional
        Policy and seed; runs of ours of another policy or seed are then not replaced.

    Returns
    -------
    str
        Which runs were removed, in words; empty if none.

    Raises
    ------
    ConfigError
        If it is a file, or holds something that is not ours (then ``force`` writes beside
        that, and still removes nothing of it), or runs that ``only`` protects.
    """
    replaced = ""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; -o names a folder")
    if folder.is_dir() and any(folder.iterdir()):
        if is_ours(folder):
            runs = earlier_runs(folder)
            replaced = _listed(runs)
            others = [run for run in runs if run != only]
            if only is not None and others and not force:
                raise ConfigError(
                    f"{folder} holds earlier runs ({_listed(others)}), which this one would replace; "
                    "name another folder, or give force=True"
                )
            _clear(folder)
        elif not force:
            raise ConfigError(
                f"{folder} is not empty and holds no earlier run (no {MANIFEST}); name another folder with -o, "
                "or give --force to write beside what is there"
            )
        elif (folder / "runs").exists():
            raise ConfigError(f"{folder / 'runs'} is not ours, so it is not replaced; move it away")
    folder.mkdir(parents=True, exist_ok=True)
    return replaced


def _listed(runs: list[tuple[str, int]]) -> str:
    """Each policy with its seeds.

    >>> _listed([("fifo", 0), ("las", 0), ("las", 1)])
    'fifo seed 0, las seeds 0, 1'
    """
    seeds: dict[str, list[str]] = {}
    for policy, seed in runs:
        seeds.setdefault(policy, []).append(str(seed))
    return ", ".join(
        f"{policy} {'seed' if len(own) == 1 else 'seeds'} {', '.join(own)}" for policy, own in seeds.items()
    )


def _clear(folder: Path) -> None:
    for name in _OURS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
