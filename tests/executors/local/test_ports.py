"""The port at which the processes of a gang meet, and what follows if another process has it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.executors.local.hostlab import Lab, cores, job

from cotenant.executors.local.ports import free_port, usual_range

needs_two = pytest.mark.skipif(len(cores()) < 2, reason="a gang needs two cores")

SERVES = """
import os, pathlib, socket, time
while os.environ["RANK"] == "0" and not pathlib.Path("go").exists():
    time.sleep(0.02)
servers = []
for _ in range(int(os.environ["SERVERS"]) if os.environ["RANK"] == "0" else 0):
    servers.append(socket.socket())
    servers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    servers[-1].bind(("", int(os.environ["MASTER_PORT"])))
    servers[-1].listen()
if os.environ["RANK"] != "0":
    time.sleep(600)
"""


def test_no_port_is_chosen_that_the_kernel_gives_to_whoever_asks_for_any() -> None:
    low, high = usual_range()
    found = [free_port(f"/state/jobs/{n}/serial-1", (32_768, 60_999)) for n in range(50)]
    assert all(10_000 <= port < 32_768 for port in found)
    assert len(set(found)) > 45, "jobs that start together look at different places"
    assert all(not low <= free_port(str(n)) <= high for n in range(5)) or high - low > 60_000
    assert free_port("7", (1024, 65_535)) >= 10_000, "where the kernel has all, any will do"
    assert all(free_port(str(n), (1024, 50_000)) > 50_000 for n in range(20))


def test_a_port_on_which_somebody_listens_is_left_to_him() -> None:
    port = free_port("one")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert free_port("one") != port
    assert free_port("one") == port


@needs_two
@pytest.mark.parametrize(
    ("taken", "servers", "expected"),
    [(True, 1, "lost"), (False, 2, "failed")],
    ids=["another process has it", "the job takes it twice itself"],
)
def test_a_port_that_another_took_costs_the_job_nothing(
    lab: Lab, taken: bool, servers: int, expected: str, tmp_path: Path
) -> None:
    host = lab.host()
    more: dict[str, Any] = {"cwd": str(tmp_path), "env": {"SERVERS": str(servers)}}
    host.launch(job(SERVES, devices=(0, 1), gpus=2, processes="per-device", **more))
    spec = json.loads(lab.path(0, "serial-0", "spec.json").read_text())
    assert str(spec["port"]) == spec["env"]["MASTER_PORT"]
    with socket.socket() as other:
        if taken:
            other.bind(("127.0.0.1", spec["port"]))
            other.listen()
        (tmp_path / "go").touch()
        ended = lab.ended(host)
    assert ended.outcome == expected, lab.output(stream="stderr")
    assert ("another process took port" in ended.detail) == taken


def test_a_port_of_the_job_s_own_is_the_job_s_own_affair(lab: Lab) -> None:
    host = lab.host()
    words = "raise SystemExit('EADDRINUSE: address already in use')"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        host.launch(job(words, 0, devices=(0,), gpus=2, env={"MASTER_PORT": str(port)}))
        ended = lab.ended(host)
    assert (ended.outcome, ended.code) == ("failed", 1)
