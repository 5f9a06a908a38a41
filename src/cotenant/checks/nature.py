"""What a hostile machine is made of: how often what goes wrong, and processes as they really are."""

from __future__ import annotations

import msgspec

from cotenant.model.liveports import AttemptEnded, Launch

__all__ = ["Nature", "Process"]


class Nature(msgspec.Struct, kw_only=True):
    """How hostile the world is: probabilities of each mishap, and what it forgets to check.

    ``claims`` and ``epochs`` are what real shepherds check; without them tests must fail.
    """

    lost_call: float = 0.05
    lost_report: float = 0.08
    repeated: float = 0.1
    late: float = 0.2
    crash: float = 0.06
    ignores_signals: float = 0.15
    late_start: float = 0.15
    fails: float = 0.15
    hangs: float = 0.04
    never_settles: float = 0.15
    refuses: float = 0.15
    claims: bool = True
    epochs: bool = True

    def kind(self) -> Nature:
        """The same world without mishaps."""
        return Nature(
            lost_call=0,
            lost_report=0,
            repeated=0,
            late=0,
            crash=0,
            ignores_signals=0,
            late_start=0,
            fails=0,
            hangs=0,
            never_settles=0,
            refuses=0,
            claims=self.claims,
            epochs=self.epochs,
        )


class Process(msgspec.Struct, eq=False):
    """One process tree, as it really is. ``state``: starting, running, ended.

    ``order``: number of the newest order to be elsewhere, as it was given; ``settled``: whether it was carried out.
    """

    launch: Launch
    total_s: float
    state: str = "starting"
    work_s: float = 0.0
    since_s: float = 0.0
    paused: bool = False
    saving: bool = False
    deaf: bool = False
    hangs_s: float = float("inf")
    pid: int = 0
    end: AttemptEnded | None = None
    stamp: int = 0
    order: int = 0
    settled: bool = True

    def done_s(self, now: float) -> float:
        """Work so far."""
        runs = self.state == "running" and not self.paused
        return min(self.work_s + (now - self.since_s if runs else 0.0), self.hangs_s)
