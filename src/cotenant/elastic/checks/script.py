"""Check of a training script: it is read, together with what it imports from beside itself; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from cotenant.elastic.checks.chance import chance
from cotenant.elastic.checks.data import data
from cotenant.elastic.checks.findings import Finding, Report
from cotenant.elastic.checks.kernels import kernels
from cotenant.elastic.checks.loop import loop, unkept
from cotenant.elastic.checks.operators import operators
from cotenant.elastic.checks.origins import Origins
from cotenant.elastic.checks.processes import processes
from cotenant.elastic.checks.scope import Scope, look
from cotenant.elastic.checks.source import Source, read

__all__ = ["check_script"]

_MOST_FILES = 200


def check_script(path: Path) -> Report:
    """What in a script, and in the modules beside it that it imports, stops a grade.

    Parameters
    ----------
    path : Path
        A file of Python; it is not imported and not run.

    Raises
    ------
    InputError
        If it cannot be read, or parsed, or a module beside it cannot.
    """
    sources = _together(path)
    scope = look(sources)
    set_epoch = any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "set_epoch"
        for source in sources
        for call in source.calls
    )
    found: list[Finding] = []
    kept = [_findings(source, scope, set_epoch) for source in sources]
    allowed = any(one.rule == "nondeterministic-allowed" for part in kept for one in part)
    for source, part in zip(sources, kept, strict=True):
        found += [*part, *operators(source, scope, allowed=allowed)]
    if scope.moved:
        found += unkept(sources)
    return _report(path, sources, scope, found)


def _report(path: Path, sources: list[Source], scope: Scope, found: list[Finding]) -> Report:
    order = {source.path: number for number, source in enumerate(sources)}
    by_path = {source.path: source for source in sources}
    unique = {(one.file, one.line, one.rule, one.why): one for one in found}
    accepted = [key for key, one in unique.items() if by_path[one.file].accepts(one.line)]
    left = [one for key, one in unique.items() if key not in set(accepted)]
    left.sort(key=lambda one: (order[one.file], one.line, one.column, one.rule))
    files = [source.path for source in sources]
    return Report(path, files, left, len(accepted), scope.moved, scope.trains)


def _findings(source: Source, scope: Scope, set_epoch: bool) -> list[Finding]:
    origins = Origins(source, distributed=scope.distributed, moved=scope.moved)
    return [
        *processes(source, origins, scope),
        *data(source, origins, scope, set_epoch=set_epoch),
        *chance(source, origins, scope),
        *kernels(source, origins, scope),
        *loop(source, origins, scope),
    ]


def _together(path: Path) -> list[Source]:
    """The script, and modules from its folder as it imports them."""
    found = [read(path)]
    folder = path.parent
    seen = {path.resolve()}
    for source in found:
        for one in _beside(source, folder):
            if one.resolve() not in seen and len(found) < _MOST_FILES:
                seen.add(one.resolve())
                found.append(read(one))
    return found


def _beside(source: Source, folder: Path) -> Iterator[Path]:
    for name in sorted(source.imported):
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            place = folder.joinpath(*parts[:end])
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    yield file
