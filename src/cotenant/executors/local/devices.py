"""What the host must know of a device; whoever discovers devices hands over such values."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Device", "DeviceInfo"]


class Device(Protocol):
    """A device, by any class with these fields (``DeviceInfo``, or the daemon's own)."""

    @property
    def device(self) -> int:
        """Its number in the cluster, kept over restarts."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def uuid(self) -> str:
        """What identifies it: the driver's UUID, or a core set's name."""

    @property
    def kind(self) -> str:
        """``nvidia`` or ``cpu``."""

    @property
    def memory_bytes(self) -> int:
        """Its memory; 0 unknown."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Of a core set; of a GPU empty."""


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A device. Fields as in ``Device``."""

    device: int
    name: str
    uuid: str
    kind: str
    memory_bytes: int = 0
    cores: tuple[int, ...] = ()
