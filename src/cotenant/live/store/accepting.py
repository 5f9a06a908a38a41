"""Requests: known again by tenant and key, numbered without gaps, each answered by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, select, update
from sqlalchemy.engine import Row

from cotenant.errors import ConflictError, InputError
from cotenant.live.store.tables import counters, requests
from cotenant.model.liveports import Accepted, Request

__all__ = ["Answer", "Prepared", "prepare", "stored", "write"]

Answer = Accepted | Exception
_encoder = msgspec.json.Encoder(order="sorted")
_SUBMIT = "submit"
_CHUNK = 500


class Prepared(msgspec.Struct, frozen=True):
    """A request ready to be written: encoded and checked outside the transaction."""

    request: Request
    body: str
    digest: str
    t: float


def prepare(request: Request, t: float) -> Prepared | InputError:
    """Encode a request; the error if no database could hold it."""
    for name, text in (("key", request.key), ("tenant", request.tenant), ("kind", request.kind)):
        if "\0" in text:
            return InputError(f"{name} {text!r} holds a NUL character; leave it out")
        if not text and name != "tenant":
            return InputError(f"a request needs a {name}")
        try:
            text.encode()
        except UnicodeEncodeError:
            return InputError(f"{name} {text!r} is not valid Unicode text")
    if len(request.key) > 200:
        return InputError(f"key of {len(request.key)} characters; at most 200 are allowed")
    try:
        body = _encoder.encode(request.body)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError, ValueError, OverflowError) as error:
        return InputError(f"request {request.key!r} cannot be written as JSON: {error}")
    digest = hashlib.sha256(request.kind.encode() + b"\0" + body).hexdigest()
    return Prepared(request, body.decode(), digest, t)


def write(connection: Connection, items: Sequence[Prepared]) -> list[Answer]:
    """Write those that are new, answer those that are known, in the caller's transaction."""
    numbers = connection.execute(select(counters).where(counters.c.id == 1).with_for_update()).one()
    known = _known(connection, items)
    seq, jobs = int(numbers.requests), int(numbers.jobs)
    answers: list[Answer] = []
    rows = []
    for item in items:
        request = item.request
        place = (request.tenant, request.key)
        before = known.get(place)
        if before is not None:
            answers.append(_again(item, *before))
            continue
        seq += 1
        job_id = -1
        if request.kind == _SUBMIT:
            job_id, jobs = jobs, jobs + 1
        accepted = Accepted(seq=seq, t=item.t, request=request, job_id=job_id)
        known[place] = (item.digest, accepted)
        answers.append(accepted)
        rows.append(
            {
                "seq": seq,
                "tenant": request.tenant,
                "key": request.key,
                "digest": item.digest,
                "kind": request.kind,
                "body": item.body,
                "job_id": None if job_id < 0 else job_id,
                "t": item.t,
            }
        )
    if rows:
        connection.execute(requests.insert(), rows)
        connection.execute(update(counters).values(requests=seq, jobs=jobs))
    return answers


def stored(row: Row[Any], *, again: bool = False) -> Accepted:
    """A row of the table as a value."""
    # ``row.t`` is a method of such rows.
    t = row._mapping["t"]
    request = Request(
        key=row.key, tenant=row.tenant, kind=row.kind, body=msgspec.json.decode(row.body, type=dict)
    )
    job_id = -1 if row.job_id is None else int(row.job_id)
    return Accepted(seq=int(row.seq), t=float(t), request=request, job_id=job_id, again=again)


def _again(item: Prepared, digest: str, before: Accepted) -> Answer:
    if digest == item.digest:
        return msgspec.structs.replace(before, again=True)
    key = item.request.key
    found = before.request.kind if before.job_id < 0 else f"{before.request.kind} of job {before.job_id}"
    return ConflictError(
        f'request "{key}" was used before with other content ({found}); that one stands as it was. '
        "Give this one a key of its own"
    )


def _known(connection: Connection, items: Iterable[Prepared]) -> dict[tuple[str, str], tuple[str, Accepted]]:
    by_tenant: dict[str, list[str]] = {}
    for item in items:
        by_tenant.setdefault(item.request.tenant, []).append(item.request.key)
    found: dict[tuple[str, str], tuple[str, Accepted]] = {}
    for tenant, keys in by_tenant.items():
        for start in range(0, len(keys), _CHUNK):
            own = select(requests).where(
                requests.c.tenant == tenant, requests.c.key.in_(keys[start : start + _CHUNK])
            )
            for row in connection.execute(own):
                found[row.tenant, row.key] = (row.digest, stored(row))
    return found
