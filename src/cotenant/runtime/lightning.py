"""The runtime for Lightning: one callback, and a loader that knows its place.

::

    from cotenant.runtime import Resumable, lightning

    callback = lightning.callback()
    trainer = Trainer(..., callbacks=[callback])
    trainer.fit(model, Resumable(loader), ckpt_path=callback.checkpoint, weights_only=True)

Asked to leave, the job makes the Trainer write its own checkpoint, in ``COTENANT_STATE``, and exits. It
leaves where Lightning has nothing half-done: not between the batches of one accumulated step, nor
before a validation that is due; then it leaves a step later.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from cotenant.errors import MissingExtraError, StateError
from cotenant.runtime import randomness
from cotenant.runtime.gate import Gate
from cotenant.runtime.reporting import Reporter
from cotenant.runtime.run import SUSPENDED, Suspended
from cotenant.runtime.statefiles import digest_of, state_folder

__all__ = ["callback", "newest_checkpoint"]

_NAME = re.compile(r"lightning-(\d{1,4})-(\d{12})-([0-9a-f]{64})\.ckpt")
FORMAT = 1


def callback(state: str | os.PathLike[str] | None = None) -> Any:
    """A Lightning ``Callback`` that reports steps, keeps to the share, and leaves when asked.

    Its ``checkpoint`` is what to give to ``Trainer.fit(ckpt_path=...)``: a path, or None where nothing
    was saved.

    Parameters
    ----------
    state : path, optional
        Folder of saved states; by default ``COTENANT_STATE``.

    Raises
    ------
    MissingExtraError
        Without lightning.
    StateError
        If the newest checkpoint is damaged or of a newer format.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        raise MissingExtraError("the callback for Lightning", "lightning") from None
    # The class is made here, so that this module can be imported without lightning.
    made = type("CotenantCallback", (_Hooks, Callback), {})
    return made(state_folder(state), Reporter.from_environment())


class _Hooks:
    """Lightning's hooks."""

    def __init__(self, folder: Path | None, reporter: Reporter) -> None:
        self.checkpoint = None if folder is None else newest_checkpoint(folder)
        self._folder, self._reporter = folder, reporter
        self._random: dict[str, Any] | None = None
        self._gate = Gate(reporter.limit_milli, self._asked)

    def state_dict(self) -> dict[str, Any]:
        """Random states, which Lightning does not keep."""
        return {"random": randomness.capture()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep them for the first step."""
        self._random = state["random"]

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Training begins, or goes on."""
        self._reporter.begin(
            trainer.global_step,
            _total(trainer),
            can_suspend=self._folder is not None,
            saved=self.checkpoint is not None,
        )

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        """A batch has been read."""
        self._reporter.resume()
        if self._random is not None:
            randomness.restore(self._random)
            self._random = None

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch has been trained on; where gradients are accumulated, not every one ends a step."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        busy_ns = self._reporter.step(trainer.global_step)
        if self._gate.pay(busy_ns):
            self._reporter.slept(self._gate.slept_ns)
        due = not trainer.is_last_batch and not _validates(trainer, batch_idx)
        if due and self._asked() and trainer.global_step != _total(trainer):
            self._leave(trainer)

    def _leave(self, trainer: Any) -> None:
        if self._folder is None:
            return
        self._reporter.saving(True)
        # Lightning counts the batch only after its hooks; without this it would be trained on again.
        progress = trainer.fit_loop.epoch_loop.batch_progress
        progress.increment_completed()
        try:
            kept = _save(trainer, self._folder)
        except OSError as error:
            progress.current.completed -= 1
            progress.total.completed -= 1
            sys.stderr.write(
                f"cotenant: no checkpoint in {self._folder}: {error.strerror or error}; going on\n"
            )
            return
        finally:
            self._reporter.saving(False)
        self._reporter.saved(trainer.global_step, kept.stat().st_size)
        raise Suspended(SUSPENDED)

    def _asked(self) -> bool:
        return self._reporter.to_suspend and self._folder is not None


def _total(trainer: Any) -> int:
    """Steps in all, 0 if unknown."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 < steps < float("inf") else 0


def _validates(trainer: Any, batch_idx: int) -> bool:
    every = trainer.val_check_batch
    return bool(trainer.enable_validation and 0 < every < float("inf") and (batch_idx + 1) % every == 0)


def _save(trainer: Any, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = folder / f"tmp-{os.getpid()}-lightning.ckpt"
    try:
        trainer.save_checkpoint(temporary)
        digest = digest_of(temporary, sync=True)
        kept = folder / f"lightning-{FORMAT}-{trainer.global_step:012d}-{digest}.ckpt"
        temporary.rename(kept)
    finally:
        temporary.unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for old in folder.glob("lightning-*.ckpt"):
        if old != kept:
            old.unlink(missing_ok=True)
    return kept


def newest_checkpoint(folder: Path) -> str | None:
    """The checkpoint written last, verified; None if there is none.

    Raises
    ------
    StateError
    """
    names = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir()] if folder.is_dir() else []
    found = sorted((int(match[2]), path, match) for path, match in names if match)
    if not found:
        return None
    _, path, match = found[-1]
    if int(match[1]) > FORMAT:
        raise StateError(
            f"{path}: checkpoint of format {match[1]}, this version of cotenant reads up to {FORMAT}; install the"
            " version that wrote it, or a later one"
        )
    if digest_of(path) != match[3]:
        raise StateError(f"{path}: checkpoint is truncated or damaged; delete it to begin anew")
    return str(path)
