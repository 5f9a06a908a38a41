"""What a script does with processes of its own: groups, wrappers, collectives, world size and rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cotenant.elastic.checks.findings import D0_CHANGED, D1_CHANGED, D2_CHANGED, Finding
from cotenant.elastic.checks.origins import COUNT, HASH, MACHINE, MATTERS, NOW, ORIGINS, RANK, Origins
from cotenant.elastic.checks.scope import SEEDING, Scope
from cotenant.elastic.checks.source import Source, words

__all__ = ["processes"]

_WRAPPERS = {
    "DistributedDataParallel": "gradients are averaged over as many processes as there are, in an order that follows"
    " their number",
    "DataParallel": "each batch is cut into as many parts as there are devices: BatchNorm and dropout see other parts",
    "FullyShardedDataParallel": "shards end elsewhere with each number of processes; this wrapper is refused",
}
_COLLECTIVES = {
    *(
        "all_reduce",
        "reduce",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "gather",
        "scatter",
    ),
    *("broadcast", "broadcast_object_list", "reduce_scatter", "reduce_scatter_tensor", "all_to_all"),
    *("all_to_all_single", "send", "recv", "isend", "irecv", "barrier", "monitored_barrier", "gather_object"),
}
_FABRIC = ("barrier", "broadcast", "all_gather", "rank_zero_first")
_TRAINERS = {
    "pytorch_lightning": "Lightning's Trainer",
    "lightning.pytorch": "Lightning's Trainer",
    "accelerate": "Accelerate",
    "deepspeed": "DeepSpeed",
    "horovod": "Horovod",
    "composer": "Composer",
    "colossalai": "Colossal-AI",
    "fastai": "fastai's Learner",
    "transformers.Trainer": "Hugging Face's Trainer",
    "transformers.Seq2SeqTrainer": "Hugging Face's Trainer",
    "trl": "TRL's trainers",
    "ray.train": "Ray Train",
}
_MOVE = "docs/elastic.md: elastic.Run(workers=N), as many workers as you mean processes"


def processes(source: Source, origins: Origins, scope: Scope) -> Iterator[Finding]:
    """Findings of this kind in a file."""
    yield from _trainers(source)
    yield from _fabric(source, scope)
    for call in source.calls:
        name = source.name(call.func)
        last = name.rpartition(".")[2]
        if last == "init_process_group":
            yield source.finding(
                call,
                "process-group",
                D1_CHANGED,
                "the script's processes are its workers: with another number it is another batch and other samples",
                _MOVE,
            )
        elif last in _WRAPPERS and (name.startswith("torch") or last == name):
            yield source.finding(call, "wrapper", D1_CHANGED, _WRAPPERS[last], "the model itself, unwrapped")
        elif last in ("convert_sync_batchnorm", "SyncBatchNorm"):
            yield source.finding(
                call,
                "sync-batchnorm",
                D1_CHANGED,
                "it needs the activations of all workers at one layer, but workers take turns: refused",
                "BatchNorm (statistics of each worker), GroupNorm or LayerNorm",
            )
        elif last in _COLLECTIVES and name.startswith(("torch.distributed", "horovod")):
            yield _collective(source, call, last)
        elif last in ("spawn", "start_processes", "mp.spawn") and "multiprocessing" in name:
            yield source.finding(
                call,
                "process-group",
                D1_CHANGED,
                "it starts a fixed number of processes itself",
                "call the training function; cotenant run --elastic 1:4 -- python script.py starts the processes",
            )
        yield from _sinks_of(source, origins, call, last)
    yield from _assigned(source, origins)
    yield from _shards(source, origins)


def _fabric(source: Source, scope: Scope) -> Iterator[Finding]:
    """Lightning's Fabric: to be made by the run, and then without collectives that wait for all."""
    for call in source.calls:
        name = source.name(call.func)
        if name.startswith(("lightning", "pytorch_lightning")) and name.endswith(".Trainer"):
            why = "Lightning's Trainer has its own loop, samplers and processes, and no adapter"
            yield source.finding(
                call, "trainer", D1_CHANGED, why, "a plain loop, or Fabric: docs/elastic-adapters.md"
            )
        elif name.startswith("lightning") and name.endswith(".Fabric"):
            yield source.finding(
                call,
                "process-group",
                D1_CHANGED,
                "Fabric's processes are its workers: with another number it is another batch and other samples",
                "run.fabric() of an elastic.Run, and fabric.steps(loader, epochs): docs/elastic-adapters.md",
            )
        elif scope.moved and name.endswith(tuple(f"fabric.{one}" for one in _FABRIC)):
            yield _collective(source, call, name.rpartition(".")[2])


def _trainers(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        else:
            continue
        whose = {
            t for name in names for key, t in _TRAINERS.items() if name == key or name.startswith(f"{key}.")
        }
        for trainer in sorted(whose):
            yield source.finding(
                node,
                "trainer",
                D1_CHANGED,
                f"{trainer} has its own loop, samplers and processes, and no adapter",
                "a plain loop: docs/elastic.md",
            )


def _collective(source: Source, call: ast.Call, last: str) -> Finding:
    instead = "step.note(name=value) in the inner loop and step.mean('name') after it"
    if "barrier" in last:
        instead = "leave it out: processes meet at every step"
    elif last.startswith("broadcast"):
        instead = "leave it out: a new process is sent the state of the others"
    return source.finding(
        call,
        "collective",
        D1_CHANGED,
        "its result, and whom it waits for, follow the number of processes, which changes while the run goes on",
        instead,
    )


def _kind(found: frozenset[str]) -> str:
    return next((kind for kind in (NOW, HASH, COUNT, RANK, MACHINE) if kind in found), "")


def _sinks_of(source: Source, origins: Origins, call: ast.Call, last: str) -> Iterator[Finding]:
    """Arguments that decide the training, and seeds."""
    if last in (*SEEDING, "seed", "default_rng", "RandomState", "Random", "SeedSequence", "PRNGKey"):
        given = [*call.args, *words(call).values()]
        kind = _kind(frozenset().union(*(origins.of(one) for one in given)))
        if kind:
            yield _seed(source, call, kind)
        return
    for name, value in words(call).items():
        if MATTERS.search(name):
            yield from _depends(source, origins, value, name)
    if last in ("SGD", "Adam", "AdamW", "Adafactor", "RMSprop") and len(call.args) > 1:
        yield from _depends(source, origins, call.args[1], "lr")
    if last == "DataLoader" and len(call.args) > 1:
        yield from _depends(source, origins, call.args[1], "batch_size")


def _seed(source: Source, call: ast.Call, kind: str) -> Finding:
    return source.finding(
        call,
        "seed",
        D0_CHANGED if kind in (NOW, HASH) else D1_CHANGED,
        f"a seed made from {ORIGINS[kind]}",
        "a fixed number; elastic.Run(seed=0) seeds everything, and each logical worker its own generators",
    )


def _depends(
    source: Source, origins: Origins, node: ast.expr, name: str, whole: ast.stmt | None = None
) -> Iterator[Finding]:
    """``whole`` is the assignment to that name, if it is one."""
    kind = _kind(origins.of(node))
    if not kind:
        return
    loses = {NOW: D0_CHANGED, HASH: D0_CHANGED, MACHINE: D2_CHANGED}.get(kind, D1_CHANGED)
    instead = "write what you mean for all workers together: run.workers instead of the number of processes"
    if kind not in (COUNT, RANK):
        instead = "a fixed number"
    yield source.finding(
        node if whole is None else whole,
        "depends-on-processes" if kind in (COUNT, RANK) else "depends-on-machine",
        loses,
        f"{name} follows {ORIGINS[kind]}",
        instead,
        what=f"{name}={source.text(node)}" if whole is None else source.text(whole),
    )


def _assigned(source: Source, origins: Origins) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            name = _last_word(target)
            if not MATTERS.search(name):
                continue
            yield from _depends(source, origins, node.value, name, node)
            if not origins.of(node.value):
                for one in source.around(node):
                    if isinstance(one, ast.If) and origins.of(one.test) & {COUNT} and node in ast.walk(one):
                        yield from _depends(source, origins, one.test, name, node)
                        break


def _last_word(target: ast.expr) -> str:
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return target.id if isinstance(target, ast.Name) else ""


def _shards(source: Source, origins: Origins) -> Iterator[Finding]:
    """``data[rank::world_size]`` and ``range(rank, n, world_size)``."""
    for node in source.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            parts = [node.slice.lower, node.slice.upper, node.slice.step]
        elif isinstance(node, ast.Call) and source.name(node.func).rpartition(".")[2] in ("range", "islice"):
            parts = list(node.args) if len(node.args) > 1 else []
        else:
            continue
        if frozenset().union(*(origins.of(part) for part in parts)) & {COUNT, RANK}:
            yield source.finding(
                node,
                "own-sharding",
                D1_CHANGED,
                "which samples are read follows the number of processes",
                "the whole data set: run.prepare() deals it out to the logical workers",
            )
