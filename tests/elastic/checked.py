"""A script of a user, in a process forked from the test: as Python runs it, or watched as ``elastic check --run`` does."""

from __future__ import annotations

import os
import runpy
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from cotenant.elastic import process
from cotenant.elastic.checks import watched


def _hold(path: str) -> None:
    """The fourth step does not end before this file is there."""
    advance = process.Process.advance

    def held(self: Any) -> None:
        deadline = time.monotonic() + 200.0
        while self.place.step == 3 and not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        advance(self)

    process.Process.advance = held


def main(options: dict[str, Any]) -> None:
    file = os.open(options["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    warnings.resetwarnings()
    warnings.simplefilter("default")
    os.chdir(Path(options["output"]).parent)
    if "words" in options:
        watched.main(options["words"])
    else:
        sys.argv = list(options["argv"])
        if "hold" in options:
            _hold(options["hold"])
        runpy.run_path(sys.argv[0], run_name="__main__")
