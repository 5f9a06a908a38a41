"""Run experiments over seeds and processes, and keep what they give."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant import __version__
from cotenant.errors import InputError, MissingDataError
from cotenant.experiments.base import Experiment, Measured, Place
from cotenant.experiments.catalogue import find
from cotenant.experiments.cells import run_cells
from cotenant.experiments.standing import Standing, stand

__all__ = ["KIND", "Cell", "Done", "check_folder", "data_folder", "reproduce", "result_json"]

KIND = "cotenant-reproduction"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment with one seed."""

    name: str
    seed: int
    place: Place


class Done(msgspec.Struct, kw_only=True):
    """One experiment, all seeds.

    ``missing`` says, in a sentence, why it could not run here; it is empty otherwise.
    """

    experiment: Any
    seeds: list[int]
    measured: list[Measured]
    standings: list[Standing]
    missing: str = ""


def data_folder() -> str | None:
    """The folder of measured tables and traces: ``COTENANT_DATA``, or ``../shared/data`` if it is there."""
    named = os.environ.get("COTENANT_DATA", "../shared/data")
    return named if Path(named).is_dir() else None


def _measure(cell: Cell) -> Measured | str:
    try:
        return find(cell.name).measure(cell.seed, cell.place)
    except MissingDataError as problem:
        return str(problem)


def reproduce(
    names: Sequence[str],
    place: Place,
    *,
    seeds: int | None = None,
    workers: int = 1,
    ended: Callable[[Cell], None] | None = None,
) -> list[Done]:
    """Run every experiment with every seed.

    Parameters
    ----------
    seeds : int, optional
        In place of each experiment's own number.

    Raises
    ------
    CotenantError
        For an unknown name, or whatever stops an experiment; missing data is told in ``Done.missing``.
    """
    experiments = [find(name) for name in names]
    cells = [
        Cell(name=name, seed=seed, place=place)
        for name, experiment in zip(names, experiments, strict=True)
        for seed in range(seeds or place.pick(experiment.seeds, min(experiment.seeds, 2), 1))
    ]
    found: dict[Cell, Measured | str] = {}

    def keep(cell: Cell, result: Measured | str) -> None:
        found[cell] = result
        if ended is not None:
            ended(cell)

    run_cells(_measure, cells, workers, keep)
    return [
        _done(experiment, [(c.seed, found[c]) for c in cells if c.name == name])
        for name, experiment in zip(names, experiments, strict=True)
    ]


def _done(experiment: Experiment, results: Sequence[tuple[int, Measured | str]]) -> Done:
    measured = [r for _, r in results if isinstance(r, Measured)]
    missing = next((r for _, r in results if isinstance(r, str)), "")
    return Done(
        experiment=experiment,
        seeds=[seed for seed, r in results if isinstance(r, Measured)],
        measured=measured,
        standings=[stand(claim, measured) for claim in experiment.claims],
        missing=missing,
    )


def result_json(done: Sequence[Done], place: Place, command: str) -> dict[str, Any]:
    """Everything that was found, as plain values."""
    return {
        "kind": KIND,
        "version": __version__,
        "command": command,
        "size": place.size,
        "experiments": [
            {
                "name": one.experiment.name,
                "title": one.experiment.title,
                "source": one.experiment.source,
                "paper": one.experiment.paper,
                "reconstruction": list(one.experiment.reconstruction),
                "policies": dict(one.experiment.policies),
                "seeds": one.seeds,
                "missing": one.missing,
                "claims": [
                    msgspec.to_builtins(s.claim)
                    | {
                        "ours": s.values,
                        "mean": s.mean,
                        "spread": s.spread,
                        "difference": s.difference,
                        "verdict": s.verdict,
                        "reason": s.reason,
                    }
                    for s in one.standings
                ],
                "measured": [msgspec.to_builtins(m) for m in one.measured],
            }
            for one in done
        ],
    }


def check_folder(folder: Path, result: str, kind: str, *, force: bool) -> None:
    """Refuse to write into a folder that holds other things.

    Raises
    ------
    InputError
        If it is a file, or holds something and no ``result`` of this ``kind`` (``force`` writes beside it).
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; -o names a folder")
    if force or not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        found = msgspec.json.decode((folder / result).read_bytes())
    except (OSError, msgspec.MsgspecError):
        found = None
    if not (isinstance(found, dict) and found.get("kind") == kind):
        raise InputError(
            f"{folder} holds other things; choose another folder with -o, or write beside them with --force"
        )
