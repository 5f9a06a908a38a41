"""The state folder: where it is, who runs on it, and files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cotenant.errors import ConfigError
from cotenant.executors.local.layout import alive, start_ticks
from cotenant.live.tenants import write_private

__all__ = [
    "DaemonFile",
    "forget_daemon",
    "newest_epoch",
    "open_state",
    "private_folder",
    "read_daemon",
    "state_path",
    "write_daemon",
    "write_epoch",
]

_DAEMON, _EPOCH = "daemon.json", "epoch"


class DaemonFile(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads on this folder, and where it answers.

    Parameters
    ----------
    pid, start_ticks : int
        The process, and when the kernel started it.
    url : str
    epoch : int
    """

    pid: int
    start_ticks: int
    url: str
    epoch: int

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return alive(self.pid, self.start_ticks)


def state_path(asked: Path | None = None) -> Path:
    """``--state``, else ``COTENANT_STATE_DIR``, else ``cotenant`` in the user's folder for state."""
    if asked is not None:
        return asked.expanduser().absolute()
    if named := os.environ.get("COTENANT_STATE_DIR"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "cotenant"


def open_state(path: Path) -> Path:
    """Make the folder, for its owner alone.

    Raises
    ------
    ConfigError
        If it cannot be made, is somebody else's, or others may look into it.
    """
    try:
        path.mkdir(parents=True, mode=0o700, exist_ok=True)
        (path / "jobs").mkdir(mode=0o700, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"the state folder {path} cannot be made: {error.strerror or error}") from None
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"the state folder {path} belongs to another user (uid {found.st_uid}); give --state DIR"
        )
    if found.st_mode & 0o077:
        raise ConfigError(
            f"others may look into the state folder {path} (mode {found.st_mode & 0o777:03o}): chmod 700 {path}"
        )
    return path


def private_folder(path: Path) -> Path:
    """Make a folder inside the state folder, for its owner alone."""
    path.mkdir(parents=True, mode=0o700, exist_ok=True)
    return path


def read_daemon(path: Path) -> DaemonFile | None:
    """What the last leader wrote; None if there was none, or the file cannot be read."""
    try:
        return msgspec.json.decode((path / _DAEMON).read_bytes(), type=DaemonFile)
    except (OSError, msgspec.MsgspecError):
        return None


def write_daemon(path: Path, url: str, epoch: int) -> None:
    """Say where this process answers."""
    pid = os.getpid()
    told = DaemonFile(pid=pid, start_ticks=start_ticks(pid), url=url, epoch=epoch)
    write_private(path / _DAEMON, msgspec.json.encode(told).decode() + "\n")


def forget_daemon(path: Path) -> None:
    """This process answers no more; what another has written stays."""
    found = read_daemon(path)
    if found is not None and found.pid == os.getpid():
        (path / _DAEMON).unlink(missing_ok=True)


def newest_epoch(path: Path) -> int:
    """The newest epoch that shepherds know."""
    try:
        return int((path / _EPOCH).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def write_epoch(path: Path, epoch: int) -> None:
    """Shepherds refuse orders of earlier epochs from now on."""
    if epoch > newest_epoch(path):
        write_private(path / _EPOCH, f"{epoch}\n")
