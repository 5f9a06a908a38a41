"""Keyword-only parameters, the same for policies, predictors and forecasts.

A class states its parameters once, as annotated keyword-only arguments of
``__init__``, and stores each under its own name. From that come ``get_params``,
``set_params``, ``clone``, a readable ``repr``, and the command line's
``name:parameter=value``.
"""

from __future__ import annotations

import difflib
import inspect
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from cotenant.errors import ConfigError

__all__ = ["Parameter", "Params", "build_from_strings", "check_amounts", "parameters_of"]

_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """One parameter of a class: its name, its type in words, its default."""

    name: str
    kind: str
    default: Any
    required: bool = False

    def __str__(self) -> str:
        """``name: kind = default``, as help and errors print it."""
        return f"{self.name}: {self.kind}" + ("" if self.required else f" = {self.default!r}")


class Params:
    """Base of everything that has parameters.

    Examples
    --------
    >>> class Quick(Params):
    ...     def __init__(self, *, limit: float = 1.5, eager: bool = False) -> None:
    ...         self.limit = limit
    ...         self.eager = eager
    >>> Quick.from_strings({"limit": "2", "eager": "yes"})
    Quick(limit=2.0, eager=True)
    >>> Quick(limit=3.0).clone().get_params()
    {'limit': 3.0, 'eager': False}
    """

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """The parameters, in the order in which ``__init__`` names them."""
        return parameters_of(cls)

    def get_params(self) -> dict[str, Any]:
        """The value of every parameter.

        Raises
        ------
        ConfigError
            If one is not stored under its own name.
        """
        found = {}
        for name in (parameter.name for parameter in self.parameters()):
            try:
                found[name] = getattr(self, name)
            except AttributeError:
                raise ConfigError(
                    f"{_label(type(self))} does not store its parameter {name}: "
                    f"store it under its own name, self.{name} = {name}"
                ) from None
        return found

    def set_params(self, **changes: Any) -> Self:
        """Change parameters in place, through ``__init__`` so that its checks apply; return self.

        Raises
        ------
        ConfigError
            For a name that is no parameter; self is then unchanged.
        """
        _refuse_unknown(type(self), changes)
        fresh = type(self)(**{**self.get_params(), **changes})
        self.__dict__.clear()
        self.__dict__.update(fresh.__dict__)
        return self

    def clone(self) -> Self:
        """A new object with the same parameters and nothing learned."""
        return type(self)(**self.get_params())

    @classmethod
    def from_strings(cls, given: Mapping[str, str]) -> Self:
        """Build one from words of the command line, converted by annotation.

        ``bool`` reads yes/no, true/false, on/off, 1/0; a tuple is separated by slashes
        (``3600/14400``); ``none`` is None where None is allowed.

        Raises
        ------
        ConfigError
            For an unknown parameter (the message lists them all) or a value that is not
            of its type.
        """
        built: Self = build_from_strings(cls, given)
        return built

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({inside})"


def parameters_of(cls: type) -> tuple[Parameter, ...]:
    """Read the parameters of any class from its ``__init__``.

    Raises
    ------
    ConfigError
        If ``__init__`` takes positional or variable arguments: names would be lost.
    """
    if cls.__init__ is object.__init__:  # type: ignore[misc]
        return ()
    hints = _hints(cls)
    found = []
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:  # type: ignore[misc]
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise ConfigError(
                f"{_label(cls)}.__init__ must take keyword-only parameters (put * before {name!r})"
            )
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        found.append(Parameter(name, _words(hints.get(name, str)), default, required))
    return tuple(found)


def build_from_strings(cls: type, given: Mapping[str, str]) -> Any:
    """What ``Params.from_strings`` does, for any class with keyword-only parameters."""
    _refuse_unknown(cls, given)
    hints = _hints(cls)
    values = {name: _convert(cls, name, text, hints[name]) for name, text in given.items()}
    missing = [p.name for p in parameters_of(cls) if p.required and p.name not in values]
    if missing:
        raise ConfigError(f"{_label(cls)} needs {', '.join(missing)}; write for example {missing[0]}=...")
    return cls(**values)


def check_amounts(**values: float) -> None:
    """Check parameters that are amounts: zero or more, and finite.

    Raises
    ------
    ConfigError
        Naming the first that is not.

    Examples
    --------
    >>> check_amounts(aging=0.0, margin_s=600.0)
    """
    for name, value in values.items():
        if not 0.0 <= value < math.inf:
            raise ConfigError(f"{name} must be zero or more and finite, found {value}")


def _label(cls: type) -> str:
    return cls.__name__


def _hints(cls: type) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    except (NameError, TypeError, AttributeError):
        hints = {}
    names = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: hints.get(name, str) for name in names}


def _refuse_unknown(cls: type, given: Mapping[str, Any]) -> None:
    known = parameters_of(cls)
    names = [parameter.name for parameter in known]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ";"
            listed = ", ".join(str(parameter) for parameter in known) or "none"
            raise ConfigError(f'{_label(cls)} has no parameter "{name}"{hint} its parameters: {listed}')


def _convert(cls: type, name: str, text: str, kind: Any) -> Any:
    try:
        return _read(text.strip(), kind)
    except (ValueError, KeyError) as error:
        near = difflib.get_close_matches(text.strip(), _choices(kind), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ConfigError(
            f"parameter {name} of {_label(cls)} must be {_words(kind)}, found {text!r}{hint}"
        ) from error


def _choices(kind: Any) -> list[str]:
    return [str(choice) for choice in typing.get_args(kind)] if typing.get_origin(kind) is Literal else []


def _read(text: str, kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(text, arguments)
    if origin is Literal:
        return {str(choice): choice for choice in arguments}[text]
    if origin is tuple:
        inner = arguments[0] if arguments else str
        return tuple(_read(part.strip(), inner) for part in text.split("/") if part.strip())
    if kind is bool:
        return _WORDS[text.lower()]
    if kind in (int, float):
        value = kind(text)
        if math.isnan(value):
            raise ValueError("not a number")
        return value
    return text


def _read_union(text: str, arguments: tuple[Any, ...]) -> Any:
    if type(None) in arguments and text.lower() == "none":
        return None
    for kind in arguments:
        if kind is type(None):
            continue
        try:
            return _read(text, kind)
        except (ValueError, KeyError):
            continue
    raise ValueError(text)


def _words(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(a) for a in arguments)
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in arguments)
    if origin is tuple:
        return f"{_words(arguments[0])}s separated by /" if arguments else "words separated by /"
    if kind is type(None):
        return "none"
    return str(getattr(kind, "__name__", kind))
