"""What the host keeps of attempts: who runs, whose end was told, and what an earlier host left behind.

Nothing that matters lies in memory. What was started stands in the state folder, and whoever holds a pid there
proves by the kernel's start time and the boot's number that it is still the same process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from cotenant.errors import ConfigError
from cotenant.executors.local import layout
from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.devices import Device
from cotenant.executors.local.freezing import Freezer
from cotenant.executors.local.holding import Holding
from cotenant.executors.local.launching import Limits
from cotenant.executors.local.nursery import Nursery
from cotenant.executors.local.places import Places
from cotenant.executors.local.sampling import SAMPLE_S, Sampler
from cotenant.executors.local.survivors import end_survivors
from cotenant.executors.local.trees import descendants
from cotenant.executors.local.watch import WATCH_S, DeviceWatch, Source
from cotenant.model.liveports import AttemptEnded, AttemptPaused, AttemptStarted, Report
from cotenant.shares.backends.base import Backend
from cotenant.shares.backends.detect import for_cores, for_gpus

__all__ = ["Keeper", "started_report"]

_STALE, _TAKEN, _BROKEN, _SHORT = 3, 4, 5, 6
_FILES = 16_384


class Keeper:
    """Attempts of this machine, by job and serial.

    Parameters
    ----------
    state_dir : Path or str
        The state folder.
    devices : sequence of Device
        With the numbers that the cluster gives them.
    epoch : int
        Of the scheduler that this host works for; raised by ``fence`` and by launches.
    cores, gpus : sequence of Backend, optional
        What holds jobs to their shares on core sets and on GPUs; by default what is found to work here.
    limits : Limits, optional
        Graces, and sizes of output files.
    source : callable, optional
        Makes the source of readings of GPUs; NVML by default.
    sample_s, watch_s : float
        How often jobs and devices are looked at, at most.
    base : mapping, optional
        Environment of which jobs get a few words about the user; the daemon's own by default.

    Raises
    ------
    ConfigError
        If this system cannot tell one process from a later one of the same number.
    OSError
        If the state folder cannot be written.
    """

    def __init__(
        self,
        state_dir: Path | str,
        devices: Sequence[Device],
        *,
        epoch: int = 0,
        cores: Sequence[Backend] | None = None,
        gpus: Sequence[Backend] | None = None,
        limits: Limits | None = None,
        source: Source | None = None,
        sample_s: float = SAMPLE_S,
        watch_s: float = WATCH_S,
        base: Mapping[str, str] | None = None,
    ) -> None:
        if not hasattr(os, "pidfd_open"):
            raise ConfigError(
                f"live jobs need Linux 5.3 or newer and Python built for it; this is {platform.platform()}"
            )
        self.state_dir = str(Path(state_dir).absolute())
        self.devices = {device.device: device for device in devices}
        self._epoch, self._limits = 0, limits or Limits()
        self._base = os.environ if base is None else base
        _many_files()
        for name in ("jobs", "live"):
            Path(self.state_dir, name).mkdir(mode=0o700, parents=True, exist_ok=True)
        scope = f"cotenant-{os.getuid()}-{_short(self.state_dir)}"
        self.holding = Holding(
            self.devices,
            for_cores(scope) if cores is None else cores,
            for_gpus(scope, self.state_dir) if gpus is None else gpus,
        )
        self._places = Places(self.devices, self.holding)
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._reports: deque[Report] = deque()
        self._vanished: list[tuple[Attempt, str]] = []
        self._leaving: list[Attempt] = []
        self._by_descriptor: dict[int, Attempt] = {}
        self._sampler = Sampler(self.holding, sample_s)
        self.watch = DeviceWatch(
            self.devices, self._ours, (lambda: source) if source is not None else None, watch_s
        )
        self.nursery: Nursery | None = None
        self._poll = select.poll()
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._notify = _open_fifo(f"{self.state_dir}/notify")
        for descriptor in (self._wake[0], self._notify):
            self._poll.register(descriptor, select.POLLIN)
        self.fence(epoch)
        self._adopt_all()

    # -- epochs --------------------------------------------------------------------------

    def fence(self, epoch: int) -> bool:
        """From now on orders of earlier epochs count for nothing; False if this epoch itself is over.

        Raises
        ------
        OSError
            If that cannot be written.
        """
        known = self._known_epoch()
        if epoch < known:
            return False
        if epoch > known:
            path = Path(self.state_dir, "epoch")
            beside = path.with_name(f"epoch.{os.getpid()}.new")
            beside.write_text(f"{epoch}\n", encoding="ascii")
            beside.replace(path)
        self._epoch = max(self._epoch, epoch)
        return True

    def _known_epoch(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(Path(self.state_dir, "epoch").read_text(encoding="ascii"))
        return 0

    # -- inside --------------------------------------------------------------------------

    def _work(self) -> None:
        """Everything that is due."""
        for leaving in self._leaving:
            leaving.reap()
        self._leaving = [attempt for attempt in self._leaving if attempt.ours]
        waiting, self._vanished = self._vanished, []
        for attempt, why in waiting:
            self._lost(attempt, why)
        now = time.monotonic()
        self.holding.look(now)
        self._reports.extend(self._places.look(self._epoch))
        if not self._sampler.wait_s(now):
            # A word may have been lost while nobody read: what it was about stands on disk.
            for attempt in [a for a in self._attempts.values() if a.ended is None and not a.started_told]:
                self._look(attempt)
        self._reports.extend(
            self._sampler.read(a for a in self._attempts.values() if a.ended is None and a.started_told)
        )
        self._reports.extend(self.watch.look(now))

    def _events(self, wait_s: float) -> bool:
        """Wait for a word; True if somebody woke us."""
        woken = False
        for descriptor, _ in self._poll.poll(int(wait_s * 1000.0 + 0.999)):
            if descriptor in (self._wake[0], self._notify):
                text = _drain(descriptor)
                woken = woken or descriptor == self._wake[0]
                for line in set(text.split(b"\n")) if descriptor == self._notify else ():
                    words = line.split()
                    if len(words) == 2 and all(word.isdigit() for word in words):
                        self._look(self._attempts.get((int(words[0]), int(words[1]))))
            elif descriptor in self._by_descriptor:
                self._shepherd_gone(self._by_descriptor[descriptor])
        return woken

    def _look(self, attempt: Attempt | None) -> None:
        """Read what its shepherd wrote, and tell what is new."""
        if attempt is None or attempt.ended is not None:
            return
        was_paused = attempt.paused
        if attempt.started():
            if not attempt.started_told:
                attempt.started_told = True
                self._reports.append(started_report(attempt))
            if attempt.paused != was_paused:
                self._reports.append(
                    AttemptPaused(
                        id=attempt.id, attempt=attempt.attempt, serial=attempt.serial, paused=attempt.paused
                    )
                )
        ended = attempt.exit()
        if ended is not None:
            self._end(attempt, ended)

    def _end(self, attempt: Attempt, ended: AttemptEnded) -> None:
        if attempt.started_told and (last := self._sampler.one(attempt)) is not None:
            self._reports.append(last)
        attempt.ended = ended
        self._sampler.forget(attempt)
        self.holding.leave(attempt)
        self._reports.append(ended)

    def _shepherd_gone(self, attempt: Attempt) -> None:
        self._by_descriptor.pop(attempt.pidfd, None)
        self._poll.unregister(attempt.pidfd)
        attempt.unwatch()
        self._look(attempt)
        if attempt.ended is not None:
            attempt.let_go()
            return
        code = attempt.reap()
        if code == _TAKEN:
            self._adopt(attempt)
        elif code in (_STALE, _BROKEN, _SHORT) and not attempt.claim():
            why = (
                "a scheduler with a later epoch has taken over"
                if code == _STALE
                else self._last_words(attempt)
            )
            self._failed_to_start(attempt, why, again=code == _SHORT)
        else:
            self._lost(attempt, "its shepherd was killed")

    def _lost(self, attempt: Attempt, why: str) -> None:
        """Make sure that nobody is left, then say so; or come back."""
        mine = attempt.claim()
        same_boot = mine.get("boot_id") == layout.boot_id()
        session = int(mine.get("pid", 0)) if same_boot else 0
        # Only a session whose leader is dead is a mark: a living one with that number is another's.
        session = 0 if session and layout.start_ticks(session) else session
        Freezer(str(attempt.spec.get("freezer", ""))).release()
        gone = not same_boot or end_survivors(f"{attempt.folder}/status", session, self.holding.pids(attempt))
        if gone:
            # It may have written its end in its last moment.
            self._end(attempt, attempt.exit() or attempt.write_exit("lost", why))
        else:
            self._vanished.append((attempt, why))

    def _failed_to_start(self, attempt: Attempt, why: str, *, again: bool = False) -> None:
        if attempt.ended is None:
            fenced = attempt.epoch < self._known_epoch()
            ended = AttemptEnded(
                id=attempt.id,
                attempt=attempt.attempt,
                serial=attempt.serial,
                outcome="not-started",
                detail=why,
                again=again,
            )
            # One that is fenced leaves no word: the attempt is another's to start.
            if not fenced and Path(attempt.folder).is_dir():
                ended = attempt.write_exit("not-started", why, again=again)
            self._attempts[attempt.key] = attempt
            self._end(attempt, ended)

    def _last_words(self, attempt: Attempt) -> str:
        with contextlib.suppress(OSError):
            words = Path(attempt.folder, "shepherd.log").read_text(errors="replace").strip().splitlines()
            return f"its shepherd could not begin: {words[-1]}" if words else "its shepherd could not begin"
        return "its shepherd could not begin"

    def _tell_again(self, attempt: Attempt) -> None:
        if attempt.ended is not None:
            self._reports.append(attempt.ended)
        elif attempt.started():
            self._reports.append(started_report(attempt))

    def _drop(self, attempt: Attempt) -> None:
        for name in ("control", "steps"):
            Path(attempt.folder, name).unlink(missing_ok=True)
        Path(self.state_dir, "live", attempt.marker).unlink(missing_ok=True)
        if attempt.pidfd >= 0:
            self._by_descriptor.pop(attempt.pidfd, None)
            self._poll.unregister(attempt.pidfd)
        attempt.let_go()
        if attempt.ours:
            # It has written its end and is about to leave.
            self._leaving.append(attempt)
        attempt.close()
        self._attempts.pop(attempt.key, None)

    def _anew(self, attempt: Attempt) -> bool:
        """Make room for another try of an attempt that was not started; False while its shepherd is not gone yet."""
        if attempt.shepherd and layout.alive(attempt.shepherd, attempt.shepherd_ticks):
            return False
        self._drop(attempt)
        for name in ("claim", "exit.json", "exit.room", "started.json", "started.room"):
            Path(attempt.folder, name).unlink(missing_ok=True)
        return True

    def _hold(self, attempt: Attempt, ticks: int) -> bool:
        """Notice the end of its shepherd."""
        if not attempt.watch(attempt.shepherd, ticks):
            return False
        self._by_descriptor[attempt.pidfd] = attempt
        self._poll.register(attempt.pidfd, select.POLLIN)
        self.holding.enter(attempt)
        return True

    # -- after a restart -----------------------------------------------------------------

    def _adopt_all(self) -> None:
        for name in sorted(os.listdir(Path(self.state_dir, "live"))):  # noqa: PTH208
            words = name.split(".")
            if len(words) == 3 and all(word.isdigit() for word in words):
                job_id, serial, number = map(int, words)
                attempt = Attempt(self.state_dir, job_id, number, serial)
                self._attempts[attempt.key] = attempt
                self._adopt(attempt)

    def _adopt(self, attempt: Attempt) -> None:
        """Take up what is there: running, ended, vanished, or never begun."""
        attempt.load()
        ended = attempt.exit()
        if ended is not None:
            self._end(attempt, ended)
            return
        claim = attempt.claim()
        if (not claim and attempt.seize()) or claim.get("pid") == 0:
            # Nobody began, and nobody will but by a new launch.
            attempt.shepherd = 0
            return
        claim = attempt.claim()
        if claim.get("boot_id") != layout.boot_id():
            self._vanished.append((attempt, "the machine was restarted"))
            return
        attempt.shepherd = int(claim["pid"])
        if self._hold(attempt, int(claim["start_ticks"])):
            self._look(attempt)
        else:
            self._vanished.append((attempt, "its shepherd is gone and left no word"))

    def _ours(self, pid: int) -> bool:
        """Whether a process belongs to a running attempt."""
        with contextlib.suppress(OSError):
            session = os.getsid(pid)
            if any(a.shepherd == session and a.ended is None for a in self._attempts.values()):
                return True
        return any(
            pid in descendants(a.shepherd) for a in self._attempts.values() if a.ended is None and a.shepherd
        )


def started_report(attempt: Attempt) -> AttemptStarted:
    """That it runs."""
    return AttemptStarted(
        id=attempt.id,
        attempt=attempt.attempt,
        serial=attempt.serial,
        pid=attempt.pid,
        start_ticks=attempt.start_ticks,
    )


def _open_fifo(path: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # For writing, too: else the last shepherd that closes it would be an end of file for ever.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _many_files() -> None:
    """Two descriptors for each running attempt; jobs get the limit that was there before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard), hard))


def _drain(descriptor: int) -> bytes:
    text = b""
    with contextlib.suppress(OSError):
        while more := os.read(descriptor, 1 << 16):
            text += more
    return text


def _short(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]
