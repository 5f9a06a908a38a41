"""Who may use how much of a device now: guarantees always, idle time lent by need, and taken back at once.

GaiaGPU's controller raises each container's limit by a tenth of its quota every 3.6 s and gives each its quota
when a neighbour comes (``shares.controller``, with its source). This one looks at all residents of a device
together: what each uses tells what it needs; everyone gets what it needs up to its guarantee; what is left goes
to those who used all that they were allowed, in proportion to guarantees, up to their limits (water filling). An
integral term for each corrects what the mechanism below lets through too much or too little: long steps, coarse
stops. So a lent part returns within one look after its owner wants it, and nothing is lent step by step.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.model.placement import DEVICE_MILLI

__all__ = ["EVERY_S", "ElasticController", "water_fill"]

EVERY_S = 0.25
"""The controller looks at this interval, in seconds."""

_MEMORY = 0.5
_HUNGRY = 0.93
_ROOM, _ROOM_MILLI = 1.15, 20.0
_GAIN, _MOST_MILLI = 0.25, 150.0


class _Member(msgspec.Struct):
    guaranteed: float
    limit: float
    allowed: float
    used: float = 0.0
    trim: float = 0.0
    target: float = 0.0
    hungry: bool = True


def water_fill(room: float, claims: Mapping[int, tuple[float, float]]) -> dict[int, float]:
    """Divide ``room`` by weight, nobody getting more than it claims.

    Parameters
    ----------
    room : float
    claims : mapping of int to (float, float)
        Weight and claim of each.

    Examples
    --------
    >>> water_fill(60.0, {1: (1.0, 10.0), 2: (1.0, 100.0), 3: (4.0, 100.0)})
    {1: 10.0, 2: 10.0, 3: 40.0}
    """
    given = dict.fromkeys(claims, 0.0)
    waiting = {who for who, (_, claim) in claims.items() if claim > 0.0}
    while waiting and room > 1e-9:
        weights = sum(claims[who][0] for who in waiting)
        full = [
            who
            for who in sorted(waiting)
            if claims[who][1] - given[who] <= room * claims[who][0] / weights + 1e-9
        ]
        if not full:
            for who in waiting:
                given[who] += room * claims[who][0] / weights
            break
        for who in full:
            room -= claims[who][1] - given[who]
            given[who] = claims[who][1]
            waiting.discard(who)
    return given


class ElasticController:
    """The residents of one device. Quantities in thousandths of it.

    Parameters
    ----------
    capacity : float
        What may be given out in all.
    """

    def __init__(self, capacity: float = DEVICE_MILLI) -> None:
        self._capacity = capacity
        self._members: dict[int, _Member] = {}

    def join(self, who: int, guaranteed: float, limit: float) -> None:
        """A resident comes, or its share changes: from now on everybody has its guarantee, and may earn more."""
        known = self._members.get(who)
        if known is not None and (known.guaranteed, known.limit) == (guaranteed, limit):
            return
        self._members[who] = _Member(guaranteed, max(limit, guaranteed), max(guaranteed, 1.0))
        for member in self._members.values():
            if len(self._members) > 1:
                member.allowed, member.hungry = max(min(member.guaranteed, member.limit), 1.0), True

    def leave(self, who: int) -> None:
        """A resident goes; what it had is lent at the next look."""
        self._members.pop(who, None)

    def allowed(self) -> dict[int, int]:
        """What each may use now; one alone, all up to its limit."""
        if len(self._members) == 1:
            return {who: max(round(member.limit), 1) for who, member in self._members.items()}
        return {who: max(round(member.allowed), 1) for who, member in self._members.items()}

    def look(self, used: Mapping[int, float], held: Mapping[int, bool] | None = None) -> dict[int, int]:
        """Take what each used since the last look, and say what it may use until the next.

        Parameters
        ----------
        used : mapping of int to float
            Who is not in it could not be measured, and keeps what it has.
        held : mapping of int to bool, optional
            Of residents whose mechanism is exact and tells it: whether it held them back of late. They are
            believed, and not trimmed: with long steps what they used between two looks is nothing or a whole
            step, and says little.
        """
        held = held or {}
        for who, member in self._members.items():
            if who in used:
                now = max(used[who], 0.0)
                # Quick to see a need, slower to believe that it is over.
                weight = 1.0 if now > member.used else _MEMORY
                member.used += weight * (now - member.used)
                enough = _HUNGRY * min(member.allowed, member.target or member.allowed)
                member.hungry = held.get(who, False) or now >= enough
        claims = {who: self._claim(member) for who, member in self._members.items()}
        sure = {who: min(claims[who], member.guaranteed) for who, member in self._members.items()}
        extra = water_fill(
            max(self._capacity - sum(sure.values()), 0.0),
            {who: (max(m.guaranteed, 1.0), claims[who] - sure[who]) for who, m in self._members.items()},
        )
        for who, member in self._members.items():
            member.target = max(sure[who] + extra[who], min(member.guaranteed, member.limit))
            self._trim(member, None if who in held else used.get(who))
            member.allowed = min(max(member.target + member.trim, 1.0), self._capacity)
        return self.allowed()

    def _claim(self, member: _Member) -> float:
        if member.hungry:
            return member.limit
        return min(member.used * _ROOM + _ROOM_MILLI, member.limit)

    def _trim(self, member: _Member, now: float | None) -> None:
        """The integral part: only of those held back, for others use less by themselves."""
        if now is None or not member.hungry or member.target >= self._capacity - 1.0:
            member.trim *= _MEMORY
            return
        moved = member.trim + _GAIN * (member.target - now)
        member.trim = min(max(moved, -min(_MOST_MILLI, 0.8 * member.target)), _MOST_MILLI)
