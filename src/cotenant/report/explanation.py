"""What is told of one job: its steps, its waits, its neighbours, and what would have helped."""

from __future__ import annotations

import msgspec

from cotenant.report.neighbours import Neighbour, told_of
from cotenant.report.phrases import at
from cotenant.report.promises import Promise
from cotenant.report.tables import show
from cotenant.report.telling import now_telling
from cotenant.report.waits import Wait

__all__ = ["Explanation", "Step"]


class Step(msgspec.Struct, frozen=True):
    """One thing that happened to the job, in one sentence."""

    t: float
    what: str
    text: str


class Explanation(msgspec.Struct, frozen=True):
    """What the log says about one job.

    Parameters
    ----------
    verdict : str
        How it stands at the end of the log, in one line.
    unblock : str
        What would end its wait, or would have shortened the last one; empty if it never waited.
    promises : tuple of Promise
        What was foretold of its speed beside others, and what happened.
    """

    id: int
    name: str
    gpus: int
    outcome: str
    verdict: str
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]
    neighbours: tuple[Neighbour, ...]
    unblock: str
    promises: tuple[Promise, ...] = ()

    @property
    def text(self) -> str:
        """The whole story, one line for each thing that happened."""
        lines = [f"Job {show(self.name)!r} (number {self.id}): {self.verdict}", ""]
        moments = [at(step.t) for step in self.steps]
        width = max([12, *map(len, moments)])
        lines += [f"{moment:>{width}}  {step.text}" for moment, step in zip(moments, self.steps, strict=True)]
        if self.neighbours:
            lines += ["", "Shared its devices with:"]
            lines += [f"{'':12}  {line}" for line in told_of(self.neighbours)]
        if self.promises:
            lines += ["", "Its speed beside others, relative to alone:"]
            lines += [f"{'':12}  {p.text}" for p in self.promises]
        if self.unblock:
            over = now_telling() is not None and bool(self.waits) and self.waits[-1].end_s is not None
            word = (
                "What would have shortened its longest wait, now over" if over else "What would have helped"
            )
            lines += ["", f"{word}: {self.unblock}."]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text
