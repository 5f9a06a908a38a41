"""What is done for each request: read it, ask the service in a thread, answer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Response
from litestar.response import Stream

from cotenant.errors import CotenantError, FencedError, InputError, NotFoundError, StoreError
from cotenant.live.api import logs
from cotenant.live.api.acceptor import Acceptor
from cotenant.live.api.auth import digest_of
from cotenant.live.api.bodies import (
    Devices,
    Done,
    EventsQuery,
    Item,
    Jobs,
    JobsQuery,
    Login,
    LogQuery,
    LogsQuery,
    SubmitBody,
    SubmitItem,
    Submitted,
)
from cotenant.live.api.guard import SESSION, Doors, cookie_name
from cotenant.live.api.hub import Hub
from cotenant.live.api.limits import check_plain
from cotenant.live.api.metrics import Meters
from cotenant.live.api.problems import BadRequestError, HttpError, problem_of
from cotenant.live.api.settings import ApiSettings
from cotenant.live.views import Caller, Service
from cotenant.model.liveports import Accepted, Request

__all__ = ["ENDED", "Call", "Handlers", "Me"]

ENDED = frozenset({"done", "failed", "cancelled", "rejected", "lost"})
"""States after which a job writes nothing more."""

JSON, TEXT, LINES = "application/json", "text/plain", "application/x-ndjson"
METRICS = "text/plain; version=0.0.4"
_NUMBER = re.compile(r"[0-9]{1,15}")
_log = logging.getLogger("cotenant.live.api")


class Me(msgspec.Struct, frozen=True):
    """Who a token belongs to."""

    tenant: str
    admin: bool


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, read."""

    caller: Caller
    query: Any
    body: Any
    http: HttpRequest[Any, Any, Any]

    @property
    def job_id(self) -> int:
        """The job's number in the path."""
        text = str(self.http.path_params["id"])
        if not _NUMBER.fullmatch(text):
            raise NotFoundError(
                f"no job {text[:60]!r}: jobs are asked for by number here, by name with ?name="
            )
        return int(text)


class Handlers:
    """One method for each operation.

    Parameters
    ----------
    service : Service
    settings : ApiSettings
    doors : Doors
    hub : Hub
    acceptor : Acceptor
    meters : Meters
    """

    def __init__(
        self,
        service: Service,
        settings: ApiSettings,
        *,
        doors: Doors,
        hub: Hub,
        acceptor: Acceptor,
        meters: Meters,
    ) -> None:
        self.service, self.doors, self.hub = service, doors, hub
        self.acceptor, self.meters, self.settings = acceptor, meters, settings
        self.pool = ThreadPoolExecutor(8, thread_name_prefix="cotenant-api")

    async def _ask(self, what: Callable[[], Any]) -> Any:
        """Something of the service, in a thread, within the time there is."""
        job = asyncio.get_running_loop().run_in_executor(self.pool, what)
        try:
            return await asyncio.wait_for(job, self.settings.answer_timeout_s)
        except TimeoutError:
            raise HttpError(
                503,
                "BusyError",
                f"no answer within {self.settings.answer_timeout_s:g} s",
                hint="try again",
                headers={"retry-after": "5"},
            ) from None

    async def _json(self, what: Callable[[], Any], status: int = 200) -> Response[bytes]:
        """The same, encoded in the thread, too: long lists hold up nobody."""
        body = await self._ask(lambda: msgspec.json.encode(what(), enc_hook=str))
        return Response(body, media_type=JSON, status_code=status)

    # -- jobs ----------------------------------------------------------------------------

    async def submit(self, call: Call) -> Response[bytes]:
        """Make jobs durable; one answer for each."""
        body: SubmitBody = call.body
        if len(body.jobs) > self.settings.jobs_per_request:
            raise BadRequestError(
                f"{len(body.jobs):,} jobs in one request, at most {self.settings.jobs_per_request:,}",
                detail="$.jobs",
                hint="submit in several requests",
            )
        asked = [_submission(call.caller, item) for item in body.jobs]
        good = [request for request in asked if isinstance(request, Request)]
        accepted = iter(await self.acceptor.submit(call.caller, good) if good else [])
        answers = [next(accepted) if isinstance(request, Request) else request for request in asked]
        failed = [a for a in answers if isinstance(a, (StoreError, FencedError))]
        if len(failed) == len(answers):
            raise failed[0]
        return Response(
            msgspec.json.encode(Submitted(jobs=[_item(a) for a in answers])), media_type=JSON, status_code=201
        )

    async def jobs(self, call: Call) -> Response[bytes]:
        """A list of jobs."""
        query: JobsQuery = call.query
        if query.name is not None:
            name = query.name
            return await self._json(lambda: Jobs(jobs=[self.service.find(call.caller, name)]))
        live, limit = bool(query.live), query.limit
        return await self._json(
            lambda: Jobs(jobs=self.service.jobs(call.caller, live_only=live, limit=limit))
        )

    async def job(self, call: Call) -> Response[bytes]:
        """One job."""
        return await self._json(lambda: self.service.job(call.caller, call.job_id))

    async def explain(self, call: Call) -> Response[bytes]:
        """The story of a job."""
        return await self._json(lambda: self.service.explain(call.caller, call.job_id))

    async def command(self, call: Call, kind: str) -> Response[bytes]:
        """Ask something of a job."""
        body = msgspec.to_builtins(call.body)
        key = body.pop("key")
        return await self._commanded(call, key, kind, {"id": call.job_id, **body})

    async def node(self, call: Call, kind: str) -> Response[bytes]:
        """Take a node, or one device of it, out of use, or back."""
        body = {"node": call.body.node}
        if call.body.device is not None:
            body["device"] = call.body.device
        return await self._commanded(call, call.body.key, kind, body)

    async def _commanded(self, call: Call, key: str, kind: str, body: dict[str, Any]) -> Response[bytes]:
        request = Request(key=key, tenant=call.caller.tenant, kind=kind, body=body)

        def ask() -> Done:
            accepted = self.service.command(call.caller, request)
            return Done(seq=accepted.seq, t=accepted.t, again=accepted.again)

        return await self._json(ask, 202)

    async def logs(self, call: Call) -> Response[Any]:
        """A job's output."""
        query: LogsQuery = call.query
        caller, number, stream = call.caller, call.job_id, query.stream
        await self._ask(lambda: self.service.log_path(caller, number, stream))
        if query.follow:

            def over() -> bool:
                return self.service.job(caller, number).status in ENDED

            text = logs.follow(lambda: self.service.log_path(caller, number, stream), over, query.offset)
            return Stream(_calm(text), media_type=TEXT)

        def files() -> list[str]:
            return self.service.log_path(caller, number, stream)

        begin, data = await self._ask(lambda: logs.read(files, query.offset, query.limit))
        headers = {"x-cotenant-offset": str(begin), "x-cotenant-next": str(begin + len(data))}
        return Response(data, media_type=TEXT, headers=headers)

    # -- the whole -----------------------------------------------------------------------

    async def devices(self, call: Call) -> Response[bytes]:
        """All devices."""
        return await self._json(lambda: Devices(devices=self.service.devices(call.caller)))

    async def status(self, call: Call) -> Response[bytes]:
        """The scheduler as a whole."""
        return await self._json(self.service.status)

    async def doctor(self, call: Call) -> Response[bytes]:
        """Books against reality."""
        return await self._json(lambda: self.service.doctor(call.caller))

    async def log(self, call: Call) -> Response[Any]:
        """The log as JSON lines."""
        query: LogQuery = call.query
        lines = await self._ask(lambda: iter(self.service.events(call.caller, query.after)))
        # The first part is asked for before the answer begins, so that a refusal still has its status.
        first = await self._ask(lambda: _some(lines))
        return Stream(_rest(first, lines), media_type=LINES)

    async def events(self, call: Call) -> Response[Any]:
        """Changes, as server-sent events."""
        query: EventsQuery = call.query
        last = call.http.headers.get("last-event-id", "")
        after = int(last) if _NUMBER.fullmatch(last) else query.after
        return Stream(self.hub.begin(call.caller, after), media_type="text/event-stream")

    async def metrics(self, call: Call) -> Response[bytes]:
        """Prometheus text: the scheduler's, then the API's own."""
        text = str(await self._ask(self.service.metrics)).removesuffix("# EOF\n")
        return Response(text.encode() + self.meters.text(self.hub, self.acceptor), media_type=METRICS)

    async def health(self, call: Call) -> Response[bytes]:
        """A sign of life, for those who have no token: it tells nothing else."""
        await self._ask(self.service.status)
        return Response(b'{"ok":true}', media_type=JSON)

    async def me(self, call: Call) -> Response[bytes]:
        """Who asks."""
        return Response(msgspec.json.encode(Me(call.caller.tenant, call.caller.admin)), media_type=JSON)

    # -- sessions ------------------------------------------------------------------------

    async def login(self, call: Call) -> Response[bytes]:
        """A session for a browser."""
        body: Login = call.body
        caller = self.doors.known(body.token.strip())
        secret = self.doors.sessions.begin(digest_of(body.token.strip()), self.doors.now())
        headers = {"set-cookie": self._cookie(call, secret, int(self.settings.session_s))}
        return Response(
            msgspec.json.encode(Me(caller.tenant, caller.admin)),
            media_type=JSON,
            status_code=200,
            headers=headers,
        )

    async def logout(self, call: Call) -> Response[bytes]:
        """The end of a session."""
        self.doors.sessions.end(str(call.http.scope.get(SESSION, "")))
        return Response(
            b"{}", media_type=JSON, status_code=200, headers={"set-cookie": self._cookie(call, "", 0)}
        )

    def _cookie(self, call: Call, value: str, age_s: int) -> str:
        name = cookie_name(call.http.headers.get("host", ""))
        secure = "; Secure" if call.http.scope["scheme"] == "https" else ""
        return f"{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _submission(caller: Caller, item: SubmitItem) -> Request | InputError:
    try:
        check_plain(item.job)
    except InputError as error:
        return error
    return Request(key=item.key, tenant=caller.tenant, kind="submit", body=item.job)


def _item(answer: Accepted | Exception) -> Item:
    if isinstance(answer, Accepted):
        return Item(id=answer.job_id, again=answer.again)
    problem = problem_of(answer)
    return Item(error=problem.error, message=problem.message, detail=problem.detail, hint=problem.hint)


def _some(lines: Iterator[bytes]) -> bytes:
    """Some lines, each ended."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        parts.append(line if line.endswith(b"\n") else line + b"\n")
        size += len(line)
        if size >= logs.CHUNK:
            break
    return b"".join(parts)


async def _rest(first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    part = first
    while part:
        yield part
        part = await asyncio.to_thread(_some, lines)


async def _calm(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream that ends early where what it tells of goes away meanwhile."""
    try:
        async for part in parts:
            yield part
    except CotenantError as error:
        _log.warning("output no longer followed: %s", error)
