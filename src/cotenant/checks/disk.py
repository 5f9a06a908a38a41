"""A store on a simulated disk: what was committed survives, nothing else does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cotenant.errors import ConflictError, FencedError, StoreError
from cotenant.model import events as ev
from cotenant.model.events import Event, decode_event, encode_event
from cotenant.model.liveports import Accepted, Lease, Request

__all__ = ["Disk"]


class Disk:
    """``model.liveports.Store``, in memory.

    Attributes
    ----------
    full : bool
        Nothing can be written.
    fences : bool
        Writers are checked to hold the newest lease, as a real store does.
    """

    def __init__(self) -> None:
        self.full = False
        self.fences = True
        self._log: list[bytes] = []
        self._accepted: list[Accepted] = []
        self._by_key: dict[tuple[str, str], Accepted] = {}
        self._jobs = 0
        self._done_seq = 0
        self._epoch = 0
        self._starts: set[tuple[int, int]] = set()
        self._serials: dict[int, int] = {}
        self._places: dict[int, tuple[int, ...]] = {}

    def acquire(self, owner: str, ttl_s: float) -> Lease | None:
        """Take the lease: here it has always run out."""
        self._epoch += 1
        return Lease(self._epoch, owner, ttl_s)

    def renew(self, lease: Lease) -> None:
        """Prolong it."""
        self._check(lease)

    def release(self, lease: Lease) -> None:
        """Nobody waits for it."""

    def _check(self, lease: Lease) -> None:
        if self.fences and lease.epoch != self._epoch:
            raise FencedError(f"epoch {lease.epoch} is over: {self._epoch} leads")

    def append(self, lease: Lease, events: Sequence[Event], done_seq: int) -> int:
        """All or nothing."""
        self._check(lease)
        if self.full:
            raise StoreError("no space is left on the disk")
        self._log += [encode_event(event) for event in events]
        self._done_seq = max(self._done_seq, done_seq)
        for event in events:
            self._note(event)
        return len(self._log)

    def _note(self, event: Event) -> None:
        """Which (job, serial) the log knows to have been given a place."""
        if isinstance(event, (ev.Started, ev.Moved, ev.Resized)):
            if isinstance(event, ev.Resized) and self._places.get(event.id) == event.devices:
                return
            serial = self._serials[event.id] = self._serials.get(event.id, 0) + 1
            self._places[event.id] = event.devices
            self._starts.add((event.id, serial))

    def knows(self, job_id: int, serial: int) -> bool:
        """Whether the log has a start of this serial."""
        return (job_id, serial) in self._starts

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The log, decoded anew."""
        for number, line in enumerate(self._log[after:], after + 1):
            yield number, decode_event(line)

    def accept(self, requests: Sequence[Request], t: float) -> list[Accepted | Exception]:
        """Make requests durable."""
        return [self._accept(request, t) for request in requests]

    def _accept(self, request: Request, t: float) -> Accepted | Exception:
        key = (request.tenant, request.key)
        before = self._by_key.get(key)
        if before is not None:
            if before.request != request:
                return ConflictError(f"request {request.key} was another one before")
            return Accepted(
                seq=before.seq, t=before.t, request=before.request, job_id=before.job_id, again=True
            )
        if self.full:
            return StoreError("no space is left on the disk")
        job_id = -1
        if request.kind == "submit":
            job_id, self._jobs = self._jobs, self._jobs + 1
        found = Accepted(seq=len(self._accepted) + 1, t=t, request=request, job_id=job_id)
        self._accepted.append(found)
        self._by_key[key] = found
        return found

    def waiting(self, after_seq: int, limit: int = 1000) -> list[Accepted]:
        """Accepted after that one."""
        return self._accepted[after_seq : after_seq + limit]

    def done_seq(self) -> int:
        """The last request in the log."""
        return self._done_seq

    def job(self, job_id: int) -> Accepted | None:
        """Who submitted it."""
        return next((a for a in self._accepted if a.job_id == job_id), None)

    def close(self) -> None:
        """Nothing is open."""
