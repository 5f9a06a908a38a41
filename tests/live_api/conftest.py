"""A scheduler that holds its jobs in memory and runs none, behind the real API."""

from __future__ import annotations

import hmac
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from cotenant.errors import ConflictError, DeniedError, InfeasibleError, InputError, NotFoundError
from cotenant.live.api import ApiSettings, Served, create_app, digest_of, exposition, serve
from cotenant.live.views import Caller, DeviceView, JobView, Resident, StatusView
from cotenant.model.liveports import Accepted, Request
from cotenant.runs.jobfile import JobFile

ADMIN_TOKEN = "admin-" + "a" * 40
ALICE_TOKEN = "alice-" + "b" * 40
NOON = 1_900_000_000.0
ENDED = ("done", "failed", "cancelled", "rejected", "lost")


class Known:
    """Tokens of a test."""

    def __init__(self) -> None:
        self.callers = {
            digest_of(ADMIN_TOKEN): Caller("", admin=True),
            digest_of(ALICE_TOKEN): Caller("alice"),
        }

    def caller(self, digest: bytes) -> Caller | None:
        found = [who for known, who in self.callers.items() if hmac.compare_digest(known, digest)]
        return found[0] if found else None


class MemoryService:
    """The port's smallest implementation: what was asked changes what is shown, and nothing runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.views: dict[int, JobView] = {}
        self.asked: dict[tuple[str, str], Accepted] = {}
        self.listeners: list[Callable[[int, str, dict[str, Any]], None]] = []
        self.lines: list[bytes] = []
        self.calls: list[int] = []
        self.numbers = itertools.count(1)
        self.lock = threading.RLock()
        self.broken: Exception | None = None
        self.device_views: list[DeviceView] = [device(0)]
        self.policy = "cotenant"
        self.example = view(0)

    def tell(self, kind: str, **facts: Any) -> int:
        number = next(self.numbers)
        self.lines.append(msgspec.json.encode({"e": kind, "t": float(number), **facts}))
        for told in list(self.listeners):
            told(number, kind, facts)
        return number

    def submit(self, caller: Caller, requests: list[Request]) -> list[Accepted | Exception]:
        if self.broken is not None:
            raise self.broken
        with self.lock:
            self.calls.append(len(requests))
            return [self._one(caller, request) for request in requests]

    def _one(self, caller: Caller, request: Request) -> Accepted | Exception:
        try:
            job = msgspec.convert(request.body, JobFile)
        except msgspec.ValidationError as error:
            return InputError(f"job: {error}")
        if job.gpus > len(self.device_views):
            return InfeasibleError(f"{job.gpus} devices asked, {len(self.device_views)} could hold it")
        tenant = job.tenant if caller.admin else caller.tenant
        request = msgspec.structs.replace(request, tenant=tenant)
        if (before := self._before(request)) is not None:
            return before
        number = len(self.views)
        self.views[number] = view(number, name=job.name, tenant=tenant, command=job.command)
        found = Accepted(seq=len(self.asked) + 1, t=0.0, request=request, job_id=number)
        self.asked[(tenant, request.key)] = found
        self.tell("submitted", id=number, tenant=tenant, name=job.name)
        return found

    def _before(self, request: Request) -> Accepted | Exception | None:
        before = self.asked.get((request.tenant, request.key))
        if before is None:
            return None
        if before.request == request:
            return msgspec.structs.replace(before, again=True)
        return ConflictError(f"key {request.key!r} was used for another request")

    def command(self, caller: Caller, request: Request) -> Accepted:
        with self.lock:
            if request.kind in ("drain", "undrain"):
                if not caller.admin:
                    raise DeniedError("only the administrator may")
                if request.body["node"] != 0:
                    raise NotFoundError(f"no node {request.body['node']}")
            before = self._before(request)
            if isinstance(before, Exception):
                raise before
            if before is not None:
                return before
            if "id" in request.body:
                self._change(self.job(caller, request.body["id"]), request)
            found = Accepted(seq=len(self.asked) + 1, t=0.0, request=request)
            self.asked[(request.tenant, request.key)] = found
            return found

    def _change(self, job: JobView, request: Request) -> None:
        if job.status in ENDED:
            raise ConflictError(f"job {job.id} has ended")
        status = {"cancel": "cancelled", "suspend": "held", "resume": "waiting"}.get(request.kind, job.status)
        changes = {k: v for k, v in request.body.items() if k in ("priority", "compute_milli", "gpus")}
        self.views[job.id] = msgspec.structs.replace(job, status=status, **changes)
        self.tell(request.kind, id=job.id, tenant=job.tenant, name=job.name)

    def jobs(self, caller: Caller, *, live_only: bool = False, limit: int = 1000) -> list[JobView]:
        with self.lock:
            mine = [v for v in self.views.values() if caller.admin or v.tenant == caller.tenant]
        return [v for v in mine if not (live_only and v.status in ENDED)][-limit:]

    def job(self, caller: Caller, job_id: int) -> JobView:
        found = self.views.get(job_id)
        if found is None:
            raise NotFoundError(f"no job {job_id}")
        if not caller.admin and found.tenant != caller.tenant:
            raise DeniedError(f"job {job_id} is another tenant's")
        return found

    def find(self, caller: Caller, name: str) -> JobView:
        found = [v for v in self.jobs(caller) if name in (v.name, str(v.id))]
        if not found:
            raise NotFoundError(f"no job {name!r}")
        return found[-1]

    def explain(self, caller: Caller, job_id: int) -> dict[str, Any]:
        job = self.job(caller, job_id)
        steps = [{"t": 0.0, "wall": job.submitted, "what": "submitted", "text": f"submitted as {job.name}"}]
        return {
            "id": job_id,
            "name": job.name,
            "verdict": job.reason,
            "steps": steps,
            "waits": [],
            "unblock": "",
        }

    def log_path(self, caller: Caller, job_id: int, stream: str) -> list[str]:
        self.job(caller, job_id)
        names = [f"{stream}.log.{n}" for n in (0, 1, 2)] + [f"{stream}.log"]
        return [str(self.folder / str(job_id) / n) for n in names if (self.folder / str(job_id) / n).exists()]

    def devices(self, caller: Caller) -> list[DeviceView]:
        return self.device_views

    def status(self) -> StatusView:
        counts: dict[str, int] = {}
        for one in self.views.values():
            counts[one.status] = counts.get(one.status, 0) + 1
        return StatusView(
            version="0",
            policy=self.policy,
            forecast="adaptive",
            epoch=1,
            pid=1,
            started=NOON - 7200,
            now=NOON,
            events=len(self.lines),
            counts=counts,
            waiting=counts.get("waiting", 0),
            running=counts.get("running", 0),
            devices=len(self.device_views),
            role="leader",
            warnings=(),
        )

    def doctor(self, caller: Caller) -> dict[str, Any]:
        if not caller.admin:
            raise DeniedError("only the administrator may")
        return {"ok": True, "findings": []}

    def events(self, caller: Caller, after: int = 0) -> Iterator[bytes]:
        yield from self.lines[after:]

    def subscribe(self, told: Callable[[int, str, dict[str, Any]], None]) -> Callable[[], None]:
        self.listeners.append(told)
        return lambda: self.listeners.remove(told)

    def metrics(self) -> str:
        return exposition(self.status(), self.device_views)


def view(number: int, **given: Any) -> JobView:
    """A waiting job, or another."""
    facts: dict[str, Any] = {
        "id": number,
        "name": f"job-{number}",
        "tenant": "",
        "user": "mo",
        "status": "waiting",
        "reason": "waits for a device",
        "gpus": 1,
        "devices": (),
        "priority": 0,
        "model": "resnet50",
        "command": ("python", "train.py"),
        "submitted": NOON - 3600,
    }
    return JobView(**{**facts, **given})


def device(number: int, *residents: Resident, **given: Any) -> DeviceView:
    """A device of 80 GiB."""
    used = sum(r.memory_bytes for r in residents)
    facts: dict[str, Any] = {
        "device": number,
        "name": f"gpu{number}",
        "uuid": f"GPU-{number:04d}",
        "index": number,
        "kind": "nvidia",
        "device_type": "A100-SXM4-80GB",
        "state": "up",
        "memory_bytes": 80 << 30,
        "memory_used_bytes": used,
        "memory_free_bytes": (80 << 30) - used,
        "foreign_bytes": 0,
        "foreign_pids": (),
        "busy": 0.5,
        "free_milli": 1000 - sum(r.compute_milli for r in residents),
        "residents": residents,
        "enforcement": {"memory": "hard", "compute": "step gate"},
    }
    return DeviceView(**{**facts, **given})


@pytest.fixture
def service(tmp_path: Path) -> MemoryService:
    return MemoryService(tmp_path / "jobs")


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
def start(service: MemoryService, known: Known) -> Iterator[Callable[..., Served]]:
    """Serve the API with some settings; stopped at the end."""
    begun: list[Served] = []

    def started(**settings: Any) -> Served:
        begun.append(serve(create_app(service, known, ApiSettings(**settings))))
        return begun[-1]

    yield started
    for one in begun:
        one.stop()


@pytest.fixture
def served(start: Callable[..., Served]) -> Served:
    return start()


@pytest.fixture
def anyone(served: Served) -> Iterator[httpx.Client]:
    """A client without a token."""
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        yield client


@pytest.fixture
def admin(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, headers=bearer(ADMIN_TOKEN), trust_env=False) as client:
        yield client


@pytest.fixture
def alice(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, headers=bearer(ALICE_TOKEN), trust_env=False) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def make() -> Any:
    """Builders and tokens for tests, which cannot import this file."""
    import types

    return types.SimpleNamespace(
        view=view, device=device, bearer=bearer, admin_token=ADMIN_TOKEN, alice_token=ALICE_TOKEN, noon=NOON
    )
