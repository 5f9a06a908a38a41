"""Fixtures for all rooms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
