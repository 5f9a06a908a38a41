"""A training run that tells how far it is, can leave at any step, and goes on as if it never had."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cotenant.errors import InputError, StateError
from cotenant.runtime import contents, randomness, statefiles
from cotenant.runtime.gate import Gate
from cotenant.runtime.reading import Reading
from cotenant.runtime.reporting import Reporter

__all__ = ["SUSPENDED", "Run", "Suspended"]

SUSPENDED = 85
"""Exit code of a job that saved its state as asked."""
_RETRY_NS = 10_000_000_000
"""After a save that failed (disk full), the next is tried so much later."""


class Suspended(SystemExit):
    """The state is saved and the job leaves; exit code 85, or 143 if it was ended by SIGTERM."""


class Run:
    """A run that is attached; made by ``attach``.

    Attributes
    ----------
    done : int
        Steps done so far, over suspensions: where to begin.
    epoch : int
        Epoch being read.
    total_steps : int
        0 if unknown.
    resumed : bool
        State was restored.
    changes : tuple of str
        What is other than when the state was saved (threads, version of PyTorch, device, ...) and may
        change the bits of the result; empty is the promise that it does not.
    """

    def __init__(
        self,
        objects: contents.Objects,
        models: Mapping[str, Any],
        data: Any,
        folder: Path | None,
        reporter: Reporter,
        *,
        total_steps: int,
        every_s: float,
        keep: int,
        random_data: bool,
    ) -> None:
        self.done = self.epoch = 0
        self.total_steps = total_steps
        self.resumed = False
        self.changes: tuple[str, ...] = ()
        self._objects, self._models, self._folder, self._reporter = objects, models, folder, reporter
        self._random_data, self._keep = random_data, keep
        self._reading = None if data is None else Reading(data, random_data=random_data)
        self._pending: dict[str, Any] | None = None  # data position and random states to go on from
        self._read_to_end = False
        self._every_ns = int(every_s * 1e9)
        self._saved_ns = time.monotonic_ns()
        self._retry_ns = 0
        self._terminated = False
        self._gate = Gate(reporter.limit_milli, self._leaving)

    # -- loops -----------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """All steps are done, as far as ``total_steps`` says."""
        return 0 < self.total_steps <= self.done

    def steps(self, data: Any = None, *, epochs: int | None = None) -> Iterator[tuple[int, Any]]:
        """Number of the step and its batch, from where the run is to ``total_steps`` or the last epoch.

        Parameters
        ----------
        data : DataLoader or iterable, optional
            Read again and again; by default what ``attach`` was given.
        epochs : int, optional
            End after so many, if ``total_steps`` is not reached before.

        Raises
        ------
        InputError
            If there is no end, no data, or an epoch without a batch.
        """
        if not self.total_steps and epochs is None:
            raise InputError("steps() without an end: give attach(total_steps=...) or steps(epochs=...)")
        while not self.finished and (epochs is None or self.epoch < epochs):
            before = self.done
            for batch in self.batches(data):
                yield self.done, batch
                self.step()
                if self.finished:
                    return
            if self.done == before and self._reading is not None and not self._reading.index:
                raise InputError("the data gave no batch: an epoch of them is empty")
            self._next_epoch()

    def epochs(self, count: int) -> Iterator[int]:
        """Numbers of the epochs still to be trained, the one that was left in the middle first."""
        while self.epoch < count:
            epoch = self.epoch
            yield epoch
            if self.epoch == epoch:
                self._next_epoch()

    def batches(self, data: Any = None) -> Iterator[Any]:
        """Batches of one epoch; of one that was left in the middle, those not trained on yet.

        Call ``step`` at the end of each step.
        """
        if self._read_to_end:
            self._next_epoch()
        reading = self._reads(data)
        if self._pending is not None:
            pending, self._pending = self._pending, None
            batches = reading.resume(pending["data"], pending["random"])
        else:
            batches = reading.begin(self.epoch)
        while True:
            began = time.monotonic_ns()
            try:
                batch = next(batches)
            except StopIteration:
                break
            reading.index += 1
            self._reporter.waited(time.monotonic_ns() - began)
            yield batch
        self._read_to_end = True

    def step(self) -> None:
        """A step has ended: report it, save or leave if that is due, sleep if the share is used up.

        Call it where a training script would write a checkpoint: after the update of parameters
        and of the learning rate.

        Raises
        ------
        Suspended
            A ``SystemExit``: the state is saved and the process is to end.
        """
        if not self._gate.open:
            _wait_for_device()
        busy_ns = self._reporter.step(self.done + 1)
        self.done += 1
        if self.finished:
            return
        if self._leaving():
            self._leave()
        elif self._every_ns and time.monotonic_ns() - self._saved_ns >= self._every_ns:
            self.save()
        if self._gate.pay(busy_ns):
            self._reporter.slept(self._gate.slept_ns)
            if self._leaving():
                self._leave()
        self._reporter.resume()

    # -- state -----------------------------------------------------------------------

    def save(self) -> bool:
        """Save the state now, at a boundary between steps.

        Returns
        -------
        bool
            False if there is nowhere to save it, or no room; that is told on standard error and the
            run goes on.
        """
        if self._folder is None:
            return False
        self._reporter.saving(True)
        try:
            content = self._content()
            torch_save = sys.modules["torch"].save if "torch" in sys.modules else _import_save()
            state = statefiles.write_state(self._folder, self.done, lambda file: torch_save(content, file))
            statefiles.prune(self._folder, self._keep)
            self._reporter.saved(self.done, state.path.stat().st_size)
        except OSError as error:
            _tell(
                f"state of step {self.done} not saved in {self._folder}: {error.strerror or error}; going on"
            )
            self._retry_ns = time.monotonic_ns() + _RETRY_NS
            return False
        finally:
            self._saved_ns = time.monotonic_ns()
            self._reporter.saving(False)
        return True

    def _content(self) -> dict[str, Any]:
        content = self._objects.take()
        content["random"] = randomness.capture()
        reading = self._reading
        content["data"] = None if reading is None else reading.state(self.epoch)
        content["cotenant"] = {
            "format": statefiles.FORMAT,
            "step": self.done,
            "epoch": self.epoch,
            "total_steps": self.total_steps,
            "identity": contents.identity(self._models),
        }
        return content

    def restore(self, strict: bool) -> None:
        """Go on from the newest state that is whole; ``attach`` does it."""
        if self._folder is None:
            return
        state, refusal = None, None
        for candidate in statefiles.list_states(self._folder):
            try:
                statefiles.verify(candidate)
            except StateError as error:
                if candidate.format > statefiles.FORMAT:
                    raise
                refusal = refusal or error
                continue
            state = candidate
            break
        if state is None:
            if refusal is not None:
                raise refusal
            if os.environ.get("COTENANT_RESUME") == "1":
                _tell(f"asked to resume, but {self._folder} holds no saved state; beginning at step 0")
            return
        if refusal is not None:
            _tell(f"{refusal}; going on from step {state.step}")
        content = contents.load_content(state.path)
        self._changed(content, str(state.path), strict)
        self._objects.put(content, str(state.path))
        self._place(content)
        self._reporter.saved(self.done, state.path.stat().st_size)

    def _changed(self, content: dict[str, Any], where: str, strict: bool) -> None:
        old, new = content["cotenant"]["identity"], contents.identity(self._models)
        changes = [
            f"{what} {old[what]} -> {new[what]}" for what in new if old.get(what, new[what]) != new[what]
        ]
        if self._reading is not None and content["data"] is not None:
            changes += self._reading.changes(content["data"])
        self.changes = tuple(changes)
        if changes and strict:
            raise StateError(f"{where}: resumed here the result may differ: {', '.join(changes)}")
        if changes:
            _tell(
                f"resumed under other conditions, the result may differ in its last bits: {', '.join(changes)}"
            )

    def _place(self, content: dict[str, Any]) -> None:
        about = content["cotenant"]
        self.done, self.epoch, self.resumed = about["step"], about["epoch"], True
        randomness.restore(content["random"])
        if content["data"] is not None:
            self._pending = {"data": content["data"], "random": content["random"]}
            if self._reading is not None and self._reading.kind == "stateful":
                # Read without batches(), it must stand at its place from now on.
                self._reading.source.load_state_dict(content["data"]["source"])

    # -- inside ----------------------------------------------------------------------

    def _reads(self, data: Any) -> Reading:
        if data is not None and (self._reading is None or self._reading.source is not data):
            self._reading = Reading(data, random_data=self._random_data)
        if self._reading is None:
            raise InputError("no data: give a loader to attach(data=...), or to steps() or batches()")
        return self._reading

    def _next_epoch(self) -> None:
        self.epoch += 1
        self._read_to_end = False
        self._pending = None
        if self._reading is not None:
            self._reading.index = 0

    def _leaving(self) -> bool:
        return (self._terminated or self._reporter.to_suspend) and self._folder is not None

    def _leave(self) -> None:
        if time.monotonic_ns() < self._retry_ns or not self.save():
            return
        raise Suspended(128 + signal.SIGTERM if self._terminated else SUSPENDED)

    def terminate(self, number: int = 0, frame: Any = None) -> None:
        """Save and leave at the end of this step; a handler of signals."""
        self._terminated = True


def _wait_for_device() -> None:
    """Kernels still running belong to the step; only a limited job pays for waiting."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _import_save() -> Any:
    import torch

    return torch.save


def _tell(message: str) -> None:
    sys.stderr.write(f"cotenant: {message}\n")
    sys.stderr.flush()
