"""A script as a tree, with the full names of what it calls; nothing of it is imported or run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cotenant.elastic.checks.findings import Finding, Loses
from cotenant.errors import InputError

__all__ = ["Function", "Loop", "Source", "calls_within", "read", "words"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
_CUDA = re.compile(r"cuda\b|cuda:\d|gpu", re.IGNORECASE)


class Source:
    """One file.

    Attributes
    ----------
    path : Path
    tree : Module
    calls : list of Call
        All, in the order of the text.
    """

    def __init__(self, path: Path, text: str, tree: ast.Module) -> None:
        self.path, self.tree, self.lines = path, tree, text.splitlines()
        self.nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        self.nodes.sort(key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._names = dict(self._imports())
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]

    def _imports(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    yield (
                        one.asname or one.name.partition(".")[0],
                        one.name if one.asname else (one.name.partition(".")[0]),
                    )
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for one in node.names:
                    yield one.asname or one.name, f"{node.module}.{one.name}"

    @property
    def imported(self) -> set[str]:
        """Full names of what is imported, and of the modules that it is of."""
        found = set(self._names.values())
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
        return found

    def name(self, node: ast.AST | None) -> str:
        """The full name that an expression stands for: ``F.interpolate`` is torch.nn.functional.interpolate.

        Names that are not imported stand for themselves; what is no name gives an empty string.
        """
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.name(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def is_module(self, node: ast.AST) -> bool:
        """Whether an expression is an imported module, or something of one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._names

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What it is a part of."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """All that it is a part of, from the inside out."""
        found = self._parents.get(node)
        while found is not None:
            yield found
            found = self._parents.get(found)

    def function(self, node: ast.AST) -> Function | None:
        """The function it is in."""
        return next((one for one in self.around(node) if isinstance(one, Function)), None)

    def of_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class it is in."""
        return next((one for one in self.around(node) if isinstance(one, ast.ClassDef)), None)

    def assigned(self, call: ast.AST) -> str:
        """The name or attribute that is given this value, as it is written; empty if there is none."""
        up = self.parent(call)
        if isinstance(up, ast.Assign) and len(up.targets) == 1 and up.value is call:
            return written(up.targets[0])
        if isinstance(up, ast.AnnAssign) and up.value is call:
            return written(up.target)
        return ""

    def without_gradient(self, node: ast.AST) -> bool:
        """Whether it is within ``torch.no_grad()`` or ``inference_mode()``."""
        marks: list[ast.AST] = []
        for one in self.around(node):
            if isinstance(one, ast.With):
                marks += [item.context_expr for item in one.items]
            elif isinstance(one, Function):
                marks += one.decorator_list
        plain = [mark.func if isinstance(mark, ast.Call) else mark for mark in marks]
        return any(self.name(mark).rpartition(".")[2] in ("no_grad", "inference_mode") for mark in plain)

    def accepts(self, line: int) -> bool:
        """Whether the line says that it is all right."""
        return line <= len(self.lines) and re.search(r"#.*\belastic: ok\b", self.lines[line - 1]) is not None

    def text(self, node: ast.AST) -> str:
        """As it is written, on one line and not too long."""
        found = " ".join(written(node).split())
        return found if len(found) <= 60 else f"{found[:57]}..."

    def finding(
        self,
        node: ast.AST,
        rule: str,
        loses: Loses,
        why: str,
        instead: str,
        *,
        what: str = "",
    ) -> Finding:
        """A finding at this place."""
        at: Any = node
        return Finding(
            self.path,
            at.lineno,
            at.col_offset + 1,
            rule,
            *loses,
            what or self.text(node),
            why,
            instead,
        )

    @property
    def cuda(self) -> bool:
        """Whether it says anything of CUDA."""
        strings = (n.value for n in self.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        names = (n.attr for n in self.nodes if isinstance(n, ast.Attribute))
        return any(_CUDA.match(text) for text in strings if len(text) < 20) or "cuda" in names


def written(node: ast.AST) -> str:
    """An expression as it is written."""
    return ast.unparse(node)


def words(call: ast.Call) -> dict[str, ast.expr]:
    """Arguments that are given by name."""
    return {one.arg: one.value for one in call.keywords if one.arg}


def calls_within(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """All calls in these."""
    for node in nodes:
        yield from (one for one in ast.walk(node) if isinstance(one, ast.Call))


def read(path: Path) -> Source:
    """Read and parse a file.

    Raises
    ------
    InputError
        If it cannot be read, is not UTF-8, or is not Python.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the training script, a file of Python")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the training script") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}:{line}: not UTF-8 (byte {data[error.start]:#04x}): save it as UTF-8"
        ) from None
    try:
        return Source(path, text, ast.parse(text, str(path)))
    except SyntaxError as error:
        place = f"{path}:{error.lineno or 1}:{error.offset or 1}"
        raise InputError(f"{place}: not Python that can be parsed: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not Python that can be parsed: {error}") from None
