"""The line by which a training script joins in."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Literal

from cotenant.errors import InputError
from cotenant.runtime import contents
from cotenant.runtime.reporting import Reporter
from cotenant.runtime.run import Run
from cotenant.runtime.statefiles import state_folder

__all__ = ["attach"]


def attach(
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    *,
    scaler: Any = None,
    data: Any = None,
    total_steps: int = 0,
    extra: Mapping[str, Any] | None = None,
    every_s: float = 0.0,
    keep: int = 1,
    on_term: Literal["save"] | None = None,
    gradients: bool = True,
    random_data: bool = True,
    strict: bool = False,
    state: str | os.PathLike[str] | None = None,
) -> Run:
    """Attach this process to cotenant, and restore its saved state if there is any.

    Call it once, after everything has been built and moved to its device. Outside cotenant, and
    without ``state``, nothing is saved or reported and the loops run as they are.

    Parameters
    ----------
    model, optimizer, scheduler, scaler : object, sequence or mapping of objects, optional
        With ``state_dict`` and ``load_state_dict``.
    data : DataLoader or iterable, optional
        What ``Run.steps`` reads; may also be given there.
    total_steps : int
        Steps of the whole training; 0 if unknown.
    extra : mapping of str to object, optional
        More to keep: averaged weights, metrics, generators of PyTorch or NumPy.
    every_s : float
        Save this often, too, against crashes; 0 is never.
    keep : int
        Saved states to keep.
    on_term : "save", optional
        On SIGTERM save at the next step, then exit with 143.
    gradients : bool
        Keep gradients that are there between steps (gradient accumulation). Where every step ends with
        ``optimizer.zero_grad()`` there are none and they cost nothing.
    random_data : bool
        The data set draws random numbers (augmentation); see ``runtime.reading``.
    strict : bool
        Refuse to resume where the result may differ in its last bits, instead of telling.
    state : path, optional
        Folder of saved states; by default ``COTENANT_STATE``.

    Returns
    -------
    Run
        Its ``done`` says where to begin.

    Raises
    ------
    StateError
        Saved state that is damaged, of another model, or of a newer format.
    InputError
        An object whose state cannot be saved.
    """
    kinds = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    parts = {kind: contents.named(kind, given) for kind, given in kinds.items()} | {
        "extra": dict(extra or {})
    }
    objects = contents.Objects(parts, gradients=gradients)
    _limit_memory()
    folder = state_folder(state)
    reporter = Reporter.from_environment()
    run = Run(
        objects,
        parts["model"],
        data,
        folder,
        reporter,
        total_steps=total_steps,
        every_s=every_s,
        keep=keep,
        random_data=random_data,
    )
    if folder is not None:
        contents.check_loadable(objects.small(), "an object given to attach()")
    run.restore(strict)
    if on_term == "save":
        signal.signal(signal.SIGTERM, run.terminate)
    reporter.begin(run.done, total_steps, can_suspend=folder is not None, saved=run.resumed)
    return run


def _limit_memory() -> None:
    """Keep PyTorch's allocator to the share of device memory that cotenant gave the job."""
    given = os.environ.get("COTENANT_MEMORY_FRACTION")
    torch = sys.modules.get("torch")
    if not given or torch is None or not torch.cuda.is_available():
        return
    try:
        fraction = float(given)
    except ValueError:
        fraction = -1.0
    if not 0.0 < fraction <= 1.0:
        raise InputError(f"COTENANT_MEMORY_FRACTION is {given!r}: it must be a number above 0, at most 1")
    torch.cuda.set_per_process_memory_fraction(fraction)
