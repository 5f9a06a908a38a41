"""Serving in a thread of the scheduler's process."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cotenant.errors import ConfigError
from cotenant.live.api.guard import Guard

__all__ = ["Served", "check_bind", "names_of", "serve"]

START_S = 15.0
HEAD_S = 10.0
"""How long the head of a request may take to arrive."""


def check_bind(bind: str, *, tls: bool, allow_plain: bool = False) -> None:
    """Check that what is sent cannot be read on the way.

    Raises
    ------
    ConfigError
        An address that others can reach, without TLS and without being told so on purpose.
    """
    if _loopback(bind) or tls or allow_plain:
        return
    raise ConfigError(
        f"{bind}: other machines can reach this address, and tokens and output would cross the network readable. "
        "Give a certificate and key for TLS, or keep 127.0.0.1 and come through ssh -L; "
        "on a network that is safe by other means, allow it with --i-understand-that-tokens-cross-the-network-readable."
    )


def names_of(bind: str) -> tuple[str, ...]:
    """Under what others ask for an address of this machine: itself, or all its addresses, and its name.

    They are its own, so that a name that somebody else points here is still none of them.
    """
    if _loopback(bind):
        return ()
    name = socket.gethostname()
    found = [name, name.partition(".")[0], bind.strip("[]")]
    if bind.strip("[]") in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not listened on
        import psutil

        inner = (socket.AF_INET, socket.AF_INET6)
        addresses = [a for rows in psutil.net_if_addrs().values() for a in rows if a.family in inner]
        found += [a.address.partition("%")[0] for a in addresses]
    return tuple(f"[{one}]" if ":" in one else one for one in found)


def _loopback(bind: str) -> bool:
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind.strip("[]")).is_loopback
    except ValueError:
        return False


class Served:
    """A running server.

    Attributes
    ----------
    url : str
        Where it listens.
    port : int
    """

    def __init__(self, server: _Quiet, listening: socket.socket, url: str) -> None:
        self._server, self._listening, self.url = server, listening, url
        self.port = int(listening.getsockname()[1])
        self._thread = threading.Thread(target=self._run, name="cotenant-api", daemon=True)
        self._failed: BaseException | None = None
        self._up = threading.Event()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        except (Exception, SystemExit) as error:  # told to who started it
            self._failed = error
        finally:
            self._up.set()

    def start(self) -> None:
        """Return once it answers."""
        self._thread.start()
        waited_s = 0.0
        while not self._server.started and not self._up.wait(0.01):
            waited_s += 0.01
            if waited_s > START_S:
                raise ConfigError(f"{self.url}: not serving after {START_S:g} s")
        if self._up.is_set():
            raise ConfigError(f"{self.url}: could not be served: {self._failed or 'see the log'}")

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Answer what is being asked, then end. Streams are cut."""
        self._server.end()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(timeout_s)
        self._listening.close()


def serve(
    app: Any,
    bind: str = "127.0.0.1",
    port: int = 0,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    allow_plain: bool = False,
) -> Served:
    """Serve an application in a thread.

    Parameters
    ----------
    app : ASGI application
        From ``create_app``; it then answers under the names of ``bind``, too.
    bind : str
        Address to listen on.
    port : int
        0: any free one.
    certificate, key : Path, optional
        TLS, as PEM files.
    allow_plain : bool
        Listen without TLS where other machines can reach it.

    Raises
    ------
    ConfigError
        The address may not be used so, is taken, or the certificate cannot be read.
    """
    tls = certificate is not None and key is not None
    if (certificate is None) != (key is None):
        raise ConfigError("TLS needs both a certificate and a key")
    check_bind(bind, tls=tls, allow_plain=allow_plain)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        loop="asyncio",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=32 * 1024,
        limit_concurrency=2000,
        backlog=1024,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificate or key cannot be read: {error}") from None
    if isinstance(app, Guard):
        app.allow(names_of(bind))
    listening = _listen(bind, port)
    name = f"[{bind.strip('[]')}]" if ":" in bind else bind
    url = f"{'https' if tls else 'http'}://{name}:{listening.getsockname()[1]}"
    served = Served(_Quiet(config), listening, url)
    try:
        served.start()
    except ConfigError:
        listening.close()
        raise
    return served


class _Protocol(H11Protocol):
    """HTTP for strangers.

    Without an access log: that would hold what clients write in their queries; the doors keep one without.
    And who connects must ask within some seconds: connections that say nothing would keep others out.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.access_log = False
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD_S, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._patience is None:
                self._patience = self.loop.call_later(HEAD_S, self.transport.close)
        elif self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)


class _Quiet(uvicorn.Server):
    """A server that leaves signals to the scheduler, and does not look ten times a second whether it is to end."""

    _woken: Callable[[], object] = staticmethod(lambda: None)

    async def main_loop(self) -> None:
        """Once a second the date of answers is renewed (each tenth tick of the library's)."""
        over, loop, tick = asyncio.Event(), asyncio.get_running_loop(), 0
        self._woken = lambda: loop.call_soon_threadsafe(over.set)
        while not await self.on_tick(tick):
            tick = (tick + 10) % 864_000
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 1.0)

    def end(self) -> None:
        """End soon; from any thread."""
        self.should_exit = True
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._woken()

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let streams go first: they would be waited for."""
        getattr(self.config.app, "let_go", lambda: None)()
        await super().shutdown(sockets)


def _listen(bind: str, port: int) -> socket.socket:
    address = bind.strip("[]")
    try:
        family, *_, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        # The protocol is named because asyncio turns Nagle's delay off only where it sees that it is TCP.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Where a scheduler just ended, its port can be taken again at once; a living one's cannot.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(target)
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"{bind}:{port}: cannot listen there ({error.strerror or error}); is another scheduler running? "
            "Port 0 takes any free one."
        ) from None
    return listening
