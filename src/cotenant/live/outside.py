"""What happens to devices whoever schedules: they go and come back, and others use their memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.liveports import DeviceGone, Foreign

if TYPE_CHECKING:
    from cotenant.live.executor import LiveExecutor

__all__ = ["Outside"]

_LITTLE = 64 << 20


class Outside:
    """Devices as the host last told of them.

    Parameters
    ----------
    executor : LiveExecutor

    Attributes
    ----------
    down : set of int
        Devices that are gone.
    """

    def __init__(self, executor: LiveExecutor) -> None:
        self._executor = executor
        self.down: set[int] = set()
        self._foreign: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._doubted: set[int] = set()
        self._doubt_s = math.inf

    def attach(self, state: State) -> None:
        """Begin with what the log says."""
        self.down.update(state.down_devices)
        self._foreign = dict(state.ledger.foreign)
        self._doubted = self.down | self._foreign.keys()

    def doubt(self, until_s: float) -> None:
        """So long the host may take to confirm it."""
        self._doubt_s = until_s

    def foreign(self, told: Foreign) -> None:
        """Memory that others hold of a device."""
        self._doubted.discard(told.device)
        before, pids = self._foreign.get(told.device, (0, ()))
        # A process that grows by little, or holds nothing, is not worth a line each time.
        little = told.pids == pids and abs(told.memory_bytes - before) < _LITTLE
        if little or not (before or told.memory_bytes):
            return
        self._foreign[told.device] = told.memory_bytes, told.pids
        self._executor.out.append(
            ev.ForeignUse(self._executor.now(), told.device, told.memory_bytes, told.pids)
        )

    def believe(self, now: float) -> None:
        """What was away or used from outside when the log broke off, and of which the host says nothing, is no more so."""
        if now < self._doubt_s:
            return
        self._doubt_s = math.inf
        for device in sorted(self._doubted):
            if device in self.down:
                self.device(DeviceGone(device=device, up=True))
            if self._foreign.get(device, (0, ()))[0]:
                self.foreign(Foreign(device=device, memory_bytes=0, pids=()))

    def device(self, told: DeviceGone) -> None:
        """A device is gone, or back."""
        out, t = self._executor.out, self._executor.now()
        self._doubted.discard(told.device)
        if told.up == (told.device not in self.down):
            return
        if told.up:
            self.down.discard(told.device)
            out.append(ev.DeviceUp(t, told.device))
            return
        self.down.add(told.device)
        out.append(ev.DeviceDown(t, told.device, told.cause))
        for run in self._executor.runs.values():
            if told.device in run.devices and run.want != "cancel":
                run.want, run.told = "lost", False
                run.cause = f"device {told.device} is gone" + (f": {told.cause}" if told.cause else "")
