"""Read and check the description of a synthetic workload; the bundled presets."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from cotenant.errors import ConfigError, QuantityError, UnknownNameError
from cotenant.model.quantities import parse_bytes
from cotenant.profiles.kinds import KINDS, MIXES
from cotenant.traces.documents import Document
from cotenant.traces.synthetic_spec import (
    MAX_JOBS,
    HyperExponential,
    Law,
    Lognormal,
    Mix,
    Pareto,
    Quantiles,
    SyntheticSpec,
)

__all__ = ["mix_models", "parse_spec", "preset_names"]

_TOO_LONG_S = 1e10


@cache
def _presets() -> dict[str, Any]:
    text = (files("cotenant") / "data" / "synthetic_presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def preset_names() -> list[str]:
    """Names of the bundled presets."""
    return sorted(_presets()["preset"])


def mix_models(mix: str) -> list[dict[str, Any]]:
    """The built-in kinds of a mix (``gavel``, ``wide``), with weight and memory, as a description has them."""
    return [
        {"name": name, "weight": weight, "memory": f"{KINDS[name].memory_bytes}B"}
        for name, weight in MIXES[mix].items()
    ]


def parse_spec(
    data: Mapping[str, Any], document: Document | None = None, at: tuple[str | int, ...] = ()
) -> SyntheticSpec:
    """Read a description, over that of its ``preset`` if it names one.

    Tables of the preset are merged key by key; lists and laws are replaced whole. The words
    ``models = "gavel"`` and ``"wide"`` stand for the built-in mixes of ``profiles.kinds``.

    Raises
    ------
    ConfigError, UnknownNameError
        Naming the key, what was found and what is allowed.
    """
    document = document or Document({}, Path("synthetic workload"))
    data = dict(data)
    base: dict[str, Any] = {}
    preset = data.pop("preset", None)
    if preset is not None:
        if not isinstance(preset, str) or preset not in _presets()["preset"]:
            raise UnknownNameError("preset", str(preset), preset_names())
        base = _presets()["preset"][preset]
    merged = _merge(base, data)
    mix = merged.get("models")
    if isinstance(mix, str):
        if mix not in MIXES:
            raise UnknownNameError("mix of models", mix, MIXES)
        merged["models"] = mix_models(mix)
    return _check(document.convert(SyntheticSpec, merged, at), document)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and "kind" not in value:
            out[key] = _merge(old, value)
        else:
            out[key] = value
    return out


def _check(spec: SyntheticSpec, document: Document) -> SyntheticSpec:
    need = _Need(document)
    need.number("jobs", spec.jobs, 0, MAX_JOBS)
    need.number("seed", spec.seed, 0, 2**63 - 1)
    need.number("min_s", spec.min_s, 0, spec.max_s)
    need.number("max_s", spec.max_s, spec.min_s, _TOO_LONG_S)
    _check_arrivals(spec, need)
    _check_law(spec.duration, "duration", need)
    need.weights("sizes", [size.weight for size in spec.sizes])
    for size in spec.sizes:
        need.number("sizes.gpus", size.gpus, 0, 100_000)
        if size.duration is not None:
            _check_law(size.duration, "sizes.duration", need)
    _check_people(spec, need)
    for key in ("opportunistic", "elastic", "deadline"):
        need.number(key, getattr(spec, key), 0, 1)
    low, high = spec.deadline_slack
    need.number("deadline_slack", low, -1, high)
    need.number("deadline_slack", high, low, 1e6)
    outcomes = spec.outcomes
    for key in ("failed", "cancelled", "retry", "retry_failed", "retry_fraction"):
        need.number(f"outcomes.{key}", getattr(outcomes, key), 0, 1)
    need.number("outcomes.failed + cancelled", outcomes.failed + outcomes.cancelled, 0, 1 + 1e-9)
    need.number("outcomes.max_retries", outcomes.max_retries, 0, 100)
    if spec.estimate is not None:
        need.number("estimate.share", spec.estimate.share, 0, 1)
        need.number("estimate.factor", spec.estimate.factor, 1e-3, 1e3)
        need.number("estimate.sigma", spec.estimate.sigma, 0, 10)
        need.number("estimate.round_s", spec.estimate.round_s, 1e-3, 1e7)
    return spec


def _check_arrivals(spec: SyntheticSpec, need: _Need) -> None:
    arrivals = spec.arrivals
    used = {
        "gamma": {"cv"},
        "bursty": {"burst_factor", "burst_s", "calm_s"},
    }.get(arrivals.kind, set())
    for key, low, high in (
        ("cv", 0.01, 100.0),
        ("burst_factor", 1.0, 1e6),
        ("burst_s", 1e-3, 1e9),
        ("calm_s", 1e-3, 1e9),
    ):
        value = getattr(arrivals, key)
        if key in used and value is None:
            raise need.wrong(f"arrivals.{key}", f'is needed for kind "{arrivals.kind}"')
        if key not in used and value is not None:
            raise need.wrong(f"arrivals.{key}", f'does not go with kind "{arrivals.kind}"')
        if value is not None:
            need.number(f"arrivals.{key}", value, low, high)
    by_load = arrivals.load is not None or arrivals.gpus is not None
    if arrivals.kind == "at-once":
        if by_load or arrivals.mean_gap_s is not None or arrivals.cycle is not None:
            raise need.wrong("arrivals", 'kind "at-once" takes neither mean_gap_s nor load nor cycle')
        return
    if by_load == (arrivals.mean_gap_s is not None):
        raise need.wrong("arrivals", "give either mean_gap_s, or load and gpus")
    if by_load:
        need.number("arrivals.load", arrivals.load or 0.0, 1e-6, 1e6)
        need.number("arrivals.gpus", arrivals.gpus or 0, 1, 10_000_000)
    else:
        need.number("arrivals.mean_gap_s", arrivals.mean_gap_s or 0.0, 1e-6, 1e8)
    if arrivals.cycle is not None:
        need.weights("arrivals.cycle.hours", arrivals.cycle.hours, length=24)
        need.weights("arrivals.cycle.days", arrivals.cycle.days, length=7)


def _check_law(law: Law, key: str, need: _Need) -> None:
    if isinstance(law, Mix):
        need.weights(f"{key}.parts", [part.weight for part in law.parts])
        for part in law.parts:
            _check_law(part.law, f"{key}.parts.law", need)
    elif isinstance(law, Lognormal):
        need.number(f"{key}.median_s", law.median_s, 1e-6, _TOO_LONG_S)
        need.number(f"{key}.sigma", law.sigma, 0, 20)
    elif isinstance(law, HyperExponential):
        need.weights(f"{key}.weights", law.weights, length=len(law.means_s))
        for mean_s in law.means_s:
            need.number(f"{key}.means_s", mean_s, 1e-6, _TOO_LONG_S)
    elif isinstance(law, Pareto):
        need.number(f"{key}.min_s", law.min_s, 1e-6, _TOO_LONG_S)
        need.number(f"{key}.alpha", law.alpha, 0.05, 100)
    elif isinstance(law, Quantiles):
        _check_quantiles(law, key, need)
    else:
        need.number(f"{key}.value_s", law.value_s, 0, _TOO_LONG_S)


def _check_quantiles(law: Quantiles, key: str, need: _Need) -> None:
    p, values = law.p, law.values_s
    if len(p) != len(values) or len(p) < 2 or p[0] != 0 or p[-1] != 1:
        raise need.wrong(f"{key}.p", "needs as many probabilities as values_s, from 0 to 1")
    for low, high in pairwise(p):
        need.number(f"{key}.p", high, low, 1)
    for low, high in zip((1e-6, *values), values, strict=False):
        need.number(f"{key}.values_s", high, low, _TOO_LONG_S)


def _check_people(spec: SyntheticSpec, need: _Need) -> None:
    for key, entries in (("models", spec.models), ("tenants", spec.tenants)):
        names = [entry.name for entry in entries]
        if names:
            need.weights(key, [entry.weight for entry in entries])
        if len(set(names)) != len(names):
            raise need.wrong(key, "names one entry twice")
    for model in spec.models:
        need.number("models.compute_milli", model.compute_milli, 0, 1000)
        try:
            parse_bytes(model.memory)
        except QuantityError as error:
            raise need.wrong("models.memory", f'of "{model.name}": {error}') from None
    for tenant in spec.tenants:
        need.number("tenants.users", tenant.users, 1, 1_000_000)
    if spec.sharing:
        need.weights("sharing", list(spec.sharing.values()))


class _Need:
    """Checks with one wording."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def wrong(self, key: str, message: str) -> ConfigError:
        return self.document.error(f"{key} {message}")

    def number(self, key: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            raise self.wrong(key, f"must lie between {low:g} and {high:g}, found {value!r}")

    def weights(self, key: str, values: Any, length: int | None = None) -> None:
        if length is not None and len(values) != length:
            raise self.wrong(key, f"needs {length} weights, found {len(values)}")
        if not values or any(not (math.isfinite(v) and v >= 0) for v in values) or not sum(values) > 0:
            raise self.wrong(key, f"needs weights of 0 or more, not all 0, found {list(values)!r:.80}")
