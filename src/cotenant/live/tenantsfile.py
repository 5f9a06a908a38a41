"""``tenants.toml``: who may use the scheduler and what each may have, read as a whole or refused with its line."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from cotenant.errors import ConfigError, InputError

__all__ = ["TenantRow", "check_name", "read_rows"]

_LONGEST_NAME = 64
_MOST_WEIGHT = 1e6
_HEAD = re.compile(r"\s*\[\[\s*tenants\s*\]\]")


class TenantRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tenant as the file has it.

    Parameters
    ----------
    name : str
    sha256 : str
        In hexadecimal.
    quota_gpus, limit_gpus, weight
        As in ``model.cluster.Tenant``.
    isolation : {"exclusive", "same-owner", "trusted", "any"}
        The widest sharing that its jobs may ask for.
    max_priority : int
        The highest priority that its jobs may have.
    """

    name: str
    sha256: str = ""
    quota_gpus: int = 0
    limit_gpus: int | None = None
    weight: float = 1.0
    isolation: Literal["exclusive", "same-owner", "trusted", "any"] = "any"
    max_priority: int = 0

    @property
    def digest(self) -> bytes:
        """Of its token; empty if it has none.

        Raises
        ------
        ValueError
            If these are not 64 hexadecimal digits.
        """
        raw = bytes.fromhex(self.sha256)
        if len(raw) not in (0, hashlib.sha256().digest_size):
            raise ValueError(f"{len(raw)} bytes")
        return raw


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tenants: list[TenantRow] = []


def read_rows(path: Path) -> list[TenantRow]:
    """All tenants of a file.

    Raises
    ------
    ConfigError
        With file and line: it is no TOML, or something in it cannot be.
    FileNotFoundError
        If there is no file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        rows = msgspec.convert(tomllib.loads(text), _File).tenants
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise ConfigError(f"{path}{f':{line[1]}' if line else ''}: not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        place = re.search(r"\$\.tenants\[(\d+)\](?:\.(\w+))?", str(error))
        key = (place[2] if place else None) or (
            found[1] if (found := re.search(r"unknown field `(\w+)`", str(error))) else ""
        )
        raise ConfigError(f"{_at(path, text, int(place[1]) if place else -1, key)}: {error}") from None
    for number, key, wrong in _faults(rows):
        raise ConfigError(f'{_at(path, text, number, key)}: tenant "{rows[number].name:.80}": {wrong}')
    return rows


def _faults(rows: list[TenantRow]) -> Iterator[tuple[int, str, str]]:
    """Number of the row, key, and what is wrong."""
    known: set[str] = set()
    for number, row in enumerate(rows):
        try:
            check_name(row.name, "name")
        except InputError as error:
            yield number, "name", str(error)
        if row.name in known:
            yield number, "name", f'tenant "{row.name}" appears twice'
        known.add(row.name)
        try:
            row.digest  # noqa: B018 - whether it can be read
        except ValueError:
            yield number, "sha256", "sha256 must be 64 hexadecimal digits"
        for key in ("quota_gpus", "limit_gpus", "max_priority"):
            if (value := getattr(row, key)) is not None and value < 0:
                yield number, key, f"{key} must be zero or more, found {value}"
        if row.limit_gpus is not None and row.quota_gpus > row.limit_gpus:
            yield (
                number,
                "quota_gpus",
                f"quota_gpus {row.quota_gpus} is more than limit_gpus {row.limit_gpus}",
            )
        if not 0.0 < row.weight < _MOST_WEIGHT:
            yield (
                number,
                "weight",
                f"weight must be more than 0 and less than a million, found {row.weight:g}",
            )


def _at(path: Path, text: str, number: int, key: str) -> str:
    """``FILE:LINE`` of a key of a tenant, or of the tenant; ``FILE`` if it is written in another way."""
    heads = [i for i, line in enumerate(text.splitlines()) if _HEAD.match(line)]
    if not 0 <= number < len(heads):
        return str(path)
    begin = heads[number]
    rest = text.splitlines()[begin : heads[number + 1] if number + 1 < len(heads) else None]
    inside = [i for i, line in enumerate(rest) if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line)]
    return f"{path}:{begin + 1 + (inside[0] if key and inside else 0)}"


def check_name(name: str, where: str) -> None:
    """Refuse a name that does not read well in files, tables and labels.

    Raises
    ------
    InputError
        Saying what is allowed.
    """
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not (0 < len(name) <= _LONGEST_NAME and plain.isascii() and plain.isalnum()):
        raise InputError(
            f"{where}: a tenant's name is made of letters, digits, dots, dashes and underscores, "
            f"at most {_LONGEST_NAME}; found {name!r:.80}"
        )
