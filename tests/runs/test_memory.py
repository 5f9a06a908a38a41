"""Memory given back to the system before a run."""

from __future__ import annotations

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
