"""Policies as people write them: ``las``, ``las:factor=2``, ``mine.py:MyPolicy:factor=2``.

A specification never becomes a path by itself: its folder name is made of letters,
digits, dots and dashes alone.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cotenant import registry
from cotenant.errors import ConfigError, CotenantError, UnknownNameError, UsageError
from cotenant.model.params import build_from_strings, parameters_of
from cotenant.runs.blame import place_of

__all__ = [
    "PolicySpec",
    "build_policy",
    "folder_names",
    "params_of",
    "parse_policies",
    "parse_policy",
    "policy_class",
    "policy_object",
]

_RULE = "it needs a class with a method decide(view)"
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


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """Whatever is wrong with a policy as it was written is wrong usage."""
    try:
        yield
    except UsageError:
        raise
    except ConfigError as error:
        raise UsageError(str(error)) from error


@_usage()
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
    if len(target) > 2 and all(target):
        raise ConfigError(
            f'policy "{text}": {target[2]!r} is no parameter=value; write {target[2]}=VALUE, '
            f"or leave it out ({':'.join(target[:2])} is the policy)"
        )
    if not target or not all(target):
        raise ConfigError(
            f'policy "{text}" names no policy; write name, name:parameter=value or file.py:Class'
        )
    return PolicySpec(text=text, target=":".join(target), params=params)


@_usage()
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
    specs = tuple(parse_policy(part) for text in texts for part in _split(text))
    if not specs:
        raise ConfigError(f"no policy given; known: {', '.join(registry.names('policy'))}")
    seen: set[str] = set()
    for spec in specs:
        if spec.text in seen:
            raise ConfigError(f'policy "{spec.text}" is named twice')
        seen.add(spec.text)
    return specs


def _split(text: str) -> list[str]:
    """Parts between commas; a part that can only be the rest of a value is refused."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for before, part in itertools.pairwise(parts):
        name, equals, value = before.rpartition("=")
        if equals and ":" not in part and not _maybe_policy(part):
            name = name.rpartition(":")[2]
            raise ConfigError(
                f'"{text}": a comma separates policies, so {part!r} was taken for one; write '
                f"{name}={value}.{part} for a fraction, {name}={value}/{part} for a list"
            )
    return parts


def _maybe_policy(word: str) -> bool:
    known = registry.names("policy")
    return word in known or bool(difflib.get_close_matches(word.lower(), [*known, *_ELSEWHERE], n=1))


@_usage()
def build_policy(spec: PolicySpec) -> Any:
    """Load and build the policy object.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.
    ConfigError
        For an unknown parameter or a wrong value, or if the object is no policy.
    """
    cls = policy_class(spec.target)
    try:
        policy = build_from_strings(cls, spec.params)
    except CotenantError:
        raise
    except Exception as error:
        raise ConfigError(_not_built(spec.target, cls, error)) from error
    params_of(policy)
    return policy


@_usage()
def policy_class(target: str) -> Any:
    """The class behind a name, if it is one of a policy.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.
    ConfigError
        If it is no class with a method ``decide(view)``, or takes positional parameters.
    """
    cls = _load(target)
    if not inspect.isclass(cls):
        raise ConfigError(f'"{target}" is a {type(cls).__name__}, not a policy: {_RULE}')
    _check_decide(cls, f'"{target}"')
    parameters_of(cls)  # refuses what cannot be named on a command line
    return cls


def policy_object(given: Any) -> Any:
    """A policy handed over in Python: an object with ``decide(view)``, or a class that needs nothing.

    Raises
    ------
    ConfigError
        If it is neither.
    """
    name = given.__name__ if inspect.isclass(given) else type(given).__name__
    if not callable(getattr(given, "decide", None)):
        shown = f"class {name}" if inspect.isclass(given) else f"{given!r:.60}"
        raise ConfigError(
            f"a policy is a name, a specification (las:factor=2, mine.py:MyPolicy) or an object with "
            f"decide(view), found {shown}"
        )
    if not inspect.isclass(given):
        _check_decide(given, f"policy {name}")
        params_of(given)
        return given
    _check_decide(given, f"policy {name}")
    needed = [p.name for p in parameters_of(given) if p.required]
    if needed:
        raise ConfigError(
            f"policy {name} is a class that needs {', '.join(needed)}; give an object, {name}(...)"
        )
    try:
        policy = given()
    except CotenantError:
        raise
    except Exception as error:
        raise ConfigError(_not_built(name, given, error)) from error
    params_of(policy)
    return policy


def _check_decide(owner: Any, label: str) -> None:
    decide = getattr(owner, "decide", None)
    if not callable(decide):
        raise ConfigError(f"{label} has no decide(view): {_RULE}")
    static = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, "decide"))
    try:
        inspect.signature(decide).bind(*([None] * (2 if static else 1)))
    except TypeError:
        raise ConfigError(
            f"{label}: decide must take the view and nothing else: def decide(self, view)"
        ) from None
    except ValueError:
        return  # no signature to be had, as with some compiled methods


def _not_built(label: str, cls: type, error: Exception) -> str:
    place = place_of(cls, error)
    return f"policy {label} raised {type(error).__name__} when it was made: {error}" + (
        f" ({place})" if place else ""
    )


def _load(target: str) -> Any:
    name, _, rest = target.partition(":")
    if rest and name in registry.names("policy"):
        raise ConfigError(f'policy "{target}": {rest!r} is no parameter=value; write {name}:{rest}=VALUE')
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
    """All parameters of a policy object, those with default values included.

    Raises
    ------
    ConfigError
        If one of them is not stored under its own name.
    """
    getter = getattr(policy, "get_params", None)
    if not callable(getter):
        return {}
    try:
        return dict(getter())
    except CotenantError:
        raise
    except Exception as error:
        place = place_of(policy, error)
        raise ConfigError(
            f"{type(policy).__name__}.get_params() raised {type(error).__name__}: {error}"
            + (f" ({place})" if place else "")
        ) from error


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
