"""The live page in a browser: what it shows, to whom, and what can be done with keys alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_busy_machine_at_all_widths(
    signed_in: Any, busy: Any, served: Any, shots: Path, dark: bool
) -> None:
    page = signed_in(dark=dark)
    for width in (1400, 768, 390):
        page.look(width, dark=dark)
        page.run("window.dispatchEvent(new Event('resize'))")
        page.shot(shots / f"busy-{'dark' if dark else 'light'}-{width}.png")
        # Nothing sticks out sideways; wide tables scroll inside their own frame.
        assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelectorAll('#devices-list article').length") == 4
    assert page.run("document.querySelectorAll('#queue-rows tr').length") == 18
    assert page.run("document.querySelectorAll('#actions-rows tr').length") == 4
    assert page.run("document.querySelectorAll('#speeds-plot .in').length") == 5
    assert page.run("document.querySelectorAll('#speeds-plot .out').length") == 1
    assert page.run("document.querySelectorAll('#timeline-plot .piece').length") >= 13
    assert page.complaints() == []
    assert {url.split("/")[2] for url in page.asked_of() if "://" in url} == {served.url.split("/")[2]}
