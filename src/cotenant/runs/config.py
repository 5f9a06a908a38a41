"""What to run, as one value: the command line's options, a run file, a manifest's core."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec

from cotenant.errors import ConfigError, QuantityError, UnknownNameError
from cotenant.model.quantities import parse_duration
from cotenant.model.settings import Settings

__all__ = ["RunConfig", "parse_settings", "settings_of"]


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A simulation to run. Also what a run file (TOML or YAML) may contain.

    Parameters
    ----------
    trace : str
        Path of the workload.
    format : str or None
        Trace format; None recognises it.
    options : dict
        Further options of that reader.
    strict : bool
        Refuse what a reader would otherwise repair or drop.
    cluster : str or None
        Path of a cluster file; or else ``gpus``, ``gpus_per_node`` and ``gpu_type``; or
        else the trace's own cluster.
    policies : tuple of str
        Specifications, see ``runs.spec``.
    seed, seeds : int
        First seed, and how many in a row.
    settings : dict
        Fields of ``Settings`` that differ from their defaults.
    forecast, runtime : str
        What policies may know of speeds and of running times.
    truth : {"auto", "measured", "campaign", "modelled"}
        How fast jobs really are beside each other, see ``predictors.forecast``.
    profiles : str or None
        Table of measured pairs, a file or folder; without one speeds are modelled.
    cpu_jobs : {"keep", "drop"}
    incidents : str or None
        Path of a file of failures, drains and the like.
    devices : str or None
        Path of a file of device types beside the built-in catalogue (``profiles.catalogue``).
    """

    trace: str
    policies: tuple[str, ...]
    format: str | None = None
    options: dict[str, Any] = {}
    strict: bool = False
    cluster: str | None = None
    gpus: int | None = None
    gpus_per_node: int = 8
    gpu_type: str | None = None
    seed: int = 0
    seeds: int = 1
    settings: dict[str, Any] = {}
    forecast: str = "lookup"
    runtime: str = "history"
    truth: Literal["auto", "measured", "campaign", "modelled"] = "auto"
    profiles: str | None = None
    cpu_jobs: Literal["keep", "drop"] = "keep"
    incidents: str | None = None
    devices: str | None = None

    def check(self) -> RunConfig:
        """Return self if the numbers make sense.

        Raises
        ------
        ConfigError
            Naming the option, what was found, and what is allowed.
        """
        if self.cluster is not None and self.gpus is not None:
            raise ConfigError("a cluster file and a number of GPUs were both given; give one of them")
        for name, low in (("gpus", 1), ("gpus_per_node", 1), ("seeds", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} must be {low} or more, found {value}")
        if self.gpus is None and self.gpu_type is not None:
            raise ConfigError("a GPU type needs a number of GPUs beside it (--gpus N --gpu-type T)")
        self.effective_settings()
        return self

    def effective_settings(self) -> Settings:
        """All settings, defaults included.

        Raises
        ------
        ConfigError
            For an unknown setting or a value out of range.
        """
        return settings_of(self.settings)

    def seed_list(self) -> list[int]:
        """The seeds, in order."""
        return list(range(self.seed, self.seed + self.seeds))


def settings_of(given: Mapping[str, Any]) -> Settings:
    """All settings, defaults included, from those that differ; nothing is converted.

    Raises
    ------
    ConfigError
        For an unknown setting (with the nearest and all known), or a value of another type or
        out of range.

    Examples
    --------
    >>> settings_of({"round_s": 60}).round_s
    60.0
    """
    for name in given:
        if name not in Settings.__struct_fields__:
            raise ConfigError(_unknown(str(name), dict.fromkeys(Settings.__struct_fields__)))
    try:
        return msgspec.convert(dict(given), Settings).check()
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {error}") from None


def parse_settings(items: Iterable[str]) -> dict[str, Any]:
    """Read ``name=value`` items of ``--set`` into fields of ``Settings``; times may carry a unit.

    Raises
    ------
    UnknownNameError
        For an unknown name, with the nearest and all known.
    ConfigError
        For a value of another type.

    Examples
    --------
    >>> parse_settings(["max_sharers=2", "mixed_types=yes", "gang_span=any", "checkpoint_s=10min"])
    {'max_sharers': 2, 'mixed_types': True, 'gang_span': 'any', 'checkpoint_s': 600.0}
    """
    fields = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    found: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigError(f"--set {item}: write name=value")
        if name not in fields:
            raise UnknownNameError("setting", name, fields)
        if name in found:
            raise ConfigError(f"--set {name} is given twice")
        found[name] = _convert(name, text.strip(), fields[name])
    msgspec.convert(found, Settings).check()
    return found


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def _convert(name: str, text: str, kind: Any) -> Any:
    words = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    try:
        if name.endswith("_s") and not name.endswith("_per_s") and not _NUMBER.fullmatch(text):
            return parse_duration(text)
        value: Any = words.get(text.lower(), text) if kind is bool else text
        return msgspec.convert(value, kind, strict=False)
    except QuantityError:
        raise ConfigError(
            f"--set {name}={text}: {name} takes seconds, or a time such as 90s, 15min or 2h, found {text!r}"
        ) from None
    except msgspec.ValidationError:
        raise ConfigError(f"--set {name}={text}: {name} takes {_takes(kind)}, found {text!r}") from None


def _takes(kind: Any) -> str:
    plain = {int: "a whole number", float: "a number", bool: "yes or no"}
    return plain.get(kind) or f"one of {', '.join(get_args(kind))}"


def _unknown(name: str, fields: Mapping[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(name, fields, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ";"
    return f'no setting "{name}"{hint} known: {", ".join(fields)}'
