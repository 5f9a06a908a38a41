"""Speed in a steady state: steps that lie whole inside a time in which all jobs ran."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.profiles.jobs.steps import Step

__all__ = ["Pace", "pace", "settled_at"]


class Pace(msgspec.Struct, frozen=True):
    """What a job did in a window.

    Parameters
    ----------
    steps : int
        Steps between the first and the last step's end inside.
    seconds : float
        Between these two.
    cpu_s : float or None
        CPU time of the process between them, if it reports it.
    """

    steps: int
    seconds: float
    cpu_s: float | None

    @property
    def speed(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def pace(steps: Sequence[Step], from_ns: int, to_ns: int) -> Pace | None:
    """Steps whose beginning and end lie inside; None for fewer than one.

    The time counted goes from one step's end to another's, so that no part of a step at the
    edges is lost or counted twice.
    """
    inside = [step for step in steps if from_ns <= step.end_ns <= to_ns]
    if len(inside) < 2 or inside[-1].end_ns == inside[0].end_ns:
        return None
    first, last = inside[0], inside[-1]
    cpu_s = None
    if first.cpu_ns is not None and last.cpu_ns is not None:
        cpu_s = (last.cpu_ns - first.cpu_ns) / 1e9
    return Pace(len(inside) - 1, (last.end_ns - first.end_ns) / 1e9, cpu_s)


def settled_at(all_steps: Sequence[Sequence[Step]], resumed_ns: int, settle_s: float) -> int | None:
    """When every job has ended a step after the settling time; None if one has not.

    A step that was under way while its job was suspended is thereby left out.
    """
    earliest = resumed_ns + int(settle_s * 1e9)
    moments: list[int] = []
    for steps in all_steps:
        after = [step.end_ns for step in steps if step.end_ns >= earliest]
        if not after:
            return None
        moments.append(after[0])
    return max(moments)
