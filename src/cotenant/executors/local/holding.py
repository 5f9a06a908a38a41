"""Which back ends hold which jobs, and the controllers of devices that are shared.

On core sets a cgroup that is ours to write lets the kernel do all of it, lending included; without one the
shepherd's duty cycle does it, led by an elastic controller here. On GPUs MPS holds clients where its control
daemon runs, and the gate inside the job the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.devices import Device
from cotenant.executors.local.gatemeter import GateMeter
from cotenant.executors.local.layout import alive
from cotenant.executors.local.trees import TreeClock
from cotenant.model.placement import DEVICE_MILLI, Share, counts_on
from cotenant.shares.backends.base import Applied, Backend, Want, merged
from cotenant.shares.backends.elastic import EVERY_S, ElasticController

__all__ = ["Holding"]


class Holding:
    """Everything about shares.

    Parameters
    ----------
    devices : mapping of int to Device
    cores, gpus : sequence of Backend
        Back ends of jobs on core sets, and of jobs on GPUs, in the order in which they are applied.
    """

    def __init__(
        self, devices: Mapping[int, Device], cores: Sequence[Backend], gpus: Sequence[Backend]
    ) -> None:
        self._devices = devices
        self._cores, self._gpus = tuple(cores), tuple(gpus)
        self._controllers: dict[int, ElasticController] = {}
        self._members: dict[int, Attempt] = {}
        self._here: dict[tuple[int, int], Attempt] = {}
        self._counted: dict[tuple[int, int], int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._clocks: dict[int, TreeClock] = {}
        self._seen: dict[int, tuple[float, float]] = {}
        self._gates: dict[int, GateMeter] = {}
        self._next = 0
        self._at = 0.0

    def backends(self, attempt: Attempt) -> tuple[Backend, ...]:
        """Those that hold a job."""
        held = [self._devices[n] for n in attempt.devices if n in self._devices]
        return self._gpus if any(device.kind != "cpu" for device in held) else self._cores

    def want(self, attempt: Attempt, share: Share | None = None) -> Want:
        """What the back ends are asked for."""
        held = [self._devices[n] for n in attempt.devices if n in self._devices]
        on_cores = all(device.kind == "cpu" for device in held)
        share = share or attempt.share
        return Want(
            key=attempt.name,
            share=share,
            devices=len(held),
            cores=tuple(sorted({core for device in held for core in device.cores})),
            cpu_milli=int(attempt.spec.get("cpu_milli", 0)),
            host_memory_bytes=int(attempt.spec.get("host_memory_bytes", 0)),
            on_cores=on_cores and bool(held),
            uuids=tuple(device.uuid for device in held if device.kind != "cpu"),
            device_bytes=min((device.memory_bytes for device in held), default=0),
            counts_on_milli=self._counts_on(attempt, share),
        )

    def _counts_on(self, attempt: Attempt, share: Share) -> int:
        if share.compute_milli:
            return share.compute_milli
        others = [other for other in self._here.values() if other.key != attempt.key]
        return counts_on(share, ([o.share for o in others if n in o.devices] for n in attempt.devices))

    def apply(self, attempt: Attempt) -> Applied:
        """Make ready for a start.

        Raises
        ------
        OSError
            If a back end cannot; those before it have been undone.
        """
        done: list[Backend] = []
        parts: list[Applied] = []
        for backend in self.backends(attempt):
            try:
                parts.append(backend.apply(self.want(attempt)))
            except OSError:
                for one in done:
                    one.remove(attempt.name)
                raise
            done.append(backend)
        return merged(parts)

    def enter(self, attempt: Attempt) -> None:
        """The job runs, or its share has changed: its controller and its neighbours' know it from now on."""
        self._here[attempt.key] = attempt
        self._join(attempt)
        self._divide()

    def _join(self, attempt: Attempt) -> None:
        share = attempt.share
        milli = self._counted[attempt.key] = self._counts_on(attempt, share)
        if not self._by_words(attempt):
            attempt.write_share(milli, 0, DEVICE_MILLI)
            return
        number = self._numbers.setdefault(attempt.key, self._next)
        self._next += number == self._next
        self._members[number] = attempt
        for device in attempt.devices:
            controller = self._controllers.setdefault(device, ElasticController())
            controller.join(number, milli, share.compute_limit_milli)
        self._write()

    def _divide(self) -> None:
        """Somebody came, went, or has another share: jobs that have what others leave have more, or less."""
        for key, attempt in list(self._here.items()):
            if self._counted[key] == self._counts_on(attempt, attempt.share):
                continue
            for backend in self.backends(attempt):
                with contextlib.suppress(OSError):  # its group may be gone just now
                    backend.adjust(self.want(attempt))
            self._join(attempt)

    def adjust(self, attempt: Attempt, share: Share) -> None:
        """Change the share of a job that runs.

        Raises
        ------
        OSError
            If a back end refuses.
        """
        for backend in self.backends(attempt):
            backend.adjust(self.want(attempt, share))
        attempt.share = share
        self.enter(attempt)

    def lift(self, attempt: Attempt) -> None:
        """A job that is to leave may use what it can, so that it leaves soon."""
        self._here.pop(attempt.key, None)
        for backend in self.backends(attempt):
            if backend.enforcement.adjustable:
                backend.adjust(self.want(attempt, Share("exclusive", attempt.share.memory_bytes)))

    def leave(self, attempt: Attempt) -> None:
        """The job has ended."""
        for backend in self.backends(attempt):
            backend.remove(attempt.name)
        self._here.pop(attempt.key, None)
        self._counted.pop(attempt.key, None)
        self._out(attempt)
        self._divide()

    def _out(self, attempt: Attempt) -> None:
        number = self._numbers.pop(attempt.key, None)
        if number is None:
            return
        for known in (self._members, self._clocks, self._seen, self._gates):
            known.pop(number, None)
        for device, controller in list(self._controllers.items()):
            controller.leave(number)
            if not controller.allowed():
                del self._controllers[device]

    def cpu_s(self, attempt: Attempt) -> float | None:
        """CPU seconds by a back end that counts; None if none does."""
        found = (backend.use_s(attempt.name) for backend in self.backends(attempt))
        return next((used for used in found if used is not None), None)

    def memory_bytes(self, attempt: Attempt) -> int | None:
        """Memory by a back end that counts; None if none does."""
        found = (backend.memory_bytes(attempt.name) for backend in self.backends(attempt))
        return next((used for used in found if used is not None), None)

    def pids(self, attempt: Attempt) -> list[int]:
        """Processes that a back end knows to be the job's."""
        return [p for b in self.backends(attempt) for p in getattr(b, "pids", lambda _: [])(attempt.name)]

    def tidy(self) -> None:
        """Leave nothing behind that no job needs."""
        for backend in (*self._cores, *self._gpus):
            getattr(backend, "tidy", lambda: None)()

    # -- elastic shares ------------------------------------------------------------------

    def wait_s(self, now: float) -> float | None:
        """Until the controllers must look; None while no device is shared by jobs that they lead."""
        if not any(len(controller.allowed()) > 1 for controller in self._controllers.values()):
            return None
        return max(self._at + EVERY_S - now, 0.0)

    def look(self, now: float) -> None:
        """Measure everybody, and say what each may use."""
        wait_s = self.wait_s(now)
        if wait_s is None or wait_s > 0.0:
            return
        self._at = now
        used = {number: use for number in self._members if (use := self._use(number)) is not None}
        held = {
            number: self._gates[number].held(now)
            for number, attempt in self._members.items()
            if number in self._gates and self._by_words(attempt) == "gate"
        }
        for controller in self._controllers.values():
            controller.look(used, held)
        self._write()

    def _use(self, number: int) -> float | None:
        """Thousandths of its devices that a job used of late."""
        attempt, now = self._members[number], time.monotonic()
        if self._by_words(attempt) == "gate":
            reading = attempt.reading()
            gate = self._gates.setdefault(number, GateMeter())
            return None if reading is None else gate.read(now, reading)
        clock = self._clocks.get(number)
        if clock is None:
            if not alive(attempt.shepherd, attempt.shepherd_ticks):
                return None
            clock = self._clocks[number] = TreeClock(attempt.shepherd)
        total = clock.read()
        before = self._seen.get(number)
        self._seen[number] = (now, total)
        if before is None or now <= before[0]:
            return None
        cores = sum(len(self._devices[n].cores) for n in attempt.devices)
        return DEVICE_MILLI * max(total - before[1], 0.0) / ((now - before[0]) * max(cores, 1))

    def _write(self) -> None:
        for number, attempt in self._members.items():
            allowed = min(
                (c.allowed()[number] for c in self._controllers.values() if number in c.allowed()),
                default=DEVICE_MILLI,
            )
            duty = self._by_words(attempt) == "duty"
            before = attempt.allowed
            attempt.allowed = allowed
            attempt.write_share(
                self._counted[attempt.key], 0 if duty else allowed, allowed if duty else DEVICE_MILLI
            )
            # A shepherd whose job was free sleeps: it must be told that this is over.
            if duty and (before >= DEVICE_MILLI) != (allowed >= DEVICE_MILLI):
                attempt.poke()

    def _by_words(self, attempt: Attempt) -> str:
        """``duty`` or ``gate`` where words in the status file hold the job's compute; empty otherwise."""
        if attempt.share.mode != "spatial":
            return ""
        names = {backend.name for backend in self.backends(attempt)}
        if str(attempt.spec.get("env", {}).get("CUDA_VISIBLE_DEVICES", "")).startswith("MIG-"):
            return ""
        if "duty cycle" in names:
            return "duty"
        return "gate" if "step gate" in names else ""
