"""The API put together: an ASGI application around a service."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import msgspec
from litestar import Litestar, Response, route
from litestar import Request as HttpRequest
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler

from cotenant import __version__
from cotenant.live.api.acceptor import Acceptor
from cotenant.live.api.auth import Auth
from cotenant.live.api.guard import CALLER, Doors, Guard
from cotenant.live.api.handlers import JSON, Call, Handlers
from cotenant.live.api.hub import Hub
from cotenant.live.api.metrics import Meters
from cotenant.live.api.openapi import describe
from cotenant.live.api.problems import BadRequestError, HttpError, problem_of, status_of
from cotenant.live.api.routes import ROUTES, Route
from cotenant.live.api.settings import ApiSettings
from cotenant.live.views import Caller, Service

__all__ = ["create_app"]

_NOBODY = Caller("")
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def create_app(service: Service, auth: Auth, settings: ApiSettings | None = None) -> Guard:
    """An ASGI application that serves the API and the page.

    Parameters
    ----------
    service : Service
        Answers.
    auth : Auth
        Knows whose a token is.
    settings : ApiSettings, optional
    """
    settings = settings or ApiSettings()
    doors = Doors(auth, settings)
    hub = Hub(
        service,
        backlog=settings.event_backlog,
        queue=settings.event_queue,
        readers=settings.event_clients,
        heartbeat_s=settings.heartbeat_s,
    )
    acceptor = Acceptor(service, settings.waiting_submits, settings.jobs_per_request)
    meters = Meters()
    handlers = Handlers(service, settings, doors=doors, hub=hub, acceptor=acceptor, meters=meters)

    @asynccontextmanager
    async def living(_: Litestar) -> AsyncIterator[None]:
        hub.open()
        try:
            yield
        finally:
            hub.close()
            acceptor.close()
            handlers.pool.shutdown(wait=False, cancel_futures=True)

    app = Litestar(
        [*(_route(one, handlers) for one in ROUTES), _description(), *_page()],
        openapi_config=None,
        lifespan=[living],
        exception_handlers={Exception: _told},
        logging_config=None,
    )
    return Guard(_Straight(app, handlers), doors, settings, methods=_methods(), let_go=hub.close)


class _Straight:
    """Answers submissions itself, and gives all else to the application behind it.

    A submission is what comes a thousand times a second: routing, and requests and responses made for every need,
    cost as much as all the rest of its way to the disk. What is answered is the same, byte for byte.
    """

    def __init__(self, app: Litestar, handlers: Handlers) -> None:
        self._app, self._handlers = app, handlers
        self._route = next(one for one in ROUTES if one.name == "submit")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        one = self._route
        mine = scope["type"] == "http" and scope["path"] == one.path and scope["method"] == one.method
        if not mine or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        request: HttpRequest[Any, Any, Any] = HttpRequest(scope, receive, send)
        body = (await receive())["body"]  # whole: the guard has collected it
        await _send(await _counted(one, self._handlers, request, body), send)


async def _send(found: Response[bytes], send: Any) -> None:
    """A response whose content is there already."""
    headers = [
        *((name.encode(), value.encode("latin-1")) for name, value in found.headers.items()),
        (b"content-type", str(found.media_type).encode()),
        (b"content-length", str(len(found.content)).encode()),
    ]
    await send({"type": "http.response.start", "status": found.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": found.content})


def _methods() -> Callable[[str], frozenset[str]]:
    """Says which methods a path knows; none: no path of the API."""
    found: dict[str, set[str]] = {}
    for one in ROUTES:
        found.setdefault(re.sub(r"\{\w+\}", "[^/]+", one.path), set()).add(one.method)
    known = [(re.compile(path), frozenset(methods)) for path, methods in found.items()]

    def methods(path: str) -> frozenset[str]:
        return next((names for pattern, names in known if pattern.fullmatch(path)), frozenset())

    return methods


def _route(one: Route, handlers: Handlers) -> HTTPRouteHandler:
    path = re.sub(r"\{(\w+)\}", r"{\1:str}", one.path)

    @route(path, http_method=[one.method], status_code=one.status, name=one.name)
    async def answer(request: HttpRequest[Any, Any, Any]) -> Response[Any]:
        return await _counted(one, handlers, request)

    return answer


async def _counted(
    one: Route, handlers: Handlers, request: HttpRequest[Any, Any, Any], body: bytes | None = None
) -> Response[Any]:
    begun = time.perf_counter()
    try:
        if body is None and one.body is not None:
            body = await request.body()
        found = await _answered(one, handlers, request, body)
    except Exception as error:  # every kind is told in one shape
        found = _told(request, error)
    handlers.meters.count(one.name, found.status_code or one.status, time.perf_counter() - begun)
    return found


async def _answered(
    one: Route, handlers: Handlers, request: HttpRequest[Any, Any, Any], body: bytes | None
) -> Response[Any]:
    query = _query(one.query, list(request.query_params.multi_items()))
    read = None if one.body is None or body is None else _body(one.body, body)
    caller: Caller = request.scope.get(CALLER, _NOBODY)  # type: ignore[assignment]
    return await one.handler(handlers, Call(caller=caller, query=query, body=read, http=request))


def _query(kind: type, items: Sequence[tuple[str, Any]]) -> Any:
    given = dict(items)
    if len(given) < len(items):
        twice = sorted({name for name, _ in items if sum(other == name for other, _ in items) > 1})
        raise BadRequestError(f"given more than once: {', '.join(twice)[:200]}", detail="query")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequestError(str(error), detail="query") from None


def _body(kind: type, body: bytes) -> Any:
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError:
            return msgspec.convert(_whole(msgspec.json.decode(body)), kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadRequestError(f"the body cannot be read: {error}", detail="body") from None


def _whole(value: Any) -> Any:
    """An object's own numbers such as 3.0 as whole ones: in JSON they are."""
    if not isinstance(value, dict):
        return value
    return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in value.items()}


def _told(_: HttpRequest[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Every error in one shape."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException) and not isinstance(error, HttpError):
        error = _routing(error)
    if isinstance(error, HttpError):
        headers = error.headers
    status = status_of(error)
    if status == 503:
        headers.setdefault("retry-after", "1")
    return Response(
        msgspec.json.encode(problem_of(error)), media_type=JSON, status_code=status, headers=headers
    )


def _routing(error: HTTPException) -> Exception:
    """What the router says, in our words."""
    status = error.status_code
    if status >= 500:
        return error
    kinds = {404: "NotFoundError", 405: "MethodNotAllowedError"}
    words = {404: "nothing is served under this path", 405: "this path does not know this method"}
    return HttpError(
        status,
        kinds.get(status, "BadRequestError"),
        words.get(status, error.detail[:200]),
        hint="/openapi.json lists what there is",
        headers=dict(error.headers or {}),
    )


def _description() -> HTTPRouteHandler:
    document = msgspec.json.encode(describe(__version__))

    @route("/openapi.json", http_method=["GET"])
    async def openapi() -> Response[bytes]:
        return Response(document, media_type=JSON)

    return openapi


def _page() -> list[HTTPRouteHandler]:
    """The page's own files, read once; nothing else of the disk can be asked for."""
    folder = files("cotenant") / "live" / "page"
    found = [(f.name, f.read_bytes()) for f in folder.iterdir() if "." + f.name.rpartition(".")[2] in _TYPES]
    return [
        _file("/" if name == "index.html" else f"/page/{name}", name, data) for name, data in sorted(found)
    ]


def _file(path: str, name: str, data: bytes) -> HTTPRouteHandler:
    kind = _TYPES["." + name.rpartition(".")[2]]

    @route(path, http_method=["GET"], name=f"page {name}")
    async def file() -> Response[bytes]:
        return Response(data, media_type=kind, headers={"cache-control": "no-cache"})

    return file
