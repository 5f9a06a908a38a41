"""Saved states in the registry: put away when a job is suspended, back before it goes on, whatever dies between."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant.live.keeping import SavedStates, tiers_of
from cotenant.profiles.jobs.included import JobOptions, build_step

Scheduler = Any  # of conftest.py
Make = Callable[..., Any]
STEPS = 400
# The first time its store takes its time, so that there is some to suspend it in, however slow this machine is.
SCRIPT = f"""
import os
from cotenant.profiles.jobs.__main__ import run
wait = [] if os.environ.get("COTENANT_RESUME") else ["--wait-ms", "200"]
raise SystemExit(run(["input", "--batch", "2", "--steps", "{STEPS}", *wait]))
"""
WORDS = (sys.executable, "-c", SCRIPT)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _doctor(scheduler: Scheduler) -> str:
    found = scheduler.ask("GET", "/v1/doctor").json()["findings"]
    return " ".join(f["text"] for f in found if f["about"] == "states")


@pytest.mark.slow
def test_suspended_scheduler_killed_restarted_resumed_same_final_loss(make_scheduler: Make) -> None:
    step = build_step("input", JobOptions(batch=2))
    loss = [step() for _ in range(STEPS)][-1]
    scheduler = make_scheduler("--policy", "fifo", "--forecast", "none").start()
    job = scheduler.submit(*WORDS, name="trains", gpu_memory="2GiB", env={"OMP_NUM_THREADS": "1"})
    folder = scheduler.state / "jobs" / str(job) / "state"
    scheduler.await_status(job, "running")
    scheduler.until(lambda: scheduler.job(job)["steps"] > 5, "no steps are told")
    assert scheduler.command_on(job, "suspend").status_code == 202
    scheduler.await_status(job, "held")
    scheduler.until(lambda: not _files(folder), "the state is not put away")
    scheduler.until(lambda: "1 saved state waits" in _doctor(scheduler), "doctor does not tell of it")
    saved = scheduler.ask("GET", "/v1/status").json()["saved_bytes"]
    assert saved["disk"] > 1000
    scheduler.kill()
    scheduler.start()
    assert "1 saved state waits" in _doctor(scheduler)
    assert scheduler.command_on(job, "resume").status_code == 202
    done = scheduler.await_status(job, "done")
    assert done["exit_code"] == 0
    assert f"final loss {loss!r} ({loss.hex()}) after {STEPS} steps" in scheduler.logs(job)
    assert scheduler.logs(job, "stderr") == ""  # it would say so if it began anew
    assert "0 saved states wait" in _doctor(scheduler)


def test_without_room_the_state_stays_in_its_folder(make_scheduler: Make) -> None:
    scheduler = make_scheduler("--policy", "fifo", "--forecast", "none", "--state-disk", "0").start()
    assert _doctor(scheduler) == ""


# -- the keeper alone ------------------------------------------------------------------------


class _Woken:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def _kept(state: Path, **given: Any) -> SavedStates:
    named: dict[str, Any] = {"memory_bytes": 0, "disk_bytes": None, "wake": _Woken(), **given}
    return SavedStates(state, named.pop("epoch", 1), **named)


def _save(state: Path, job: int, content: bytes) -> Path:
    folder = state / "jobs" / str(job) / "state"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step-7").write_bytes(content)
    return folder


def _fetched(kept: SavedStates, job: int, until: Callable[..., None]) -> str:
    told: dict[int, str] = {}

    def there() -> bool:
        told.update(kept.take())
        return job in told

    kept.fetch(job)
    until(there, "the state does not come back")
    return told[job]


@pytest.fixture
def until() -> Callable[..., None]:
    from tests.live.conftest import until as found

    return found


def test_put_away_and_back(tmp_path: Path, until: Callable[..., None]) -> None:
    folder = _save(tmp_path, 3, b"weights")
    kept = _kept(tmp_path)
    kept.put(3, 7)
    assert kept.away(3)
    until(lambda: not _files(folder), "not put away")
    kept.close()
    # Another life of the scheduler knows it from the registry alone.
    kept = _kept(tmp_path, epoch=2)
    assert kept.away(3)
    assert _fetched(kept, 3, until) == ""
    assert (folder / "step-7").read_bytes() == b"weights"
    assert not kept.away(3)
    kept.close()


def test_published_and_not_emptied_is_put_back_whole(tmp_path: Path, until: Callable[..., None]) -> None:
    """The scheduler died between publishing and emptying, or while it put the state back."""
    folder = _save(tmp_path, 3, b"weights")
    kept = _kept(tmp_path)
    kept.put(3, 7)
    until(lambda: not _files(folder), "not put away")
    kept.close()
    _save(tmp_path, 3, b"wei")
    kept = _kept(tmp_path)
    assert _fetched(kept, 3, until) == ""
    assert (folder / "step-7").read_bytes() == b"weights"
    kept.close()


def test_an_end_that_is_told_again_after_a_restart_changes_nothing(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    folder = _save(tmp_path, 3, b"weights")
    kept = _kept(tmp_path)
    kept.put(3, 7)
    until(lambda: not _files(folder), "not put away")
    kept.put(3, 7)
    assert _fetched(kept, 3, until) == ""
    assert (folder / "step-7").read_bytes() == b"weights"
    kept.close()


def test_what_finds_no_room_or_was_never_saved_stays(tmp_path: Path, until: Callable[..., None]) -> None:
    folder = _save(tmp_path, 3, b"x" * 5000)
    kept = _kept(tmp_path, disk_bytes=1000)
    kept.put(3, 7)
    kept.put(4, 7)
    until(lambda: not kept.away(3) and not kept.away(4), "still thought to be away")
    assert _files(folder) == ["step-7"]
    assert _fetched(kept, 3, until) == ""
    kept.close()


def test_a_damaged_state_is_told_and_starts_nothing(tmp_path: Path, until: Callable[..., None]) -> None:
    folder = _save(tmp_path, 3, b"weights")
    kept = _kept(tmp_path)
    kept.put(3, 7)
    until(lambda: not _files(folder), "not put away")
    for block in (tmp_path / "saved" / "disk" / "blocks").rglob("*"):
        if block.is_file():
            block.chmod(0o600)
            block.write_bytes(b"rotten!")
    assert "could not be brought back" in _fetched(kept, 3, until)
    kept.close()


def test_memory_first_where_the_system_has_a_place_for_it(tmp_path: Path) -> None:
    assert [tier.name for tier in tiers_of(tmp_path, 0, None)] == ["disk"]
    if not os.access("/dev/shm", os.W_OK):
        assert [tier.name for tier in tiers_of(tmp_path, 1 << 20, None)] == ["disk"]
        return
    memory, disk = tiers_of(tmp_path, 1 << 20, 1 << 30)
    assert not memory.durable and memory.limit_bytes == 1 << 20
    assert memory.path.stat().st_mode & 0o077 == 0
    memory.path.rmdir()
    assert disk.durable and disk.limit_bytes == 1 << 30
