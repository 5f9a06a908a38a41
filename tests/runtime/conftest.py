"""A place for the status file, and nothing of the caller's environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.runtime import StatusFile


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "STATUS", "RESUME", "MEMORY_FRACTION"):
        monkeypatch.delenv(f"COTENANT_{name}", raising=False)
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusFile]:
    """The shepherd's end of the status file that a job will find."""
    monkeypatch.setenv("COTENANT_STATUS", str(tmp_path / "status"))
    file = StatusFile(tmp_path / "status")
    yield file
    file.close()
