"""Saved resource predictors: numbers in JSON, never code.

A file holds the parameters, the fitted factors, and the training rows as numbers (features,
roofline, truth, family). Reading it fits the chosen regression of each target again with the same
seed, so that nothing but numbers is trusted. Another version of a library may grow other trees;
what the regressions said of the first rows is kept and compared, and a difference is told. So is
one between the rates of device types that it was fitted with and those of the catalogue now.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cotenant.errors import ConfigError
from cotenant.predictors.resources.features import FEATURES
from cotenant.predictors.resources.folds import balanced
from cotenant.predictors.resources.learners import CANDIDATES, Candidate
from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.predictor import ResourcePredictor, TargetFit, TrainingSet
from cotenant.predictors.resources.roofline import DeviceRates, Efficiency, rates_of
from cotenant.predictors.resources.targets import TARGETS
from cotenant.profiles.hashes import sha256_of
from cotenant.profiles.wholefile import write_whole

__all__ = ["FORMAT", "load_predictor", "save_predictor"]

FORMAT = "cotenant-resources-1"
_CHECKED = 5
_TOLERANCE = 1e-6
_LIBRARIES = ("cotenant", "numpy", "scikit-learn", "lightgbm", "xgboost-cpu", "xgboost")


class _Rows(msgspec.Struct, forbid_unknown_fields=True):
    fit: TargetFit
    families: list[str]
    x: list[list[float]]
    base: list[float]
    y: list[float]
    check: list[float]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    params: dict[str, Any]
    prior: Efficiency
    efficiency: Efficiency
    features: list[str]
    device_types: list[str]
    targets: dict[str, _Rows]
    rates: list[DeviceRates] = []
    card: dict[str, Any] = {}


def save_predictor(
    predictor: ResourcePredictor,
    path: Path | str,
    *,
    rows: Sequence[Observation] = (),
    files: Sequence[Path] = (),
) -> dict[str, Any]:
    """Write a fitted predictor, whole or not at all.

    Parameters
    ----------
    predictor : ResourcePredictor
    path : path
    rows : sequence of Observation
        Those it was fitted on, for its card: sources, licences.
    files : sequence of Path
        Where they came from; their SHA-256 goes into the card.

    Returns
    -------
    dict
        The card.
    """
    card = {
        "libraries": _versions(),
        "files": {file.name: sha256_of(file) for file in files},
        "rows": len(rows),
        "sources": sorted({row.source for row in rows}),
        "device_types": list(predictor.device_types_),
        "licences": sorted({row.licence for row in rows if row.licence}),
        "errors": {name: fit.errors[fit.learner] for name, fit in predictor.fits_.items()},
    }
    params = {k: v for k, v in predictor.get_params().items() if k != "prior"}
    targets = {name: _rows_of(predictor, name) for name in predictor.fits_}
    file = _File(
        FORMAT,
        params,
        predictor.prior,
        predictor.efficiency_,
        list(FEATURES),
        list(predictor.device_types_),
        targets,
        [predictor.rates_[name] for name in predictor.device_types_],
        card,
    )
    write_whole(path, msgspec.json.format(msgspec.json.encode(file), indent=0) + b"\n")
    return card


def _rows_of(predictor: ResourcePredictor, name: str) -> _Rows:
    data = predictor.data_[name]
    model = predictor.models_[name]
    return _Rows(
        predictor.fits_[name],
        data.families,
        data.x.tolist(),
        data.base.tolist(),
        data.y.tolist(),
        model.predict(data.x[:_CHECKED], data.base[:_CHECKED]).tolist(),
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load_predictor(path: Path | str) -> tuple[ResourcePredictor, tuple[str, ...]]:
    """Read a saved predictor.

    Returns
    -------
    predictor : ResourcePredictor
    notes : tuple of str
        What differs from when it was saved; empty if nothing.

    Raises
    ------
    ConfigError
        If the file is none of ours.
    MissingExtraError
        If a chosen regression needs an extra that is not installed.
    """
    file = _read(Path(path))
    params = {**file.params, "prior": file.prior}
    predictor = ResourcePredictor(**params)
    predictor.efficiency_, predictor.device_types_ = file.efficiency, tuple(file.device_types)
    predictor.rates_ = {rates.name: rates for rates in file.rates}
    notes = [line for rates in file.rates if (line := _other_rates(rates))]
    for name, rows in file.targets.items():
        data = TrainingSet(
            np.arange(len(rows.y)), np.array(rows.x), np.array(rows.base), np.array(rows.y), rows.families
        )
        model = Candidate(rows.fit.learner, seed=predictor.seed)
        model.fit(data.x, data.base, data.y, balanced(data.families))
        again = model.predict(data.x[:_CHECKED], data.base[:_CHECKED])
        off = float(np.max(np.abs(again - np.array(rows.check)), initial=0.0))
        if off > _TOLERANCE:
            saved = ", ".join(f"{k} {v}" for k, v in file.card.get("libraries", {}).items())
            notes.append(
                f"{name}: {rows.fit.learner} differs by {off:.2g} from when it was saved (with {saved})"
            )
        predictor.fits_[name], predictor.models_[name], predictor.data_[name] = rows.fit, model, data
    return predictor, tuple(notes)


_ENTER = {
    "known": "whether the catalogue has it",
    "host": "whether it is the host",
    "convolution_flops": "convolutions",
    "matrix_flops": "matrix products",
    "bandwidth": "bandwidth",
    "cache_bytes": "cache",
}
"""What of a device type enters a fit, in words."""


def _other_rates(fitted: DeviceRates) -> str:
    """What differs between the catalogue now and when it was fitted; nothing if all is as it was."""
    now = rates_of(fitted.name)
    differ = [words for field, words in _ENTER.items() if getattr(now, field) != getattr(fitted, field)]
    if not differ:
        return ""
    return (
        f"{fitted.name}: the catalogue differs from when this was fitted ({', '.join(differ)}), so what is predicted "
        "there is off; name the file of device types that was used then, or fit it again"
    )


def _read(path: Path) -> _File:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; --save writes a fitted predictor") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: is no saved resource predictor: {error}") from error
    if file.format != FORMAT or file.features != list(FEATURES):
        raise ConfigError(
            f"{path}: was saved as {file.format!r} with {len(file.features)} features; "
            f"this version reads {FORMAT!r} with {len(FEATURES)}: fit it again"
        )
    for name, rows in file.targets.items():
        sizes = {len(rows.y), len(rows.base), len(rows.families), len(rows.x)}
        wide = all(len(row) == len(FEATURES) for row in rows.x)
        if name not in TARGETS or rows.fit.learner not in CANDIDATES or len(sizes) != 1 or not wide:
            raise ConfigError(f"{path}: target {name!r} does not fit together; fit it again")
    return file
