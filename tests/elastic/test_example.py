"""The bundled example gives the same digest on one process and on several."""

from __future__ import annotations

import re
import subprocess
import sys

_EXAMPLE = [sys.executable, "-m", "cotenant.elastic.example", "--steps"]
_LINE = re.compile(r"^(\d+) steps, parameters ([0-9a-f]{64})$", re.MULTILINE)


def _run(*words: str) -> list[tuple[str, str]]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return _LINE.findall(done.stdout)


def test_one_and_two_processes_end_with_the_same_parameters() -> None:
    alone = _run(*_EXAMPLE, "12")
    cotenant = "from cotenant.app.main import main; main()"
    together = _run(
        sys.executable, "-c", cotenant, "run", "--elastic", "2:2", "--threads", "1", "--", *_EXAMPLE, "12"
    )
    assert len(alone) == 1 and alone == together
    # Another number of steps is another model: the digest says something.
    assert _run(*_EXAMPLE, "11")[0][1] != alone[0][1]
