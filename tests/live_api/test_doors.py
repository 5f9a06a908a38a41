"""Who may come in: case C63, call by call."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from cotenant.errors import ConfigError
from cotenant.live.api import create_app, serve
from cotenant.live.api.routes import ROUTES
from cotenant.live.api.server import check_bind, names_of

GUARDED = [(r.method, r.path.replace("{id}", "0")) for r in ROUTES if not r.open] + [("GET", "/openapi.json")]
PATHS = sorted({r.path.replace("{id}", "0") for r in ROUTES} | {"/", "/openapi.json"})


def test_c63_without_the_right_token_nothing_is_read_or_changed(start: Any, service: Any) -> None:
    service.views[0] = before = service.example
    with httpx.Client(base_url=start(failures_per_minute=1e6).url, trust_env=False) as anyone:
        for method, path in GUARDED:
            body = (
                {"content": b"{}", "headers": {"content-type": "application/json"}}
                if method == "POST"
                else {}
            )
            none = anyone.request(method, path, **body)  # type: ignore[arg-type]
            assert (none.status_code, none.json()["error"]) == (401, "DeniedError"), path
            assert none.headers["www-authenticate"].startswith("Bearer")
            for wrong in ("Bearer " + "x" * 46, "Basic YTpi", "Bearer", "Bearer a b"):
                answer = anyone.request(method, path, headers={"authorization": wrong})
                assert answer.status_code == 401, path
    assert len(GUARDED) > 15
    assert service.calls == []
    assert service.views == {0: before}


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")


@pytest.mark.parametrize("method", METHODS)
def test_c63_another_name_or_origin_is_refused_for_every_method(admin: httpx.Client, method: str) -> None:
    wrong = (
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:80"},
        {"host": "evil.example@127.0.0.1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    )
    for path, headers in itertools.product(PATHS, wrong):
        assert admin.request(method, path, headers=headers).status_code == 403, (path, headers)


def test_c63_a_text_body_from_a_page_elsewhere_changes_nothing(admin: httpx.Client, service: Any) -> None:
    headers = {"origin": "http://evil.example", "content-type": "text/plain"}
    body = json.dumps({"jobs": [{"key": "k", "job": {"name": "a"}}]})
    assert admin.post("/v1/jobs", content=body, headers=headers).status_code == 403
    del headers["origin"]
    refused = admin.post("/v1/jobs", content=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (415, "MediaTypeError")
    assert service.views == {}


def test_c63_names_of_this_machine_and_configured_ones_are_known(start: Any, make: Any) -> None:
    served = start(hosts=("gpu.example",))
    with httpx.Client(headers=make.bearer(make.admin_token), trust_env=False) as client:
        for host in ("127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:80", "gpu.example", "GPU.example:443"):
            assert client.get(f"{served.url}/v1/status", headers={"host": host}).status_code == 200, host
        for host in ("other.example", "gpu.example.evil", "127.0.0.2", "", "localhost:x", "[::1"):
            assert client.get(f"{served.url}/v1/status", headers={"host": host}).status_code in (400, 403), (
                host
            )


def test_c63_the_default_address_is_loopback_and_others_need_tls_or_a_word(service: Any, known: Any) -> None:
    served = serve(create_app(service, known))
    try:
        assert served.url.startswith("http://127.0.0.1:")
        with socket.create_connection(("127.0.0.1", served.port), timeout=60):
            pass
    finally:
        served.stop()
    for address in ("0.0.0.0", "::", "192.0.2.1", "gpu.example"):
        with pytest.raises(ConfigError, match="TLS"):
            serve(create_app(service, known), address)
        check_bind(address, tls=True)
        check_bind(address, tls=False, allow_plain=True)
    for address in ("127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9"):
        check_bind(address, tls=False)


def test_served_to_others_it_answers_under_its_own_names_alone(service: Any, known: Any, make: Any) -> None:
    served = serve(create_app(service, known), "0.0.0.0", allow_plain=True)
    try:
        with httpx.Client(headers=make.bearer(make.admin_token), trust_env=False) as client:
            url = f"http://127.0.0.1:{served.port}/v1/me"
            for name in (socket.gethostname(), f"{socket.gethostname()}:1", "127.0.0.1"):
                assert client.get(url, headers={"host": name}).status_code == 200
            assert client.get(url, headers={"host": "evil.example"}).status_code == 403
    finally:
        served.stop()
    assert names_of("127.0.0.1") == ()
    assert "[2001:db8::1]" in names_of("2001:db8::1")


def test_with_tls_the_cookie_is_for_tls_alone(service: Any, known: Any, make: Any, tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    served = serve(create_app(service, known), certificate=certificate, key=key)
    try:
        assert served.url.startswith("https://127.0.0.1:")
        with httpx.Client(base_url=served.url, verify=False, trust_env=False) as client:
            signed = client.post("/login", json={"token": make.admin_token}, headers={"origin": served.url})
            assert signed.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")
            plain = served.url.replace("https", "http")
            assert client.get("/v1/me", headers={"origin": plain}).status_code == 403
    finally:
        served.stop()
    with pytest.raises(ConfigError, match="both a certificate and a key"):
        serve(create_app(service, known), certificate=certificate)
    with pytest.raises(ConfigError, match="cannot be read"):
        serve(create_app(service, known), certificate=tmp_path / "none.pem", key=key)


def test_a_taken_port_is_told_as_that(served: Any, service: Any, known: Any) -> None:
    with pytest.raises(ConfigError, match="is another scheduler running"):
        serve(create_app(service, known), port=served.port)


def test_metrics_are_open_only_where_configured(start: Any, anyone: httpx.Client) -> None:
    assert anyone.get("/metrics").status_code == 401
    opened = start(metrics_open=True)
    answer = httpx.get(f"{opened.url}/metrics", trust_env=False)
    assert answer.status_code == 200
    assert "cotenant_jobs" in answer.text
    assert httpx.get(f"{opened.url}/v1/status", trust_env=False).status_code == 401


def test_tokens_are_never_logged_nor_sent_back(
    admin: httpx.Client, anyone: httpx.Client, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "guess-" + "g" * 40
    told = [
        admin.get("/v1/status").text,
        admin.get(f"/v1/jobs?name={wrong}").text,
        anyone.get("/v1/status", headers=make.bearer(wrong)).text,
        anyone.post("/login", json={"token": wrong}).text,
        anyone.post("/login", json={"token": make.admin_token}).text,
        admin.get("/openapi.json").text,
        admin.get("/metrics").text,
    ]
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("cotenant", "uvicorn", "litestar"))]
    assert any("/v1/status" in line for line in ours)
    assert not any(make.admin_token in text or "Bearer " + wrong in text for text in [*told, *ours])
    assert not any(wrong in line for line in ours)


def test_wrong_tokens_are_slowed_down_and_the_right_one_is_not(start: Any, make: Any) -> None:
    served = start(failures_per_minute=3)
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        wrong = [client.post("/login", json={"token": "w" * 40}) for _ in range(5)]
        assert [a.status_code for a in wrong] == [401, 401, 401, 429, 429]
        assert 1 <= int(wrong[-1].headers["retry-after"]) <= 20
        assert client.get("/v1/status", headers=make.bearer("x" * 40)).status_code == 429
        assert client.get("/v1/status", headers=make.bearer(make.admin_token)).status_code == 200


def test_a_token_that_asks_too_often_is_told_when_to_come_again(start: Any, make: Any) -> None:
    served = start(requests_per_s=0.01, burst=3)
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        statuses = [client.get("/v1/me", headers=make.bearer(make.alice_token)).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        late = client.get("/v1/me", headers=make.bearer(make.alice_token))
        # One in a hundred seconds, of which some have passed.
        assert 50 <= int(late.headers["retry-after"]) <= 100
        assert late.json()["error"] == "TooManyError"
        # Each token has its own measure.
        assert client.get("/v1/me", headers=make.bearer(make.admin_token)).status_code == 200


def test_a_body_may_be_neither_long_nor_deep_nor_late(start: Any, make: Any) -> None:
    served = start(body_bytes=2000, body_timeout_s=300.0, json_depth=5)
    headers = {**make.bearer(make.admin_token), "content-type": "application/json"}
    with httpx.Client(base_url=served.url, headers=headers, trust_env=False) as client:
        long = client.post("/v1/jobs", content=b" " * 2001)
        assert (long.status_code, long.json()["error"]) == (413, "TooLargeError")
        unsaid = client.post("/v1/jobs", content=iter([b" " * 1500, b" " * 1500]))
        assert unsaid.status_code == 413
        deep = client.post("/v1/jobs", content=b'{"jobs": [{"key": "k", "job": {"a": {"b": {}}}}]}')
        assert (deep.status_code, deep.json()["message"]) == (400, "JSON nested deeper than 5")
        packed = client.post("/v1/jobs", content=b"{}", headers={"content-encoding": "gzip"})
        assert packed.status_code == 415
    served = start(body_timeout_s=0.3)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {make.admin_token}\r\n"
        slow.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def answered(raw: socket.socket) -> bytes:
    """One whole answer of /healthz."""
    heard = b""
    while not heard.endswith(b'{"ok":true}'):
        part = raw.recv(4000)
        assert part, heard
        heard += part
    return heard


def test_who_connects_and_says_nothing_is_let_go(
    served: Any, make: Any, monkeypatch: pytest.MonkeyPatch, anyone: httpx.Client
) -> None:
    monkeypatch.setattr("cotenant.live.api.server.HEAD_S", 0.3)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for said in (b"", b"GET /healthz HTTP/1.1\r\nHo"):
        slow = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        with slow, contextlib.suppress(ConnectionError):  # let go before it could speak
            slow.sendall(said)
            assert slow.recv(4000) == b""
    monkeypatch.setattr("cotenant.live.api.server.HEAD_S", 2.0)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as calm:
        calm.sendall(whole)
        assert answered(calm).startswith(b"HTTP/1.1 200")
        # Who has asked may stay, and ask again later.
        time.sleep(2.2)
        calm.sendall(whole)
        assert answered(calm).startswith(b"HTTP/1.1 200")
        # But not for half a question.
        monkeypatch.setattr("cotenant.live.api.server.HEAD_S", 0.3)
        calm.sendall(b"GET /heal")
        assert calm.recv(4000) == b""
    assert anyone.get("/healthz").status_code == 200


def test_every_answer_forbids_what_a_page_does_not_need(admin: httpx.Client, anyone: httpx.Client) -> None:
    for answer in (anyone.get("/"), admin.get("/v1/status"), anyone.get("/v1/status"), admin.get("/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in answer.headers
        assert not [h for h in answer.headers if h.startswith("access-control")]


def test_signing_in_gives_a_cookie_that_no_script_reads_and_that_ends(
    anyone: httpx.Client, served: Any, make: Any
) -> None:
    assert anyone.get("/v1/me").status_code == 401
    signed = anyone.post("/login", json={"token": make.alice_token}, headers={"origin": served.url})
    assert (signed.status_code, signed.json()) == (200, {"tenant": "alice", "admin": False})
    cookie = signed.headers["set-cookie"]
    assert re.fullmatch(r"cotenant-\d+=\S{43}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", cookie)
    assert make.alice_token not in cookie
    assert anyone.get("/v1/me").json()["tenant"] == "alice"
    own = {"origin": served.url, "x-cotenant": "1"}
    assert anyone.post("/logout", json={}, headers=own).status_code == 200
    anyone.cookies.set(cookie.partition("=")[0], cookie.partition("=")[2].partition(";")[0])
    assert anyone.get("/v1/me").status_code == 401


def test_with_a_cookie_only_our_own_page_changes_anything(
    anyone: httpx.Client, served: Any, service: Any, make: Any
) -> None:
    service.views[0] = make.view(0)
    anyone.post("/login", json={"token": make.admin_token}, headers={"origin": served.url})
    ask: Any = {"json": {"key": "k"}}
    for headers in (
        {},
        {"origin": served.url},
        {"x-cotenant": "1"},
        {"origin": served.url, "x-cotenant": "1", "sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:9", "x-cotenant": "1"},
        {"origin": served.url.replace("127.0.0.1", "localhost"), "x-cotenant": "1"},
    ):
        assert anyone.post("/v1/jobs/0/cancel", headers=headers, **ask).status_code == 403, headers
    assert anyone.get("/v1/jobs/0", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert service.views[0].status == "waiting"
    own = {"origin": served.url, "x-cotenant": "1", "sec-fetch-site": "same-origin"}
    assert anyone.post("/v1/jobs/0/cancel", headers=own, **ask).status_code == 202
    assert service.views[0].status == "cancelled"


def test_a_session_ends_with_its_token(anyone: httpx.Client, known: Any, make: Any) -> None:
    anyone.post("/login", json={"token": make.alice_token})
    assert anyone.get("/v1/me").status_code == 200
    known.callers = {d: c for d, c in known.callers.items() if c.admin}
    assert anyone.get("/v1/me").status_code == 401


def test_a_session_runs_out(start: Any, make: Any) -> None:
    with httpx.Client(base_url=start(session_s=0.0).url, trust_env=False) as client:
        secret = (
            client.post("/login", json={"token": make.alice_token}).headers["set-cookie"].partition(";")[0]
        )
        assert client.get("/v1/me", headers={"cookie": secret}).status_code == 401


def test_an_unusual_request_line_is_no_way_around(served: Any, make: Any) -> None:
    """Written by hand, as no client library would."""
    for request in (
        b"GET //v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /page/../v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /page/%2e%2e/%2e%2e/token HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://localhost/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/status HTTP/1.0\r\n\r\n",
        b"GET /healthz/../v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as raw:
            raw.sendall(request)
            status = int(raw.recv(4000).split(b" ")[1])
        assert status in (400, 401, 403, 404), request
