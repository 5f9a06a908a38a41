"""The host: starts, stops and watches real processes of this machine, through a shepherd for each attempt.

It keeps nothing that matters in memory. What was started lies in the state folder, and whoever holds a pid there
proves by the kernel's start time and the boot's number that it is still the same process. So a new host takes up
what an earlier one left: what runs is adopted, what ended meanwhile is told, what vanished is made sure to be
gone before it is called lost.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import msgspec

from cotenant.executors.local import layout
from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.keeper import Keeper
from cotenant.executors.local.launching import prepare, spawn, spawn_nursery
from cotenant.executors.local.nursery import Nursery
from cotenant.executors.local.places import answer
from cotenant.model.liveports import AttemptEnded, AttemptPaused, Found, Launch, Report, StopMode
from cotenant.model.placement import Share

__all__ = ["LocalHost"]

_RETRY_S = 0.05


class LocalHost(Keeper):
    """Processes of this machine (``model.liveports.Host``). Parameters as of ``Keeper``."""

    def launch(self, launch: Launch) -> None:
        """Start an attempt; a serial that was started before is only told of again.

        One that was not started for want of what comes back is tried anew.
        """
        key = (launch.id, launch.serial)
        known = self._attempts.get(key)
        if known is not None and known.ended is not None and known.ended.again and self._anew(known):
            known = None
        if known is not None and (known.ended is not None or known.shepherd):
            self._tell_again(known)
            return
        attempt = known or Attempt(self.state_dir, launch.id, launch.attempt, launch.serial)
        attempt.epoch = launch.epoch
        try:
            if not self.fence(launch.epoch):
                raise OSError(1, f"epoch {launch.epoch} is over: the newest is {self._known_epoch()}")
            self._retire_earlier(launch)
            self._attempts[key] = attempt
            prepare(launch, attempt, self.holding, self.devices, self.state_dir, self._limits, self._base)
            self._bear(attempt)
            self._hold(attempt, layout.start_ticks(attempt.shepherd))
        except OSError as error:
            again = error.errno in layout.PASSING
            self._failed_to_start(attempt, f"{error.strerror or error}", again=again)

    def _bear(self, attempt: Attempt) -> None:
        born = 0 if self.nursery is None else self.nursery.bear(attempt.folder)
        attempt.shepherd = born or spawn(attempt.folder)
        attempt.nursery, attempt.ours = self.nursery if born else None, not born

    def warm(self) -> None:
        """Keep a process from which shepherds come in a millisecond or two; without it each starts on its own."""
        self.nursery = self.nursery or Nursery(spawn_nursery)
        self.nursery.open()

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        """Stop an attempt and everything that it started; answered by its end."""
        found = self._attempts.get((job_id, serial))
        if found is None or found.ended is not None:
            if found is None:
                self._reports.append(
                    AttemptEnded(
                        id=job_id,
                        attempt=attempt,
                        serial=serial,
                        outcome="lost",
                        detail="was not started here",
                    )
                )
            else:
                self._tell_again(found)
            return
        if not found.shepherd:
            # An earlier host was about to start it; it is seized, so nobody will.
            self._end(found, found.write_exit("killed", "stopped before it began"))
            return
        with contextlib.suppress(OSError):
            self.holding.lift(found)
        self._order(found, stop=mode)

    def pause(self, job_id: int, attempt: int, serial: int, paused: bool) -> None:
        """Hold an attempt where it is, with its memory, or let it go on."""
        found = self._attempts.get((job_id, serial))
        if found is None or found.ended is not None:
            return
        if found.started() and found.paused == paused:
            self._reports.append(AttemptPaused(id=job_id, attempt=attempt, serial=serial, paused=paused))
        self._order(found, paused=paused)

    def reshare(self, job_id: int, attempt: int, serial: int, share: Share) -> None:
        """Change a share.

        What cannot change while the job runs (see the back ends' tables) holds from its next start. Where the
        kernel refuses a memory limit below what the job holds, the rest of the share changes.
        """
        found = self._attempts.get((job_id, serial))
        if found is None or found.ended is not None:
            return
        try:
            self.holding.adjust(found, share)
        except OSError as error:
            sys.stderr.write(f"job {job_id}: its memory limit stays as it was: {error.strerror}\n")
            with contextlib.suppress(OSError):
                kept = msgspec.structs.replace(share, memory_bytes=found.share.memory_bytes)
                self.holding.adjust(found, kept)
        self._order(found, share=_plain(share))

    def resettle(self, job_id: int, attempt: int, serial: int, number: int, devices: tuple[int, ...]) -> None:
        """Have an elastic attempt's processes be on these devices, without a restart."""
        found = self._attempts.get((job_id, serial))
        if found is None or found.ended is not None:
            return
        try:
            refused = self._places.order(found, self._epoch, number, devices)
        except OSError as error:
            refused = f"the order could not be written: {error.strerror}"
        if refused:
            self._reports.append(answer(found, number, refused))

    def poll(self, timeout_s: float) -> list[Report]:
        """What happened; waits at most so long for something."""
        end = time.monotonic() + timeout_s
        while True:
            self._work()
            now = time.monotonic()
            if self._reports or now >= end:
                break
            waits = [end - now, self.watch.wait_s(now)]
            if any(attempt.ended is None for attempt in self._attempts.values()):
                waits.append(self._sampler.wait_s(now))
            if (elastic := self.holding.wait_s(now)) is not None:
                waits.append(elastic)
            if self._vanished or self._places:
                waits.append(_RETRY_S)
            if self._events(max(min(waits), 0.0)):
                self._work()
                break
        told = list(self._reports)
        self._reports.clear()
        return told

    def wake(self) -> None:
        """Make a waiting ``poll`` return."""
        with contextlib.suppress(OSError):
            os.write(self._wake[1], b".")

    def running(self) -> list[Found]:
        """What runs, or is about to (then without a pid yet); what an unfinished launch left is not among it."""
        self._work()
        found = []
        for attempt in self._attempts.values():
            if attempt.ended is None and attempt.shepherd:
                attempt.started()
                found.append(
                    Found(
                        id=attempt.id,
                        attempt=attempt.attempt,
                        serial=attempt.serial,
                        pid=attempt.pid,
                        start_ticks=attempt.start_ticks,
                        paused=attempt.paused,
                    )
                )
        return found

    def forget(self, job_id: int) -> None:
        """A job that has ended for good need not be known any more; its output and saved state stay."""
        for attempt in [a for a in self._attempts.values() if a.id == job_id]:
            if attempt.ended is not None or not attempt.shepherd:
                self._drop(attempt)

    def close(self) -> None:
        """Let go; the jobs run on."""
        for attempt in self._attempts.values():
            attempt.close()
        if self.nursery is not None:
            self.nursery.close()
        self.watch.close()
        self.holding.tidy()
        for descriptor in (*self._wake, self._notify):
            os.close(descriptor)

    def _order(self, attempt: Attempt, **changes: object) -> None:
        try:
            attempt.order(self._epoch, **changes)
        except OSError as error:
            sys.stderr.write(f"job {attempt.id}: an order could not be written: {error.strerror}\n")

    def _retire_earlier(self, launch: Launch) -> None:
        """A new start of a job: earlier ones, which ended, need not be told of again."""
        for attempt in [a for a in self._attempts.values() if a.id == launch.id and a.serial < launch.serial]:
            if attempt.ended is not None or not attempt.shepherd:
                self._drop(attempt)


def _plain(share: Share) -> dict[str, object]:
    return {name: getattr(share, name) for name in share.__struct_fields__}
