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
    """A node takes no new jobs; those on it go on."""

    t: float
    node: int
    cause: str = ""


class Undrained(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="undrained", omit_defaults=True):
    """A drained node takes jobs again."""

    t: float
    node: int
