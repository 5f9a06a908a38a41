"""Where values come from: the number of processes, the rank, the clock, chance, the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cotenant.elastic.checks.functions import Functions, arguments, parameters
from cotenant.elastic.checks.source import Function, Source, words, written

__all__ = ["COUNT", "HASH", "MACHINE", "MATTERS", "NOW", "ORIGINS", "RANK", "Origins"]

COUNT, RANK, NOW, HASH, MACHINE = "count", "rank", "now", "hash", "machine"
ORIGINS = {
    COUNT: "the number of processes",
    RANK: "the number of this process",
    NOW: "the time, or the state of the machine at this moment",
    HASH: "something that is new in each process",
    MACHINE: "the machine",
}
"""In words."""

_CALLS = {
    COUNT: "get_world_size device_count num_gpus local_size horovod.torch.size",
    RANK: "get_rank get_node_local_rank local_rank current_device",
    NOW: "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.process_time time.strftime"
    " datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today timeit.default_timer"
    " torch.cuda.mem_get_info torch.cuda.memory_allocated torch.cuda.memory_reserved psutil.virtual_memory"
    " torch.seed torch.initial_seed torch.random.seed",
    HASH: "hash id os.getpid os.urandom uuid.uuid1 uuid.uuid4 secrets.randbits secrets.randbelow secrets.token_bytes"
    " random.SystemRandom",
    MACHINE: "os.cpu_count multiprocessing.cpu_count os.sched_getaffinity os.process_cpu_count psutil.cpu_count"
    " socket.gethostname platform.node get_device_properties get_device_capability get_device_name"
    " is_bf16_supported",
}
_ATTRIBUTES = {
    COUNT: "world_size num_processes num_replicas ngpus_per_node n_gpu num_gpus n_gpus nproc_per_node",
    RANK: "local_rank global_rank process_index local_process_index node_rank",
}
_VARIABLES = {
    COUNT: "WORLD_SIZE LOCAL_WORLD_SIZE SLURM_NTASKS SLURM_NPROCS OMPI_COMM_WORLD_SIZE PMI_SIZE NPROC_PER_NODE",
    RANK: "RANK LOCAL_RANK SLURM_PROCID SLURM_LOCALID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK",
    MACHINE: "SLURM_CPUS_PER_TASK OMP_NUM_THREADS MKL_NUM_THREADS HOSTNAME",
}
_PARAMETERS = {COUNT: "world_size n_gpus num_gpus nprocs ngpus_per_node", RANK: "rank local_rank global_rank"}
"""Names that a function of a script with processes of its own is called with."""
_THROUGH = {
    "int",
    "float",
    "str",
    "max",
    "min",
    "round",
    "abs",
    "bool",
    "len",
    "sum",
    "pow",
    "list",
    "divmod",
}
"""What these are given goes on in what they give."""

MATTERS = re.compile(
    r"(^|_)(lr|lrs|learning_rate|batch|batch_size|bs|bsz|accum\w*|grad_acc\w*|gradient_accumulation\w*|num_steps|max_steps"
    r"|total_steps|steps_per_epoch|max_iters|epochs|num_epochs|T_max|warmup\w*|lr_decay_iters|weight_decay|momentum"
    r"|samples|num_samples|loss|grad|gradient)$"
)
"""Names of what decides the training."""
_GIVEN = "given "
"""Stands before a parameter's name in what a function gives back: what the caller gives for it goes on in it."""


def _table(names: dict[str, str]) -> dict[str, str]:
    return {name: kind for kind, text in names.items() for name in text.split()}


class Origins:
    """Where the values of one file come from.

    Parameters
    ----------
    source : Source
    distributed : bool
        Whether the script has processes of its own: then parameters called ``rank`` are one.
    moved : bool
        Whether it makes an ``elastic.Run``: the Fabric of one counts logical workers, not processes.
    """

    def __init__(self, source: Source, *, distributed: bool, moved: bool = False) -> None:
        self._source, self._moved = source, moved
        self._calls, self._attributes = _table(_CALLS), _table(_ATTRIBUTES)
        self._variables = _table(_VARIABLES)
        self._known: dict[tuple[Function | None, str], frozenset[str]] = {}
        self._functions = Functions(source)
        self._handed: dict[tuple[Function, str], frozenset[str]] = {}
        self._back: dict[tuple[Function, object], frozenset[str]] = {}
        for node in self._functions.all:
            for name in parameters(node):
                kind = _table(_PARAMETERS).get(name) if distributed else None
                self._known[node, name] = frozenset({kind} if kind else ()) | {_GIVEN + name}
        # What is assigned below may be used above: in a loop, or a method that is called later.
        for _ in range(3):
            for scope, name, value in self._assignments():
                self._known[scope, name] = self._known.get((scope, name), frozenset()) | self._flow(value)
            for function in self._functions.all:
                for part in (None, *range(self._functions.length(function))):
                    back = (self._flow(one) for one in self._functions.returned(function, part))
                    self._back[function, part] = frozenset().union(*back)
        for _ in range(3):
            self._hand()

    def _hand(self) -> None:
        """Calls hand values to functions of this file, where they are used."""
        for call in self._source.calls:
            told = {id(value) for name, value in words(call).items() if MATTERS.search(name)}
            for function in self._functions.called(call):
                for name, values in arguments(function, call).items():
                    new = (self.of(one) for one in values if id(one) not in told)
                    self._handed[function, name] = self._handed.get((function, name), frozenset()).union(*new)

    def _assignments(self) -> Iterator[tuple[Function | None, str, ast.expr]]:
        for node in self._source.nodes:
            if isinstance(node, ast.Assign):
                # A name that decides the training is told where it is given its value, not wherever it is used.
                value = self._functions.parts(node.value)
                pairs = [pair for target in node.targets for pair in _pairs(target, value)]
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                pairs = [(node.target, node.value)]
            else:
                continue
            scope = self._source.function(node)
            for target, value in pairs:
                if MATTERS.search(written(target).rpartition(".")[2]):
                    continue
                if isinstance(target, ast.Name):
                    yield scope, target.id, value
                elif isinstance(target, ast.Attribute):
                    yield None, written(target), value

    def of(self, node: ast.AST | None) -> frozenset[str]:
        """What an expression comes from."""
        flow = self._flow(node)
        found = {one for one in flow if not one.startswith(_GIVEN)}
        given = [one.removeprefix(_GIVEN) for one in flow - found]
        if node is not None and given:
            for scope in [one for one in self._source.around(node) if isinstance(one, Function)]:
                found = found.union(*(self._handed.get((scope, name), ()) for name in given))
        return frozenset(found)

    def _flow(self, node: ast.AST | None) -> frozenset[str]:
        """That, and of which parameters of the functions it is in."""
        if isinstance(node, ast.Name):
            return self._of_name(node)
        if isinstance(node, ast.Attribute):
            own = self._attributes.get(node.attr)
            if self._moved and written(node.value).endswith("fabric"):
                own = None
            known = self._known.get((None, written(node)), frozenset())
            return known | self._flow(node.value) | frozenset({own} if own else ())
        if isinstance(node, ast.Subscript):
            name = self._source.name(node.value)
            if name.endswith("environ"):
                return self._of_variable(node.slice)
            part = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(node.value, ast.Call) and self._functions.called(node.value):
                return self._of_returned(node.value, part)
            return self._flow(node.value)
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(
            node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.List)
        ):
            return frozenset().union(*(self._flow(child) for child in ast.iter_child_nodes(node)))
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.NamedExpr)):
            return frozenset().union(*(self._flow(child) for child in ast.iter_child_nodes(node)))
        return frozenset()

    def _of_name(self, node: ast.Name) -> frozenset[str]:
        scopes: list[Function | None] = [f for f in self._source.around(node) if isinstance(f, Function)]
        for scope in [*scopes, None]:
            if (scope, node.id) in self._known:
                return self._known[scope, node.id]
        return frozenset()

    def _of_variable(self, node: ast.AST) -> frozenset[str]:
        value = node.value if isinstance(node, ast.Constant) else None
        kind = self._variables.get(str(value))
        return frozenset({kind} if kind else ())

    def _of_call(self, node: ast.Call) -> frozenset[str]:
        name = self._source.name(node.func)
        last = name.rpartition(".")[2]
        if name.endswith(("environ.get", "os.getenv")) or name == "getenv":
            return self._of_variable(node.args[0]) if node.args else frozenset()
        kind = self._calls.get(name) or (self._calls.get(last) if "." in name or last == name else None)
        if kind and (last not in ("hash", "id") or name == last):
            return frozenset({kind})
        if name in _THROUGH or name.startswith("math."):
            return frozenset().union(*(self._flow(one) for one in node.args))
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("total_seconds", "timestamp", "item"):
            return self._flow(node.func.value)
        return self._of_returned(node, None)

    def _of_returned(self, call: ast.Call, part: object) -> frozenset[str]:
        """What a function of this file gives back; of a tuple one part, if it says so."""
        found: frozenset[str] = frozenset()
        for function in self._functions.called(call):
            back = self._back.get((function, part), self._back.get((function, None), frozenset()))
            given = arguments(function, call)
            found |= {one for one in back if not one.startswith(_GIVEN)}
            for name in parameters(function):
                if _GIVEN + name in back:
                    found = found.union(*(self._flow(one) for one in given.get(name, ())))
        return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and their values; of an unpacking whose parts are not seen, each has all."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
    elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, other)
    else:
        for one in target.elts:
            yield from _pairs(one, value)
