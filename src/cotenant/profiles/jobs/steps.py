r"""The step hook: how a training job tells how far it is.

``cotenant measure`` and ``cotenant profile`` set ``COTENANT_STEPS`` to the path of a file or
pipe. At the end of every step the job appends one line to it::

    <nanoseconds of the monotonic clock> <nanoseconds of CPU time of the process>

The second number may be left out. A line is written by one call, so that a job that is killed
leaves whole lines. In a training script::

    from cotenant.profiles.jobs.steps import step_hook

    step = step_hook()          # does nothing where nobody listens
    for batch in batches:
        train(batch)
        step()                  # after torch.cuda.synchronize() on a GPU

A script that should not depend on cotenant writes the line itself::

    log = open(os.environ["COTENANT_STEPS"], "a", buffering=1)
    ...
    log.write(f"{time.monotonic_ns()}\n")

On Linux the monotonic clock is one for all processes, so the steps of jobs that run side by
side lie on one time line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

__all__ = ["STEPS_VARIABLE", "Step", "StepReader", "parse_step", "step_hook"]

STEPS_VARIABLE = "COTENANT_STEPS"


class Step(msgspec.Struct, frozen=True, gc=False):
    """The end of one step.

    Parameters
    ----------
    end_ns : int
        Monotonic clock.
    cpu_ns : int or None
        CPU time that the process had used by then; None where it was not reported.
    """

    end_ns: int
    cpu_ns: int | None = None


def step_hook(path: str | None = None) -> Callable[[], None]:
    """A function to call at the end of every step.

    Parameters
    ----------
    path : str, optional
        File or pipe; by default that of ``COTENANT_STEPS``. With neither, the function
        returned does nothing, so that a script runs the same unobserved. Of several processes
        of one training run (``RANK``, as torchrun sets it) the first alone reports.
    """
    where = path if path is not None else os.environ.get(STEPS_VARIABLE, "")
    if not where or os.environ.get("RANK", "0") != "0":
        return _nothing
    descriptor = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def report() -> None:
        os.write(descriptor, b"%d %d\n" % (time.monotonic_ns(), time.process_time_ns()))

    return report


def _nothing() -> None:
    return None


def parse_step(line: bytes) -> Step | None:
    """Read one line; None if it is not one of a step.

    >>> parse_step(b"120 35"), parse_step(b"120"), parse_step(b"epoch 3")
    (Step(end_ns=120, cpu_ns=35), Step(end_ns=120, cpu_ns=None), None)
    """
    words = line.split()
    if not 1 <= len(words) <= 2 or not all(word.isdigit() for word in words):
        return None
    return Step(int(words[0]), int(words[1]) if len(words) == 2 else None)


class StepReader:
    """Reads what a job has appended since the last call.

    Lines that are no steps are counted in ``strange`` and left out, as are steps that go back
    in time; a last line that is not whole yet waits for the next call.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._last_ns = 0
        self.strange = 0

    def read(self) -> list[Step]:
        """The steps since the last call; none while the file does not exist."""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        found: list[Step] = []
        for line in lines:
            step = parse_step(line)
            if step is None or step.end_ns < self._last_ns:
                self.strange += 1
                continue
            self._last_ns = step.end_ns
            found.append(step)
        return found
