"""Fitted predictors as files: data and what was chosen, never code.

A file holds the runs that were learnt from, the choices that were made, and a card that says
what it is. Loading fits the chosen members again, which gives the same predictions.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant import __version__
from cotenant.errors import ConfigError
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.predictors.interference.selection import Choice
from cotenant.profiles.hashes import sha256_of
from cotenant.profiles.runs import CoRun, SoloRun
from cotenant.profiles.wholefile import write_whole

__all__ = ["FORMAT", "card_of", "load_predictor", "read_card", "save_predictor"]

FORMAT = "cotenant-interference/2"
"""Raised whenever a file's choices would mean other models than those they were made among."""

_LIMITS = (
    "valid for the campaigns and device types named here; elsewhere intervals are widened",
    "campaigns of the same pairs on the same device type differ by .05 to .25; no model can know that",
    "sets of three and more add up the slowdowns of their pairs unless such sets were measured",
    "rows under a non-commercial licence keep it: see data.licences",
)


class _File(msgspec.Struct, frozen=True):
    format: str
    card: dict[str, Any]
    zoo: str | list[str]
    choices: dict[str, dict[str, Choice]]
    solos: list[SoloRun]
    runs: list[CoRun]


def card_of(predictor: AdaptiveInterferencePredictor, files: Sequence[Path] = ()) -> dict[str, Any]:
    """What a fitted predictor is: data, versions, errors, limits. Plain JSON."""
    runs = predictor.runs
    names = predictor.names
    errors = {
        world: {
            novelty: {
                "mae_unseen": round(choice.error, 4),
                "groups": choice.groups,
                "cases": choice.cases,
                "members": {n: round(w, 3) for n, w in zip(names, choice.weights, strict=True) if w > 0.005},
            }
            for novelty, choice in found.items()
        }
        for world, found in sorted(predictor.choices.items())
    }
    return {
        "what": "slowdown of jobs that share a device",
        "version": __version__,
        "data": {
            "files": {path.name: sha256_of(path) for path in files},
            "content_sha256": _digest(predictor),
            "co_runs": dict(sorted(Counter(f"{r.source}|{r.device_type}" for r in runs).items())),
            "solo_runs": len(predictor.solos),
            "licences": dict(sorted(Counter(r.licence or "not stated" for r in runs).items())),
        },
        "members": list(names),
        "novelty": {
            "0": "pair of known models",
            "1": "model measured elsewhere",
            "2": "model never measured",
        },
        "errors": errors,
        "limits": list(_LIMITS),
    }


def _digest(predictor: AdaptiveInterferencePredictor) -> str:
    found = hashlib.sha256()
    for run in [*predictor.runs, *predictor.solos]:
        found.update(msgspec.json.encode(run, order="deterministic"))
    return found.hexdigest()


def save_predictor(
    predictor: AdaptiveInterferencePredictor, path: Path | str, *, files: Sequence[Path] = ()
) -> dict[str, Any]:
    """Write a fitted predictor, whole or not at all; returns its card.

    Parameters
    ----------
    predictor : AdaptiveInterferencePredictor
    path : Path or str
    files : sequence of Path
        The tables that it was fitted on, for the card.
    """
    card = card_of(predictor, files)
    zoo = predictor.zoo if isinstance(predictor.zoo, str) else list(predictor.zoo)
    runs, solos, choices = predictor.runs, predictor.solos, predictor.choices
    whole = _File(format=FORMAT, card=card, zoo=zoo, choices=choices, solos=solos, runs=runs)
    write_whole(path, msgspec.json.encode(whole, order="deterministic"))
    return card


def read_card(path: Path | str) -> dict[str, Any]:
    """The card of a saved predictor.

    Raises
    ------
    ConfigError
        If the file is no saved predictor.
    """
    return _read(Path(path)).card


def load_predictor(path: Path | str) -> AdaptiveInterferencePredictor:
    """Read a saved predictor.

    Raises
    ------
    ConfigError
        If there is no such file, it is no saved predictor, or its data were changed.
    """
    whole = _read(Path(path))
    predictor = AdaptiveInterferencePredictor(zoo=whole.zoo)
    predictor.fit(whole.runs, whole.solos, choices=whole.choices)
    if whole.card.get("data", {}).get("content_sha256") != _digest(predictor):
        raise ConfigError(f"{path}: its runs are not those that its card names; fit it again")
    return predictor


def _read(path: Path) -> _File:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; `cotenant fit TABLE -o {path.name}` makes one")
    try:
        head = json.loads(path.read_bytes())
        found = head.get("format") if isinstance(head, dict) else None
        if isinstance(found, str) and found != FORMAT and found.startswith(FORMAT.partition("/")[0]):
            raise ConfigError(
                f"{path}: was fitted by another version of cotenant (format {found}, this one reads {FORMAT}), "
                "whose models differ; fit it again with cotenant fit on the tables that its card names"
            )
        if found != FORMAT:
            raise ConfigError(f"{path}: is no fitted predictor of format {FORMAT}; make it with cotenant fit")
        return msgspec.convert(head, _File)
    except (json.JSONDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: is no fitted predictor: {error}") from error
