"""What the daemon knows of itself and its machine: status, devices, doctor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant import __version__
from cotenant.live.machine import LiveDevice, Readings
from cotenant.live.picture import Picture
from cotenant.live.views import DeviceView, StatusView
from cotenant.model.liveports import Clock
from cotenant.model.placement import DEVICE_MILLI
from cotenant.model.quantities import MIB

__all__ = ["Standing"]


class Standing:
    """Made by the daemon, asked by the service from any thread.

    Parameters
    ----------
    picture : Picture
    clock : Clock
    devices : sequence of LiveDevice
        Those present and those missing, by number.
    policy, forecast : callable
        What they are, in a word.
    epoch : int
    enforcement : mapping of int to mapping
        Of each device: what its back ends really enforce, in words.
    warnings : callable
        What an owner should know at any time.
    examine : callable
        The whole examination.
    wake : callable
    saved : callable
        Bytes of saved states, by tier.
    """

    def __init__(
        self,
        *,
        picture: Picture,
        clock: Clock,
        devices: Sequence[LiveDevice],
        policy: str,
        forecast: Callable[[], str],
        epoch: int,
        enforcement: Mapping[int, Mapping[str, str]],
        warnings: Callable[[], tuple[str, ...]],
        examine: Callable[[], dict[str, Any]],
        wake: Callable[[], None],
        saved: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._picture, self._clock, self._devices = picture, clock, tuple(devices)
        self._policy, self._forecast, self._epoch = policy, forecast, epoch
        self._enforcement, self._warnings = enforcement, warnings
        self.doctor, self.wake, self._saved = examine, wake, saved
        self.readings = Readings(devices)
        self._started = time.time()
        self.role = "leader"

    def status(self) -> StatusView:
        """The whole."""
        counts = self._picture.counts()
        return StatusView(
            version=__version__,
            policy=self._policy,
            forecast=self._forecast(),
            epoch=self._epoch,
            pid=os.getpid(),
            started=self._started,
            now=self._clock.wall(self._clock.now()),
            events=self._picture.events,
            counts=counts,
            waiting=counts["waiting"] + counts["suspended"],
            running=counts["running"] + counts["paused"] + counts["stopping"],
            devices=len(self._devices),
            role=self.role,
            warnings=self._warnings(),
            saved_bytes=self._saved(),
        )

    def devices(self) -> list[DeviceView]:
        """All devices, with who is on them."""
        readings = self.readings.read()
        return [self._device(device, readings.get(device.device)) for device in self._devices]

    def _device(self, device: LiveDevice, reading: Any) -> DeviceView:
        number = device.device
        held, milli = self._picture.held(number)
        foreign, pids = self._picture.foreign(number)
        residents = self._picture.residents(number)
        if device.kind == "cpu":
            # What the machine uses in all is not this core set's: its residents tell what they use.
            used = self._picture.used(number)
        else:
            used = int((reading.memory_used_mib or 0) * MIB) if reading is not None else 0
        free = 0 if held < 0 else max(device.memory_bytes - held - foreign, 0)
        busy = None if reading is None or reading.busy_pct is None else round(reading.busy_pct / 100.0, 4)
        return DeviceView(
            device=number,
            name=device.name,
            uuid=device.uuid,
            index=device.index,
            kind=device.kind,
            device_type=device.device_type,
            state=self._picture.device_state(number),
            memory_bytes=device.memory_bytes,
            memory_used_bytes=used,
            memory_free_bytes=free,
            foreign_bytes=foreign,
            foreign_pids=pids,
            busy=busy,
            free_milli=max(DEVICE_MILLI - milli, 0),
            residents=residents,
            enforcement=self._enforcement.get(number, {}),
        )
