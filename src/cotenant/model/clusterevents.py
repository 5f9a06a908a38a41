"""What can happen to the devices and nodes of a cluster."""

from __future__ import annotations

import msgspec

__all__ = ["DeviceDown", "DeviceUp", "Drained", "NodeDown", "NodeUp", "Undrained"]


class NodeDown(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="node-down", omit_defaults=True):
    """A node vanished; its jobs are reported lost."""

    t: float
    node: int
    cause: str = ""


class NodeUp(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="node-up", omit_defaults=True):
    """A node came back."""

    t: float
    node: int


class DeviceDown(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="device-down", omit_defaults=True):
    """One device failed; its jobs are reported lost, its neighbours go on."""

    t: float
    device: int
    cause: str = ""


class DeviceUp(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="device-up", omit_defaults=True):
    """A device came back."""

    t: float
    device: int


class Drained(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="drained", omit_defaults=True):
    """A node, or one device of it, takes no new jobs; those on it go on.

    Parameters
    ----------
    device : int
        The device; -1: the whole node, until it is undrained as a whole, whatever becomes of single devices.
    """

    t: float
    node: int
    cause: str = ""
    device: int = -1


class Undrained(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="undrained", omit_defaults=True):
    """A drained node, or device (as of ``Drained``), takes jobs again."""

    t: float
    node: int
    device: int = -1
