"""The examination: books against reality, what is enforced, and what is unsafe."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from cotenant.executors.local.layout import alive, attempt_folder, boot_id, read_json
from cotenant.live.clock import BootClock
from cotenant.live.leftovers import Leftovers
from cotenant.live.machine import LiveDevice
from cotenant.live.options import UpOptions
from cotenant.live.picture import Picture
from cotenant.live.statedir import newest_epoch
from cotenant.live.tenants import Tenants
from cotenant.model.cluster import Cluster, Tenant
from cotenant.model.liveports import Found
from cotenant.model.quantities import GIB, format_bytes
from cotenant.pools.stats import Stats
from cotenant.report.phrases import plural

__all__ = ["Finding", "books_against", "examine", "log_problems", "looked_at_again", "unsafe"]

_LEAST_DISK_BYTES = GIB
_JUMP_S = 5.0
_LOOKS_S = (0.1, 0.3, 0.8)
"""What differs between books and reality is told if it still does after so long."""
_FULL = 0.9
_MOST_TOLD = 10
_PRIVATE = (
    "token",
    "tenants.toml",
    "cotenant.db",
    "cotenant.db-wal",
    "cotenant.db-shm",
    "daemon.json",
    "daemon.log",
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    Parameters
    ----------
    level : {"ok", "warning", "error"}
    about : str
        ``books``, ``log``, ``files``, ``disk``, ``clock``, ``network``, ``devices``, ``lease``, ``tenants``, ``states``.
    text : str
        What was found.
    do : str
        What to do about it.
    """

    level: Literal["ok", "warning", "error"]
    about: str
    text: str
    do: str = ""


def really_running(state: Path) -> list[Found]:
    """Attempts whose shepherd or process is alive, read from the disk and the kernel alone."""
    found = []
    for marker in sorted((state / "live").glob("*.*.*")):
        words = marker.name.split(".")
        if not all(word.isdigit() for word in words):
            continue
        job_id, serial, attempt = map(int, words)
        claim = read_json(f"{attempt_folder(str(state), job_id, serial)}/claim")
        pid, ticks = _number(claim, "pid"), _number(claim, "start_ticks")
        if claim.get("boot_id") == boot_id() and alive(pid, ticks):
            found.append(Found(id=job_id, attempt=attempt, serial=serial, pid=pid, start_ticks=ticks))
    return found


def _number(claim: Mapping[str, object], key: str) -> int:
    value = claim.get(key)
    return value if isinstance(value, int) else 0


def books_against(picture: Picture, found: Sequence[Found]) -> Iterator[Finding]:
    """What the log says runs, against what really runs."""
    running = {view.id: view for view in picture.jobs(live_only=True, limit=10**9)}
    held = {i for i, v in running.items() if v.status in ("running", "paused", "stopping")}
    real: dict[int, list[Found]] = {}
    for one in found:
        real.setdefault(one.id, []).append(one)
    for job_id in sorted(held - set(real)):
        yield Finding(
            level="error",
            about="books",
            text=f"job {job_id} runs by the books, and no process of it is there",
            do="it is being started or has just ended if this goes away; else restart cotenant up",
        )
    for job_id in sorted(set(real) - held):
        pids = ", ".join(str(one.pid) for one in real[job_id])
        yield Finding(
            level="error",
            about="books",
            text=f"process {pids} of job {job_id} runs, and the books have it {_status(running, job_id)}",
            do="it is being ended if this goes away; else restart cotenant up",
        )
    for job_id in sorted(i for i, ones in real.items() if len(ones) > 1):
        yield Finding(level="error", about="books", text=f"job {job_id} runs {len(real[job_id])} times")
    if held == set(real):
        yield Finding(
            level="ok", about="books", text=f"{len(held)} jobs run by the books, the same {len(held)} in fact"
        )


def looked_at_again(picture: Picture, look: Callable[[], Sequence[Found]]) -> list[Finding]:
    """The same, where what differs is looked at again for a while: a start and an end take a moment."""
    for pause_s in (*_LOOKS_S, 0.0):
        found = list(books_against(picture, look()))
        if all(finding.level == "ok" for finding in found):
            break
        time.sleep(pause_s)
    return found


def _status(running: Mapping[int, Any], job_id: int) -> str:
    return running[job_id].status if job_id in running else "ended"


def tenancy(tenants: Tenants, cluster: Cluster) -> Iterator[Finding]:
    """Limits and quotas that are in force, and whether the file says the same."""
    held = "; ".join(map(_may_have, cluster.tenants)) or "no tenants"
    if problem := tenants.problem():
        yield Finding(
            level="error",
            about="tenants",
            text=f"tenants.toml cannot be used: {problem}. In force is what was read before: {held}",
            do="mend the file; it is taken over within a second",
        )
    elif set(tenants.cluster_tenants()) != set(cluster.tenants):
        yield Finding(
            level="warning",
            about="tenants",
            text=f"quotas, limits and weights in tenants.toml are not in force yet: {held}",
            do="they are taken over within a second; if this stays, see daemon.log",
        )
    else:
        yield Finding(level="ok", about="tenants", text=f"in force as in tenants.toml: {held}")


def _may_have(tenant: Tenant) -> str:
    limit = "none" if tenant.limit_gpus is None else tenant.limit_gpus
    return f"{tenant.name}: quota {tenant.quota_gpus}, limit {limit}, weight {tenant.weight:g}"


def unsafe(options: UpOptions, state: Path) -> Iterator[Finding]:
    """File modes and the address."""
    wrong = []
    for name in ("", *_PRIVATE):
        path = state / name
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            wrong.append(path)
            yield Finding(
                level="error",
                about="files",
                text=f"others can read {path} (mode {stat.S_IMODE(path.stat().st_mode):03o})",
                do=f"chmod {'700' if path.is_dir() else '600'} {path}",
            )
    if not wrong:
        yield Finding(level="ok", about="files", text=f"only the owner can read {state}")
    if options.allow_plain and options.certificate is None:
        yield Finding(
            level="warning",
            about="network",
            text=f"{options.bind} is served without TLS: tokens and output cross the network readable",
            do="give a certificate and key, or come through ssh -L",
        )
    if os.geteuid() == 0:
        yield Finding(
            level="warning",
            about="files",
            text="the scheduler runs as root, and so do all jobs",
            do="run it as the user whose jobs these are",
        )


def machine(state: Path, clock: BootClock, epoch: int, missing: Sequence[LiveDevice]) -> Iterator[Finding]:
    """Disk, clock, lease and devices."""
    disk = shutil.disk_usage(state)
    if disk.free < _LEAST_DISK_BYTES:
        yield Finding(
            level="error" if disk.free < _LEAST_DISK_BYTES // 10 else "warning",
            about="disk",
            text=f"{format_bytes(disk.free)} are free where the state folder lies",
            do="make room: without it no job is accepted, and no state saved",
        )
    else:
        yield Finding(
            level="ok", about="disk", text=f"{format_bytes(disk.free)} are free for state and output"
        )
    jumped = clock.jumped_s()
    if abs(jumped) > _JUMP_S:
        yield Finding(
            level="warning",
            about="clock",
            text=f"the machine's wall clock was set by {jumped:+.0f} s since the scheduler began",
            do="nothing: decisions use a clock that cannot be set; times shown are those of before",
        )
    newest = newest_epoch(state)
    if newest > epoch:
        yield Finding(
            level="error",
            about="lease",
            text=f"another scheduler leads here: epoch {newest}, ours is {epoch}",
            do="this one ends by itself",
        )
    for device in missing:
        yield Finding(
            level="error",
            about="devices",
            text=f"{device.name} ({device.uuid}) was here before, and is not found now",
            do="bring it back, or begin with a new state folder",
        )


def log_problems(problems: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with the log: the first ten, and how many more."""
    for text in problems[:_MOST_TOLD]:
        yield Finding(level="error", about="log", text=text)
    if (more := len(problems) - _MOST_TOLD) > 0:
        yield Finding(level="error", about="log", text=f"and {more:,} more like these")


def saved_states(stats: Stats) -> Iterator[Finding]:
    """What waits in the registry of saved states, and how full its tiers are."""
    for tier in stats.tiers:
        if tier.limit_bytes and tier.held_bytes > _FULL * tier.limit_bytes and tier.name == "disk":
            yield Finding(
                level="warning",
                about="states",
                text=f"saved states take {format_bytes(tier.held_bytes)} of {format_bytes(tier.limit_bytes)} on disk",
                do="cotenant up --state-disk gives more; what finds no room stays in its job's folder",
            )
    held = ", ".join(
        f"{format_bytes(tier.held_bytes)}"
        + (f" of {format_bytes(tier.limit_bytes)}" if tier.limit_bytes is not None else "")
        + f" in {'host memory' if tier.name == 'memory' else 'files'}"
        for tier in stats.tiers
    )
    count = "1 saved state waits" if stats.versions == 1 else f"{stats.versions} saved states wait"
    yield Finding(level="ok", about="states", text=f"{count}: {held}")


def left_behind(leftovers: Leftovers) -> Iterator[Finding]:
    """Files of schedulers that were killed."""
    left, swept = leftovers.left(), leftovers.swept
    if left.count:
        yield Finding(
            level="warning",
            about="files",
            text=f"{plural(left.count, 'file')} of schedulers that were killed are left ({format_bytes(left.size_bytes)})",
            do="nothing: the next cotenant up sweeps them",
        )
    else:
        done = (
            f"; {plural(swept.count, 'file')} ({format_bytes(swept.size_bytes)}) swept at the start"
            if swept.count
            else ""
        )
        yield Finding(level="ok", about="files", text=f"nothing is left of schedulers that were killed{done}")


def telemetry(readings: Mapping[int, Any], devices: Iterable[LiveDevice], failed: str) -> Iterator[Finding]:
    """Readings that cannot be right, or are missing."""
    if failed:
        yield Finding(level="error", about="devices", text=failed, do="see nvidia-smi")
    for device in devices:
        reading = readings.get(device.device)
        if reading is None:
            yield Finding(
                level="warning", about="devices", text=f"{device.name} gives no readings", do="see nvidia-smi"
            )
        elif (busy := reading.busy_pct) is not None and not 0.0 <= busy <= 101.0:
            yield Finding(
                level="warning", about="devices", text=f"{device.name} reads {busy:g} % busy: suspect"
            )


def examine(findings: Iterable[Finding], enforcement: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """All of it, the worst first, as plain values."""
    order = {"error": 0, "warning": 1, "ok": 2}
    found = sorted(findings, key=lambda f: order[f.level])
    worst = found[0].level if found else "ok"
    return {
        "healthy": worst != "error",
        "findings": [msgspec.to_builtins(f) for f in found],
        "enforcement": {name: dict(table) for name, table in enforcement.items()},
    }
