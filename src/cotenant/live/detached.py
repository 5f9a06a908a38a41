"""The daemon in the background, by itself or under systemd."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from cotenant.errors import ConflictError, UnreachableError
from cotenant.live.options import UpOptions
from cotenant.live.statedir import DaemonFile, open_state, read_daemon
from cotenant.live.tenants import write_private

__all__ = ["command_of", "detach", "install_unit"]

_POLL_S = 0.02


def command_of(options: UpOptions) -> list[str]:
    """The words that start this daemon in the foreground."""
    words = [sys.executable, "-m", "cotenant", "up", "--state", str(options.state)]
    for device in options.devices:
        words += ["--device", device]
    words += ["--policy", options.policy, "--forecast", options.forecast]
    for setting in options.settings:
        words += ["--settings", setting]
    words += ["--bind", options.bind, "--port", str(options.port)]
    if options.allow_plain:
        words.append("--i-understand-that-tokens-cross-the-network-readable")
    for name, path in (("--tls-certificate", options.certificate), ("--tls-key", options.key)):
        if path is not None:
            words += [name, str(path.absolute())]
    for host in options.allow_hosts:
        words += ["--allow-host", host]
    if options.open_metrics:
        words.append("--open-metrics")
    if options.store:
        words += ["--store", options.store]
    if options.standby:
        words.append("--standby")
    words += ["--state-memory", f"{options.state_memory_bytes}B"]
    if options.state_disk_bytes is not None:
        words += ["--state-disk", f"{options.state_disk_bytes}B"]
    return words


def detach(options: UpOptions, patience_s: float) -> DaemonFile:
    """Start it in a session of its own; returns when its API answers.

    Raises
    ------
    ConflictError
        If one runs on this folder already.
    UnreachableError
        If it ends, or does not answer in time; with the last lines that it wrote.
    """
    open_state(options.state)
    before = read_daemon(options.state)
    if before is not None and before.alive and not options.standby:
        raise ConflictError(
            f"a scheduler runs on {options.state} already: process {before.pid}, {before.url}; "
            "--standby waits to take over, --state DIR uses another folder"
        )
    output = options.state / "daemon.out"
    output.unlink(missing_ok=True)
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
        started = subprocess.Popen(  # noqa: S603
            # What happens is in daemon.log, which is rotated; here come only words from before and after.
            [*command_of(options), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    if options.standby:
        return DaemonFile(pid=started.pid, start_ticks=0, url="(standing by)", epoch=0)
    return _awaited(options.state, started, output, patience_s)


def _awaited(state: Path, started: subprocess.Popen[bytes], output: Path, patience_s: float) -> DaemonFile:
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        told = read_daemon(state)
        if told is not None and told.pid == started.pid:
            return told
        if started.poll() is not None:
            raise UnreachableError(f"the scheduler ended (exit code {started.returncode}):\n{_tail(output)}")
        time.sleep(_POLL_S)
    raise UnreachableError(f"the scheduler does not answer after {patience_s:g} s:\n{_tail(output)}")


def _tail(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-10:]) or f"(nothing in {output})"


def install_unit(options: UpOptions) -> tuple[Path, str]:
    """Write a unit of systemd for this user; nothing is started.

    Returns
    -------
    Path, str
        The file, and what it holds.
    """
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    path = Path(base) / "systemd" / "user" / "cotenant.service"
    path.parent.mkdir(parents=True, exist_ok=True)
    # systemd expands percent signs and dollars itself.
    words = " ".join(shlex.quote(word).replace("%", "%%").replace("$", "$$") for word in command_of(options))
    text = f"""[Unit]
Description=cotenant: deep-learning jobs that share devices

[Service]
ExecStart={words}
Restart=on-failure
RestartSec=1
# Jobs live on when the scheduler ends or is updated: only its own process is stopped.
KillMode=process
TimeoutStopSec=20
OOMScoreAdjust=-100

[Install]
WantedBy=default.target
"""
    write_private(path, text)
    return path, text
