"""Memory given back to the system before a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import numpy as np
from cotenant.runs.memory import tidy_memory

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

told = tidy_memory()
large = np.ones(1 << 24, dtype=np.uint8)
del large  # from now on the library would by itself take pieces of up to 16 MiB from its heap
held = [np.ones(1 << 21, dtype=np.uint8) for _ in range(40)]  # 80 MiB in pieces of 2
full = resident()
del held[:-1]
print(int(told), full - resident())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_large_arrays_are_given_back_as_soon_as_they_are_freed() -> None:
    # The last piece is still held, and would keep all before it in a heap that only shrinks from its end.
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    told, freed_mib = map(int, done.stdout.split())
    assert not told or freed_mib >= 70


_FRAMES = """
import sys
import cotenant.runs.memory
assert "polars" not in sys.modules  # else its allocator is set up already
cotenant.runs.memory.frugal_frames()
import polars as pl

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

before = resident()
frame = pl.select(a=pl.int_range(0, 1 << 23))  # 64 MiB
frame = frame.with_columns(b=-pl.col("a")).sort("b")
del frame
print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_frames_leave_little_behind() -> None:
    # By itself the library keeps several hundred MiB here.
    environment = {k: v for k, v in os.environ.items() if k != "_RJEM_MALLOC_CONF"}
    command = [sys.executable, "-c", _FRAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) <= 32
