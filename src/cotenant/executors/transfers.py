"""State on its way to and from tiers: all transfers of a tier share its bandwidth.

The bandwidth is divided max-min fairly at every moment: equal parts, but no transfer gets more than its
own devices can take, and what it leaves is divided among the others. Saving, loading and spilling
count alike. A spill counts on the tier it goes to.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cotenant.model.pools import StateTier

__all__ = ["Transfers"]


class _Transfer(msgspec.Struct, gc=False):
    left_bytes: float
    most_bytes_per_s: float
    since_s: float
    rate: float = 0.0
    token: int = 0


class Transfers:
    """Transfers of all tiers.

    Parameters
    ----------
    tiers : tuple of StateTier
    push : callable
        Called with time, job and token: when a transfer will be over, unless its token is void by then.
    """

    def __init__(self, tiers: tuple[StateTier, ...], push: Callable[[float, int, int], None]) -> None:
        self._speeds = [tier.bytes_per_s for tier in tiers]
        self._active: list[dict[int, _Transfer]] = [{} for _ in tiers]
        self._tier: dict[int, int] = {}
        self._push = push
        self._token = 0

    def begin(self, now: float, job_id: int, tier: int, size_bytes: int, most_bytes_per_s: float) -> None:
        """Bytes of a job go to or come from a tier, at most that fast."""
        self._tier[job_id] = tier
        self._active[tier][job_id] = _Transfer(float(size_bytes), most_bytes_per_s, now)
        self._share(now, tier)

    def end(self, now: float, job_id: int) -> None:
        """A transfer is over, or given up; nothing happens if there is none."""
        tier = self._tier.pop(job_id, None)
        if tier is not None:
            del self._active[tier][job_id]
            self._share(now, tier)

    def valid(self, job_id: int, token: int) -> bool:
        """Whether what was pushed under this token still holds."""
        tier = self._tier.get(job_id)
        return tier is not None and self._active[tier][job_id].token == token

    def _share(self, now: float, tier: int) -> None:
        active = self._active[tier]
        left, waiting = self._speeds[tier], len(active)
        for job_id, one in sorted(active.items(), key=lambda item: (item[1].most_bytes_per_s, item[0])):
            rate = min(one.most_bytes_per_s, left / waiting)
            left, waiting = left - rate, waiting - 1
            if rate != one.rate:
                one.left_bytes = max(0.0, one.left_bytes - one.rate * (now - one.since_s))
                one.since_s, one.rate = now, rate
                self._token = one.token = self._token + 1
                self._push(now + one.left_bytes / rate, job_id, one.token)
