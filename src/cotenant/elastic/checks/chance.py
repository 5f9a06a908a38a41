"""Where random numbers come from: without seed, before the seed, from generators of one's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cotenant.elastic.checks.findings import D0_CHANGED, D1_CHANGED, REMARK, Finding
from cotenant.elastic.checks.origins import RANK, Origins
from cotenant.elastic.checks.scope import SEEDING, Scope
from cotenant.elastic.checks.source import Source, calls_within, words

__all__ = ["chance"]

_MAKERS = {"default_rng", "RandomState", "Random", "Generator"}
_DRAWN_IN = {"__getitem__", "__getitems__", "forward", "__call__"}
_TORCH = "rand randn randint randperm normal bernoulli multinomial rand_like randn_like randint_like poisson"
_DRAWS = {f"torch.{name}" for name in _TORCH.split()}
_NUMPY_NOT = {"seed", "default_rng", "RandomState", "Generator", "SeedSequence", "set_state", "get_state"}
_RANDOM_NOT = {"seed", "Random", "SystemRandom", "getstate", "setstate"}


def chance(source: Source, origins: Origins, scope: Scope) -> Iterator[Finding]:
    """Findings of this kind in a file."""
    for call in source.calls:
        yield from _unseeded(source, call)
    yield from _own_generators(source)
    if scope.moved:
        yield from _before_run(source)
        yield from _on_one_process(source, origins)
    elif scope.trains and not scope.seeded:
        yield from _no_seed(source)


def _maker(source: Source, call: ast.Call) -> str:
    """Which kind of generator a call makes; empty if none."""
    name = source.name(call.func)
    last = name.rpartition(".")[2]
    known = name.startswith(("numpy.random", "random.", "torch."))
    return last if last in _MAKERS and known else ""


def _unseeded(source: Source, call: ast.Call) -> Iterator[Finding]:
    name = source.name(call.func)
    empty = not call.args and not call.keywords
    maker = _maker(source, call)
    own = maker in ("default_rng", "RandomState", "Random") and empty
    if (
        own
        or (name in ("random.seed", "numpy.random.seed") and empty)
        or name in ("torch.seed", "torch.cuda.seed")
    ):
        yield source.finding(
            call,
            "no-seed",
            D0_CHANGED,
            "without a number it is seeded from the machine's noise, each time anew",
            "give a number, or draw from Python's, NumPy's and PyTorch's own generators, which elastic.Run seeds",
        )


def _generators(source: Source) -> dict[str, ast.AST]:
    """Generators by the name they are given."""
    found: dict[str, ast.AST] = {}
    for call in source.calls:
        if not _maker(source, call):
            continue
        node: ast.AST = call
        # torch.Generator().manual_seed(0) gives the generator
        up = source.parent(node)
        while isinstance(up, (ast.Attribute, ast.Call)):
            node, up = up, source.parent(up)
        name = source.assigned(node)
        if name:
            found[name] = node
    return found


def _own_generators(source: Source) -> Iterator[Finding]:
    made = _generators(source)
    seen = set()
    for node in source.nodes:
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        name = ast.unparse(node)
        inside = source.function(node)
        if (
            name not in made
            or inside is None
            or inside.name not in _DRAWN_IN
            or source.function(made[name]) is inside
        ):
            continue
        key = (name, inside)
        if key in seen or _seeded_in(inside, name):
            continue
        seen.add(key)
        yield source.finding(
            node,
            "own-generator",
            D1_CHANGED,
            "a generator of the script's own goes on from wherever its process is: it is neither changed with the worker"
            " nor seeded for each sample",
            "draw from torch.rand, np.random or random: a run seeds these for each sample and keeps them for each worker",
            what=f"{name} in {inside.name}",
        )


def _seeded_in(function: ast.AST, name: str) -> bool:
    for call in calls_within([function]):
        seeds = isinstance(call.func, ast.Attribute) and call.func.attr in ("manual_seed", "seed")
        if seeds and ast.unparse(call.func).rpartition(".")[0] == name:
            return True
    return False


def _draws(source: Source, call: ast.Call) -> bool:
    """Whether it draws from the process's generators."""
    name = source.name(call.func)
    last = name.rpartition(".")[2]
    if "generator" in words(call):
        return False
    if name.startswith("numpy.random."):
        return last not in _NUMPY_NOT and name.count(".") == 2
    if name.startswith("random."):
        return last not in _RANDOM_NOT and name.count(".") == 1
    return name in _DRAWS


def _models(source: Source) -> set[str]:
    bases = {"Module", "Sequential"}
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and {source.name(b).rpartition(".")[2] for b in node.bases} & (
            bases | found
        ):
            found.add(node.name)
    return found


def _before_run(source: Source) -> Iterator[Finding]:
    """Models and draws in the same piece of code as ``elastic.Run``, above it."""
    runs = [call for call in source.calls if source.name(call.func) == "cotenant.elastic.Run"]
    if not runs:
        return
    run, models = runs[0], _models(source)
    for call in source.calls:
        name = source.name(call.func)
        if call.lineno >= run.lineno or source.function(call) is not source.function(run):
            continue
        if source.of_class(call) is not source.of_class(run):
            continue
        if name.rpartition(".")[2] in (*SEEDING, "seed"):
            return
        model = name in models or (name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper())
        if model or _draws(source, call):
            yield source.finding(
                call,
                "before-run",
                D0_CHANGED,
                "drawn before elastic.Run seeds: other numbers each time",
                "make elastic.Run first",
            )
            return


def _on_one_process(source: Source, origins: Origins) -> Iterator[Finding]:
    for node in source.nodes:
        if not isinstance(node, ast.If):
            continue
        firsts = (
            one for one in ast.walk(node.test) if isinstance(one, ast.Attribute) and one.attr == "first"
        )
        if not any(firsts) and RANK not in origins.of(node.test):
            continue
        for call in calls_within(node.body):
            if _changes(source, call):
                yield source.finding(
                    call,
                    "changed-on-one-process",
                    D1_CHANGED,
                    "only one process changes its parameters here: the run ends with an error at the next step",
                    "do it on all processes: without the if",
                )
        for call in calls_within(node.body):
            if _draws(source, call):
                yield source.finding(
                    call,
                    "drawn-on-one-process",
                    REMARK,
                    "only one process draws here: what is drawn between turns afterwards differs between processes",
                    "give it a generator of its own: generator=torch.Generator().manual_seed(step.number)",
                )
                break


def _changes(source: Source, call: ast.Call) -> bool:
    """Whether it writes into a module's parameters, as far as names tell."""
    if source.name(call.func).startswith("torch.nn.init."):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    where = call.func.value
    inside = call.func.attr.endswith("_") and call.func.attr != "requires_grad_"
    while inside and isinstance(where, (ast.Attribute, ast.Subscript)):
        if isinstance(where, ast.Attribute) and where.attr in ("weight", "bias"):
            return True
        where = where.value
    return False


def _no_seed(source: Source) -> Iterator[Finding]:
    def shuffles(call: ast.Call) -> bool:
        given = words(call).get("shuffle")
        loader = source.name(call.func).rpartition(".")[2] == "DataLoader"
        return (
            loader
            and isinstance(given, ast.Constant)
            and given.value is True
            and "generator" not in words(call)
        )

    def backward(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"

    first = next((c for c in source.calls if shuffles(c)), None)
    first = first or next((c for c in source.calls if backward(c)), None)
    if first is not None:
        yield source.finding(
            first,
            "no-seed",
            D0_CHANGED,
            "nothing is seeded: initial values, order of samples and dropout are new each time",
            "torch.manual_seed(0) before the model, or elastic.Run(seed=0), which seeds everything",
        )
