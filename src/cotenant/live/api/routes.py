"""The operations of the API in one table: from it come the routes and their description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import msgspec
from litestar import Response

from cotenant.live.api import bodies
from cotenant.live.api.handlers import Call, Handlers, Me
from cotenant.live.views import JobView, StatusView

__all__ = ["ROUTES", "Empty", "Route"]

Handler = Callable[[Handlers, Call], Awaitable[Response[Any]]]
_READ = frozenset({403, 404})
_CHANGE = frozenset({403, 404, 409, 413, 415, 422})


class Empty(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation.

    Parameters
    ----------
    answer : type or str
        A value, or the media type of what is no JSON.
    faults : frozenset of int
        Statuses that this operation can answer with, besides those of all.
    open : bool
        Needs no token.
    """

    method: Literal["GET", "POST"]
    path: str
    name: str
    summary: str
    handler: Handler
    text: str = ""
    query: type = Empty
    body: type | None = None
    answer: Any = None
    status: int = 200
    faults: frozenset[int] = frozenset()
    open: bool = False


def _kind(name: str, kind: str) -> Handler:
    return partial(_call, name, kind)


async def _call(name: str, kind: str, handlers: Handlers, call: Call) -> Response[Any]:
    found: Response[Any] = await getattr(handlers, name)(call, kind)
    return found


_WORDS = {
    "cancel": "End a job, whatever its state",
    "suspend": "Save a job's state and take it off its devices until it is resumed",
    "resume": "Let a job that was suspended by its user go on when there is room",
    "priority": "Give a job another priority",
    "resize": "Change a running job's share without stopping it",
}

ROUTES: tuple[Route, ...] = (
    Route(
        method="POST", path="/v1/jobs", name="submit", summary="Submit jobs", handler=Handlers.submit,
        text="Answered once they are on disk. Each job is answered by itself, in order: its number, or an error.",
        body=bodies.SubmitBody, answer=bodies.Submitted, status=201, faults=frozenset({403, 413, 415, 422}),
    ),
    Route(
        method="GET", path="/v1/jobs", name="jobs", summary="List jobs, newest last", handler=Handlers.jobs,
        query=bodies.JobsQuery, answer=bodies.Jobs, faults=_READ,
    ),
    Route(
        method="GET", path="/v1/jobs/{id}", name="job", summary="One job", handler=Handlers.job,
        answer=JobView, faults=_READ,
    ),
    Route(
        method="GET", path="/v1/jobs/{id}/explain", name="explain", handler=Handlers.explain,
        summary="Why it waited, where it ran, who shared with it", answer=dict[str, Any], faults=_READ,
    ),
    Route(
        method="GET", path="/v1/jobs/{id}/logs", name="logs", summary="A job's output", handler=Handlers.logs,
        text="Bytes as the job wrote them, never cut inside a UTF-8 character. X-Cotenant-Offset says where the answer "
        "begins, X-Cotenant-Next where the next begins. With follow=1 the answer goes on until the job has ended.",
        query=bodies.LogsQuery, answer="text/plain", faults=_READ,
    ),
    *(
        Route(
            method="POST", path=f"/v1/jobs/{{id}}/{kind}", name=kind, summary=_WORDS[kind],
            handler=_kind("command", kind), body=body, answer=bodies.Done, status=202, faults=_CHANGE,
            text="Answered once the request is on disk; the job's state shows when it has been carried out.",
        )
        for kind, body in bodies.COMMANDS.items()
    ),
    Route(
        method="GET", path="/v1/devices", name="devices", summary="Devices and the jobs on them",
        handler=Handlers.devices, answer=bodies.Devices, faults=frozenset({403}),
    ),
    *(
        Route(
            method="POST", path=f"/v1/nodes/{kind}", name=kind, summary=summary, handler=_kind("node", kind),
            body=bodies.NodeBody, answer=bodies.Done, status=202, faults=_CHANGE,
        )
        for kind, summary in (
            ("drain", "Start no new jobs on a node, or on one device"), ("undrain", "Start jobs there again")
        )
    ),
    Route(
        method="GET", path="/v1/status", name="status", summary="The scheduler as a whole",
        handler=Handlers.status, answer=StatusView,
    ),
    Route(
        method="GET", path="/v1/me", name="me", summary="Whose token this is", handler=Handlers.me, answer=Me,
    ),
    Route(
        method="GET", path="/v1/doctor", name="doctor", summary="Books against reality, and what is unsafe",
        handler=Handlers.doctor, answer=dict[str, Any], faults=frozenset({403}),
    ),
    Route(
        method="GET", path="/v1/log", name="log", summary="The event log, one JSON value a line",
        handler=Handlers.log, query=bodies.LogQuery, answer="application/x-ndjson", faults=frozenset({403}),
    ),
    Route(
        method="GET", path="/v1/events", name="events", summary="Changes as they happen: server-sent events",
        text="id is the number of the change, event its kind, data {n, kind, facts}. Last-Event-ID resumes. The event reset "
        "says that too much was missed: read anew. Comments keep the connection alive.",
        handler=Handlers.events, query=bodies.EventsQuery, answer="text/event-stream", faults=frozenset({403}),
    ),
    Route(
        method="GET", path="/metrics", name="metrics", summary="Prometheus text", handler=Handlers.metrics,
        answer="text/plain",
    ),
    Route(
        method="GET", path="/healthz", name="health", summary="A sign of life", handler=Handlers.health,
        answer=dict[str, bool], open=True,
    ),
    Route(
        method="POST", path="/login", name="login", summary="A session for a browser", handler=Handlers.login,
        text="Sets a cookie that scripts cannot read. Changing calls with it need Origin and X-Cotenant: 1, too.",
        body=bodies.Login, answer=Me, faults=frozenset({413, 415}), open=True,
    ),
    Route(
        method="POST", path="/logout", name="logout", summary="End the session", handler=Handlers.logout,
        body=Empty, answer=Empty, faults=frozenset({413, 415}),
    ),
)  # fmt: skip
