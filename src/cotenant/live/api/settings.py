"""How the API is served: what it allows, and how much of it."""

from __future__ import annotations

import msgspec

__all__ = ["LOOPBACK_NAMES", "ApiSettings"]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Names under which a browser or a client on this machine may ask."""


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the API.

    Parameters
    ----------
    hosts : tuple of str
        Names, besides the loopback ones, that a ``Host`` header may carry (without port). Anything
        else is refused, so that a name that an attacker points at this machine leads nowhere.
    origins : tuple of str
        Origins, besides our own, from which a browser may ask: for a proxy that ends TLS.
    metrics_open : bool
        ``/metrics`` needs no token.
    body_bytes : int
        Largest request body.
    body_timeout_s, answer_timeout_s : float
        How long a body may take to arrive, and an answer to be found.
    requests_per_s, burst : float
        Of one token.
    failures_per_minute : float
        Wrong tokens, of all clients together; beyond it they are answered 429. A right token is never
        locked out by someone else's wrong ones: tokens are 256 random bits, so the limit protects
        from load, and nobody guesses.
    session_s : float
        How long a browser stays signed in.
    json_depth : int
        Deepest nesting of a body.
    jobs_per_request : int
        Most jobs of one submission.
    waiting_submits : int
        Most jobs waiting for the disk; beyond it submissions are answered 503.
    event_clients, event_backlog, event_queue : int
        Most readers of ``/v1/events``; events kept for those who come back; events that one slow
        reader may lag behind before it is let go.
    heartbeat_s : float
        A comment is sent on an idle stream so often.
    """

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    metrics_open: bool = False
    body_bytes: int = 4 * 1024 * 1024
    body_timeout_s: float = 10.0
    answer_timeout_s: float = 30.0
    requests_per_s: float = 2000.0
    burst: float = 4000.0
    failures_per_minute: float = 30.0
    session_s: float = 12 * 3600.0
    json_depth: int = 32
    jobs_per_request: int = 1000
    waiting_submits: int = 20_000
    event_clients: int = 64
    event_backlog: int = 5000
    event_queue: int = 2000
    heartbeat_s: float = 15.0
