"""What the API may ask of the scheduler: checked, allowed to that caller, and shown from disk alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cotenant.errors import ConflictError, CotenantError, DeniedError, InputError, NotFoundError
from cotenant.live.admission import admit, asked_of, understood
from cotenant.live.commands import check_command, check_gpus, check_wish
from cotenant.live.entries import ENDED, Entry
from cotenant.live.picture import Picture, Told
from cotenant.live.store import SqlStore
from cotenant.live.tenants import Tenants, check_priority
from cotenant.live.views import Caller, DeviceView, JobView, StatusView
from cotenant.live.wishes import Wishes
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.events import Event, encode_event
from cotenant.model.liveports import Accepted, Clock, Request
from cotenant.report.explain import Explanation, explain_events
from cotenant.report.phrases import at
from cotenant.report.telling import told_live

__all__ = ["LiveService", "Standing"]

_STREAMS = ("stdout", "stderr")
_TAIL = 2000
_DECIDED_S = 5.0
"""So long a resize waits for the loop's answer; one that has none by then is on disk, and decided later."""


class Standing(Protocol):
    """What the daemon knows of itself and of its machine."""

    def status(self) -> StatusView:
        """The whole."""

    def devices(self) -> list[DeviceView]:
        """All devices, with who is on them."""

    def doctor(self) -> dict[str, Any]:
        """Books against reality."""

    def wake(self) -> None:
        """There is something in the inbox."""


class LiveService:
    """``views.Service`` over the store, the picture and the daemon's inbox.

    Parameters
    ----------
    store : SqlStore
    picture : Picture
    clock : Clock
    tenants : Tenants
    cluster : Cluster
        For what never fits.
    state : Path
        The state folder, for output of jobs.
    standing : Standing
    wishes : Wishes, optional
        Where the loop's answers to resizes are to be had.
    """

    def __init__(
        self,
        *,
        store: SqlStore,
        picture: Picture,
        clock: Clock,
        tenants: Tenants,
        cluster: Cluster,
        state: Path,
        standing: Standing,
        wishes: Wishes | None = None,
    ) -> None:
        self._store, self._picture, self._clock, self._tenants = store, picture, clock, tenants
        self._cluster, self._state, self._standing = cluster, state, standing
        self._wishes = wishes
        self._costs = threading.Semaphore(2)

    # -- asking for something ------------------------------------------------------------

    def submit(self, caller: Caller, requests: list[Request]) -> list[Accepted | Exception]:
        """Check jobs and make them durable; waits for nothing else.

        Each is answered for itself: what cannot be accepted by its error.
        """
        answers: list[Accepted | Exception | None] = []
        good: list[Request] = []
        for request in requests:
            try:
                good.append(self._checked(caller, request))
                answers.append(None)
            except CotenantError as error:
                answers.append(error)
        accepted = iter(self._store.accept(good, self._clock.now()) if good else [])
        found = [next(accepted) if answer is None else answer for answer in answers]
        if good:
            self._standing.wake()
        return found

    def _checked(self, caller: Caller, request: Request) -> Request:
        job = admit(request.body, caller, self._tenants, self._cluster)
        body = request.body
        for other in body.get("after", ()):
            self._check_after(caller, job.name, int(other))
        row = self._tenants.row(job.tenant)
        if "sharing" not in body and row is not None and row.isolation == "exclusive":
            body = {**body, "sharing": "exclusive"}
        return msgspec.structs.replace(request, tenant=job.tenant, kind="submit", body=body)

    def _check_after(self, caller: Caller, name: str, other: int) -> None:
        try:
            found = self.job(caller, other)
        except NotFoundError:
            raise InputError(f'job "{name}" [after]: there is no job {other} to wait for') from None
        if found.status in ENDED - {"done"}:
            raise ConflictError(
                f'job "{name}" [after]: it would wait for ever for job {other}, which is {found.status}'
            )

    def command(self, caller: Caller, request: Request) -> Accepted:
        """Ask for anything else (``Request.kind``)."""
        job_id = check_command(request, self._cluster)
        tenant = caller.tenant
        if job_id is None:
            if not caller.admin:
                raise DeniedError(f"{request.kind} is for whoever runs the scheduler; use its own token")
        else:
            view = self.job(caller, job_id)
            tenant = view.tenant
            self._check_state(request, view)
            if request.kind == "priority":
                row = self._tenants.row(caller.tenant)
                check_priority(caller, row, int(request.body["priority"]), f"job {job_id}")
        asked = msgspec.structs.replace(request, tenant=tenant)
        (answer,) = self._store.accept([asked], self._clock.now())
        if isinstance(answer, Exception):
            raise answer
        self._standing.wake()
        if request.kind == "resize" and job_id is not None and self._wishes is not None:
            refused = self._wishes.wait(job_id, request.key, 0.0 if self._taken_up(answer) else _DECIDED_S)
            if refused:
                raise ConflictError(f"resize: job {job_id} stays as it is: {refused}")
        return answer

    def _taken_up(self, answer: Accepted) -> bool:
        """Whether it was asked before, and decided then."""
        return answer.again and self._store.done_seq() >= answer.seq

    def _check_state(self, request: Request, view: JobView) -> None:
        kind = request.kind
        if view.status in ENDED and self._is_new(request, view):
            raise ConflictError(f"job {view.id} has ended ({view.status}); there is nothing to {kind}")
        entry = self._picture.entry(view.id)
        waits = view.status in ("waiting", "held")
        if kind == "resize" and entry is not None and self._is_new(request, view):
            runs = view.status in ("running", "paused")
            check_wish(request.body, entry.job, view.compute_milli, runs=runs)
            if "gpus" in request.body:
                self._check_gpus(request.body, entry, runs=runs)
        if kind != "suspend" or entry is None or entry.job.suspendable or waits:
            return
        accepted = self._store.job(view.id)
        if accepted is None or asked_of(accepted).suspend != "pause":
            raise ConflictError(
                f'job {view.id} was submitted with suspend = "none" or suspendable = false: it makes no room; '
                "cancel it instead"
            )

    def _check_gpus(self, body: dict[str, Any], entry: Entry, *, runs: bool) -> None:
        """Whether the number of devices is all that is asked for decides if the present one is a mistake."""
        gpus, holds = int(body["gpus"]), len(entry.settles or entry.devices)
        if gpus == holds and set(body) - {"id", "key", "gpus"}:
            return
        check_gpus(
            gpus,
            entry.job,
            holds,
            runs=runs,
            suspended=entry.status == "suspended" or (entry.held and entry.work_s > 0.0),
            settles=", ".join(map(self._picture.name_of, entry.settles)),
            short=self._short(entry.job.tenant, gpus - holds) if runs and gpus > holds else "",
        )

    def _short(self, tenant: str, more: int) -> str:
        """Why so many more devices are not to be had now; empty if they are, as far as is known here."""
        row = self._tenants.row(tenant)
        held = self._picture.held_by(tenant)
        if row is not None and row.limit_gpus is not None and held + more > row.limit_gpus:
            return f'tenant "{tenant}" may hold {row.limit_gpus}, and holds {held}'
        free = len(self._picture.free()[0])
        drained = self._picture.drained_words()
        return f"{free} free{'; ' if drained else ''}{drained}" if free < more else ""

    def _is_new(self, request: Request, view: JobView) -> bool:
        """Whether it was not accepted before the job ended: then asking again gets the same answer."""
        return self._store.request(view.tenant, request.key) is None

    # -- what there is -------------------------------------------------------------------

    def jobs(self, caller: Caller, *, live_only: bool = False, limit: int = 1000) -> list[JobView]:
        """Newest last."""
        tenant = None if caller.admin else caller.tenant
        found = self._picture.jobs(tenant=tenant, live_only=live_only, limit=limit)
        last = found[-1].id if found else -1
        for accepted in self._store.waiting(self._store.done_seq()):
            mine = tenant in (None, accepted.request.tenant)
            if accepted.request.kind == "submit" and mine and accepted.job_id > last:
                found.append(self._fresh(accepted))
        return found[-limit:] if limit else []

    def job(self, caller: Caller, job_id: int) -> JobView:
        """One job."""
        found = self._picture.job(job_id)
        if found is None:
            accepted = self._store.job(job_id)
            if accepted is None:
                raise NotFoundError(f"there is no job {job_id}")
            found = self._picture.job(job_id) or self._from_log(accepted)
        self._check_owner(caller, found)
        return found

    def _check_owner(self, caller: Caller, view: JobView) -> None:
        if not caller.admin and view.tenant != caller.tenant:
            raise DeniedError(f'job {view.id} is not of tenant "{caller.tenant}"')

    def find(self, caller: Caller, name: str) -> JobView:
        """By number or name; the newest of that name."""
        digits = name.removeprefix("#")
        if digits.isascii() and digits.isdigit() and len(digits) < 18:
            return self.job(caller, int(digits))
        tenant = None if caller.admin else caller.tenant
        for accepted in reversed(self._store.waiting(self._store.done_seq())):
            mine = tenant in (None, accepted.request.tenant)
            if mine and accepted.request.kind == "submit" and accepted.request.body.get("name") == name:
                return self.job(caller, accepted.job_id)
        if (number := self._picture.named(name, tenant)) is not None:
            return self.job(caller, number)
        raise NotFoundError(f'there is no job called "{name[:80]}"; cotenant ps lists those there are')

    def _fresh(self, accepted: Accepted) -> JobView:
        """A job that is on disk, and that the loop has not taken up yet."""
        asked, job = understood(accepted)
        entry = Entry(job, priority=job.priority, command=asked.command, after=asked.after)
        return self._picture.show(entry, reason="accepted; the scheduler is about to take it up")

    def _from_log(self, accepted: Accepted) -> JobView:
        """A job that ended so long ago that only the log knows it, or one not taken up yet."""
        if accepted.seq > self._store.done_seq():
            return self._fresh(accepted)
        past = self._picture.blank()
        for _, event in self._store.read():
            if isinstance(event, ev.Opened) or _job_of(event) == accepted.job_id:
                past.see([event])
        return past.job(accepted.job_id) or self._fresh(accepted)

    def explain(self, caller: Caller, job_id: int) -> dict[str, Any]:
        """The story of a job, as ``cotenant explain --json`` tells it; times in ``wall`` since 1970."""
        view = self.job(caller, job_id)
        now = self._clock.now()
        try:
            with self._costs, told_live(self._clock.wall, now, self._picture.name_of):
                events = (event for _, event in self._store.read())
                present = self._picture.present(job_id)
                why = None if present is None else (present.reason, present.facts, present.words)
                found = explain_events(events, job_id, where="the live log", now_s=now, present=why)
                text = (found := _foreseen(found, view, now - self._clock.wall(now), now)).text
        except InputError:
            return {
                "id": view.id,
                "name": view.name,
                "outcome": "waiting",
                "verdict": view.reason,
                "steps": [],
                "text": f"Job {view.name!r} (number {view.id}): {view.reason}\n",
            }
        told: dict[str, Any] = msgspec.to_builtins(found)
        told["text"] = text
        told["status"], told["reason"] = view.status, view.reason
        for step in told["steps"]:
            step["wall"] = self._clock.wall(step["t"])
        return told

    def log_path(self, caller: Caller, job_id: int, stream: str) -> list[str]:
        """Files of a job's output in order, oldest first; ``stream`` is ``stdout`` or ``stderr``."""
        if stream not in _STREAMS:
            raise InputError(f"stream is stdout or stderr, found {stream!r:.40}")
        self.job(caller, job_id)
        folder = self._state / "jobs" / str(int(job_id))
        starts = sorted(folder.glob("serial-*"), key=lambda p: int(p.name.rpartition("-")[2]))
        return [str(path) for start in starts for path in _rotated(start, stream)]

    def devices(self, caller: Caller) -> list[DeviceView]:
        """All devices; who is there of other tenants is told by number and share, without a name."""
        found = self._standing.devices()
        if caller.admin:
            return found
        return [
            msgspec.structs.replace(
                view, residents=tuple(r if self._owns(caller, r.id) else _veiled(r) for r in view.residents)
            )
            for view in found
        ]

    def _owns(self, caller: Caller, job_id: int) -> bool:
        entry = self._picture.entry(job_id)
        return entry is not None and entry.job.tenant == caller.tenant

    def status(self) -> StatusView:
        """The whole."""
        return self._standing.status()

    def doctor(self, caller: Caller) -> dict[str, Any]:
        """Books against reality, enforcement, what is unsafe."""
        if not caller.admin:
            raise DeniedError("doctor tells of the whole machine; use the scheduler's own token")
        with self._costs:
            return self._standing.doctor()

    def events(self, caller: Caller, after: int = 0) -> Iterator[bytes]:
        """The log as JSON lines (for reports, and to simulate from); a tenant sees its own jobs."""
        own: set[int] = set()
        for _, event in self._store.read(0 if not caller.admin else after):
            if caller.admin or isinstance(event, ev.Opened):
                yield encode_event(event) + b"\n"
                continue
            if isinstance(event, ev.Submitted) and event.job.tenant == caller.tenant:
                own.add(event.job.id)
            if _job_of(event) in own:
                yield encode_event(event) + b"\n"

    def subscribe(self, told: Told) -> Callable[[], None]:
        """Be told (number, kind, facts) of every change; facts of a job name its ``tenant``."""
        return self._picture.subscribe(told)

    def metrics(self) -> str:
        """Prometheus text."""
        from cotenant.live.api.metrics import exposition

        return exposition(self._standing.status(), self._standing.devices())


def _job_of(event: Event) -> int:
    return event.job.id if isinstance(event, ev.Submitted) else int(getattr(event, "id", -1))


def _foreseen(found: Explanation, view: JobView, from_wall: float, now: float) -> Explanation:
    """When it will finish, as ``ps`` tells it: a job tells of its steps more often than the log has samples."""
    if view.ends_at is None or view.ends_at[0] + from_wall <= now:
        return found
    mean, low, high = (at(end + from_wall) for end in view.ends_at)
    verdict = f"{found.verdict.removesuffix('.')}; as it goes now it will finish at {mean} (between {low} and {high})."
    return msgspec.structs.replace(found, verdict=verdict)


def _veiled(resident: Any) -> Any:
    return msgspec.structs.replace(resident, name="(another tenant's)")


def _rotated(start: Path, stream: str) -> list[Path]:
    """``stdout.log.0`` is the oldest ever written, ``stdout.log`` the one being written."""
    base = f"{stream}.log"
    numbered: Mapping[int, Path] = {
        int(path.suffix[1:]): path for path in start.glob(f"{base}.*") if path.suffix[1:].isdigit()
    }
    whole = [start / base] if (start / base).is_file() else []
    return [numbered[n] for n in sorted(numbered)] + whole
