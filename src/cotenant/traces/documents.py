"""TOML and YAML files written by people, read strictly and safely.

YAML is read from its events by a small builder of our own, never by a loader that can
build objects: tags and aliases are refused with their line, duplicate keys are errors,
and only ``true``/``false`` are booleans and plain decimals numbers, so that ``no`` stays a
name and ``012``, ``1_000`` or ``1e3`` stay text (which a count then refuses). TOML follows
its own language, where ``1_000`` is a thousand and ``1e3`` a float.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from cotenant.errors import ConfigError

__all__ = ["MAX_DOCUMENT_BYTES", "Document", "read_document"]

T = TypeVar("T")

MAX_DOCUMENT_BYTES = 8_000_000
"""Larger TOML or YAML files are refused before they are read."""
_MAX_DEPTH = 32
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+\Z")
_AT = re.compile(r" - at (?:`key` in )?`(\$[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Path_ = tuple[str | int, ...]


class Document:
    """A parsed file, with the lines on which its values stand (YAML only).

    Parameters
    ----------
    data : dict
        The top-level table.
    path : Path
    lines : mapping of tuple to int
        Line of each value, by its path of keys and indices.
    """

    def __init__(self, data: dict[str, Any], path: Path, lines: Mapping[Path_, int] | None = None) -> None:
        self.data, self.path, self._lines = data, path, lines or {}

    def convert(self, kind: type[T], data: Any = None, at: Path_ = ()) -> T:
        """Turn ``data`` (default: all of it), found at path ``at``, into a struct, strictly.

        Raises
        ------
        ConfigError
            Naming file, line where known, the key, what was found and the nearest known key.
        """
        value = self.data if data is None else data
        try:
            return msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            raise self.error(*_explain(error, value, kind), within=at) from None

    def error(self, message: str, where: Path_ = (), *, within: Path_ = ()) -> ConfigError:
        """A ConfigError that names the file, the line if known, and the key."""
        full = within + where
        line = next(
            (self._lines[full[:n]] for n in range(len(full), -1, -1) if full[:n] in self._lines), None
        )
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in full).lstrip(".")
        place = f"{self.path}" + (f":{line}" if line else "") + (f" [{key}]" if key else "")
        return ConfigError(f"{place}: {message}")


def read_document(path: str | Path) -> Document:
    """Read a ``.toml``, ``.yaml`` or ``.yml`` file.

    Raises
    ------
    ConfigError
        If the file is absent, a directory, empty, larger than ``MAX_DOCUMENT_BYTES``, not
        UTF-8, not of these languages, or breaks the rules in this module's docstring.
    """
    path = Path(path)
    text = _text(path)
    if path.suffix.lower() == ".toml":
        return Document(_toml(text, path), path)
    if path.suffix.lower() in {".yaml", ".yml"}:
        return _yaml(text, path)
    raise ConfigError(f"{path}: suffix {path.suffix!r} is not known here; write .toml, .yaml or .yml")


def _text(path: Path) -> str:
    if path.is_dir():
        raise ConfigError(f"{path} is a directory; name a file in it")
    try:
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            raise ConfigError(f"{path} has {size:,} bytes; the limit is {MAX_DOCUMENT_BYTES:,}")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not text.strip():
        raise ConfigError(f"{path} is empty")
    return text


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{path}: nested too deeply, or a number too large to read") from None


class _Builder:
    """Builds plain dicts, lists, text and numbers from YAML events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Path_, int] = {}

    def fail(self, event: Any, message: str) -> ConfigError:
        return ConfigError(f"{self.path}:{event.start_mark.line + 1}: {message}")

    def check(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.fail(event, "anchors and aliases (& and *) are refused; write the value out")
        if getattr(event, "tag", None):
            raise self.fail(event, f"tag {event.tag!r} is refused; only plain values may stand here")

    def build(self, events: Any, event: Any, at: Path_) -> Any:
        self.check(event)
        self.lines[at] = event.start_mark.line + 1
        if len(at) > _MAX_DEPTH:
            raise self.fail(event, f"nested more than {_MAX_DEPTH} deep")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.build(events, event, (*at, len(items))))
            return items
        table: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            self.check(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise self.fail(event, "a key must be plain text")
            key = event.value
            if key in table:
                raise self.fail(event, f"key {key!r} appears twice")
            table[key] = self.build(events, next(events), (*at, key))
        return table

    def scalar(self, event: Any) -> Any:
        text: str = event.value
        # The C parser says "" for a plain scalar, the Python one None.
        if event.style:
            return text
        if text in {"", "~", "null"}:
            return None
        if text in {"true", "false"}:
            return text == "true"
        if _INT.match(text):
            if len(text) > 19:
                raise self.fail(event, f"the number {text[:24]}... is too large")
            return int(text)
        return float(text) if _FLOAT.match(text) else text


def _yaml(text: str, path: Path) -> Document:
    builder = _Builder(path)
    try:
        events = yaml.parse(text, Loader=_LOADER)
        data: Any = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if builder.lines:
                    raise builder.fail(event, "a second document in one file is refused")
                data = builder.build(events, next(events), ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(f"{path}{line}: not valid YAML: {problem}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected keys and values at the top, found {type(data).__name__}")
    return Document(data, path, builder.lines)


def _explain(error: msgspec.ValidationError, data: Any, kind: Any) -> tuple[str, Path_]:
    text = str(error)
    found = _AT.search(text)
    where: Path_ = ()
    if found:
        where = tuple(
            name if name else int(index) for name, index in _STEP.findall(found.group(1)) if name or index
        )
    message = _AT.sub("", text)
    value = data
    for step in where:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return message, where
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown:
        known = _fields(kind, where)
        near = difflib.get_close_matches(unknown.group(1), known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"unknown key {unknown.group(1)!r}{hint} (known: {', '.join(known)})", where
    if "`key` in" in text and isinstance(value, dict):
        info = msgspec.inspect.type_info(kind)
        for step in where:
            info = _step(info, step)
        allowed = sorted(map(str, getattr(getattr(info, "key_type", None), "values", [])))
        wrong = next((key for key in value if key not in allowed), "")
        return f"unknown key {wrong!r} (known: {', '.join(allowed)})", where
    if message.startswith("Invalid"):
        return f"unknown value {value!r:.80} (known: {', '.join(_values(kind, where))})", where
    if "missing" not in message:
        message += f"; found {value!r:.80}"
    return message, where


def _values(kind: Any, where: Path_) -> list[str]:
    """Words that may stand at a path inside ``kind``: those of a literal, or the tags of a union."""
    info = msgspec.inspect.type_info(kind)
    for step in where[:-1]:
        info = _step(info, step)
    tags = [part.tag for part in getattr(info, "types", []) if getattr(part, "tag", None)]
    last = _step(info, where[-1]) if where else info
    return sorted(map(str, tags or getattr(last, "values", [])))


def _fields(kind: Any, where: Path_) -> list[str]:
    """Encoded field names of the struct at a path inside ``kind``."""
    info = msgspec.inspect.type_info(kind)
    for step in where:
        info = _step(info, step)
    return sorted({name for struct in _structs(info) for name in struct})


def _structs(info: Any) -> list[list[str]]:
    if isinstance(info, msgspec.inspect.StructType):
        tag = [info.tag_field] if info.tag_field else []
        return [tag + [field.encode_name for field in info.fields]]
    if isinstance(info, msgspec.inspect.UnionType):
        return [names for part in info.types for names in _structs(part)]
    return []


def _step(info: Any, step: str | int) -> Any:
    if isinstance(info, msgspec.inspect.UnionType):
        for part in info.types:
            inner = _step(part, step)
            if inner is not part:
                return inner
    if isinstance(info, msgspec.inspect.StructType):
        return next((field.type for field in info.fields if field.encode_name == step), info)
    for name in ("item_type", "value_type"):
        if hasattr(info, name):
            return getattr(info, name)
    return info
