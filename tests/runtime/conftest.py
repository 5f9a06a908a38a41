"""A place for the status file, and nothing of the caller's environment."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.runtime import StatusFile


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "STATUS", "RESUME", "MEMORY_FRACTION"):
        monkeypatch.delenv(f"COTENANT_{name}", raising=False)
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture(autouse=True)
def _loaders_end() -> Iterator[None]:
    """Processes of loaders end with the test: left to a later collection, PyTorch waits five seconds for each."""
    yield
    if multiprocessing.active_children():
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Kept

        for found in gc.get_objects():
            if type(found) is Kept:
                found._shutdown_workers()


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusFile]:
    """The shepherd's end of the status file that a job will find."""
    monkeypatch.setenv("COTENANT_STATUS", str(tmp_path / "status"))
    file = StatusFile(tmp_path / "status")
    yield file
    file.close()


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory where there is one: what is tested often need not wait for a disk."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cotenant-test-", dir=shared) as folder:
        yield Path(folder)
