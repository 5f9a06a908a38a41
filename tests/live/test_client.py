"""The client that commands ask with, against servers that behave badly."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cotenant.errors import UnreachableError
from cotenant.live import client as asking
from cotenant.live.client import Client, Connection


class Answers(BaseHTTPRequestHandler):
    """Has no jobs."""

    def do_GET(self) -> None:
        body = b'{"jobs":[]}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def leader(how: type[BaseHTTPRequestHandler] = Answers) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), how)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def hanging() -> Iterator[str]:
    """Takes connections and never answers, as a process that is stopped does."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield f"http://127.0.0.1:{found.getsockname()[1]}"


def test_a_question_to_a_leader_that_hangs_is_asked_again_of_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As long as it is: waiting for an answer takes more than all the patience with one that is away.
    monkeypatch.setattr(asking, "_ANSWER_S", 2.0)
    with leader() as new, hanging() as old:
        urls = [old]

        def find() -> Connection:
            return Connection(urls.pop() if urls else new, "token", verify=True)

        with Client(find, patience_s=0.2) as client:
            assert client.jobs() == []


def test_a_leader_that_hangs_without_a_successor_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_ANSWER_S", 0.5)
    with (
        hanging() as old,
        Client(lambda: Connection(old, "token", verify=True), patience_s=0.2) as client,
        pytest.raises(UnreachableError, match="does not answer"),
    ):
        client.jobs()


class Breaks(BaseHTTPRequestHandler):
    """Follows a job that is silent, and dies twice; then tells the rest."""

    asked = 0

    def do_GET(self) -> None:
        Breaks.asked += 1
        self.send_response(200)
        self.send_header("content-length", "4")
        self.end_headers()
        if Breaks.asked <= 2:
            self.wfile.flush()
            time.sleep(0.5)  # longer than the patience with one that is away
            return
        self.wfile.write(b"done")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_each_lost_connection_of_a_silent_job_is_tried_again_for_its_own_time() -> None:
    Breaks.asked = 0
    with (
        leader(Breaks) as url,
        Client(lambda: Connection(url, "token", verify=True), patience_s=0.3) as client,
    ):
        assert b"".join(client.follow(1)) == b"done"
    assert Breaks.asked == 3
