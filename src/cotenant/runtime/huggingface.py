"""The runtime for Hugging Face's ``Trainer``: one callback.

::

    from cotenant.runtime import huggingface

    callback = huggingface.callback()
    trainer = Trainer(..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.checkpoint)

Asked to leave, the job makes the Trainer write its own checkpoint at the end of the step, keeps it in
``COTENANT_STATE`` and exits. What is resumed, and how exactly, is the Trainer's: weights, optimiser,
schedule, scaler, random states and the place in the data.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from cotenant.errors import MissingExtraError, StateError
from cotenant.runtime.gate import Gate
from cotenant.runtime.reporting import Reporter
from cotenant.runtime.run import SUSPENDED, Suspended
from cotenant.runtime.statefiles import digest_of, state_folder, sync_folder

__all__ = ["callback", "keep_checkpoint", "newest_checkpoint"]

FORMAT = 1
_MANIFEST = "cotenant.json"


def callback(state: str | os.PathLike[str] | None = None) -> Any:
    """A ``TrainerCallback`` that reports steps, keeps to the share, and leaves when asked.

    Its ``checkpoint`` is what to give to ``Trainer.train(resume_from_checkpoint=...)``: a path, or None
    where nothing was saved.

    Parameters
    ----------
    state : path, optional
        Folder of saved states; by default ``COTENANT_STATE``.

    Raises
    ------
    MissingExtraError
        Without transformers.
    StateError
        If the newest checkpoint is damaged or of a newer format.
    """
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise MissingExtraError("the callback for Hugging Face's Trainer", "huggingface") from None
    # The class is made here, so that this module can be imported without transformers.
    made = type("CotenantCallback", (_Hooks, TrainerCallback), {})
    return made(state_folder(state), Reporter.from_environment())


class _Hooks:
    """The Trainer's hooks; each is given the arguments, the state, and the switches of the training."""

    def __init__(self, folder: Path | None, reporter: Reporter) -> None:
        self.checkpoint = None if folder is None else newest_checkpoint(folder)
        self._folder, self._reporter = folder, reporter
        self._leaving = False
        self._gate = Gate(reporter.limit_milli, self._asked)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Training begins, or goes on."""
        self._reporter.begin(
            state.global_step,
            state.max_steps,
            can_suspend=self._folder is not None,
            saved=self.checkpoint is not None,
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """An optimiser step begins."""
        self._reporter.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """An optimiser step has ended."""
        busy_ns = self._reporter.step(state.global_step)
        if self._gate.pay(busy_ns):
            self._reporter.slept(self._gate.slept_ns)
        if self._asked() and state.global_step < state.max_steps:
            self._leaving = control.should_save = True
            self._reporter.saving(True)

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """The Trainer has written a checkpoint."""
        if self._folder is None or not state.is_world_process_zero:
            return
        made = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        try:
            kept = keep_checkpoint(made, self._folder, state.global_step)
        except OSError as error:
            sys.stderr.write(f"cotenant: checkpoint {made} not kept in {self._folder}: {error}; going on\n")
            self._leaving = False
            return
        finally:
            self._reporter.saving(False)
        size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
        self._reporter.saved(state.global_step, size)
        if self._leaving:
            raise Suspended(SUSPENDED)

    def _asked(self) -> bool:
        return self._reporter.to_suspend and self._folder is not None


def keep_checkpoint(made: Path, folder: Path, step: int) -> Path:
    """Keep a checkpoint in the state folder: whole, on disk, with the digests of its files.

    Files are linked where that is possible: the Trainer never changes one that it has written.

    Raises
    ------
    OSError
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary, kept = folder / f"tmp-{os.getpid()}-trainer", folder / f"trainer-{step:012d}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        shutil.copytree(made, temporary, copy_function=_link)
        files = {p.relative_to(temporary).as_posix(): p for p in sorted(temporary.rglob("*")) if p.is_file()}
        digests = {name: digest_of(path, sync=True) for name, path in files.items()}
        manifest = temporary / _MANIFEST
        with manifest.open("w") as file:
            json.dump({"format": FORMAT, "step": step, "files": digests}, file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(kept, ignore_errors=True)
        temporary.rename(kept)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for path in (*(p for p in kept.rglob("*") if p.is_dir()), kept, folder):
        sync_folder(path)
    for old in sorted(folder.glob("trainer-*"))[:-1]:
        shutil.rmtree(old, ignore_errors=True)
    return kept


def newest_checkpoint(folder: Path) -> str | None:
    """The checkpoint kept last, verified; None if there is none.

    Raises
    ------
    StateError
    """
    kept = sorted(folder.glob("trainer-*")) if folder.is_dir() else []
    if not kept:
        return None
    path = kept[-1]
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        if manifest["format"] > FORMAT:
            raise StateError(
                f"{path}: checkpoint of format {manifest['format']}, this version of cotenant reads up to {FORMAT};"
                " install the version that wrote it, or a later one"
            )
        for name, digest in manifest["files"].items():
            if digest_of(path / name) != digest:
                raise StateError(
                    f"{path / name}: checkpoint is truncated or damaged; delete it to begin anew"
                )
    except (OSError, ValueError, KeyError) as error:
        raise StateError(f"{path}: checkpoint cannot be read: {error}; delete it to begin anew") from None
    return str(path)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
