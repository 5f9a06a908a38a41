"""What each call answers."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from cotenant import errors
from cotenant.live.api import problem_of, status_of
from cotenant.live.api.routes import ROUTES

NAMES = [
    "dédé job",
    "训练-01",
    "für",
    "🚂",
    "\u202eabc",
    "a|b",
    "=1+1",
    "\x1b[31mred",
    "<img src=x onerror=alert(1)>",
    "'\"&",
]


def job(name: str = "a", **rest: Any) -> dict[str, Any]:
    return {"name": name, "command": ["true"], **rest}


def test_jobs_are_answered_one_by_one_in_their_order(admin: httpx.Client) -> None:
    ask = {
        "jobs": [
            {"key": "k1", "job": job("a")},
            {"key": "k2", "job": job("b", colour="red")},
            {"key": "k3", "job": job("c", gpus=9)},
            {"key": "k4", "job": job("d", env={"A": "\0"})},
            {"key": "k5", "job": job("e", priority=2**70)},
            {"key": "k6", "job": job("f")},
        ]
    }
    answer = admin.post("/v1/jobs", json=ask)
    assert answer.status_code == 201
    first, *wrong, last = answer.json()["jobs"]
    assert (first, last) == ({"id": 0, "again": False}, {"id": 1, "again": False})
    assert [w["error"] for w in wrong] == ["InputError", "InfeasibleError", "InputError", "InputError"]
    assert "colour" in wrong[0]["message"]
    assert "$.env.A" in wrong[2]["message"]
    assert "$.priority" in wrong[3]["message"]


def test_submissions_take_a_way_of_their_own_and_are_answered_as_by_the_other(
    admin: httpx.Client, alice: httpx.Client, service: Any
) -> None:
    """``/v1/jobs/`` is the same operation, by way of the router."""
    bodies = [
        {"jobs": [{"key": "k", "job": job("a")}]},
        {"jobs": []},
        {"jobs": [{"key": "", "job": {}}]},
        [1],
    ]
    accepted = admin.post("/v1/jobs", json=bodies[0])
    assert (accepted.status_code, accepted.json()) == (201, {"jobs": [{"id": 0, "again": False}]})
    for client, body in [(admin, body) for body in bodies] + [(alice, bodies[1])]:
        one, other = (client.post(path, json=body) for path in ("/v1/jobs", "/v1/jobs/"))
        assert one.status_code == other.status_code
        assert one.content == other.content
        same = [{n: v for n, v in answer.headers.items() if n != "date"} for answer in (one, other)]
        assert same[0] == same[1]
    assert 'answers_total{operation="submit",status="201"} 3.0' in admin.get("/metrics").text
    refused = admin.post("/v1/jobs?what=1", json=bodies[0])
    assert refused.status_code == 400 and refused.json()["detail"] == "query"


def test_asking_again_is_safe_and_another_content_is_refused(admin: httpx.Client, service: Any) -> None:
    ask = {"jobs": [{"key": "k", "job": job("a")}]}
    assert admin.post("/v1/jobs", json=ask).json()["jobs"] == [{"id": 0, "again": False}]
    assert admin.post("/v1/jobs", json=ask).json()["jobs"] == [{"id": 0, "again": True}]
    other = admin.post("/v1/jobs", json={"jobs": [{"key": "k", "job": job("b")}]}).json()["jobs"][0]
    assert other["error"] == "ConflictError"
    assert len(service.views) == 1


def test_c67_names_of_all_kinds_go_through_unchanged(admin: httpx.Client) -> None:
    ask = {"jobs": [{"key": f"k{i}", "job": job(name)} for i, name in enumerate(NAMES)]}
    assert [j["id"] for j in admin.post("/v1/jobs", json=ask).json()["jobs"]] == list(range(len(NAMES)))
    assert [j["name"] for j in admin.get("/v1/jobs").json()["jobs"]] == NAMES
    for number, name in enumerate(NAMES):
        assert admin.get("/v1/jobs", params={"name": name}).json()["jobs"][0]["id"] == number
    metrics = admin.get("/metrics").text
    assert not any(name in metrics for name in NAMES)


def test_a_submission_of_which_nothing_was_kept_is_told_as_that(admin: httpx.Client, service: Any) -> None:
    service.broken = errors.StoreError("the log could not be written: no space left; free some and try again")
    answer = admin.post("/v1/jobs", json={"jobs": [{"key": "k", "job": job()}]})
    assert (answer.status_code, answer.json()["error"]) == (503, "StoreError")
    assert "no space left" in answer.json()["message"]
    assert answer.headers["retry-after"] == "1"
    service.broken = RuntimeError("secret detail")
    answer = admin.post("/v1/jobs", json={"jobs": [{"key": "k", "job": job()}]})
    assert (answer.status_code, answer.json()["error"]) == (500, "InternalError")
    assert "secret" not in answer.text


def test_submissions_at_one_time_are_written_together(
    admin: httpx.Client, served: Any, service: Any, make: Any
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    submit = service.submit

    def slow(caller: Any, requests: Any) -> Any:
        entered.set()
        go_on.wait(20)
        return submit(caller, requests)

    service.submit = slow

    def ask(i: int) -> Any:
        body = {"jobs": [{"key": f"k{i}", "job": job(f"j{i}")}]}
        headers = make.bearer(make.admin_token if i < 12 else make.alice_token)
        return i, httpx.post(
            f"{served.url}/v1/jobs", json=body, headers=headers, trust_env=False, timeout=120
        ).json()

    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(ask, 0)
        assert entered.wait(20)
        rest = [pool.submit(ask, i) for i in range(1, 16)]
        deadline = time.monotonic() + 20
        # The API answers others meanwhile.
        while "cotenant_api_submits_waiting 16.0" not in admin.get("/metrics").text:
            assert time.monotonic() < deadline
        go_on.set()
        answers = dict(f.result() for f in [first, *rest])
    for number, answer in answers.items():
        (one,) = answer["jobs"]
        assert service.views[one["id"]].name == f"j{number}"
        assert service.views[one["id"]].tenant == ("" if number < 12 else "alice")
    # The first alone; what gathered meanwhile in one call for each caller.
    assert service.calls[0] == 1
    assert sorted(service.calls[1:]) == [4, 11]


def test_more_submissions_than_may_wait_are_refused_at_once(start: Any, make: Any, service: Any) -> None:
    served = start(waiting_submits=2)
    ask = {"jobs": [{"key": f"k{i}", "job": job()} for i in range(3)]}
    answer = httpx.post(
        f"{served.url}/v1/jobs", json=ask, headers=make.bearer(make.admin_token), trust_env=False
    )
    assert (answer.status_code, answer.json()["error"], answer.headers["retry-after"]) == (
        503,
        "BusyError",
        "1",
    )
    assert service.views == {}


def test_commands_reach_the_service_as_they_were_asked(admin: httpx.Client, service: Any) -> None:
    admin.post("/v1/jobs", json={"jobs": [{"key": "k", "job": job()}]})
    asked = []
    command = service.command
    service.command = lambda caller, request: (
        asked.append((request.kind, request.body)),
        command(caller, request),
    )[1]
    for kind, arguments in (
        ("priority", {"priority": -7}),
        ("resize", {"compute_milli": 300, "compute_limit_milli": 900}),
        ("suspend", {}),
        ("resume", {}),
        ("cancel", {}),
    ):
        answer = admin.post(f"/v1/jobs/0/{kind}", json={"key": f"c-{kind}", **arguments})
        assert (answer.status_code, answer.json()["again"]) == (202, False)
    assert asked == [
        ("priority", {"id": 0, "priority": -7}),
        ("resize", {"id": 0, "compute_milli": 300, "compute_limit_milli": 900}),
        ("suspend", {"id": 0}),
        ("resume", {"id": 0}),
        ("cancel", {"id": 0}),
    ]
    assert admin.post("/v1/nodes/drain", json={"key": "d"}).status_code == 202
    assert asked[-1] == ("drain", {"node": 0})
    late = admin.post("/v1/jobs/0/suspend", json={"key": "late"})
    assert (late.status_code, late.json()["error"]) == (409, "ConflictError")


WRONG: list[tuple[str, Any, str]] = [
    ("/v1/jobs", {"jobs": []}, "length >= 1"),
    ("/v1/jobs", {"jobs": [{"job": {}}]}, "key"),
    ("/v1/jobs", {"jobs": [{"key": "", "job": {}}]}, "$.jobs[0].key"),
    ("/v1/jobs", {"jobs": [{"key": "a\nb", "job": {}}]}, "$.jobs[0].key"),
    ("/v1/jobs", {"jobs": [{"key": "k", "job": []}]}, "$.jobs[0].job"),
    ("/v1/jobs", {"jobs": [{"key": "k", "job": {}}], "more": 1}, "more"),
    ("/v1/jobs", {"jobs": [{"key": "k", "job": {}}] * 1001}, "length <= 1000"),
    ("/v1/jobs/0/priority", {"key": "k", "priority": "high"}, "$.priority"),
    ("/v1/jobs/0/priority", {"key": "k", "priority": 2**31}, "$.priority"),
    ("/v1/jobs/0/resize", {"key": "k", "compute_milli": 0}, "$.compute_milli"),
    ("/v1/jobs/0/cancel", {"key": "k", "id": 1}, "id"),
    ("/v1/nodes/drain", {"key": "k", "node": -1}, "$.node"),
]


def test_what_is_not_as_described_is_refused_with_where(admin: httpx.Client) -> None:
    for path, body, said in WRONG:
        answer = admin.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]) == (400, "BadRequestError"), said
        assert said in answer.json()["message"]


def test_what_is_no_json_is_refused(admin: httpx.Client) -> None:
    for body in [
        b"",
        b"{",
        b'{"jobs":[NaN]}',
        b'\xff\xfe{"a":1}',
        b'{"a":"\\ud800"}',
        b"[" * 100_000,
        b'{"k":' + b"1" * 5000 + b"}",
    ]:
        answer = admin.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]) == (400, "BadRequestError"), body[:20]


def test_what_is_not_as_described_in_a_query_is_refused(admin: httpx.Client) -> None:
    for query in ["live=2", "limit=0", "limit=x", "colour=red", "limit=1&limit=2", "name="]:
        answer = admin.get(f"/v1/jobs?{query}")
        assert (answer.status_code, answer.json()["detail"]) == (400, "query"), query


def test_a_job_that_cannot_be_is_not_found(admin: httpx.Client) -> None:
    for number in ["x", "-1", "1e3", "%00", "9" * 30, "1.0", "٣"]:
        answer = admin.get(f"/v1/jobs/{number}")
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFoundError"), number


def test_a_tenant_sees_and_changes_its_own_jobs_alone(alice: httpx.Client, service: Any, make: Any) -> None:
    service.views |= {0: make.view(0, tenant="bob"), 1: make.view(1, tenant="alice")}
    assert [j["id"] for j in alice.get("/v1/jobs").json()["jobs"]] == [1]
    for path in ("/v1/jobs/0", "/v1/jobs/0/explain", "/v1/jobs/0/logs", "/v1/doctor"):
        assert (alice.get(path).status_code, alice.get(path).json()["error"]) == (403, "DeniedError"), path
    assert alice.post("/v1/jobs/0/cancel", json={"key": "k"}).status_code == 403
    assert alice.post("/v1/nodes/drain", json={"key": "k"}).status_code == 403
    assert service.views[0].status == "waiting"
    assert alice.get("/v1/me").json() == {"tenant": "alice", "admin": False}


def test_the_lists_hold_the_views_unchanged(admin: httpx.Client, service: Any, make: Any) -> None:
    service.views |= {i: make.view(i, status="done" if i % 2 else "running") for i in range(6)}
    assert [j["id"] for j in admin.get("/v1/jobs?live=1&limit=2").json()["jobs"]] == [2, 4]
    assert admin.get("/v1/jobs/3").json() == msgspec.json.decode(msgspec.json.encode(service.views[3]))
    assert admin.get("/v1/devices").json()["devices"] == [
        msgspec.json.decode(msgspec.json.encode(service.device_views[0]))
    ]
    assert admin.get("/v1/status").json()["counts"] == {"running": 3, "done": 3}
    assert admin.get("/v1/jobs/0/explain").json()["name"] == "job-0"
    assert admin.get("/healthz").json() == {"ok": True}


def test_paths_and_methods_that_are_not_there_are_told_in_the_same_shape(admin: httpx.Client) -> None:
    missing = admin.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]) == (404, "NotFoundError")
    wrong = admin.delete("/v1/jobs")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "MethodNotAllowedError")
    assert {"GET", "POST"} <= set(re.split(", ?", wrong.headers["allow"]))
    for answer in (missing, wrong):
        assert set(answer.json()) == {"error", "message", "detail", "hint"}


def test_methods_are_told_as_they_are(admin: httpx.Client) -> None:
    """Found by fuzzing: a wrong method is told as that whatever it carries, and Allow names all of a path."""
    for path in sorted({r.path.replace("{id}", "0") for r in ROUTES}):
        known = {r.method for r in ROUTES if r.path.replace("{id}", "0") == path}
        told = admin.options(path)
        assert (told.status_code, set(told.headers["allow"].split(", "))) == (204, {*known, "OPTIONS"})
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - known:
            assert admin.request(method, path).status_code == 405, (method, path)


def test_every_error_of_the_tree_has_its_status() -> None:
    expected = {
        "InputError": 422,
        "QuantityError": 422,
        "InfeasibleError": 422,
        "DeniedError": 403,
        "NotFoundError": 404,
        "ConflictError": 409,
        "StoreError": 503,
        "FencedError": 503,
        "UnreachableError": 503,
        "LogError": 500,
        "PolicyError": 500,
    }
    for name, status in expected.items():
        error = getattr(errors, name)("what happened")
        assert (status_of(error), problem_of(error).error, problem_of(error).message) == (
            status,
            name,
            "what happened",
        )


def test_the_log_comes_as_lines_from_any_number_on(admin: httpx.Client, service: Any) -> None:
    service.lines = [b'{"e":"rated","id":%d,"x":"%s"}' % (i, b"y" * 100) for i in range(3000)]
    answer = admin.get("/v1/log")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.content == b"\n".join(service.lines) + b"\n"
    assert admin.get("/v1/log?after=2999").content == service.lines[-1] + b"\n"
    assert admin.get("/v1/log?after=5000").content == b""


def test_metrics_are_prometheus_text_of_bounded_size(admin: httpx.Client, service: Any, make: Any) -> None:
    service.views |= {i: make.view(i, name=NAMES[i % len(NAMES)], status="running") for i in range(500)}
    service.device_views = [make.device(0, name='a"b\\c\nd', busy=None, foreign_bytes=5)]
    for number in range(300):
        admin.get(f"/v1/jobs/{number}")
        admin.get(f"/v1/no-{number}")
    answer = admin.get("/metrics")
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    assert all(f.documentation for f in families.values())
    assert families["cotenant_jobs"].samples[0].value == 500
    assert families["cotenant_device_foreign_bytes"].samples[0].labels == {"device": "0", "name": 'a"b\\c\nd'}
    assert families["cotenant_device_busy_ratio"].samples == []
    assert families["cotenant_api_answers"].samples[0].labels.keys() <= {"operation", "status"}
    assert sum(len(f.samples) for f in families.values()) < 20 * len(ROUTES)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_the_description_names_every_operation_and_nothing_outside(admin: httpx.Client) -> None:
    document = admin.get("/openapi.json").json()
    described = {(m.upper(), p) for p, methods in document["paths"].items() for m in methods}
    assert described == {(r.method, r.path) for r in ROUTES}
    text = admin.get("/openapi.json").text
    assert document["openapi"] == "3.1.0"
    assert re.findall(r"https?://[^\"]+", text) == []
    refs = set(re.findall(r'"\$ref":"#/components/(\w+)/(\w+)"', text))
    assert {
        (kind, name) for kind in ("schemas", "responses") for name in document["components"][kind]
    } >= refs
    assert document["security"] == [{"token": []}]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                known = "$ref" in answer or answer["content"]
                assert known, (path, method, status)
            if method == "post":
                assert "example" in operation["requestBody"]["content"]["application/json"], path
