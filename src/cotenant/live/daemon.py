"""The daemon: it leads, decides, acts, answers, and ends in order, whatever happens to it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from cotenant import __version__
from cotenant.errors import ConflictError, FencedError, StoreError
from cotenant.live.api.server import check_bind
from cotenant.live.clock import BootClock
from cotenant.live.ground import prepare
from cotenant.live.leading import Leader, lead, owner_name
from cotenant.live.logs import begin_logging
from cotenant.live.options import UpOptions, live_settings
from cotenant.live.statedir import (
    DaemonFile,
    forget_daemon,
    open_state,
    read_daemon,
    write_daemon,
    write_epoch,
)
from cotenant.live.tenants import Tenants
from cotenant.live.works import Works
from cotenant.model.liveports import Lease

__all__ = ["Daemon"]

_log = logging.getLogger("cotenant.live")
_EXIT_FENCED, _EXIT_STORE = 1, 1
_STRAGGLE_S = 5.0


class Daemon:
    """One life of the scheduler.

    Parameters
    ----------
    options : UpOptions
    ready : callable, optional
        Called with the URL once the API answers.

    Raises
    ------
    CotenantError
        For options or a state folder that cannot be used.
    """

    def __init__(self, options: UpOptions, ready: Callable[[str], None] | None = None) -> None:
        self.options = options
        self._ready = ready
        self._state = open_state(options.state)
        begin_logging(self._state, quiet=options.quiet)
        self._stopped = threading.Event()
        self._works: Works | None = None
        self._failed: Exception | None = None
        self._given: list[Any] = []
        # Everything that can be wrong with the call is found before anybody is waited for.
        self._settings = live_settings(options.settings)
        self._policy = _policy(options.policy)
        tls = options.certificate is not None and options.key is not None
        check_bind(options.bind, tls=tls, allow_plain=options.allow_plain)
        self._tenants = Tenants(self._state)
        self._store = self._open_store()

    def _open_store(self) -> Any:
        from cotenant.live.store import open_store

        store = open_store(self.options.store or self._state / "cotenant.db")
        if store.recall("began_wall_s") is None:
            store.remember("began_wall_s", repr(time.time()))
        return store

    def run(self) -> int:
        """Lead until told to stop, or until somebody else leads; returns the exit code.

        Raises
        ------
        ConflictError
            Another scheduler leads on this log, and we do not stand by.
        CotenantError
            What made it impossible to go on.
        """
        self._catch_signals()
        try:
            lease = self._lead()
            if lease is None:
                return 0
            return self._led(lease)
        finally:
            self._store.close()
            self._restore_signals()

    def stop(self) -> None:
        """End in order: jobs run on. Safe in a signal handler and in any thread."""
        self._stopped.set()
        if (works := self._works) is not None:
            works.stop()

    # -- leading -------------------------------------------------------------------------

    def _lead(self) -> Lease | None:
        if self.options.standby:
            from cotenant.live import preload

            preload.everything()
        self._ground = prepare(self.options, self._state, self._tenants)
        if self.options.standby:
            _log.info("standing by on %s", self._store.where)
        elif self._other() is not None:
            # On a very busy machine it may be late with its lease: only who stands by is there to take over.
            raise ConflictError(self._who_leads())
        lease = lead(self._store, owner_name(), wait=self.options.standby, stopped=self._stopped)
        if lease is None and not self.options.standby:
            raise ConflictError(self._who_leads())
        return lease

    def _other(self) -> DaemonFile | None:
        """The scheduler of this folder, if it is another process that lives."""
        found = read_daemon(self._state)
        return found if found is not None and found.alive and found.pid != os.getpid() else None

    def _who_leads(self) -> str:
        if (found := self._other()) is not None:
            return (
                f"a scheduler runs on {self._state} already: process {found.pid}, {found.url}; "
                "cotenant ps shows its jobs, --standby waits to take over, --state DIR uses another folder"
            )
        return (
            f"a scheduler leads on {self._store.where} already, on another machine or not answering; "
            "--standby waits to take over"
        )

    def _led(self, lease: Lease) -> int:
        begun = time.monotonic()
        write_epoch(self._state, lease.epoch)
        leader = Leader(self._store, lease, self._on_lost)
        leader.start()
        try:
            self._works = works = Works(
                options=self.options,
                ground=self._ground,
                state=self._state,
                store=self._store,
                lease=lease,
                clock=self._clock(),
                tenants=self._tenants,
                settings=self._settings,
                policy=self._policy,
            )
            if self._stopped.is_set() or self._failed is not None:
                works.stop()
            # Jobs do not wait for the API: what was decided is carried out while it comes up.
            serving = threading.Thread(target=self._serve, args=(works, lease, begun), name="cotenant-serve")
            serving.start()
            try:
                works.run()
            finally:
                serving.join()
        except (FencedError, StoreError) as error:
            self._failed = self._failed or error
        finally:
            self._end(leader)
        if self._failed is not None:
            raise self._failed
        return 0

    def _serve(self, works: Works, lease: Lease, begun: float) -> None:
        try:
            works.serve(lambda url: self._answers(url, lease, begun))
        except Exception as error:  # of whatever kind: it is raised again where the daemon ends
            self._failed = self._failed or error
            self.stop()

    def _clock(self) -> BootClock:
        began = float(self._store.recall("began_wall_s") or time.time())
        last = 0.0
        if count := self._store.count():
            last = next(event.t for _, event in self._store.read(count - 1))
        return BootClock(began, last)

    def _answers(self, url: str, lease: Lease, begun: float) -> None:
        write_daemon(self._state, url, lease.epoch)
        took_ms = 1000.0 * (time.monotonic() - begun)
        _log.info(
            "cotenant %s leads at %s (epoch %d, policy %s, after %.0f ms)",
            __version__,
            url,
            lease.epoch,
            self.options.policy,
            took_ms,
        )
        if self._ready is not None:
            self._ready(url)

    def _on_lost(self, error: Exception) -> None:
        """From the heartbeat's thread: act no more. If the loop hangs, the process ends all the same."""
        _log.error("%s", error)
        self._failed = error
        self.stop()

        def force() -> None:
            _log.error(
                "the loop did not end within %g s of losing the lease; ending the process", _STRAGGLE_S
            )
            logging.shutdown()
            os._exit(_EXIT_FENCED)

        timer = threading.Timer(_STRAGGLE_S, force)
        timer.daemon = True
        timer.start()

    def _end(self, leader: Leader) -> None:
        fenced = isinstance(self._failed, FencedError)
        if (works := self._works) is not None:
            works.close()
        if fenced:
            leader.abandon()
        else:
            leader.give_up()
        forget_daemon(self._state)
        _log.info("ended; jobs run on" if not fenced else "ended: another scheduler leads now; jobs run on")

    # -- signals -------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup, say: whoever started us wants us to live through it
            self._given.append((number, signal.signal(number, self._on_signal)))

    def _restore_signals(self) -> None:
        for number, handler in self._given:
            signal.signal(number, handler)
        self._given.clear()

    def _on_signal(self, number: int, _: object) -> None:
        if self._stopped.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop()


def _policy(text: str) -> Any:
    from cotenant.runs.spec import build_policy, parse_policy

    return build_policy(parse_policy(text))
