"""What a shell completes beside options: registered names. Looked up when asked for, and not before."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "device_types",
    "forecasts",
    "one_policy",
    "policies",
    "runtimes",
    "settings",
    "trace_formats",
    "truths",
]


def _listed(known: Iterable[str], incomplete: str) -> list[str]:
    """Names that go on from the last of those with commas between.

    >>> _listed(["fifo", "fair-share", "las"], "las,f")
    ['las,fifo', 'las,fair-share']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


def _names(kind: str) -> list[str]:
    from cotenant import registry

    return registry.names(kind)


def policies(incomplete: str) -> list[str]:
    """Policies, several with commas between."""
    return _listed(_names("policy"), incomplete)


def one_policy(incomplete: str) -> list[str]:
    """One policy."""
    return [name for name in _names("policy") if name.startswith(incomplete)]


def forecasts(incomplete: str) -> list[str]:
    """Forecasts of speeds."""
    return [name for name in _names("predictor") if name.startswith(incomplete)]


def runtimes(incomplete: str) -> list[str]:
    """Forecasts of running times."""
    return [name for name in _names("runtime forecast") if name.startswith(incomplete)]


def trace_formats(incomplete: str) -> list[str]:
    """Trace formats."""
    return [name for name in _names("trace format") if name.startswith(incomplete)]


def truths(incomplete: str) -> list[str]:
    """What may be true of speeds."""
    return [name for name in ("auto", "measured", "campaign", "modelled") if name.startswith(incomplete)]


def device_types(incomplete: str) -> list[str]:
    """Types of the catalogue, several with commas between."""
    from cotenant.profiles.catalogue import known

    return _listed(known(), incomplete)


def settings(incomplete: str) -> list[str]:
    """Settings, up to the sign before their value."""
    from cotenant.model.settings import Settings

    return [f"{name}=" for name in Settings.__struct_fields__ if name.startswith(incomplete)]
