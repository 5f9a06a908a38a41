"""Further names by which a scheduler is asked, and metrics without a token: by real requests, however it was started."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.live.statedir import read_daemon

Scheduler = Any  # of conftest.py
Make = Callable[..., Any]

OPENED = ("--allow-host", "gpu.example:8443", "--allow-host", "[fd00::7]", "--open-metrics")


def statuses(scheduler: Scheduler) -> dict[str, int]:
    """How requests without and with a token are answered, under several names and from several pages."""
    token = {"authorization": f"Bearer {scheduler.token}"}
    asked = {
        "metrics": ("/metrics", {}),
        "status": ("/v1/status", {}),
        "by name": ("/v1/status", {**token, "host": "GPU.example"}),
        "by address": ("/v1/status", {**token, "host": "[fd00::7]:80"}),
        "own page": (
            "/v1/status",
            {**token, "host": "gpu.example:8443", "origin": "https://gpu.example:8443"},
        ),
        "its other port": ("/v1/status", {**token, "origin": "https://gpu.example:8444"}),
        "other name": ("/metrics", {**token, "host": "evil.example"}),
        "other page": ("/metrics", {**token, "host": "gpu.example", "origin": "https://evil.example"}),
    }
    return {
        what: httpx.get(scheduler.url + path, headers=headers, trust_env=False).status_code
        for what, (path, headers) in asked.items()
    }


EXPECTED = {
    "metrics": 200,
    "status": 401,
    "by name": 200,
    "by address": 200,
    "own page": 200,
    "its other port": 403,
    "other name": 403,
    "other page": 403,
}


def test_without_further_options_no_other_name_leads_in_and_metrics_need_a_token(calm: Scheduler) -> None:
    closed = {"metrics": 401, "by name": 403, "by address": 403, "own page": 403}
    assert statuses(calm) == EXPECTED | closed


def test_further_names_and_open_metrics_hold_for_a_detached_one(make_scheduler: Make) -> None:
    scheduler = make_scheduler("--policy", "fifo", "--forecast", "none", *OPENED)
    done = subprocess.run(
        scheduler.command("--detach", "--json"), capture_output=True, text=True, timeout=180, check=True
    )
    told = json.loads(done.stdout)
    try:
        scheduler.url = told["url"]
        assert statuses(scheduler) == EXPECTED
    finally:
        os.kill(told["pid"], signal.SIGTERM)
        scheduler.until(lambda: read_daemon(scheduler.state) is None, "it does not end")


def test_an_installed_unit_starts_one_with_further_names_and_open_metrics(
    make_scheduler: Make, tmp_path: Path
) -> None:
    scheduler = make_scheduler("--policy", "fifo", "--forecast", "none", *OPENED)
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    subprocess.run(
        scheduler.command("--install"), capture_output=True, text=True, timeout=180, check=True, env=env
    )
    unit = (tmp_path / "systemd" / "user" / "cotenant.service").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    scheduler.command = lambda *more: [*words, *more]
    assert statuses(scheduler.start()) == EXPECTED


@pytest.mark.parametrize(
    "name",
    ["", "*", "*.example", "https://gpu.example", "gpu.example/x", "a b", "fd00::7", "a:65536", "-x", "a\n"],
)
@pytest.mark.parametrize("how", ["--detach", "--install"])
def test_what_is_no_name_is_refused_before_anything_is_written(tmp_path: Path, name: str, how: str) -> None:
    words = ("up", how, "--state", str(tmp_path / "s"), f"--allow-host={name}")
    done = CliRunner().invoke(app, words, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.exit_code == 1
    assert f"--allow-host {name!r}: write NAME or NAME:PORT" in done.stderr
    assert list(tmp_path.iterdir()) == []
