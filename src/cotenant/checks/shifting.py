"""Elastic jobs of a hostile machine: their processes go elsewhere late, never, or refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cotenant.checks.nature import Process
from cotenant.model.liveports import AttemptResettled

if TYPE_CHECKING:
    from cotenant.checks.hostile import TrueWorld

__all__ = ["Shift"]


class Shift:
    """One order to be elsewhere, as it reaches a process.

    Until it is carried out, processes may be on the devices before and on these: so the world counts them on all.

    Parameters
    ----------
    world : TrueWorld
    process : Process
    number : int
        An order with a lower number than one before changes nothing.
    devices : tuple of int
    """

    def __init__(self, world: TrueWorld, process: Process, number: int, devices: tuple[int, ...]) -> None:
        self._world, self._process, self._number, self._devices = world, process, number, devices

    def begin(self) -> None:
        """The order arrives, perhaps not for the first time."""
        world, process = self._world, self._process
        if self._number <= process.order:
            if self._number == process.order and process.settled:
                self._tell()
            return
        process.order, process.settled = self._number, False
        self._be_on(tuple(sorted({*process.launch.devices, *self._devices})))
        if world.rng.random() < world.nature.refuses:
            self._tell("they will not go")
        elif world.rng.random() >= world.nature.never_settles:
            world.at(world.now + world.rng.expovariate(0.5), self._end)

    def _end(self) -> None:
        process = self._process
        if process.state == "running" and process.order == self._number:
            self._be_on(self._devices)
            process.settled = True
            self._tell()

    def _be_on(self, devices: tuple[int, ...]) -> None:
        world = self._world
        self._process.launch = msgspec.structs.replace(self._process.launch, devices=devices)
        for device in devices:
            world.check_device(device, [p.launch for p in world.alive() if device in p.launch.devices])

    def _tell(self, refused: str = "") -> None:
        launch = self._process.launch
        self._world.tell(
            AttemptResettled(
                id=launch.id,
                attempt=launch.attempt,
                serial=launch.serial,
                number=self._process.order,
                done=not refused,
                detail=refused,
            )
        )
