"""Output of jobs and changes as they happen."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.live.api.limits import Rate, depth_of
from cotenant.live.api.logs import follow, read, whole_characters


@pytest.fixture
def folder(service: Any, make: Any) -> Path:
    service.views[0] = make.view(0, status="running")
    path = service.folder / "0"
    path.mkdir(parents=True)
    return Path(path)


def test_output_is_read_over_rotated_files_from_any_byte(admin: httpx.Client, folder: Path) -> None:
    (folder / "stdout.log.0").write_text("one\n")
    (folder / "stdout.log.1").write_text("zwei\n")
    (folder / "stdout.log").write_text("trois\n")
    whole = b"one\nzwei\ntrois\n"
    for offset in range(len(whole) + 3):
        answer = admin.get(f"/v1/jobs/0/logs?offset={offset}")
        assert answer.content == whole[offset:]
        assert answer.headers["x-cotenant-offset"] == str(min(offset, len(whole)))
        assert answer.headers["x-cotenant-next"] == str(len(whole))
    assert admin.get("/v1/jobs/0/logs?offset=-6").text == "trois\n"
    assert admin.get("/v1/jobs/0/logs?offset=-99").content == whole
    assert admin.get("/v1/jobs/0/logs?offset=2&limit=5").text == "e\nzwe"[:5]
    assert admin.get("/v1/jobs/0/logs?stream=stderr").content == b""
    assert admin.get("/v1/jobs/0/logs").headers["content-type"] == "text/plain; charset=utf-8"


@given(
    text=st.text(alphabet="aé训🚂\n", max_size=60),
    cuts=st.lists(st.integers(0, 200), max_size=3),
    limit=st.integers(4, 20),
)
@settings(max_examples=100, deadline=None)
def test_reading_on_and_on_gives_the_whole_text_and_never_half_a_character(
    tmp_path_factory: pytest.TempPathFactory, text: str, cuts: list[int], limit: int
) -> None:
    data, folder = text.encode(), tmp_path_factory.mktemp("logs")
    ends = sorted(min(c, len(data)) for c in cuts)
    files = []
    for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(data)], strict=True)):
        files.append(str(folder / str(number)))
        Path(files[-1]).write_bytes(data[start:end])
    got, offset = b"", 0
    while offset < len(data):
        begin, part = read(files, offset, limit)
        assert begin == offset
        assert part
        part.decode()  # whole characters
        got, offset = got + part, offset + len(part)
    assert got == data
    for back in range(len(data)):
        begin, part = read(files, -back - 1, 10**6)
        assert data[begin:] == part
        part.decode()


def test_bytes_that_are_no_text_pass_unchanged(admin: httpx.Client, folder: Path) -> None:
    data = bytes(range(256)) * 3
    (folder / "stdout.log").write_bytes(data)
    assert admin.get("/v1/jobs/0/logs").content == data
    assert [whole_characters(d) for d in (b"", b"\xff", b"\x80\x80\x80\x80", b"a\xf0\x9f\x9a", b"\xc3")] == [
        0,
        1,
        4,
        1,
        0,
    ]


def test_following_goes_on_over_a_rotation_until_the_job_has_ended(
    admin: httpx.Client, folder: Path, service: Any, make: Any
) -> None:
    log, got = folder / "stdout.log", bytearray()
    log.write_bytes("eins é".encode()[:-1])
    begun = threading.Event()

    def reader() -> None:
        with admin.stream("GET", "/v1/jobs/0/logs?follow=1&offset=2", timeout=120) as answer:
            for part in answer.iter_raw():
                bytes(part).decode()
                got.extend(part)
                begun.set()

    thread = threading.Thread(target=reader)
    thread.start()
    assert begun.wait(120)
    with log.open("ab") as old:
        old.write("é".encode()[1:] + b" two\n")
        old.flush()
        log.rename(folder / "stdout.log.0")
        log.write_text("three\n")
        time.sleep(0.5)
        log.rename(folder / "stdout.log.1")
        log.write_text("four\n")
    time.sleep(0.3)
    service.views[0] = make.view(0, status="done")
    thread.join(120)
    assert not thread.is_alive()
    assert bytes(got).decode() == "ns é two\nthree\nfour\n"


def test_following_loses_nothing_when_files_are_deleted_and_their_numbers_given_to_new_ones(
    tmp_path: Path,
) -> None:
    from cotenant.executors.local.outputs import OutputFile

    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    log = tmp_path / "stdout.log"
    out = OutputFile(str(log), read_end, limit=10, keep=1)
    over: list[bool] = []

    def files() -> list[str]:
        rotated = sorted(tmp_path.glob("stdout.log.*"), key=lambda path: int(path.name.rpartition(".")[2]))
        return [str(path) for path in (*rotated, log)]

    def write(number: int) -> None:
        os.write(write_end, f"piece {number:03}\n".encode())
        out.pump()

    async def run() -> bytes:
        got, count = b"", 1
        write(0)
        async for part in follow(files, lambda: bool(over), 0, 0.001):
            got += part
            if count == 40:
                over.append(True)
            elif len(got) == 10 * count:
                write(count)
                count += 1
        return got

    got = asyncio.run(asyncio.wait_for(run(), 180))
    os.close(write_end)
    out.close()
    assert got.decode() == "".join(f"piece {number:03}\n" for number in range(40))


def test_output_that_is_rotated_between_looking_and_reading_is_read_anew(tmp_path: Path) -> None:
    log, old = tmp_path / "stdout.log", tmp_path / "stdout.log.0"
    log.write_bytes(b"first\n")
    looks: list[int] = []

    def files() -> list[str]:
        looks.append(1)
        names = [str(path) for path in (old, log) if path.exists()]
        if len(looks) == 1:
            log.rename(old)
            log.write_bytes(b"2\n")
        return names

    assert read(files, 0, 100) == (0, b"first\n2\n")


def test_following_what_was_deleted_meanwhile_goes_on_with_what_there_is(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("gone\n")
    over: list[bool] = []

    async def run() -> bytes:
        got = b""
        async for part in follow(
            lambda: [str(p) for p in (first, second) if p.exists()], lambda: bool(over), 0, 0.01
        ):
            got += part
            if got == b"gone\n":
                first.unlink()
                second.write_text("here\n")
            if got.endswith(b"here\n"):
                over.append(True)
        return got

    assert asyncio.run(asyncio.wait_for(run(), 180)) == b"gone\nhere\n"


# -- events ------------------------------------------------------------------------------


def told(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """Server-sent events, as a browser reads them."""
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line:
            if "data" in event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


def wait_for_readers(admin: httpx.Client, count: int) -> None:
    deadline = time.monotonic() + 120
    while f"cotenant_api_event_readers {count}.0" not in admin.get("/metrics").text:
        assert time.monotonic() < deadline


def test_changes_are_told_with_numbers_and_resumed_after_the_last_one_seen(
    admin: httpx.Client, service: Any, make: Any
) -> None:
    with admin.stream("GET", "/v1/events", timeout=120) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = told(answer)
        wait_for_readers(admin, 1)
        for number in range(5):
            service.tell("started", id=number, tenant="", name="a\nevent: evil\ndata: x")
        seen = [next(events) for _ in range(5)]
    assert [e["id"] for e in seen] == ["1", "2", "3", "4", "5"]
    assert {e["event"] for e in seen} == {"started"}
    assert '"name":"a\\nevent: evil\\ndata: x"' in seen[0]["data"]
    wait_for_readers(admin, 0)
    service.tell("ended", id=0, tenant="")
    with admin.stream("GET", "/v1/events", headers={"last-event-id": "3"}, timeout=120) as answer:
        events = told(answer)
        assert [next(events)["id"] for _ in range(3)] == ["4", "5", "6"]
    with admin.stream("GET", "/v1/events?after=99", timeout=120) as answer:
        assert next(told(answer))["event"] == "reset"


def test_a_tenant_hears_of_its_own_jobs_and_of_what_is_nobodys(
    admin: httpx.Client, alice: httpx.Client, service: Any
) -> None:
    with alice.stream("GET", "/v1/events", timeout=120) as answer:
        events = told(answer)
        wait_for_readers(admin, 1)
        service.tell("started", id=0, tenant="bob", name="secret")
        service.tell("rated", id=0)
        service.tell("drained", node=0)
        service.tell("started", id=1, tenant="alice")
        assert [next(events)["event"] for _ in range(2)] == ["drained", "started"]


def test_an_idle_stream_beats_and_a_slow_reader_is_let_go(start: Any, service: Any, make: Any) -> None:
    served = start(heartbeat_s=0.05, event_queue=20, event_backlog=10, event_clients=2)
    with httpx.Client(base_url=served.url, headers=make.bearer(make.admin_token), trust_env=False) as admin:
        with admin.stream("GET", "/v1/events", timeout=120) as answer:
            lines = answer.iter_lines()
            assert ": still here" in [next(lines) for _ in range(8)]
        wait_for_readers(admin, 0)
        with admin.stream("GET", "/v1/events", timeout=120) as answer:
            wait_for_readers(admin, 1)
            for number in range(200_000):
                service.tell("rated", id=number, tenant="", fill="x" * 50)
                if number % 20_000 == 0:
                    time.sleep(0.02)
            wait_for_readers(admin, 0)
            assert [e["event"] for e in told(answer)][-1] == "reset"


def test_more_readers_than_allowed_are_refused(start: Any, make: Any) -> None:
    served = start(event_clients=1)
    admin = httpx.Client(base_url=served.url, headers=make.bearer(make.admin_token), trust_env=False)
    with admin, admin.stream("GET", "/v1/events", timeout=120):
        wait_for_readers(admin, 1)
        answer = admin.get("/v1/events")
        assert (answer.status_code, answer.json()["error"]) == (503, "BusyError")


def test_stopping_ends_streams_and_is_quick(start: Any, make: Any) -> None:
    served = start()
    admin = httpx.Client(base_url=served.url, headers=make.bearer(make.admin_token), trust_env=False)
    with admin, admin.stream("GET", "/v1/events", timeout=120) as answer:
        wait_for_readers(admin, 1)
        served.stop()
        assert not served.alive
        assert list(told(answer)) == []


def test_who_tells_is_not_hurt_when_the_server_has_ended(start: Any, service: Any) -> None:
    served = start()
    (told,) = service.listeners
    served.stop()
    assert service.listeners == []
    for number in range(3):
        told(number, "started", {"id": 1})


# -- limits ------------------------------------------------------------------------------


def test_a_rate_gives_what_was_filled_and_says_how_long_to_wait() -> None:
    rate = Rate(per_s=2.0, burst=3.0)
    assert [rate.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rate.take("b", 0.0) == 0.0
    assert rate.take("a", 0.5) == 0.0
    assert rate.take("a", 0.25) > 0.0  # a clock that goes back gives nothing


def test_a_rate_keeps_few_names() -> None:
    rate = Rate(per_s=1.0, burst=1.0, names=10)
    for number in range(1000):
        rate.take(str(number), float(number))
    assert len(rate._buckets) <= 11


@given(
    st.recursive(
        st.none() | st.text(max_size=5),
        lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=5), s, max_size=3),
    )
)
@settings(max_examples=150, deadline=None)
def test_depth_is_that_of_the_value(value: Any) -> None:
    import json

    def depth(v: Any) -> int:
        inner = v.values() if isinstance(v, dict) else v if isinstance(v, list) else None
        return 0 if inner is None else 1 + max((depth(i) for i in inner), default=0)

    assert depth_of(json.dumps(value).encode()) == depth(value)
