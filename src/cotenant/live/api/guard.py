"""What every request must pass before anything is done for it: the doors of the API.

In this order: the name it asked (``Host``), where it comes from (``Origin``), whose it is (token or
session), how often they ask, and what it carries. A web page elsewhere can make a browser send
requests here, also by giving this machine's address a name of its own; such requests carry another
``Host`` or ``Origin`` and are refused for every method, before the token is looked at.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec

from cotenant.live.api.auth import Auth, Sessions, digest_of
from cotenant.live.api.limits import Rate, depth_of
from cotenant.live.api.problems import BadRequestError, HttpError
from cotenant.live.api.settings import LOOPBACK_NAMES, ApiSettings
from cotenant.live.views import Caller

__all__ = [
    "CALLER",
    "CSRF_HEADER",
    "SECURITY_HEADERS",
    "SESSION",
    "Doors",
    "Guard",
    "cookie_name",
    "cookies_of",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

CALLER, SESSION = "cotenant.caller", "cotenant.session"
CSRF_HEADER = "x-cotenant"
READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
SECURITY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_log = logging.getLogger("cotenant.live.api")


def cookie_name(host: str) -> str:
    """Name of the session's cookie: cookies do not know ports, so it tells two schedulers of one machine apart."""
    port = host.rpartition(":")[2]
    return f"cotenant-{port}" if port.isdigit() else "cotenant"


def cookies_of(header: str) -> dict[str, str]:
    """Cookies of a ``Cookie`` header; of two with one name the first counts."""
    found: dict[str, str] = {}
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value)
    return found


class Doors:
    """Whose a request is, and whether it may come in.

    Parameters
    ----------
    auth : Auth
    settings : ApiSettings
    now : callable, optional
        Seconds that never go back.
    """

    def __init__(self, auth: Auth, settings: ApiSettings, now: Callable[[], float] = time.monotonic) -> None:
        self.auth, self.settings, self.now = auth, settings, now
        self.sessions = Sessions(settings.session_s)
        self._names = frozenset(name.lower() for name in (*LOOPBACK_NAMES, *settings.hosts))
        self._asked = Rate(settings.requests_per_s, settings.burst)
        self._failed = Rate(settings.failures_per_minute / 60, max(1.0, settings.failures_per_minute))

    def allow(self, names: Iterable[str]) -> None:
        """Answer under these names, too."""
        self._names |= {name.lower() for name in names}

    def check_host(self, hosts: list[str]) -> str:
        """The one ``Host`` header, if it is one of our names."""
        host = hosts[0].strip() if len(hosts) == 1 else ""
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not colon:
            name = host
        if name.lower() not in self._names or (colon and not port.isdigit()):
            raise HttpError(
                403,
                "DeniedError",
                f"no scheduler is called {host[:100]!r} here",
                hint="ask by 127.0.0.1 or localhost, or by the address or name of the machine if it serves others",
            )
        return host

    def check_origin(self, scheme: str, host: str, origins: list[str]) -> None:
        """A browser says from which page it asks: only ours may."""
        own = {f"{scheme}://{host}".lower(), *(o.lower() for o in self.settings.origins)}
        if any(origin.strip().lower() not in own for origin in origins):
            raise HttpError(
                403,
                "DeniedError",
                "a page from elsewhere may not ask this scheduler",
                hint="open its own page",
            )

    def known(self, token: str) -> Caller:
        """Whose token it is; a wrong one counts as a failure."""
        caller = self.auth.caller(digest_of(token))
        if caller is None:
            self._refuse_failure()
        assert caller is not None  # noqa: S101 - for the type checker: the line above raises
        return caller

    def _refuse_failure(self) -> None:
        wait_s = self._failed.take("", self.now())
        if wait_s:
            raise too_many("too many wrong tokens", wait_s)
        raise unknown("the token is not known here")

    def by_session(self, secret: str) -> Caller | None:
        """Who signed in with this cookie."""
        digest = self.sessions.digest(secret, self.now())
        return None if digest is None else self.auth.caller(digest)

    def check_rate(self, caller: Caller) -> None:
        """How often one caller asks."""
        wait_s = self._asked.take(f"{caller.admin:d}{caller.tenant}", self.now())
        if wait_s:
            raise too_many(f"more than {self.settings.requests_per_s:g} requests a second", wait_s)

    def identify(self, method: str, host: str, headers: dict[str, list[str]]) -> tuple[Caller, str]:
        """Who asks, and with which session ("" if with a token)."""
        given = headers.get("authorization", [])
        if given:
            scheme, _, token = given[0].strip().partition(" ")
            if len(given) > 1 or scheme.lower() != "bearer" or not token.strip():
                raise unknown("the Authorization header is not of the form: Bearer TOKEN")
            return self.known(token.strip()), ""
        secret = cookies_of("; ".join(headers.get("cookie", []))).get(cookie_name(host), "")
        caller = self.by_session(secret) if secret else None
        if caller is None:
            raise unknown("no token")
        self.check_own_page(method, headers)
        return caller, secret

    def check_own_page(self, method: str, headers: dict[str, list[str]]) -> None:
        """A cookie comes by itself, so more is asked with it: that our own page's script sent the request."""
        site = headers.get("sec-fetch-site", ["same-origin"])[0]
        sent = method in READING or (bool(headers.get("origin")) and bool(headers.get(CSRF_HEADER)))
        if site not in ("same-origin", "none") or not sent:
            raise HttpError(
                403,
                "DeniedError",
                "a signed-in browser must ask from this scheduler's own page",
                detail="Origin and X-Cotenant are needed beside the cookie",
                hint="scripts use Authorization: Bearer TOKEN",
            )


def unknown(message: str) -> HttpError:
    """401."""
    return HttpError(
        401,
        "DeniedError",
        message,
        hint="send Authorization: Bearer TOKEN; the token lies in the scheduler's state folder, file token",
        headers={"www-authenticate": 'Bearer realm="cotenant"'},
    )


def too_many(message: str, wait_s: float) -> HttpError:
    """429."""
    seconds = max(1, int(wait_s + 0.999))
    return HttpError(
        429,
        "TooManyError",
        message,
        hint=f"try again in {seconds} s; many jobs can be submitted in one request",
        headers={"retry-after": str(seconds)},
    )


class Guard:
    """An ASGI application that lets through what may pass.

    Parameters
    ----------
    app : ASGI application
    doors : Doors
    settings : ApiSettings
    methods : callable
        Which methods a path knows; none where it is not one of the API.
    let_go : callable
        Ends streams that would otherwise go on while the server wants to stop.
    """

    def __init__(
        self,
        app: App,
        doors: Doors,
        settings: ApiSettings,
        *,
        methods: Callable[[str], frozenset[str]],
        let_go: Callable[[], None] = lambda: None,
    ) -> None:
        self._methods = methods
        self._app, self._doors, self._settings, self.let_go = app, doors, settings, let_go
        self.allow = doors.allow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        answered: list[int] = []

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.append(message["status"])
                names = {name.lower() for name, _ in message["headers"]}
                # Nothing of a scheduler is for caches, except where a handler says so.
                extra = (*SECURITY_HEADERS, (b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *(h for h in extra if h[0] not in names)]
            await send(message)

        try:
            receive = await self._admitted(scope, receive)
        except HttpError as error:
            await _refuse(sealed, error, scope["method"])
        else:
            known = self._methods(scope["path"]) if scope["method"] == "OPTIONS" else None
            if known:
                await _tell_methods(sealed, known)
            else:
                await self._app(scope, receive, sealed)
        if _log.isEnabledFor(logging.DEBUG):
            spent_ms = 1000 * (time.monotonic() - begun)
            _log.debug("%s %r %s %.1f ms", scope["method"], scope["path"], answered, spent_ms)

    async def _admitted(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request; what is left to receive of it comes back."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        doors, method, path = self._doors, scope["method"], scope["path"]
        host = doors.check_host(headers.get("host", []))
        doors.check_origin(scope["scheme"], host, headers.get("origin", []))
        if not self._open(method, path):
            caller, session = doors.identify(method, host, headers)
            doors.check_rate(caller)
            scope[CALLER], scope[SESSION] = caller, session
        if method != "POST" or "POST" not in self._methods(path):
            return receive  # whatever it carries, nobody will read it
        body = await self._body(headers, receive)
        return _again(body, receive)

    def _open(self, method: str, path: str) -> bool:
        """What needs no token: signs of life, and the page, which holds nothing before one signs in."""
        if path == "/metrics":
            return self._settings.metrics_open
        if path == "/login":
            return method == "POST"
        return method in ("GET", "HEAD") and (path in ("/", "/healthz") or path.startswith("/page/"))

    async def _body(self, headers: dict[str, list[str]], receive: Receive) -> bytes:
        """The whole body, if it is short, in time, JSON and shallow."""
        most = self._settings.body_bytes
        length = headers.get("content-length", ["0"])[0]
        if length.isdigit() and int(length[:18]) > most:
            raise _too_large(most)
        try:
            body = await asyncio.wait_for(_collect(receive, most), self._settings.body_timeout_s)
        except TimeoutError:
            raise HttpError(
                408, "BadRequestError", f"the body did not arrive within {self._settings.body_timeout_s:g} s"
            ) from None
        kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
        if kind != "application/json" or headers.get("content-encoding", ["identity"]) != ["identity"]:
            raise HttpError(
                415,
                "MediaTypeError",
                f"a body of type {kind[:60] or 'unknown'!r}",
                hint="send JSON, not compressed, with Content-Type: application/json",
            )
        if depth_of(body) > self._settings.json_depth:
            raise BadRequestError(f"JSON nested deeper than {self._settings.json_depth}")
        return body


async def _collect(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "BadRequestError", "the client went away")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> HttpError:
    return HttpError(
        413,
        "TooLargeError",
        f"a body of more than {most:,} bytes",
        hint="submit in several requests",
        headers={"connection": "close"},
    )


def _again(body: bytes, receive: Receive) -> Receive:
    """Give a body that was read to who reads next; later messages tell of the client's leaving."""
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def once() -> Message:
        return first.pop() if first else await receive()

    return once


async def _tell_methods(send: Send, known: frozenset[str]) -> None:
    allow = ", ".join(sorted(known | {"OPTIONS"})).encode()
    await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", allow)]})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(send: Send, error: HttpError, method: str) -> None:
    body = msgspec.json.encode(error.problem)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(k.encode(), v.encode("latin-1")) for k, v in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
