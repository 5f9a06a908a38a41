"""The whole way: a host starts a training, suspends it, its state goes to the registry and back, and it goes on."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from cotenant.executors.local.devices import DeviceInfo
from cotenant.executors.local.host import LocalHost
from cotenant.executors.local.launching import Limits
from cotenant.model.liveports import AttemptEnded, Launch
from cotenant.model.liveports import Progress as Told
from cotenant.pools.blocks import Tier
from cotenant.pools.registry import StateRegistry
from cotenant.pools.states import absorb, restore
from cotenant.profiles.jobs.included import JobOptions, build_step
from cotenant.shares.backends.plain import DutyCycleBackend


def _until(host: LocalHost, kind: type[Any], wanted: Any = lambda report: True) -> Any:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        for report in host.poll(0.1):
            if isinstance(report, kind) and wanted(report):
                return report
    raise AssertionError(f"no {kind.__name__} was told")


def test_suspended_by_a_host_kept_in_the_registry_and_resumed(memory_path: Path) -> None:
    step = build_step("input", JobOptions(batch=2))
    whole = [step() for _ in range(400)][-1]
    core = sorted(os.sched_getaffinity(0))[0]
    device = DeviceInfo(
        device=0, name=f"cpu:{core}", uuid=f"cpu:{core}", kind="cpu", memory_bytes=1 << 30, cores=(core,)
    )
    host = LocalHost(
        memory_path,
        [device],
        epoch=1,
        limits=Limits(suspend_s=120.0, term_s=60.0),
        cores=[DutyCycleBackend()],
        gpus=[],
        sample_s=0.05,
        watch_s=1e6,
    )
    words = (sys.executable, "-m", "cotenant.profiles.jobs", "input", "--batch", "2", "--steps", "400")
    # The first time its store takes its time, so that there is some to suspend it in.
    slow = (*words, "--wait-ms", "200")
    launch = {"id": 0, "attempt": 1, "epoch": 1, "devices": (0,)}
    tiers = [
        Tier(name="memory", path=memory_path / "memory", durable=False),
        Tier(name="disk", path=memory_path / "disk"),
    ]
    state = memory_path / "jobs" / "0" / "state"
    try:
        host.launch(Launch(serial=0, command=slow, **launch))  # type: ignore[arg-type]
        _until(host, Told, lambda told: told.steps > 5)
        host.stop(0, 1, 0, "suspend")
        left = _until(host, AttemptEnded)
        assert (left.outcome, left.code) == ("suspended", 85)
        assert 5 < left.steps < 400
        with StateRegistry(memory_path / "books", tiers) as registry:
            absorb(state, registry, 0, left.steps, epoch=1)
            assert list(state.iterdir()) == []
            assert restore(registry, 0, state) == left.steps
        host.launch(Launch(serial=1, command=words, resume=True, **launch))  # type: ignore[arg-type]
        done = _until(host, AttemptEnded)
        assert (done.outcome, done.code) == ("done", 0)
    finally:
        host.stop(0, 1, 1, "kill")
        host.close()
    said = (memory_path / "jobs" / "0" / "serial-1" / "stdout.log").read_text()
    assert said == f"final loss {whole!r} ({whole.hex()}) after 400 steps\n"
