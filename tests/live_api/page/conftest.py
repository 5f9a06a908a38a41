"""A headless Chromium that tests can press keys in, and what the page is to show in it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.live.views import Resident

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from bench.browser import Browser, program  # noqa: E402


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    found_at = program()
    if found_at is None:
        pytest.skip("no Chromium here; install it to see pages drawn")
    found = Browser(found_at, tmp_path / "profile")
    yield found
    found.close()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures go: ``COTENANT_SHOTS`` keeps them."""
    return Path(os.environ.get("COTENANT_SHOTS", tmp_path / "shots"))


@pytest.fixture
def signed_in(browser: Browser, served: Any, make: Any) -> Browser:
    """The page, opened by somebody who may do everything."""

    def begin(**look: Any) -> Browser:
        browser.look(**{"width": 1400, **look})
        browser.sign_in(served.url, make.admin_token)
        return browser

    return begin  # type: ignore[return-value]


@pytest.fixture
def busy(service: Any, make: Any) -> Any:
    """Four devices, thirty jobs, an hour of history."""
    return fill(service, make)


def fill(service: Any, make: Any, waiting: int = 18) -> Any:
    now, names = (
        make.noon,
        ["resnet50-imagenet", "bert-squad", "训练-01", "dlrm", "vit-b16 sweep", "gpt2-small"],
    )
    running: list[list[Resident]] = [[], [], [], []]
    number = 0
    for device in range(4):
        for place in range(1 if device == 3 else 2):
            name = names[number % len(names)]
            predicted = (0.82 + 0.03 * number, 0.74 + 0.03 * number, 0.9 + 0.03 * number)
            measured = (
                None
                if number in (5, 6)
                else predicted[0] + (0.02, -0.05, 0.12, 0.01, 0.03, 0.0, -0.02)[number]
            )
            alone = device == 3
            running[device].append(
                Resident(
                    id=number,
                    name=name,
                    compute_milli=1000 if alone else 400,
                    compute_limit_milli=1000 if alone else 800,
                    memory_bytes=(20 + 6 * place) << 30,
                    mode="exclusive" if alone else "shared",
                    predicted_speed=(1.0, 1.0, 1.0) if alone else predicted,
                    measured_speed=measured,
                )
            )
            service.views[number] = make.view(
                number,
                name=name,
                status="running",
                reason="",
                devices=(f"gpu{device}",),
                started=now - 2600 + 240 * number,
                submitted=now - 3000,
                steps=1200 * (number + 1),
                total_steps=12_000,
                step_s=0.21,
                ends_at=(now + 1800, now + 1500, now + 2400),
                predicted_s=(5000.0, 4200.0, 6100.0),
                predicted_speed=predicted,
                measured_speed=measured,
                memory_bytes=20 << 30,
                memory_used_bytes=17 << 30,
                compute_milli=400,
                compute_limit_milli=800,
            )
            number += 1
    for _ in range(waiting):
        status = "suspended" if number == 9 else "held" if number == 10 else "waiting"
        reason = {
            "waiting": "not now: no device has 40 % of its compute and 24 GiB free",
            "suspended": "its state is saved; not now: job 3 is ahead of it",
            "held": "suspended by its owner; resume lets it go on",
        }[status]
        service.views[number] = make.view(
            number,
            name=f"{names[number % 6]}-{number}",
            status=status,
            reason=reason,
            submitted=now - 60 * number,
            compute_milli=400,
            memory_bytes=24 << 30,
            priority=5 if number == 12 else 0,
        )
        number += 1
    for status, reason in (
        ("done", "done after 31m"),
        ("failed", "failed with exit code 3 after 2m"),
        ("done", "done"),
        ("cancelled", "cancelled"),
        ("done", "done"),
    ):
        service.views[number] = make.view(
            number,
            name=f"early-{number}",
            status=status,
            reason=reason,
            started=now - 3500,
            ended=now - 2700,
            exit_code=3 if status == "failed" else 0,
        )
        number += 1
    service.device_views = [
        make.device(d, *running[d], busy=(0.93, 0.71, 0.4, 1.0)[d], name=f"gpu{d}") for d in range(4)
    ]
    service.device_views[1] = make.device(
        1,
        *running[1],
        busy=0.71,
        name="gpu1",
        foreign_bytes=9 << 30,
        foreign_pids=(77,),
        memory_used_bytes=55 << 30,
    )
    _history(service, make)
    return service


def _history(service: Any, make: Any) -> None:
    start = make.noon - 3600

    def note(kind: str, t: float, **facts: Any) -> None:
        service.lines.append(json.dumps({"e": kind, "t": t, **facts}).encode())

    for number, view in service.views.items():
        submit_s = view.submitted - start
        note(
            "submitted",
            submit_s,
            job={"id": number, "name": view.name, "model": view.model, "submit_s": submit_s, "gpus": 1},
        )
    early = [n for n, v in service.views.items() if v.name.startswith("early")]
    for place, number in enumerate(early):
        note(
            "started", 100.0 + place, id=number, attempt=1, devices=[place % 4], share={"compute_milli": 500}
        )
        note("ended", 900.0, id=number, attempt=1, outcome=service.views[number].status, work_s=1.0)
    for number, view in service.views.items():
        if view.status == "running":
            note("started", view.started - start, id=number, attempt=1, devices=[int(view.devices[0][-1])])
    note("started", 950.0, id=9, attempt=1, devices=[3])
    why = {"rule": "shorter-first", "facts": {"gain_s": 412.0, "cost_s": 38.5}}
    note("stopping", 1500.0, id=9, attempt=1, beneficiary=3, why=why)
    note("suspended", 1520.0, id=9, attempt=1, work_s=3.0)
    why = {"rule": "better-neighbours", "facts": {"speed_before": 0.62, "speed_after": 0.91}}
    note("resized", 2000.0, id=2, attempt=1, devices=[1], share={"compute_milli": 600}, why=why)
    note("moved", 2400.0, id=4, attempt=1, devices=[0], why=why)
    note("released", 2420.0, id=4, devices=[2])
    note("moved", 2900.0, id=4, attempt=1, devices=[2], why=why)
    note("released", 2910.0, id=4, devices=[0])
