"""The API against its own description: whatever is sent, no fault of ours, and answers as described."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.failures import FailureGroup

pytestmark = pytest.mark.slow
# Streams that never end are asked for in tests of their own.
ENDLESS = {"events"}
EXAMPLES = int(os.environ.get("COTENANT_FUZZ_EXAMPLES", "30"))


@pytest.fixture
def schema(start: Any, make: Any) -> Iterator[Any]:
    served = start(requests_per_s=1e6, burst=1e6, failures_per_minute=1e9)
    config = schemathesis.Config.from_dict(
        {
            "checks": {
                # What is well formed may still ask for the impossible.
                "positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "409", "422"]},
            }
        }
    )
    yield schemathesis.openapi.from_url(
        f"{served.url}/openapi.json", headers=make.bearer(make.admin_token), config=config
    )


def test_whatever_is_sent_is_answered_as_described(schema: Any, service: Any, make: Any) -> None:
    service.views[0] = make.view(0)
    found: dict[str, list[str]] = {}
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        name = operation.definition.raw["operationId"]
        if name in ENDLESS:
            continue
        tried += _try(operation, make, found, name)
    assert tried >= 15 * EXAMPLES / 2
    # The first of each kind is enough to read.
    assert {name: told[0] for name, told in found.items()} == {}


def test_a_fault_would_be_found(schema: Any, service: Any, make: Any) -> None:
    service.job = lambda caller, number: 1 / 0
    found: dict[str, list[str]] = {}
    _try(schema["/v1/jobs/{id}"]["GET"], make, found, "job")
    assert "ServerError" in found["job"][0]


def _try(operation: Any, make: Any, found: dict[str, list[str]], name: str) -> int:
    count = 0

    def one(case: Any) -> None:
        nonlocal count
        count += 1
        if case.query and "follow" in case.query:
            # Without it, what was wrong may be right.
            if mode is schemathesis.GenerationMode.NEGATIVE:
                return
            case.query.pop("follow")
        try:
            case.call_and_validate(headers=make.bearer(make.admin_token), timeout=120)
        except FailureGroup as group:
            told = "\n".join(f"{type(e).__name__}: {e}" for e in group.exceptions)
            found.setdefault(name, []).append(f"{told[:1500]}\n{case.as_curl_command()[:1000]}")

    raw = operation.definition.raw
    carries = bool(raw["parameters"] or "requestBody" in raw)
    # Where nothing can be sent, nothing wrong can be.
    for mode in list(schemathesis.GenerationMode) if carries else [schemathesis.GenerationMode.POSITIVE]:
        strategy = operation.as_strategy(generation_mode=mode)
        settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(one))()
    return count
