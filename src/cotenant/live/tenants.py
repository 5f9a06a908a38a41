"""Who may use the scheduler: one token for its owner, and one for each tenant.

Tokens are random and long, so their plain SHA-256 is enough to know them by; the tokens of tenants
are kept nowhere. A tenant's isolation is the least distance that it keeps from others: its jobs share
with nobody (``exclusive``), with jobs of the same user (``same-owner``), with its own (``trusted``), or
with all (``any``).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import get_args

import msgspec

from cotenant.errors import ConfigError, DeniedError, InputError
from cotenant.live.tenantsfile import TenantRow, check_name, read_rows
from cotenant.live.views import Caller
from cotenant.model.cluster import Tenant
from cotenant.model.jobs import Sharing

__all__ = [
    "ADMIN",
    "TIERS",
    "TenantRow",
    "Tenants",
    "admin_token",
    "check_priority",
    "new_token",
    "sha256_of_token",
    "write_private",
]

TIERS: tuple[Sharing, ...] = get_args(Sharing)
"""Isolation, from the most to the least."""

ADMIN = Caller("", admin=True)

_FILE, _TOKEN = "tenants.toml", "token"
_PREFIX = "ct_"


def check_priority(caller: Caller, row: TenantRow | None, priority: int, where: str) -> None:
    """A tenant's token goes no higher than the owner granted; the owner's own goes as it likes.

    Raises
    ------
    DeniedError
    """
    most = 0 if row is None else row.max_priority
    if not caller.admin and priority > most:
        raise DeniedError(
            f'{where} [priority]: {priority} asked; tenant "{caller.tenant}" may have up to {most} '
            "(cotenant tenants add --max-priority, or max_priority in tenants.toml). Ask for that or less."
        )


def new_token() -> str:
    """A new secret: 256 bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def sha256_of_token(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def admin_token(state: Path) -> str:
    """The owner's token, made at the first call; whoever reads the file may do everything.

    Raises
    ------
    ConfigError
        If others may read the file: the token is then no secret any more.
    """
    path = state / _TOKEN
    if path.is_file():
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise ConfigError(
                f"{path} can be read by others (mode {mode:03o}): its token is no secret any more; delete it "
                "(a new one is made), or chmod 600 it if nobody else was there"
            )
        if token := path.read_text(encoding="utf-8").strip():
            return token
    token = new_token()
    write_private(path, token + "\n")
    return token


class Tenants:
    """The tenants of a state folder; read again when the file changes.

    Parameters
    ----------
    state : Path
        The state folder.

    Attributes
    ----------
    broken : str
        Why the file as it is now is not used, with its line; empty if it is.

    Raises
    ------
    ConfigError
        If the file cannot be used.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / _FILE
        self._place = str(self._path)
        self._admin = bytes.fromhex(sha256_of_token(admin_token(state)))
        self._digests: tuple[tuple[str, bytes], ...] = ()
        self._rows: dict[str, TenantRow] = {}
        self._stamp: tuple[int, int] = (-1, -1)
        self.broken = ""
        self._read()

    def _read(self) -> bool:
        """Whether there was anything new."""
        try:
            found = os.stat(self._place)  # noqa: PTH116 - several times for each job that is submitted
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            rows = read_rows(self._path)
        except FileNotFoundError:
            self._rows, self._digests, self._stamp = {}, (), (-1, -1)
            return True
        self._digests = tuple((row.name, row.digest) for row in rows if row.sha256)
        self._rows = {row.name: row for row in rows}
        return True

    def caller(self, digest: bytes) -> Caller | None:
        """Whose token has this SHA-256; None if nobody's. Takes as long for a wrong one as for a right one."""
        self._refresh()
        found = ADMIN if hmac.compare_digest(digest, self._admin) else None
        for row, known in self._digests:
            if hmac.compare_digest(digest, known):
                found = found or Caller(row)
        return found

    def _refresh(self) -> None:
        """Take what changed; what cannot be used (half-written by an editor, say) leaves what was read before."""
        try:
            if self._read():
                self.broken = ""
        except ConfigError as error:
            self.broken = str(error)

    def problem(self) -> str:
        """Why the file cannot be used as it is; empty if it can."""
        self._stamp = (-1, -1)
        self._refresh()
        return self.broken

    def rows(self) -> list[TenantRow]:
        """All of them, in the order of the file."""
        self._refresh()
        return list(self._rows.values())

    def row(self, name: str) -> TenantRow | None:
        """One of them."""
        self._refresh()
        return self._rows.get(name)

    def cluster_tenants(self) -> tuple[Tenant, ...]:
        """As the rules know them."""
        return tuple(
            Tenant(name=r.name, weight=r.weight, quota_gpus=r.quota_gpus, limit_gpus=r.limit_gpus)
            for r in self.rows()
        )

    def add(self, row: TenantRow) -> str:
        """Add a tenant, or change one; returns its new token, which is shown this once.

        Raises
        ------
        InputError
            If the name cannot be used.
        """
        check_name(row.name, "tenant")
        token = new_token()
        rows = {**self._rows, row.name: msgspec.structs.replace(row, sha256=sha256_of_token(token))}
        self._write(rows)
        return token

    def remove(self, name: str) -> None:
        """Its token is good for nothing from now on; its jobs go on.

        Raises
        ------
        InputError
            If there is none of that name.
        """
        if name not in self._rows:
            raise InputError(f'no tenant "{name}"; known: {", ".join(self._rows) or "none"}')
        self._write({n: r for n, r in self._rows.items() if n != name})

    def _write(self, rows: dict[str, TenantRow]) -> None:
        text = "# Tenants of this scheduler. Tokens are not kept, only their SHA-256.\n"
        text += "".join("\n" + _as_toml(row) for row in rows.values())
        write_private(self._path, text)
        self._read()


def _as_toml(row: TenantRow) -> str:
    lines = ["[[tenants]]", f'name = "{row.name}"', f'sha256 = "{row.sha256}"']
    lines.append(f"quota_gpus = {row.quota_gpus}")
    if row.limit_gpus is not None:
        lines.append(f"limit_gpus = {row.limit_gpus}")
    lines += [f"weight = {float(row.weight)!r}", f'isolation = "{row.isolation}"']
    if row.max_priority:
        lines.append(f"max_priority = {row.max_priority}")
    return "\n".join(lines) + "\n"
