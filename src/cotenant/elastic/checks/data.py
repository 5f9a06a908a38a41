"""Which samples are read when: samplers, loaders, streams, orders that Python or the file system decide."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cotenant.elastic.checks.findings import D0_CHANGED, D1_CHANGED, REMARK, Finding
from cotenant.elastic.checks.origins import COUNT, Origins
from cotenant.elastic.checks.scope import Scope
from cotenant.elastic.checks.source import Function, Source, words

__all__ = ["data"]

_SAMPLERS = {"WeightedRandomSampler", "SubsetRandomSampler", "BatchSampler"}
_FILES = {"listdir", "scandir", "glob", "iglob", "rglob", "iterdir"}
_DEAL = "run.prepare(model, data, 8, sampler=...) or batch_sampler=, or the loader to run.adopt(): one order, dealt out"


def data(source: Source, origins: Origins, scope: Scope, *, set_epoch: bool) -> Iterator[Finding]:
    """Findings of this kind in a file.

    Parameters
    ----------
    source, origins, scope
        The file, where its values come from, and what holds for the whole script.
    set_epoch : bool
        Whether anything in the script calls it.
    """
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and not scope.moved:
            yield from _class(source, node, scope)
    for call in source.calls:
        last = source.name(call.func).rpartition(".")[2]
        if isinstance(call.func, ast.Attribute):
            last = call.func.attr
        if last == "DistributedSampler":
            yield from _distributed(source, call, origins)
            if not scope.moved and not set_epoch:
                yield from _without_epoch(source, call)
        elif last == "DataLoader":
            yield from _loader(source, call, scope)
        elif not scope.moved and (last in _SAMPLERS or (last == "RandomSampler" and _drawn(call))):
            yield _own(source, call, scope)
        elif last == "get_worker_info":
            yield source.finding(
                call,
                "loader-workers",
                D1_CHANGED,
                "what is read or drawn follows the number of the loader's workers",
                "leave it out: each sample is seeded from its epoch and place, whoever loads it",
            )
        elif not scope.moved and (
            (last == "load_dataset" and _true(words(call).get("streaming"))) or last == "WebDataset"
        ):
            yield _stream(source, call, scope)
        elif last in _FILES and _unsorted_files(source, call, last):
            yield _files(source, call)
    yield from _sets(source)
    yield from _hashes(source)


def _true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _drawn(call: ast.Call) -> bool:
    named = words(call)
    return _true(named.get("replacement")) or "num_samples" in named


def _own(source: Source, node: ast.AST, scope: Scope) -> Finding:
    loses = D1_CHANGED if scope.distributed else REMARK
    why = (
        "each process draws an order of its own, or each the same samples: what is read follows their number"
    )
    return source.finding(node, "own-sampler", loses, why, _DEAL, what=_head(source, node))


def _head(source: Source, node: ast.AST) -> str:
    return f"class {node.name}" if isinstance(node, ast.ClassDef) else ""


def _stream(source: Source, node: ast.AST, scope: Scope) -> Finding:
    return source.finding(
        node,
        "stream",
        D1_CHANGED if scope.distributed else REMARK,
        "which worker reads which sample follows the number of processes, and of the loader's workers",
        "a function that makes each logical worker's stream: run.prepare(model, lambda worker: ..., 8)",
        what=_head(source, node),
    )


def _class(source: Source, node: ast.ClassDef, scope: Scope) -> Iterator[Finding]:
    bases = {source.name(base).rpartition(".")[2] for base in node.bases}
    if bases & {"IterableDataset", "IterDataPipe"}:
        yield _stream(source, node, scope)
    elif bases & {"Sampler", "BatchSampler", "DistributedSampler", "RandomSampler"}:
        yield _own(source, node, scope)


def _distributed(source: Source, call: ast.Call, origins: Origins) -> Iterator[Finding]:
    count = words(call).get("num_replicas", call.args[1] if len(call.args) > 1 else None)
    if count is None or COUNT in origins.of(count):
        yield source.finding(
            call,
            "distributed-sampler",
            D1_CHANGED,
            "it deals out to as many processes as there are",
            "to logical workers: DistributedSampler(data, run.workers, 0), and run.adopt(model, loader, optimizer)",
        )


def _without_epoch(source: Source, call: ast.Call) -> Iterator[Finding]:
    shuffle = words(call).get("shuffle")
    if not (isinstance(shuffle, ast.Constant) and shuffle.value is False):
        yield source.finding(
            call,
            "set-epoch",
            REMARK,
            "without set_epoch() all epochs have one order; a run shuffles each anew",
            "sampler.set_epoch(epoch), unless you mean it",
        )


def _loader(source: Source, call: ast.Call, scope: Scope) -> Iterator[Finding]:
    named = words(call)
    if not scope.moved and ("batch_sampler" in named or _none(named.get("batch_size"))):
        yield _own(source, call, scope)
    if _true(named.get("persistent_workers")):
        yield source.finding(
            call,
            "persistent-workers",
            REMARK,
            "loader workers start anew when processes come and go; run.adopt() refuses it",
            "leave persistent_workers out",
        )


def _none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _files(source: Source, call: ast.Call) -> Finding:
    """Of a data set it says which sample has which number; elsewhere it may be anything."""
    owner = source.of_class(call)
    methods = {one.name for one in owner.body if isinstance(one, Function)} if owner is not None else set()
    loses = D1_CHANGED if methods & {"__getitem__", "__iter__"} else REMARK
    why = "the file system decides the order of files: a copy of the folder, or another machine, may have another"
    return source.finding(call, "file-order", loses, why, f"sorted({source.text(call)})")


def _unsorted_files(source: Source, call: ast.Call, last: str) -> bool:
    name = source.name(call.func)
    if last in ("listdir", "scandir") and not name.startswith("os."):
        return False
    if last in ("glob", "iglob") and isinstance(call.func, ast.Name) and not name.startswith("glob."):
        return False
    return not _ordered(source, call)


def _ordered(source: Source, node: ast.AST) -> bool:
    """Whether it is sorted, counted, or only looked into."""
    for up in source.around(node):
        if isinstance(up, ast.Call):
            name = source.name(up.func).rpartition(".")[2]
            if name in ("sorted", "len", "any", "all", "sum", "min", "max", "set", "frozenset"):
                return True
        if isinstance(up, ast.Compare) and all(isinstance(one, (ast.In, ast.NotIn)) for one in up.ops):
            return True
        if isinstance(up, ast.stmt):
            break
    name = source.assigned(node)
    outer = source.parent(node)
    if not name and isinstance(outer, ast.Call):
        name = source.assigned(outer)
    sorts = (
        call for call in source.calls if isinstance(call.func, ast.Attribute) and call.func.attr == "sort"
    )
    return bool(name) and any(ast.unparse(call.func.value) == name for call in sorts)  # type: ignore[attr-defined]


def _is_set(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return isinstance(node, (ast.Set, ast.SetComp))


def _sets(source: Source) -> Iterator[Finding]:
    """``list(set(words))`` and loops over sets."""
    for node in source.nodes:
        over: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 1:
            if node.func.id in ("list", "tuple", "enumerate", "zip", "iter"):
                over = next((one for one in node.args if _is_set(source, one)), None)
        elif isinstance(node, ast.For) and _is_set(source, node.iter):
            over = node.iter
        elif isinstance(node, (ast.ListComp, ast.DictComp)):
            over = next((g.iter for g in node.generators if _is_set(source, g.iter)), None)
        if over is None or _ordered(source, over) or _ordered(source, node):
            continue
        yield source.finding(
            over,
            "set-order",
            D0_CHANGED,
            "a set of strings has another order in each process",
            f"sorted({source.text(over)})",
        )


def _hashes(source: Source) -> Iterator[Finding]:
    for call in source.calls:
        if not isinstance(call.func, ast.Name) or call.func.id != "hash":
            continue
        inside = source.function(call)
        if inside is not None and inside.name == "__hash__":
            continue
        yield source.finding(
            call,
            "hash",
            D0_CHANGED,
            "the hash of a str is new in each process (unless PYTHONHASHSEED is set)",
            "zlib.crc32(text.encode()), or hashlib",
        )
