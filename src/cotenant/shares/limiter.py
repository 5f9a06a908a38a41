"""A token bucket for kernel launches, as in tkestack/vcuda-controller (GaiaGPU's library).

A launch spends as many tokens as it has thread blocks. It may begin while the balance is not negative,
so one large launch may overdraw; nothing is preempted. Source: doi.org/10.1109/BDCloud.2018.00077 and
the published code, described in words; written anew.
"""

from __future__ import annotations

import msgspec

__all__ = ["DeviceModel", "TokenBucket"]


class DeviceModel(msgspec.Struct, frozen=True, kw_only=True):
    """What limiter and controller know of a device.

    Parameters
    ----------
    sms, threads_per_sm : int
        Streaming multiprocessors, and the threads that each holds; those of a V100 by default.
    blocks_per_s : float
        Thread blocks that it works through in a second, of the kernels at hand: by default 8 blocks of 256
        threads on each multiprocessor at once, of 30 us each.
    """

    sms: int = 80
    threads_per_sm: int = 2048
    blocks_per_s: float = 80 * 8 / 30e-6

    @property
    def pool(self) -> int:
        """Most tokens a container may hold, in thread blocks."""
        return self.threads_per_sm * self.sms * 32


class TokenBucket:
    """One container's balance of tokens.

    Parameters
    ----------
    pool : float
        The balance never exceeds it.

    Examples
    --------
    >>> bucket = TokenBucket(100.0)
    >>> bucket.spend(250.0); bucket.open
    False
    >>> bucket.add(200.0); bucket.balance, bucket.open
    (-50.0, False)
    >>> bucket.add(300.0); bucket.balance
    100.0
    """

    __slots__ = ("balance", "pool")

    def __init__(self, pool: float) -> None:
        self.pool = pool
        self.balance = 0.0

    @property
    def open(self) -> bool:
        """Whether a launch may begin."""
        return self.balance >= 0.0

    def spend(self, blocks: float) -> None:
        """A launch of that many blocks began."""
        self.balance -= blocks

    def add(self, tokens: float) -> None:
        """Give tokens, up to the pool."""
        self.balance = min(self.balance + tokens, self.pool)

    def set(self, tokens: float) -> None:
        """Set the balance directly, as the controller does while a container starts up alone."""
        self.balance = min(tokens, self.pool)
