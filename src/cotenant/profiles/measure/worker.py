"""One running job: started on a leash, suspended and resumed, its steps read, its end understood."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cotenant.errors import ConfigError, CotenantError
from cotenant.profiles.jobs.steps import STEPS_VARIABLE, Step, StepReader

__all__ = ["JobFailedError", "JobFailure", "Worker"]

_LEASH = Path(__file__).with_name("leash.py")
_ANSWER_S = 20.0
_TAIL = 4000
_SILENT_S = 30.0
"""A job without a step is spoken of after this time."""
_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "memoryerror",
    "bad_alloc",
)

What = Literal["out of memory", "crashed", "ended", "too slow", "no steps", "no time", "cannot start"]


class JobFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job gave no speed.

    Parameters
    ----------
    job : str
        Its name in the file.
    what : str
        ``out of memory`` (told by its output, or killed by the kernel), ``crashed``, ``ended``
        (by itself, in good order), ``too slow`` (too few steps in the longest window), ``no
        steps`` (it never reported one), ``no time`` (the budget left less than the start took),
        ``cannot start``.
    detail : str
        Exit code and the last line of its output.
    """

    job: str
    what: What
    detail: str


class JobFailedError(CotenantError):
    """A job failed; carries the failure. Internal: never leaves this package."""

    def __init__(self, failure: JobFailure) -> None:
        super().__init__(f"{failure.job}: {failure.what}")
        self.failure = failure


class Worker:
    """A job's process and what is known of it.

    Parameters
    ----------
    name : str
        The job's name in the file.
    command : sequence of str
    environment : mapping
        The whole environment of the job, ``COTENANT_STEPS`` excepted.
    steps, log : Path
        Files for its steps (begun anew) and for its output (appended to).
    cores : sequence of int
        Cores to which it is bound; all if empty.
    memory_bytes : int, optional
        Limit of its address space.
    folder : str
        Working directory; ours if empty.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        steps: Path,
        log: Path,
        cores: Sequence[int] = (),
        memory_bytes: int | None = None,
        folder: str = "",
    ) -> None:
        self.name, self._log = name, log
        self.history: list[Step] = []
        self.pid = 0
        self._code: int | None = None
        self._rest = b""
        steps.unlink(missing_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        self._reader = StepReader(steps)
        self._leash = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", str(_LEASH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that a signal to our group leaves the leash to do its work
        )
        asked = {
            "command": list(command),
            "environment": {**environment, STEPS_VARIABLE: str(steps)},
            "cores": list(cores),
            "memory_bytes": memory_bytes,
            "folder": folder,
            "log": str(log),
        }
        self.started_ns = time.monotonic_ns()
        answer = self._ask(json.dumps(asked))
        if not answer.startswith("started "):
            self.close()
            raise ConfigError(f"job {name}: its leash could not start ({answer or 'no answer'})")
        self.pid = int(answer.split()[1])

    def _ask(self, line: str) -> str:
        """Send a line to the leash and wait for its answer; empty if it is gone."""
        if self._leash.stdin is None or self._leash.stdout is None:
            return ""
        try:
            self._leash.stdin.write(line.encode() + b"\n")
            self._leash.stdin.flush()
            descriptor = self._leash.stdout.fileno()
            until = time.monotonic() + _ANSWER_S
            while b"\n" not in self._rest:
                if not select.select([descriptor], [], [], max(until - time.monotonic(), 0.0))[0]:
                    return ""
                new = os.read(descriptor, 4096)
                if not new:
                    return ""
                self._rest += new
        except (OSError, ValueError):
            return ""
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer.decode()

    def _tell(self, word: str) -> None:
        if self._code is not None:
            raise JobFailedError(self._failure())
        answer = self._ask(word)
        if answer.startswith("ended "):
            self._code = int(answer.split()[1])
        elif not answer:
            # Nothing is known of the job then, least of all that memory ran out.
            raise JobFailedError(
                JobFailure(job=self.name, what="crashed", detail="its leash does not answer")
            )
        if self._code is not None:
            raise JobFailedError(self._failure())

    def go(self) -> None:
        """Let the job run.

        Raises
        ------
        JobFailedError
            If it has ended.
        """
        self._tell("go")

    def stop(self) -> None:
        """Suspend the job; raises as ``go`` does."""
        self._tell("stop")

    def check(self) -> None:
        """Raise ``JobFailedError`` if the job has ended."""
        self._tell("look")

    def read_steps(self) -> list[Step]:
        """All steps since the start, the newest included."""
        self.history += self._reader.read()
        return self.history

    def forget_steps(self) -> None:
        """Drop the steps read so far, which are of no further use."""
        self.read_steps()
        self.history = []

    def wait_warm(
        self,
        steps: int,
        seconds: float,
        timeout_s: float,
        *,
        shortened: str = "",
        remark: Callable[[str], None] | None = None,
    ) -> None:
        """Wait until the job has done so many steps and run so long since the first.

        Parameters
        ----------
        steps : int
        seconds : float
        timeout_s : float
        shortened : str
            Why this is less than a start may take, in words; empty if it is not.
        remark : callable, optional
            Told once if the job has reported no step for a while.

        Raises
        ------
        JobFailedError
        """
        begun = time.monotonic()
        silent_s = min(_SILENT_S, timeout_s / 2)
        while True:
            self.check()
            done = self.read_steps()
            now = time.monotonic_ns()
            if len(done) >= max(steps, 1) and now - done[0].end_ns >= seconds * 1e9:
                return
            waited_s = time.monotonic() - begun
            if waited_s > timeout_s:
                raise JobFailedError(self._not_warm(len(done), timeout_s, shortened))
            if remark is not None and not done and waited_s > silent_s:
                remark(
                    f"{self.name} has reported no step for {waited_s:.3g} s; a job appends a line to "
                    f"${STEPS_VARIABLE} at each step (docs/prediction/measure.md)"
                )
                remark = None
            time.sleep(0.05)

    def _not_warm(self, done: int, timeout_s: float, shortened: str) -> JobFailure:
        what: What = "no time" if shortened else "too slow" if done else "no steps"
        detail = f"{done} steps in {timeout_s:.3g} s"
        if shortened:
            detail += f", {shortened}"
        if not done:
            detail += f"; does it report them to ${STEPS_VARIABLE}?"
        return JobFailure(job=self.name, what=what, detail=detail)

    def _failure(self) -> JobFailure:
        tail = self._tail()
        last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
        code = self._code or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        what: What = "ended" if code == 0 else "crashed"
        if code == 127 and last.startswith("cannot start"):
            what = "cannot start"
        elif code == -9 or any(word in tail.lower() for word in _MEMORY_WORDS):
            # Nobody but the kernel's out-of-memory killer sends SIGKILL to a job on our leash.
            what = "out of memory"
        return JobFailure(job=self.name, what=what, detail=f"{how}: {last}"[:300])

    def _tail(self) -> str:
        """The end of what this process has written, earlier ones' output left out."""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, self._log_start))
            return file.read().decode("utf-8", errors="replace")
        return ""

    def close(self) -> None:
        """End the job and everything it started; may be called twice."""
        for stream in (self._leash.stdin, self._leash.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._leash.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._leash.kill()  # the job dies with it, by its parent-death signal
            self._leash.wait()
