"""Who asks: tokens, compared in constant time, and sessions of browsers."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from cotenant.errors import ConfigError
from cotenant.live.views import Caller

__all__ = ["ADMIN", "Auth", "Sessions", "Tokens", "digest_of", "read_tokens"]

ADMIN = Caller("", admin=True)
LEAST_TOKEN = 32


class Auth(Protocol):
    """Says who a token belongs to."""

    def caller(self, digest: bytes) -> Caller | None:
        """Whose token has this SHA-256; None: nobody's."""


def digest_of(token: str) -> bytes:
    """SHA-256 of a token: what is kept and compared, never the token itself."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Tokens:
    """Tokens known by their digests.

    All are compared, and each in constant time: how long an answer takes says nothing of a token.

    Parameters
    ----------
    known : iterable of (bytes, Caller)
        SHA-256 of a token, and whose it is.
    """

    def __init__(self, known: Iterable[tuple[bytes, Caller]]) -> None:
        self._known = tuple(known)

    def caller(self, digest: bytes) -> Caller | None:
        """Whose token has this SHA-256; None: nobody's."""
        found = None
        for mine, caller in self._known:
            if hmac.compare_digest(mine, digest):
                found = caller
        return found


def read_tokens(folder: Path) -> Tokens:
    """The administrator's token (file ``token``) and the tenants' (``tenants.toml``).

    ``tenants.toml`` holds a table for each tenant, with ``sha256`` (of the token, in hexadecimal) beside what else
    is said of it: ``[tenants.name]``, or a list ``[[tenants]]`` with ``name``.

    Raises
    ------
    ConfigError
        No token, one that others may read, one too short, or a digest that is none.
    """
    path = folder / "token"
    try:
        token = path.read_text("ascii").strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); `cotenant up` writes one") from None
    if mode & 0o077 and os.name == "posix":
        raise ConfigError(f"{path}: others may read it (mode {mode:o}); chmod 600 {path}")
    if len(token) < LEAST_TOKEN:
        raise ConfigError(f"{path}: a token of {len(token)} characters; at least {LEAST_TOKEN} are needed")
    known = [(digest_of(token), ADMIN)]
    tenants = folder / "tenants.toml"
    if tenants.is_file():
        known += _tenants(tenants)
    return Tokens(known)


def _tenants(path: Path) -> list[tuple[bytes, Caller]]:
    try:
        found = tomllib.loads(path.read_text("utf-8")).get("tenants", {})
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if isinstance(found, dict):
        found = [{"name": name, **rest} for name, rest in found.items() if isinstance(rest, dict)]
    known = []
    for one in found:
        name, digest = str(one.get("name", "")), str(one.get("sha256", ""))
        if not digest:
            continue  # a tenant that has limits and no token: jobs of it are submitted by the administrator
        try:
            raw = bytes.fromhex(digest)
        except ValueError:
            raw = b""
        if len(raw) != hashlib.sha256().digest_size or not name:
            raise ConfigError(f"{path}: tenant {name!r}: sha256 must be 64 hexadecimal digits")
        known.append((raw, Caller(name)))
    return known


class Sessions:
    """Browsers that signed in. They are kept in memory: a restart ends them.

    A session keeps the digest of its token, so that it ends when the token does.
    """

    def __init__(self, length_s: float, most: int = 1000) -> None:
        self.length_s, self._most = length_s, most
        self._open: dict[bytes, tuple[bytes, float]] = {}

    def begin(self, token_digest: bytes, now: float) -> str:
        """A new session's secret."""
        self._open = {k: v for k, v in self._open.items() if v[1] > now}
        while len(self._open) >= self._most:
            self._open.pop(next(iter(self._open)))
        secret = secrets.token_urlsafe(32)
        self._open[digest_of(secret)] = (token_digest, now + self.length_s)
        return secret

    def digest(self, secret: str, now: float) -> bytes | None:
        """Digest of the token with which it was begun; looked up by digest, so timing tells nothing."""
        token, until = self._open.get(digest_of(secret), (None, 0.0))
        return token if until > now else None

    def end(self, secret: str) -> None:
        """Sign out."""
        self._open.pop(digest_of(secret), None)
