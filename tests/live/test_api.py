"""The API of a scheduler that really runs: its doors, its streams, and whatever is sent to it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.failures import FailureGroup

EXAMPLES = int(os.environ.get("COTENANT_FUZZ_EXAMPLES", "8"))
NAMES = [
    "dédé job",
    "训练-01",
    "für",
    "🚂",
    "שלום",
    "a|b",
    "=1+1",
    "<img src=x onerror=alert(1)>",
    "'\"&%2F../",
]
HIDING = ["\u202eabc", "\x1b[31mred", "a\nb"]


def submit(scheduler: Any, name: str, script: str, **more: Any) -> int:
    return int(scheduler.submit(sys.executable, "-u", "-c", script, name=name, **more))


def test_c63_a_scheduler_started_with_defaults_gives_nothing_away(shared_scheduler: Any) -> None:
    url = shared_scheduler.url
    assert url.startswith("http://127.0.0.1:")
    asked = {"jobs": [{"key": "evil", "job": {"name": "evil", "command": ["true"]}}]}
    with httpx.Client(base_url=url, trust_env=False) as client:
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer " + "w" * 46}, 401),
            ({"authorization": f"Bearer {shared_scheduler.token}", "host": "evil.example"}, 403),
            ({"authorization": f"Bearer {shared_scheduler.token}", "origin": "http://evil.example"}, 403),
            ({"authorization": f"Bearer {shared_scheduler.token}", "content-type": "text/plain"}, 415),
        ):
            answer = client.post(
                "/v1/jobs", content=json.dumps(asked), headers={"content-type": "application/json", **headers}
            )
            assert answer.status_code == status
        for path in (
            "/v1/jobs",
            "/v1/jobs/0/logs",
            "/v1/log",
            "/v1/events",
            "/metrics",
            "/openapi.json",
            "/v1/doctor",
        ):
            assert client.get(path).status_code == 401
        assert client.get("/healthz").json() == {"ok": True}
    assert "evil" not in shared_scheduler.ask("GET", "/v1/jobs").text
    said = "".join(
        p.read_text(errors="replace") for p in shared_scheduler.state.rglob("*.log*") if p.is_file()
    )
    assert shared_scheduler.token not in said + shared_scheduler.said()


def test_c67_names_of_all_kinds_come_back_as_they_were(shared_scheduler: Any) -> None:
    jobs = [{"name": name, "command": ["true"], "gpus": 0, "cpus": 1} for name in NAMES]
    numbers = [answer.get("id", answer) for answer in shared_scheduler.submit_all(jobs)]
    assert all(isinstance(n, int) for n in numbers), numbers
    assert [shared_scheduler.job(n)["name"] for n in numbers] == NAMES
    for number, name in zip(numbers, NAMES, strict=True):
        found = shared_scheduler.ask("GET", str(httpx.URL("/v1/jobs", params={"name": name}))).json()["jobs"][
            0
        ]
        assert found["id"] == number
    # Characters that colour, hide or turn other text around are kept too; whoever shows them escapes them.
    kept = shared_scheduler.submit_all([{"name": name, "command": ["true"]} for name in HIDING])
    assert [shared_scheduler.job(answer["id"])["name"] for answer in kept] == HIDING
    said = shared_scheduler.said()
    assert not any(sign in said for sign in ("\u202e", "\x1b"))
    (refused,) = shared_scheduler.submit_all([{"name": "\0", "command": ["true"]}])
    assert refused["error"] == "InputError"
    metrics = shared_scheduler.ask("GET", "/metrics").text
    assert "cotenant_jobs" in metrics
    assert not any(name in metrics for name in NAMES)


def test_output_is_followed_while_it_is_written_and_ends_with_the_job(shared_scheduler: Any) -> None:
    script = "import time\nfor i in range(8): print('é', i, flush=True); time.sleep(0.1)"
    number = submit(shared_scheduler, "talks", script)
    shared_scheduler.await_status(number, "running", "done")
    headers = {"authorization": f"Bearer {shared_scheduler.token}"}
    parts = []
    with httpx.stream(
        "GET",
        f"{shared_scheduler.url}/v1/jobs/{number}/logs?follow=1",
        headers=headers,
        timeout=300,
        trust_env=False,
    ) as answer:
        for part in answer.iter_raw():
            part.decode()
            parts.append(part)
    assert b"".join(parts).decode() == "".join(f"é {i}\n" for i in range(8))
    assert shared_scheduler.await_status(number, "done")["exit_code"] == 0


def test_changes_are_told_while_they_happen_and_again_to_who_comes_back(shared_scheduler: Any) -> None:
    headers = {"authorization": f"Bearer {shared_scheduler.token}"}
    # What is to be seen ends with the first end: those of earlier tests' jobs must be over.
    shared_scheduler.until(
        lambda: not shared_scheduler.ask("GET", "/v1/jobs?live=1").json()["jobs"], "earlier jobs do not end"
    )
    before = shared_scheduler.ask("GET", "/v1/status").json()["events"]
    seen: list[tuple[int, str, dict[str, Any]]] = []
    number = -1

    def listen(after: int, until: str) -> None:
        url = f"{shared_scheduler.url}/v1/events"
        headers_now = {**headers, "last-event-id": str(after)}
        with httpx.stream("GET", url, headers=headers_now, timeout=300, trust_env=False) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    told = json.loads(line.removeprefix("data: "))
                    if "n" in told:
                        seen.append((told["n"], told["kind"], told["facts"]))
                    if told.get("kind") == until:
                        return

    thread = threading.Thread(target=listen, args=(before, "ended"))
    thread.start()
    time.sleep(0.3)
    number = submit(shared_scheduler, "told", "print('hello')")
    shared_scheduler.await_status(number, "done")
    thread.join(300)
    kinds = [kind for _, kind, facts in seen if facts.get("id") == number and kind != "progress"]
    assert kinds[0] == "submitted"
    assert kinds[-1] == "ended"
    assert [n for n, kind, _ in seen if kind != "progress"] == sorted(
        n for n, kind, _ in seen if kind != "progress"
    )
    assert all(facts["tenant"] == "" for _, _, facts in seen if facts.get("id") == number)
    live = [one for one in seen if one[1] != "progress"]
    seen.clear()
    listen(before, "ended")
    assert [one for one in seen if one[1] != "progress"][: len(live)] == live


@pytest.mark.slow
def test_whatever_is_sent_to_a_real_scheduler_is_answered_as_described(shared_scheduler: Any) -> None:
    done = submit(shared_scheduler, "first", "print('one')")
    shared_scheduler.await_status(done, "done")
    config = schemathesis.Config.from_dict(
        {
            "checks": {
                "positive_data_acceptance": {
                    "expected-statuses": ["2xx", "401", "403", "404", "409", "422", "429"]
                }
            }
        }
    )
    headers = {"authorization": f"Bearer {shared_scheduler.token}"}
    schema = schemathesis.openapi.from_url(
        f"{shared_scheduler.url}/openapi.json", headers=headers, config=config
    )
    found: dict[str, str] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.definition.raw["operationId"] not in ("events", "drain"):
            _try(operation, headers, found)
    assert found == {}
    assert shared_scheduler.ask("GET", "/healthz").json() == {"ok": True}
    # What was sent left it working.
    assert shared_scheduler.await_status(
        submit(shared_scheduler, "last", "print('two')"), "done", "waiting", "running"
    )


def _try(operation: Any, headers: dict[str, str], found: dict[str, str]) -> None:
    raw = operation.definition.raw
    carries = bool(raw["parameters"] or "requestBody" in raw)

    def one(case: Any) -> None:
        if case.query and "follow" in case.query:
            case.query.pop("follow")
        try:
            # Wrong tokens are few a minute here: those are tried elsewhere.
            case.call_and_validate(headers=headers, timeout=120, excluded_checks=_ignored())
        except FailureGroup as group:
            told = "\n".join(f"{type(e).__name__}: {e}" for e in group.exceptions)
            found.setdefault(raw["operationId"], f"{told[:1500]}\n{case.as_curl_command()[:800]}")

    for mode in list(schemathesis.GenerationMode) if carries else [schemathesis.GenerationMode.POSITIVE]:
        settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(operation.as_strategy(generation_mode=mode))(one))()


def _ignored() -> list[Any]:
    return [schemathesis.checks.CHECKS.get_one("ignored_auth")]
