"""All of a run's state as one value: one copy of what is shared, and a context for each worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cotenant.elastic.contexts import Context
from cotenant.elastic.sampling import Data
from cotenant.elastic.settings import whole
from cotenant.errors import InputError, StateError
from cotenant.runtime import contents, statefiles

__all__ = ["FORMAT", "End", "Place", "check", "newest", "pack", "save"]

FORMAT = 1


class Place(NamedTuple):
    """How far a run is.

    Attributes
    ----------
    step : int
        Steps done, over all epochs.
    epoch, within : int
        Epoch, and step of it, that comes next.
    """

    step: int = 0
    epoch: int = 0
    within: int = 0


class End(NamedTuple):
    """When a run is over: of both, what comes first; None is never.

    Attributes
    ----------
    epochs, steps : int or None
    """

    epochs: int | None
    steps: int | None

    @classmethod
    def asked(cls, epochs: Any, steps: Any) -> End:
        """As a script asks for it.

        Raises
        ------
        InputError
            If it asks for none, or for what is no number of them.
        """
        if epochs is None and steps is None:
            raise InputError("steps() without an end: give epochs=, or steps=")
        return cls(
            None if epochs is None else whole("epochs", epochs, 1),
            None if steps is None else whole("steps", steps, 1),
        )

    def reached(self, place: Place) -> bool:
        """Whether a place is the end."""
        epochs, steps = self
        return (epochs is not None and place.epoch >= epochs) or (steps is not None and place.step >= steps)

    def length(self, data: Data) -> int:
        """Steps from the beginning; 0 if nobody knows."""
        whole = 0 if self.epochs is None else data.total(self.epochs)
        return min((one for one in (whole, self.steps or 0) if one), default=0)

    def __str__(self) -> str:
        parts = [f"{number} {name}" for name, number in self._asdict().items() if number is not None]
        return " or ".join(parts)


def pack(
    objects: contents.Objects,
    place: Place,
    identity: Mapping[str, str],
    workers: list[Context],
    between: Context,
) -> dict[str, Any]:
    """Tensors are given by reference."""
    return objects.take() | {
        "cotenant": {"elastic": FORMAT, "place": tuple(place), "identity": dict(identity)},
        "workers": [context.packed() for context in workers],
        "between": between.packed(),
    }


def check(content: Mapping[str, Any], where: str) -> None:
    """See that a file is one of an elastic run.

    Raises
    ------
    StateError
    """
    format_ = content.get("cotenant", {}).get("elastic")
    if format_ is None:
        raise StateError(f"{where}: saved state of cotenant, but not of an elastic run")
    if format_ > FORMAT:
        raise StateError(
            f"{where}: elastic state of format {format_}, this version of cotenant reads up to {FORMAT}; install"
            " the version that wrote it, or a later one"
        )


def save(folder: Path, content: Mapping[str, Any], step: int, keep: int) -> Path:
    """Write one file: forced to disk, renamed, verified; older ones are deleted afterwards.

    Raises
    ------
    StateError, OSError
    """
    import torch

    written = statefiles.write_state(folder, step, lambda file: torch.save(content, file))
    statefiles.verify(written)
    statefiles.prune(folder, keep)
    return written.path


def newest(folder: Path) -> tuple[dict[str, Any], str] | None:
    """Newest state of a folder and its path, if there is one.

    Raises
    ------
    StateError
        If it is damaged, or none of an elastic run.
    """
    found = statefiles.list_states(folder)
    if not found:
        return None
    statefiles.verify(found[0])
    content = contents.load_content(found[0].path)
    check(content, str(found[0].path))
    return content, str(found[0].path)
