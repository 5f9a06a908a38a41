"""The functions of a file: which one a call means, what it gives back, and what it is given."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from cotenant.elastic.checks.source import Function, Source

__all__ = ["Functions", "arguments", "parameters"]


class Functions:
    """Those of one file.

    Attributes
    ----------
    all : list of FunctionDef
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.all = [node for node in source.nodes if isinstance(node, Function)]
        self._plain: dict[str, list[Function]] = {}
        self._methods: dict[tuple[ast.ClassDef, str], Function] = {}
        self._returned: dict[Function, list[ast.expr]] = {node: [] for node in self.all}
        for node in self.all:
            owner = source.parent(node)
            if isinstance(owner, ast.ClassDef):
                self._methods[owner, node.name] = node
            else:
                self._plain.setdefault(node.name, []).append(node)
        for one in source.nodes:
            inside = source.function(one) if isinstance(one, ast.Return) else None
            if inside is not None and isinstance(one, ast.Return) and one.value is not None:
                self._returned[inside].append(one.value)

    def called(self, call: ast.Call) -> Sequence[Function]:
        """What a call may mean: functions of that name, or the method of its own class."""
        if isinstance(call.func, ast.Name):
            return self._plain.get(call.func.id, ())
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            owner = self._source.of_class(call) if call.func.value.id in ("self", "cls") else None
            found = self._methods.get((owner, call.func.attr)) if owner is not None else None
            return [found] if found is not None else ()
        return ()

    def returned(self, function: Function, part: object = None) -> list[ast.expr]:
        """Expressions that it gives back, or that part of each that is a tuple."""
        found: list[ast.expr] = []
        for one in self._returned[function]:
            within = isinstance(one, ast.Tuple) and isinstance(part, int) and 0 <= part < len(one.elts)
            found.append(one.elts[part] if within else one)  # type: ignore[attr-defined]
        return found

    def length(self, function: Function) -> int:
        """Of the tuple that it gives back; 0 if it may be something else, or of several lengths."""
        found = {len(one.elts) if isinstance(one, ast.Tuple) else 0 for one in self._returned[function]}
        return found.pop() if len(found) == 1 else 0

    def parts(self, value: ast.expr) -> ast.expr:
        """Of a call that gives back a tuple, its parts: so that each name of an unpacking has its own."""
        functions = self.called(value) if isinstance(value, ast.Call) else ()
        lengths = {self.length(function) for function in functions}
        if len(lengths) != 1 or lengths == {0}:
            return value
        parts: list[ast.expr] = [
            ast.Subscript(value, ast.Constant(number), ast.Load()) for number in range(lengths.pop())
        ]
        return ast.Tuple(parts, ast.Load())


def parameters(function: Function) -> list[str]:
    """Names of its parameters."""
    found = function.args
    return [one.arg for one in [*found.posonlyargs, *found.args, *found.kwonlyargs]]


def arguments(function: Function, call: ast.Call) -> dict[str, list[ast.expr]]:
    """What a call gives for each parameter, or its default; with ``*`` and ``**`` each may have all."""
    names = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    defaults |= {
        one.arg: value
        for one, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value is not None
    }
    if isinstance(call.func, ast.Attribute):
        names = names[1:]  # self
    given = {one.arg: one.value for one in call.keywords if one.arg}
    if any(isinstance(one, ast.Starred) for one in call.args) or len(given) < len(call.keywords):
        every = [*call.args, *(one.value for one in call.keywords)]
        return dict.fromkeys(parameters(function), every)
    given = {**defaults, **dict(zip(names, call.args, strict=False)), **given}
    return {name: [value] for name, value in given.items()}
