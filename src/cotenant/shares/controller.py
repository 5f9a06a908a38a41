"""Controllers of a container's compute: how many tokens it gets each time the watcher wakes.

Three, by published rules (doi.org/10.1109/BDCloud.2018.00077, Algorithm 1; tkestack/vcuda-controller, its
source in words):

- *hard*: an integral controller towards the quota, with a gain that grows with the distance;
- *elastic*: the same towards a limit that rises beyond the quota while the device idles, and falls
  back to it when another container appears;
- *paper*: the paper's own elastic rule, a hundredth of the quota up or down at each step.

Percentages are of the device's time; tokens are thread blocks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cotenant.errors import ConfigError
from cotenant.shares.limiter import DeviceModel, TokenBucket

__all__ = ["WAKE_S", "Controller", "Quota", "Reading", "next_share"]

WAKE_S = 0.12
"""The watcher wakes at this interval, in seconds."""

_WINDOW = 30
_IDLE = 5.0
_BUSY_MOST = 90.0
"""The paper's GUmax: what the elastic rule lets all containers use together, in percent."""

Mode = Literal["hard", "elastic", "paper"]


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is given, in percent of a device.

    Parameters
    ----------
    quota : float
        Guaranteed.
    limit : float
        Most it may use in elastic mode.
    mode : {"hard", "elastic", "paper"}
    """

    quota: float
    limit: float = 100.0
    mode: Mode = "hard"

    def check(self) -> Quota:
        """Return self if in range.

        Raises
        ------
        ConfigError
            If not ``0 < quota <= limit <= 100``.
        """
        if not 0 < self.quota <= self.limit <= 100:
            raise ConfigError(f"a quota needs 0 < quota <= limit <= 100, found {self.quota} and {self.limit}")
        return self


class Reading(msgspec.Struct, frozen=True):
    """What the watcher reads: use over the last second, in percent, and who is there.

    Parameters
    ----------
    own, all : float
        Of this container, and of all on the device.
    containers : int
        How many are on the device.
    """

    own: float
    all: float
    containers: int


def next_share(device: DeviceModel, share: float, limit: float, used: float) -> float:
    """The integral step of the controller, clamped to [0, pool].

    >>> device = DeviceModel(sms=10, threads_per_sm=256)      # pool 81,920; step = 100 x gap / 10
    >>> next_share(device, 0.0, limit=50.0, used=40.0)        # gap 10
    100.0
    >>> next_share(device, 500.0, limit=50.0, used=52.0)      # gap at least 5
    450.0
    >>> round(next_share(device, 0.0, limit=50.0, used=0.0))  # gap 50 > 25: x 2 x 50 / 51
    980
    """
    gap = max(5.0, abs(limit - used))
    step = device.sms**2 * device.threads_per_sm / 256.0 * gap / 10.0
    if gap > limit / 2.0:
        step *= 2.0 * gap / (limit + 1.0)
    moved = share + step if used <= limit else share - step
    return min(max(moved, 0.0), float(device.pool))


class Controller:
    """One container's controller: reads, and refills its bucket.

    Parameters
    ----------
    device : DeviceModel
    quota : Quota
        May be replaced while it runs: dynamic allocation.

    Attributes
    ----------
    share : float
        Tokens given at each wake-up.
    limit : float
        What it steers to at present, in percent.
    """

    def __init__(self, device: DeviceModel, quota: Quota) -> None:
        self.device, self.quota = device, quota.check()
        self.share = self._start = next_share(device, 0.0, 100.0, 95.0)
        self.limit = quota.quota
        self._containers = 0
        self._idle: list[float] = []

    def wake(self, reading: Reading, bucket: TokenBucket) -> None:
        """One wake-up of the watcher."""
        if self.quota.mode == "paper":
            self._paper(reading)
            bucket.add(self.share)
            return
        self._steer(reading)
        moved = next_share(self.device, self.share, self.limit, reading.own)
        alone = reading.containers == 1
        if self.quota.mode == "hard" and alone and reading.own < self.quota.quota / 10.0:
            bucket.set(moved)
            return
        self.share = moved
        bucket.add(self.share)

    def _steer(self, reading: Reading) -> None:
        """The limit: the quota, or in elastic mode what the others leave."""
        quota = self.quota
        if quota.mode == "hard":
            self.limit = quota.quota
            return
        if reading.containers > self._containers:
            if self._containers or reading.containers > 1:
                self.limit, self.share = quota.quota, self._start
            self._idle.clear()
        self._containers = reading.containers
        if reading.containers == 1:
            self.limit = quota.limit
            return
        self._idle.append(max(100.0 - reading.all, 0.0))
        if len(self._idle) == _WINDOW:
            late = self._idle[_WINDOW // 2 :]
            if sum(late) / len(late) > _IDLE:
                self.limit = min(self.limit + quota.quota / 10.0, quota.limit)
            self._idle.clear()

    def _paper(self, reading: Reading) -> None:
        """Algorithm 1: a hundredth of the quota up while there is room or a claim, else down."""
        quota = self.quota.quota
        up = _BUSY_MOST - reading.all > 0.0 or reading.own < quota
        self.limit = min(max(self.limit + (quota / 100.0 if up else -quota / 100.0), 0.0), self.quota.limit)
        # The paper counts cores; what a core's worth of blocks is, follows from the device's rate.
        self.share = self.limit / 100.0 * self.device.blocks_per_s * WAKE_S
