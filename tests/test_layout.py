"""The house keeps its shape: import direction, sizes, public names, entry points."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "cotenant"
MODULES = sorted(SOURCE.rglob("*.py"))

SIMULATION = {
    "model",
    "traces",
    "profiles",
    "predictors",
    "policies",
    "engine",
    "executors",
    "report",
    "runs",
    "shares",
}
"""Rooms of which a whole simulation is made."""
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "traces": {"model", "profiles"},
    "profiles": {"model"},
    "predictors": {"model", "profiles"},
    "policies": {"model"},
    "engine": {"model"},
    # Processes are held to their shares by back ends.
    "executors": {"model", "shares"},
    "report": {"model"},
    # Limiters, simulated and real: they know shares, no jobs.
    "shares": {"model"},
    # What runs inside a job stands alone, so that it starts quickly and can be copied.
    "runtime": set(),
    # Elastic training: part of the job, too, with the state files and seeds of the runtime.
    "elastic": {"model", "runtime"},
    # Blocks of saved state, with owners and readers.
    "pools": {"model"},
    "live": SIMULATION | {"pools", "runtime"},
    # Published experiments put everything together, as a command does.
    "experiments": SIMULATION,
    # The same jobs for real and in the simulator.
    "twin": {
        "model",
        "profiles",
        "predictors",
        "engine",
        "executors",
        "live",
        "report",
        "runs",
    },
    "tournament": SIMULATION | {"experiments"},
}
"""Rooms that each room may import, besides itself and the roots errors, registry and version."""

EXCEPTIONS: dict[str, set[str]] = {
    # The simulated world is the one place where the measured truth is read.
    "executors/simulated.py": {"profiles"},
    # An included job is a job as any other: the runtime is attached to it.
    "profiles/jobs/__main__.py": {"runtime"},
    # Devices of this machine are found, named and watched by those who measure them.
    "executors/local/devices.py": {"profiles"},
    "executors/local/watch.py": {"profiles"},
}
EXTRA_MODULES: dict[str, set[str]] = {
    # Reports are made from logs, so they may read them, and nothing else of the engine. When a job
    # will finish is worked out in one place, for those who watch it and for those who tell of it.
    "report": {
        "cotenant.engine.log",
        "cotenant.predictors.completion",
        "cotenant.predictors.sampling",
    },
}
ROOTS = {"errors", "registry", "__version__"}
FREE = {"app", "runs", "checks", "testing", "run", "__init__", "__main__"}
MEMBER_ROOMS = {
    "policies": ("cotenant.policies", "decide"),
    "traces": ("cotenant.traces", "sniff"),
}


def _room(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else path.stem


def _imports(tree: ast.AST, path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            # "from cotenant.engine import log" names a module, too.
            yield module, node.lineno
            if module.startswith("cotenant"):
                for alias in node.names:
                    if (SOURCE.parent / (module.replace(".", "/") + f"/{alias.name}.py")).is_file():
                        yield f"{module}.{alias.name}", node.lineno


def _wrong_imports(path: Path) -> list[str]:
    room = _room(path)
    if room in FREE:
        return []
    relative = path.relative_to(SOURCE).as_posix()
    allowed = ALLOWED.get(room, set()) | EXCEPTIONS.get(relative, set()) | {room} | ROOTS
    extra = EXTRA_MODULES.get(room, set())
    wrong = []
    for module, line in _imports(ast.parse(path.read_text()), path):
        parts = module.split(".")
        if parts[0] != "cotenant" or len(parts) == 1 or module in extra:
            continue
        if parts[1] not in allowed and not any(name.startswith(f"{module}.") for name in extra):
            wrong.append(f"{relative}:{line} imports {module}")
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_a_room_imports_only_what_lies_before_it(path: Path) -> None:
    assert _wrong_imports(path) == []


def test_every_room_has_a_row_in_the_table() -> None:
    assert {_room(p) for p in MODULES} - FREE - ROOTS <= set(ALLOWED)


def test_a_policy_sees_nothing_of_engine_truth_or_trace() -> None:
    assert ALLOWED["policies"].isdisjoint({"engine", "executors", "profiles", "traces", "predictors"})


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 400
    long = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[ast.get_docstring(node) is not None :]
            # The signature is not counted: the formatter gives each parameter a line.
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines >= 40:
                long.append(f"{node.name} ({lines} lines) at line {node.lineno}")
    assert long == []


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.name != "__main__.py"], ids=lambda p: p.relative_to(SOURCE).as_posix()
)
def test_every_module_lists_its_public_names_and_has_them(path: Path) -> None:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    tree = ast.parse(path.read_text())
    lists = any(
        isinstance(node, (ast.Assign, ast.AnnAssign))
        and any(
            isinstance(target, ast.Name) and target.id == "__all__"
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        )
        for node in tree.body
    )
    if path.name == "__init__.py" and not any(not isinstance(n, ast.Expr) for n in tree.body):
        return  # a room's door with nothing but its sign
    assert lists, f"{name} has no __all__"
    module = importlib.import_module(name)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []
    # Their order is ruff's business (RUF022: constants, classes, functions).
    assert len(module.__all__) == len(set(module.__all__))


def _declared() -> list[tuple[str, str, str]]:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return [(group, name, value) for group, members in tables.items() for name, value in members.items()]


@pytest.mark.parametrize(("group", "name", "value"), _declared(), ids=str)
def test_every_entry_point_loads(group: str, name: str, value: str) -> None:
    module, _, attribute = value.partition(":")
    assert hasattr(importlib.import_module(module), attribute)


def test_the_installation_knows_every_declared_entry_point() -> None:
    installed = {(g, p.name) for g in {g for g, _, _ in _declared()} for p in entry_points(group=g)}
    missing = {(g, n) for g, n, _ in _declared()} - installed
    assert missing == set(), "run pip install -e . again"


@pytest.mark.parametrize("room", sorted(MEMBER_ROOMS))
def test_every_member_class_is_registered(room: str) -> None:
    group, method = MEMBER_ROOMS[room]
    registered = {value for g, _, value in _declared() if g == group}
    classes = [getattr(importlib.import_module(v.partition(":")[0]), v.partition(":")[2]) for v in registered]
    unregistered = []
    for path in sorted((SOURCE / room).glob("*.py")):
        module = importlib.import_module(f"cotenant.{room}.{path.stem}".removesuffix(".__init__"))
        for name, found in inspect.getmembers(module, inspect.isclass):
            own = found.__module__ == module.__name__ and method in vars(found)
            # A class that registered members share as their base is no member itself.
            if own and not name.startswith("_") and not any(issubclass(c, found) for c in classes):
                unregistered.append(f"{module.__name__}:{name}")
    assert unregistered == []


def test_the_public_names_are_exactly_these() -> None:
    import cotenant

    assert sorted(cotenant.__all__) == [
        "Cluster",
        "CotenantError",
        "DeviceType",
        "Job",
        "Params",
        "Plan",
        "Result",
        "Settings",
        "Workload",
        "__version__",
        "generate",
        "load",
        "load_cluster",
        "simulate",
    ]
    assert [name for name in cotenant.__all__ if getattr(cotenant, name, None) is None] == []
    with pytest.raises(AttributeError, match="simulat"):
        cotenant.simulat  # noqa: B018
