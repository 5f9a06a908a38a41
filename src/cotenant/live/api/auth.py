"""Who asks: tokens, of which only digests are kept and compared, and sessions of browsers."""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol

from cotenant.live.views import Caller

__all__ = ["Auth", "Sessions", "digest_of"]


class Auth(Protocol):
    """Says who a token belongs to, as ``live.tenants.Tenants`` does."""

    def caller(self, digest: bytes) -> Caller | None:
        """Whose token has this SHA-256, compared in constant time; None: nobody's."""


def digest_of(token: str) -> bytes:
    """SHA-256 of a token: what is kept and compared, never the token itself."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


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
