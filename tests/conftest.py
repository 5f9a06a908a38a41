"""Fixtures for all rooms."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent


# What tests start reads compiled modules, even where the shell says that none be written: hundreds of processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# As in the processes of a run; PyTorch reads it once, when it is imported.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


# A busy machine may take its time over an example; by default 200 ms are an error.
settings.register_profile(
    "suite", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests marked slow come first: at the end no worker is left alone with one of them."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was imported and collected is alive to the end: the collector of garbage need not walk through it.

    Experiments collect after every run; beside the heap of the whole suite that took three quarters of their time.
    The rarer rhythm is one that a run leaves as it is: to ask how much is frozen, for each run, would take long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The measured tables and published traces, from ``COTENANT_DATA`` (default ``../shared/data``).

    Without them a developer's run skips what needs them; under ``CI=true`` their absence is
    a failure, so that nothing is skipped unseen.
    """
    folder = Path(os.environ.get("COTENANT_DATA", "../shared/data"))
    if not folder.is_absolute():
        folder = (ROOT / folder).resolve()
    if folder.is_dir():
        return folder
    reason = f"no data folder at {folder}; set COTENANT_DATA to run this test"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def in_browser(tmp_path: Path) -> Callable[..., str]:
    """A page's document after Chromium has drawn it, offline, at some width; skips where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here; install it to see pages drawn")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-dev-shm-usage"]  # a container gives it 64 MB
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += ["--virtual-time-budget=10000", "--dump-dom", f"--user-data-dir={tmp_path / 'profile'}"]

    def drawn(page: Path, width: int = 1400) -> str:
        asked = [browser, *flags, f"--window-size={width},3000", page.as_uri()]
        return subprocess.run(asked, capture_output=True, text=True, timeout=600, check=True).stdout

    return drawn
