"""Core sets as devices: names, shares of the set's time, trees of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.cpu import CpuSampler, core_set_name, parse_core_set, tree_use


@given(st.sets(st.integers(0, 40), min_size=1))
def test_a_name_and_its_set_are_the_same(cores: set[int]) -> None:
    assert parse_core_set(core_set_name(sorted(cores))) == tuple(sorted(cores))


@pytest.mark.parametrize("name", ["cpu", "cpu:", "cpu:a", "cpu:1-", "cpu:1,,2", "gpu:0", "cpu:3-1"])
def test_what_is_no_core_set(name: str) -> None:
    with pytest.raises(ConfigError, match="cpu:"):
        parse_core_set(name)


def test_a_core_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="core 4095 is not there"):
        CpuSampler([4095])


def test_a_busy_tree_is_seen_and_an_unmeasured_meter_is_missing() -> None:
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    # The busy process is a child of the one that is asked about.
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    process = subprocess.Popen([sys.executable, "-c", outer], start_new_session=True)
    try:
        sampler = CpuSampler([core])
        first = sampler.read([process.pid])
        assert first.devices[0].busy_pct is None
        deadline = time.monotonic() + 300
        busy = None
        while (busy is None or busy < 5) and time.monotonic() < deadline:
            time.sleep(0.3)
            second = sampler.read([process.pid])
            busy = second.processes[0].busy_pct
        assert busy is not None
        assert busy >= 5
        device = second.devices[0]
        assert device.device == f"cpu:{core}"
        assert device.busy_pct is not None
        assert 0 < device.busy_pct <= 100
        assert device.memory_total_mib is not None
        assert device.memory_total_mib > 0
        assert device.dram_active_pct is None
        assert device.sm_active_pct is None
        assert (second.processes[0].memory_used_mib or 0) > 5
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    assert sampler.read([process.pid]).processes == ()
    assert tree_use(process.pid) is None
