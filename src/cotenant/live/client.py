"""Asks the scheduler over HTTP: for the command line, and for programs.

Every change carries a key that was chosen here, so that asking again after a lost connection is safe;
that is done for some seconds before giving up, as long as a scheduler that restarts needs.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from cotenant import errors
from cotenant.errors import ConfigError, CotenantError, DeniedError, LiveError, UnreachableError
from cotenant.live.statedir import read_daemon, state_path
from cotenant.live.views import DeviceView, JobView, StatusView

__all__ = ["PATIENCE_S", "Answer", "Client", "Connection", "connect", "new_key", "token_of"]

T = TypeVar("T")

PATIENCE_S = 15.0
"""How long a request is tried again while nobody answers."""
_ANSWER_S = 30.0
_AGAIN = frozenset({429, 502, 503, 504})
_BATCH = 500


class Connection(msgspec.Struct, frozen=True):
    """Where the scheduler is, and with what it is spoken to."""

    url: str
    token: str
    verify: bool | str = True


class _Problem(msgspec.Struct, frozen=True):
    error: str = ""
    message: str = ""
    detail: str = ""
    hint: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one submitted job: its number, or an error."""

    id: int | None = None
    again: bool = False
    error: CotenantError | None = None


class _Jobs(msgspec.Struct, frozen=True):
    jobs: list[JobView]


class _Devices(msgspec.Struct, frozen=True):
    devices: list[DeviceView]


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    id: int | None = None
    again: bool | None = None
    error: str | None = None
    message: str | None = None
    detail: str | None = None
    hint: str | None = None


class _Submitted(msgspec.Struct, frozen=True):
    jobs: list[_Item]


def new_key() -> str:
    """A key that nobody has used."""
    return uuid.uuid4().hex


def connect(state: Path | None = None) -> Connection:
    """Where the scheduler of a state folder answers, or that of ``COTENANT_URL`` and ``COTENANT_TOKEN``.

    Raises
    ------
    UnreachableError
        If none runs there.
    DeniedError
        If there is no token to be read.
    ConfigError
        If ``COTENANT_URL`` is no address.
    """
    url, token = os.environ.get("COTENANT_URL", ""), os.environ.get("COTENANT_TOKEN", "")
    verify: bool | str = os.environ.get("COTENANT_CA_FILE") or True
    if url and state is None:
        if not token:
            raise DeniedError("COTENANT_URL is set, and COTENANT_TOKEN is not; set it to your tenant's token")
        return Connection(_checked(url).rstrip("/"), token, verify)
    folder = state_path(state)
    return Connection(_url_of(folder), token or token_of(folder), verify)


def _checked(url: str) -> str:
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        found = httpx.URL()
    if found.scheme not in ("http", "https") or not found.host:
        raise ConfigError(
            f"COTENANT_URL is {url!r:.200}, which is no address of a scheduler; write http://HOST:PORT, as up tells it"
        )
    return url


def _url_of(folder: Path) -> str:
    found = read_daemon(folder)
    if found is None:
        raise UnreachableError(
            f"no scheduler runs on {folder}; start it: cotenant up (--state DIR or COTENANT_STATE_DIR for another folder)"
        )
    if not found.alive:
        raise UnreachableError(
            f"the scheduler of {folder} (process {found.pid}) does not run any more; its jobs do. "
            "Start it again: cotenant up"
        )
    return found.url.rstrip("/")


def token_of(folder: Path) -> str:
    """The owner's token of a state folder.

    Raises
    ------
    DeniedError
        If it cannot be read.
    """
    try:
        return (folder / "token").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DeniedError(
            f"the token in {folder / 'token'} cannot be read ({error.strerror}); "
            "set COTENANT_TOKEN to your tenant's token"
        ) from None


class Client:
    """One scheduler.

    Parameters
    ----------
    find : callable
        Says where it answers, and is asked anew after each failure: a scheduler that was started again
        answers elsewhere.
    patience_s : float
        How long to try again while nobody answers.
    """

    def __init__(self, find: Callable[[], Connection], *, patience_s: float = PATIENCE_S) -> None:
        self._find = find
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._http: httpx.Client | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._http is not None:
            self._http.close()
        self._http = self._connection = None

    # -- asking --------------------------------------------------------------------------

    def submit(self, jobs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Answer]:
        """Submit jobs, each with its key; returns when they are on the scheduler's disk."""
        found: list[Answer] = []
        for start in range(0, len(jobs), _BATCH):
            part = [{"key": key, "job": dict(job)} for key, job in jobs[start : start + _BATCH]]
            answer = self._ask("POST", "/v1/jobs", _Submitted, body={"jobs": part})
            found += [_answer(item) for item in answer.jobs]
        return found

    def command(self, job_id: int, kind: str, key: str, **arguments: Any) -> dict[str, Any]:
        """Ask something of a job; returns when it is on the scheduler's disk."""
        return self._ask("POST", f"/v1/jobs/{job_id}/{kind}", dict[str, Any], body={"key": key, **arguments})

    def node(self, node: int, kind: str, key: str, device: int | None = None) -> dict[str, Any]:
        """Take a node, or one device of it, out of use, or back."""
        body = {"key": key, "node": node} | ({} if device is None else {"device": device})
        return self._ask("POST", f"/v1/nodes/{kind}", dict[str, Any], body=body)

    def jobs(self, *, live: bool = False, limit: int = 1000) -> list[JobView]:
        """Jobs, newest last."""
        query = {"limit": limit, **({"live": 1} if live else {})}
        return self._ask("GET", "/v1/jobs", _Jobs, query=query).jobs

    def job(self, job_id: int) -> JobView:
        """One job."""
        return self._ask("GET", f"/v1/jobs/{job_id}", JobView)

    def find(self, name: str) -> JobView:
        """A job by number (``7`` or ``#7``) or name; of several of that name the newest."""
        return self._ask("GET", "/v1/jobs", _Jobs, query={"name": name}).jobs[0]

    def explain(self, job_id: int) -> dict[str, Any]:
        """The story of a job."""
        return self._ask("GET", f"/v1/jobs/{job_id}/explain", dict[str, Any])

    def devices(self) -> list[DeviceView]:
        """Devices and who is on them."""
        return self._ask("GET", "/v1/devices", _Devices).devices

    def status(self) -> StatusView:
        """The scheduler as a whole."""
        return self._ask("GET", "/v1/status", StatusView)

    def doctor(self) -> dict[str, Any]:
        """Books against reality."""
        return self._ask("GET", "/v1/doctor", dict[str, Any])

    def output(self, job_id: int, *, stream: str = "stdout", offset: int = 0) -> tuple[int, bytes]:
        """A piece of a job's output, and where the next one begins; below zero counts from the end."""
        query = {"stream": stream, "offset": offset, "limit": 1 << 20}
        response = self._send("GET", f"/v1/jobs/{job_id}/logs", query=query)
        start = int(response.headers.get("x-cotenant-offset", max(offset, 0)))
        return int(response.headers.get("x-cotenant-next", start + len(response.content))), response.content

    def follow(self, job_id: int, *, stream: str = "stdout", offset: int = 0) -> Iterator[bytes]:
        """A job's output from some byte on, as it is written, until the job has ended.

        A lost connection is taken up where it broke; each that is lost is tried again for its own time, however
        long it had been silent.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            answered = False
            query = {"stream": stream, "offset": str(offset), "follow": "1"}
            try:
                http, _ = self._open()
                timeout = httpx.Timeout(30.0, read=None)
                path = f"/v1/jobs/{job_id}/logs"
                with http.stream("GET", path, params=query, timeout=timeout) as response:
                    if response.status_code >= 400:
                        response.read()
                        raise _error(response)
                    answered = True
                    for part in response.iter_bytes():
                        offset += len(part)
                        yield part
                return
            except (httpx.TransportError, UnreachableError) as error:
                if answered:
                    deadline = time.monotonic() + self._patience_s
                self._failed(error, deadline)

    def log(self, after: int = 0) -> Iterator[bytes]:
        """The event log, one JSON value a line, after that event."""
        http, _ = self._open()
        try:
            with http.stream("GET", "/v1/log", params={"after": str(after)}) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _error(response)
                yield from (line.encode() for line in response.iter_lines() if line)
        except httpx.TransportError as error:
            raise _unreachable(error, self._connection) from error

    # -- inside --------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
    ) -> T:
        response = self._send(method, path, body=body, query=query)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError as error:
            raise LiveError(
                f"the answer of the scheduler cannot be read ({error}); it is of another version, perhaps: "
                "see cotenant --version here and there"
            ) from None

    def _send(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Send until answered; everything that is sent may be sent twice, for it carries its key."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                http, _ = self._open()
                response = http.request(method, path, content=content, headers=headers, params=query)
            except (httpx.TransportError, UnreachableError) as error:
                if isinstance(error, httpx.ReadTimeout) and self._moved():
                    deadline = time.monotonic() + self._patience_s  # another one leads now, and is asked anew
                self._failed(error, deadline)
                continue
            if response.status_code in _AGAIN and time.monotonic() < deadline:
                time.sleep(min(float(response.headers.get("retry-after", 0.5)), 2.0))
                continue
            if response.status_code >= 400:
                raise _error(response)
            return response

    def _moved(self) -> bool:
        """Whether the scheduler answers elsewhere by now."""
        try:
            return self._connection is not None and self._find().url != self._connection.url
        except CotenantError:
            return False

    def _open(self) -> tuple[httpx.Client, Connection]:
        if self._http is None or self._connection is None:
            found = self._find()
            headers = {"authorization": f"Bearer {found.token}", "accept": "application/json"}
            # Proxies of the environment are for the world outside, not for this machine.
            self._http = httpx.Client(
                base_url=found.url, headers=headers, timeout=_ANSWER_S, trust_env=False, verify=found.verify
            )
            self._connection = found
        return self._http, self._connection

    def _failed(self, error: Exception, deadline: float) -> None:
        """Nobody answered: wait a little and look for the scheduler anew, or give up."""
        connection = self._connection
        self.close()
        if connection is None or time.monotonic() >= deadline:
            if isinstance(error, CotenantError):
                raise error
            raise _unreachable(error, connection) from error
        time.sleep(0.2)
        self._connection = None
        try:
            self._open()
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            # It was there a moment ago: perhaps it is being started again.
            self._connection = connection


def _unreachable(error: Exception, connection: Connection | None) -> UnreachableError:
    where = connection.url if connection else "the scheduler"
    return UnreachableError(
        f"{where} does not answer ({error or type(error).__name__}); start it: cotenant up"
    )


def _answer(item: _Item) -> Answer:
    if item.error is None:
        return Answer(id=item.id, again=bool(item.again))
    problem = _Problem(item.error, item.message or "", item.detail or "", item.hint or "")
    return Answer(error=_as_error(problem))


def _error(response: httpx.Response) -> CotenantError:
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.MsgspecError:
        problem = _Problem(message=f"the scheduler answered {response.status_code} {response.reason_phrase}")
    if response.status_code == 401:
        return DeniedError(
            f"{problem.message or 'the token is not known'}; set COTENANT_TOKEN to your tenant's token, "
            "or name the scheduler's state folder (--state)"
        )
    if response.status_code == 503 and problem.error not in ("StoreError", "FullError"):
        return UnreachableError(problem.message)
    return _as_error(problem)


def _as_error(problem: _Problem) -> CotenantError:
    """The same error as it was raised there; the hint of the API itself is for programs that speak HTTP."""
    text = problem.message + (f" ({problem.detail})" if problem.detail else "")
    kind = getattr(errors, problem.error, None)
    if not (isinstance(kind, type) and issubclass(kind, CotenantError)):
        return LiveError(text or "the scheduler refused without saying why")
    try:
        return kind(text)
    except TypeError:
        return LiveError(text)
