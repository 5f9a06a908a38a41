"""Elastic attempts: the devices of their processes, changed while they run, and why one of them ended.

Their supervisor (``cotenant run --elastic``) reads the file ``places`` in the attempt's folder and tells in
``placed`` where processes really are. So whatever dies here meanwhile, what stands there is asked again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cotenant.executors.local import layout
from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.devices import Device
from cotenant.executors.local.holding import Holding
from cotenant.model.liveports import AttemptResettled

__all__ = ["Places", "place_of"]


def place_of(device: Device) -> str:
    """A line of the control file, and an argument of ``--place``."""
    words = [f"COTENANT_DEVICE={device.device}"]
    if device.kind != "cpu":
        words.append(f"CUDA_VISIBLE_DEVICES={device.uuid}")
    if device.cores:
        words.append(f"cores={','.join(str(core) for core in sorted(device.cores))}")
    return " ".join(words)


class Places:
    """Changes that are under way.

    Parameters
    ----------
    devices : mapping of int to Device
    holding : Holding
    """

    def __init__(self, devices: Mapping[int, Device], holding: Holding) -> None:
        self._devices, self._holding = devices, holding
        self._pending: dict[tuple[int, int], tuple[Attempt, int, tuple[int, ...]]] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    def order(self, attempt: Attempt, epoch: int, number: int, devices: Sequence[int]) -> str:
        """Have the processes be on these devices; returns why that cannot be, if it cannot.

        Until the answer is there, the attempt holds the old ones and the new.

        Raises
        ------
        OSError
            If the order cannot be written.
        """
        if (problem := self._problem(attempt, devices)) or self._newest(attempt) > number:
            return problem
        pending = self._pending.get(attempt.key)
        if pending is not None and pending[1] == number:
            return ""
        both = tuple(sorted({*attempt.devices, *devices}))
        # On disk before any process is: a host that comes later must know of all that it may find.
        attempt.order(epoch, devices=list(both))
        self._settle(attempt, both)
        lines = [place_of(self._devices[n]) for n in devices]
        _replace(Path(attempt.folder, "places"), "\n".join([*lines, f"order {number}", ""]))
        self._pending[attempt.key] = attempt, number, tuple(devices)
        return ""

    def _problem(self, attempt: Attempt, devices: Sequence[int]) -> str:
        if not attempt.spec.get("places"):
            return "its processes were not started so that they can be moved"
        if missing := [n for n in devices if n not in self._devices]:
            return f"device {missing[0]} is not on this machine"
        held = {self._devices[n].kind for n in attempt.devices if n in self._devices}
        if len(kinds := held | {self._devices[n].kind for n in devices}) > 1:
            return f"devices of several kinds: {', '.join(sorted(kinds))}"
        return ""

    @staticmethod
    def _newest(attempt: Attempt) -> int:
        """Number of the order that stands in the file; a scheduler that is late must not undo a later one's."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(attempt.folder, "places").read_text().split("order ")[1].split()[0])
        return -1

    def look(self, epoch: int) -> list[AttemptResettled]:
        """What supervisors have answered since the last look."""
        found = []
        for key, (attempt, number, devices) in list(self._pending.items()):
            if attempt.ended is not None:
                del self._pending[key]
                continue
            told = layout.read_json(f"{attempt.folder}/placed")
            if told.get("order") != str(number) or not (told.get("done") or told.get("refused")):
                continue
            refused = str(told.get("refused") or "")
            if not refused:
                with contextlib.suppress(OSError):  # then it is held to more than it uses
                    attempt.order(epoch, devices=list(devices))
                self._settle(attempt, devices)
            del self._pending[key]
            found.append(answer(attempt, number, refused))
        return found

    def _settle(self, attempt: Attempt, devices: tuple[int, ...]) -> None:
        attempt.devices = devices
        with contextlib.suppress(OSError):  # a limit of memory below what it holds: until it holds less
            self._holding.adjust(attempt, attempt.share)


def answer(attempt: Attempt, number: int, refused: str) -> AttemptResettled:
    """To an order, that it is carried out or why it will not be."""
    return AttemptResettled(
        id=attempt.id,
        attempt=attempt.attempt,
        serial=attempt.serial,
        number=number,
        done=not refused,
        detail=refused,
    )


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.write_text(text)
    beside.replace(path)
