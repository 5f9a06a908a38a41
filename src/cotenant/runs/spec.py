"""Policies as people write them: ``las``, ``las:factor=2``, ``mine.py:MyPolicy:factor=2``.

A specification never becomes a path by itself: its folder name is made of letters,
digits, dots and dashes alone.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from cotenant import registry
from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.params import build_from_strings

__all__ = ["PolicySpec", "build_policy", "folder_names", "params_of", "parse_policies", "parse_policy"]

_MAX_FOLDER = 60
_ELSEWHERE = {
    "pack": "best-fit",
    "packing": "best-fit",
    "binpack": "best-fit",
    "easy": "backfill",
    "tiresias": "las",
    "2d-las": "las",
    "srpt": "srtf",
    "fcfs": "fifo",
    "drf": "fair-share",
    "gandiva": "time-slice",
}


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, taken apart.

    Parameters
    ----------
    text : str
        As written; the label in tables and logs.
    target : str
        Registered name, or ``file.py:Class``, or ``package.module:Class``.
    params : dict of str to str
        Not yet converted.
    """

    text: str
    target: str
    params: dict[str, str] = {}

    @property
    def plugin_file(self) -> str | None:
        """The user's own file, if the policy comes from one."""
        source = self.target.rpartition(":")[0]
        return source if source.endswith(".py") else None


def parse_policy(text: str) -> PolicySpec:
    """Take one specification apart; nothing is loaded yet.

    Raises
    ------
    ConfigError
        If it is empty, or a parameter lacks its name or stands before the policy.

    Examples
    --------
    >>> parse_policy("mine.py:Mine:factor=2:eager=no").params
    {'factor': '2', 'eager': 'no'}
    """
    text = text.strip()
    target: list[str] = []
    params: dict[str, str] = {}
    for part in text.split(":"):
        name, equals, value = part.partition("=")
        if not equals:
            if params:
                raise ConfigError(f'policy "{text}": {part!r} follows a parameter; write parameter=value')
            target.append(part.strip())
        elif not name.strip().isidentifier():
            raise ConfigError(f'policy "{text}": {part!r} is not parameter=value')
        elif name.strip() in params:
            raise ConfigError(f'policy "{text}": parameter {name.strip()} is given twice')
        else:
            params[name.strip()] = value.strip()
    if not target or not all(target):
        raise ConfigError(
            f'policy "{text}" names no policy; write name, name:parameter=value or file.py:Class'
        )
    return PolicySpec(text=text, target=":".join(target), params=params)


def parse_policies(texts: Iterable[str]) -> tuple[PolicySpec, ...]:
    """Take a list apart; each item may itself be comma-separated.

    Raises
    ------
    ConfigError
        If there is none, or one is named twice.

    Examples
    --------
    >>> [spec.target for spec in parse_policies(["fifo,las:factor=2", "srtf"])]
    ['fifo', 'las', 'srtf']
    """
    specs = tuple(parse_policy(part) for text in texts for part in text.split(",") if part.strip())
    if not specs:
        raise ConfigError(f"no policy given; known: {', '.join(registry.names('policy'))}")
    seen: set[str] = set()
    for spec in specs:
        if spec.text in seen:
            raise ConfigError(f'policy "{spec.text}" is named twice')
        seen.add(spec.text)
    return specs


def build_policy(spec: PolicySpec) -> Any:
    """Load and build the policy object.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.
    ConfigError
        For an unknown parameter or a wrong value, or if the object is no policy.
    """
    cls = _load(spec.target)
    if not inspect.isclass(cls) or not callable(getattr(cls, "decide", None)):
        raise ConfigError(f'"{spec.target}" is not a policy: it needs a class with a method decide(view)')
    return build_from_strings(cls, spec.params)


def _load(target: str) -> Any:
    try:
        return registry.load("policy", target)
    except UnknownNameError as error:
        # Words from other schedulers: never taken silently, but worth a better hint.
        near = difflib.get_close_matches(target.lower(), _ELSEWHERE, n=1)
        meant = _ELSEWHERE[near[0]] if near else ""
        if "did you mean" not in str(error) and meant in error.known:
            known = ", ".join(error.known)
            error.args = (
                f'no policy "{target}"; did you mean "{meant}" (elsewhere called {near[0]})? known: {known}',
            )
        raise


def params_of(policy: Any) -> dict[str, Any]:
    """All parameters of a policy object, those with default values included."""
    getter = getattr(policy, "get_params", None)
    return dict(getter()) if callable(getter) else {}


def folder_names(texts: Iterable[str]) -> list[str]:
    """A safe and distinct folder name for each label, in order.

    Examples
    --------
    >>> folder_names(["fifo", "las:steps_s=60/3600"])
    ['fifo', 'las-steps_s-60-3600']
    """
    names: list[str] = []
    taken: set[str] = set()
    for text in texts:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
        # Some file systems do not tell Fifo from fifo, and all bound the length.
        if not plain or len(plain) > _MAX_FOLDER or plain.lower() in taken:
            digest = hashlib.sha256(text.encode()).hexdigest()[:10]
            plain = f"{plain[: _MAX_FOLDER - 11]}-{digest}".lstrip("-")
        taken.add(plain.lower())
        names.append(plain)
    return names
