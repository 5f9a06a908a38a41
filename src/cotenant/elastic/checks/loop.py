"""The training loop: what belongs in a turn and what behind it, what is kept, when it ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from cotenant.elastic.checks.findings import D0_CHANGED, D1_CHANGED, REMARK, Finding
from cotenant.elastic.checks.origins import NOW, RANK, Origins
from cotenant.elastic.checks.scope import Scope
from cotenant.elastic.checks.source import Function, Loop, Source, calls_within

__all__ = ["loop", "unkept"]

_ACCUMULATE = re.compile(r"accum|grad_acc", re.IGNORECASE)
_EXITS = ("sys.exit", "exit", "quit", "os._exit")


_KEEPS = ("keep", "adopt", "setup", "setup_optimizers")
"""What makes an object part of the run; the last two are Fabric's."""


def loop(source: Source, origins: Origins, scope: Scope) -> Iterator[Finding]:
    """Findings of this kind in a file."""
    yield from _clocks(source, origins)
    if scope.moved:
        for inner in _turns(source):
            yield from _in_turn(source, inner)
        yield from _elsewhere(source)
    else:
        yield from _accumulation(source)
        yield from _saving(source, origins)


def _clocks(source: Source, origins: Origins) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.If):
            ends = any(isinstance(one, (ast.Break, ast.Return, ast.Raise)) for one in node.body)
            ends = ends or any(source.name(call.func) in _EXITS for call in calls_within(node.body))
            if not ends or not any(_trains(source, up) for up in source.around(node) if isinstance(up, Loop)):
                continue
        elif not isinstance(node, ast.While) or not _trains(source, node):
            continue
        if NOW in origins.of(node.test):
            yield source.finding(
                node.test,
                "wall-clock",
                D0_CHANGED,
                "the clock decides how many steps are taken",
                "a number of steps or epochs; a run that is stopped (SIGTERM) saves and goes on later",
            )


def _trains(source: Source, over: Loop) -> bool:
    """Whether a loop takes gradients, or steps, or calls a function of this file that does."""
    known = {n.name for n in source.nodes if isinstance(n, Function) and _takes(calls_within([n]))}
    calls = list(calls_within([over]))
    return _takes(calls) or bool({source.name(call.func).rpartition(".")[2] for call in calls} & known)


def _takes(calls: Iterable[ast.Call]) -> bool:
    names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    return bool(names & {"backward", "steps"})


def _unwrapped(node: ast.expr) -> ast.expr:
    """``step`` of ``enumerate(step)`` and ``tqdm(step)``."""
    while isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name):
        node = node.args[0]
    return node


def _step_loops(source: Source) -> Iterator[ast.For]:
    for node in source.nodes:
        if isinstance(node, ast.For):
            over = _unwrapped(node.iter)
            if (
                isinstance(over, ast.Call)
                and isinstance(over.func, ast.Attribute)
                and over.func.attr == "steps"
            ):
                yield node


def _turns(source: Source) -> Iterator[ast.For]:
    """Loops over the turns of a step: ``for x, y in step``, also in a function that is given the step."""
    for outer in _step_loops(source):
        names = {one.id for one in ast.walk(outer.target) if isinstance(one, ast.Name)}
        for node in ast.walk(outer):
            if isinstance(node, ast.For) and node is not outer and _is_step(node.iter, names):
                yield node
    for node in source.nodes:
        if isinstance(node, ast.For) and _is_step(node.iter, {"step"}):
            inside = source.function(node)
            if inside is not None and "step" in [one.arg for one in inside.args.args]:
                yield node


def _is_step(node: ast.expr, names: set[str]) -> bool:
    over = _unwrapped(node)
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "turn":
        over = over.func.value
    return isinstance(over, ast.Name) and over.id in names


def _in_turn(source: Source, inner: ast.For) -> Iterator[Finding]:
    made = _made(source)
    for call in calls_within(inner.body):
        if not isinstance(call.func, ast.Attribute):
            name = source.name(call.func).rpartition(".")[2]
            owner = ""
        else:
            name, owner = call.func.attr, ast.unparse(call.func.value).rpartition(".")[2]
        why = _why(name, owner, made)
        if why:
            yield source.finding(call, "in-turn", D1_CHANGED, why, "move it behind the inner loop")
    for node in (one for part in inner.body for one in ast.walk(part)):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load):
            yield source.finding(
                node,
                "in-turn",
                D1_CHANGED,
                "on some processes grad holds the sum with earlier turns",
                "read it behind the inner loop: there it is the mean over all workers",
            )
        elif isinstance(node, (ast.Break, ast.Return)) and _leaves(source, node, inner):
            yield source.finding(
                node,
                "in-turn",
                D1_CHANGED,
                "the turns of a step must run to their end: refused",
                "if and continue",
            )
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, (ast.Name, ast.Attribute)):
            yield from _counted(source, inner, node)


def _counted(source: Source, inner: ast.For, node: ast.AugAssign) -> Iterator[Finding]:
    name = ast.unparse(node.target)
    own = [one for part in inner.body for one in ast.walk(part) if isinstance(one, ast.Assign)]
    if any(ast.unparse(target) == name for one in own for target in one.targets):
        return
    yield source.finding(
        node,
        "counted-in-turn",
        REMARK,
        f"{name} counts this process's turns only, and twice if a turn is taken again",
        "step.note(name=value) here, step.mean('name') behind the loop",
    )


def _leaves(source: Source, node: ast.AST, inner: ast.For) -> bool:
    for up in source.around(node):
        if up is inner:
            return True
        if isinstance(up, (*_LOOPS, *_FUNCTIONS)):
            return isinstance(node, ast.Return) and not isinstance(up, _FUNCTIONS)
    return False


_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _made(source: Source) -> dict[str, str]:
    """Optimisers, schedulers, scalers and averaged models by the last word of their name."""
    found: dict[str, str] = {}
    for call in source.calls:
        kind = _kind(source, call)
        name = source.assigned(call)
        if kind and name:
            found[name.rpartition(".")[2]] = kind
    return found


def _kind(source: Source, call: ast.Call) -> str:
    name = source.name(call.func)
    last = name.rpartition(".")[2]
    if name.startswith(("torch.optim.lr_scheduler", "torch.optim.swa_utils.SWALR")):
        return "scheduler"
    if name.startswith("torch.optim.swa_utils.AveragedModel"):
        return "averaged weights"
    if last == "GradScaler":
        return "scaler"
    return "optimizer" if name.startswith("torch.optim.") and last[:1].isupper() else ""


def _why(name: str, owner: str, made: dict[str, str]) -> str:
    if name == "step" and made.get(owner) == "scheduler":
        return "the schedule goes on once for each turn of this process: as many as it has workers"
    if name == "step" and (made.get(owner) in ("optimizer", "scaler") or owner.startswith(("opt", "scaler"))):
        return "the gradient is the mean over all workers only behind the loop: refused"
    if name == "update_parameters" or (
        name == "update" and made.get(owner) in ("averaged weights", "scaler")
    ):
        return "it happens once for each turn of this process: as many as it has workers"
    if name in ("clip_grad_norm_", "clip_grad_value_", "unscale_", "clip_gradients"):
        return "it changes the gradient of one worker, or the sum with earlier turns, not the mean over all"
    if name == "zero_grad":
        return "it throws away the gradients of earlier turns"
    return ""


def unkept(sources: list[Source]) -> Iterator[Finding]:
    """Objects with a state of their own that are not given to ``run.keep`` or ``run.adopt``, in all files together."""
    given: set[str] = set()
    for source in sources:
        for call in source.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS:
                if any(one.arg is None for one in call.keywords) or any(
                    isinstance(a, ast.Starred) for a in call.args
                ):
                    return  # what is given is not seen
                for one in [*call.args, *(word.value for word in call.keywords)]:
                    found = (n for n in ast.walk(one) if isinstance(n, (ast.Name, ast.Attribute)))
                    given |= {ast.unparse(n).rpartition(".")[2] for n in found}
    for source in sources:
        for call in source.calls:
            kind, name = _kind(source, call), source.assigned(call).rpartition(".")[2]
            nested = isinstance(source.parent(call), (ast.Call, ast.List, ast.Tuple, ast.keyword))
            if kind and name and name not in given and not nested and not _handed_on(source, call, name):
                yield source.finding(
                    call,
                    "not-kept",
                    D1_CHANGED,
                    f"{name} is not kept: a new process, and a resume, begin with a new one",
                    f"run.keep(..., {kind}={name})"
                    if " " not in kind
                    else f"run.keep(..., extra={{'ema': {name}}})",
                )


def _handed_on(source: Source, call: ast.Call, name: str) -> bool:
    """Whether a function gives it back, or it goes into another one (a chain of schedules)."""
    inside, kind = source.function(call), _kind(source, call)
    for node in source.nodes:
        parts: list[ast.AST] = []
        if isinstance(node, ast.Return) and source.function(node) is inside and node.value is not None:
            parts = [node.value]
        elif isinstance(node, ast.Call) and kind == _kind(source, node) == "scheduler":
            parts = [*node.args, *node.keywords]
        elif isinstance(node, ast.Call) and source.name(node.func).endswith("Precision"):
            parts = [*node.args, *node.keywords]  # a plugin of Fabric, which keeps it
        if name in {n.id for one in parts for n in ast.walk(one) if isinstance(n, ast.Name)}:
            return True
    return False


def _elsewhere(source: Source) -> Iterator[Finding]:
    """Gradients taken in a loop that is none of a run's steps."""
    steps = set(_step_loops(source)) | set(_turns(source))
    for call in source.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "backward"):
            continue
        loops = []
        for up in source.around(call):
            if isinstance(up, Function):
                break
            if isinstance(up, _LOOPS):
                loops.append(up)
        if not loops or set(loops) & steps or not isinstance(loops[0], ast.For):
            continue
        inside = source.function(call)
        over = _unwrapped(loops[0].iter)
        given = [] if inside is None else [one.arg for one in inside.args.args]
        if isinstance(over, ast.Name) and over.id in given:
            continue
        yield source.finding(
            loops[0].iter,
            "other-loop",
            D1_CHANGED,
            "this loop trains, and is none of run.steps(): each process would train by itself",
            "for step in run.steps(loader, epochs): for x, y in step: ...",
        )


def _accumulation(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mod)
            and _ACCUMULATE.search(ast.unparse(node.right))
        ):
            yield source.finding(
                node,
                "accumulation",
                REMARK,
                "accumulation can stay, or the logical workers take its place",
                "elastic.Run(workers=processes x accumulation), then optimizer.step() at every step",
            )


def _saving(source: Source, origins: Origins) -> Iterator[Finding]:
    for node in source.nodes:
        if not isinstance(node, ast.If) or RANK not in origins.of(node.test):
            continue
        for call in calls_within(node.body):
            if source.name(call.func) == "torch.save":
                yield source.finding(
                    call,
                    "own-checkpoint",
                    REMARK,
                    "a checkpoint of one's own has no random numbers, and no place within the epoch",
                    "elastic.Run(state='folder', every_steps=500); for a file of your own: if run.first",
                )
