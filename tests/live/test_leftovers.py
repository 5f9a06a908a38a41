"""What is left of schedulers and shepherds that were killed: swept, and nothing of anybody who lives."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cotenant.executors.local.layout import start_ticks
from cotenant.live.doctor import left_behind
from cotenant.live.leftovers import Leftovers, Swept

HERE, GONE = os.getpid(), 99_999_999
"""A process that is there, and a number above any that the kernel gives."""


def lay(root: Path, name: str, *, old: bool = True, text: str = "x" * 10) -> Path:
    """A file, or a pipe, of two minutes ago or of now."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name in ("control", "steps"):
        os.mkfifo(path)
    else:
        path.write_text(text)
    if old:
        past = path.stat().st_mtime - 120.0
        os.utime(path, (past, past))
    return path


def test_what_is_left_is_swept_and_nothing_of_a_living_job_or_process(tmp_path: Path) -> None:
    claim = json.dumps({"pid": HERE, "start_ticks": start_ticks(HERE)})
    swept = [
        lay(tmp_path, name)
        for name in (
            f".token.{GONE}.new", f"epoch.{GONE}.new", f"learned/.fit.json.{GONE}.tmp",
            f"jobs/1/serial-1/spec.json.{GONE}.new", f"jobs/1/serial-1/claim.{GONE}",
            f"jobs/1/serial-1/room.{GONE}", f"jobs/1/serial-1/room.{GONE}.started",
            "jobs/1/serial-1/control", "jobs/1/serial-1/steps", "jobs/1/serial-1/exit.room",
            "jobs/1/serial-1/status.new", f"jobs/1/state/tmp-{GONE}-5",
        )
    ]  # fmt: skip
    swept.append(lay(tmp_path, "jobs/1/state-kept/part.pt").parent)
    stays = [
        lay(tmp_path, name)
        for name in (
            "token", "tenants.toml", "cotenant.db", f".token.{HERE}.new", f"jobs/1/serial-1/claim.{HERE}",
            "jobs/1/serial-1/exit.json", "jobs/1/serial-1/stdout.log.3", "jobs/1/state/model.pt",
            f"jobs/1/state/tmp-{HERE}-5", f"jobs/1/work/notes.{GONE}.tmp", "jobs/x/serial-1/exit.room",
            # Job 2 lives; of job 3 a shepherd has not left; of job 4 nobody has heard the end yet.
            f"jobs/2/serial-1/spec.json.{GONE}.new", "jobs/2/serial-1/control", f"jobs/2/state/tmp-{GONE}-5",
            "jobs/2/state-kept/part.pt", "jobs/3/serial-1/control", "jobs/4/serial-7/control", "live/4.7.1",
        )
    ]  # fmt: skip
    stays.append(lay(tmp_path, "jobs/3/serial-1/claim", text=claim))
    stays.append(lay(tmp_path, f"daemon.json.{GONE}.new", old=False))
    outside = lay(tmp_path, f"elsewhere/.token.{GONE}.new")
    (tmp_path / f".link.{GONE}.new").symlink_to(outside)
    found = Leftovers(tmp_path, lambda job: job != 2)
    assert sorted(found.find()) == sorted(swept)
    size = 10 * (len(swept) - 2)  # a pipe has none
    (finding,) = left_behind(found)
    assert (finding.level, finding.text.split(" are")[0]) == (
        "warning",
        "13 files of schedulers that were killed",
    )
    assert found.sweep() == Swept(13, size)
    assert [path for path in swept if path.exists()] == []
    assert [path for path in stays if not path.exists()] == []
    assert outside.exists()
    (finding,) = left_behind(found)
    assert (finding.level, "13 files (110 B) swept at the start" in finding.text) == ("ok", True), finding
