"""Read a PyTorch module: one training step on fake tensors, with nothing computed or allocated.

A builder is a function of the batch size that returns ``(module, inputs)`` or ``(module,
inputs, loss)``: inputs are a tensor, a tuple of positional or a dict of keyword arguments, and
``loss`` takes what the module returns. Without one the module's own loss is used (an attribute
or key ``loss``, or a single number), else the mean of every floating output.

Why not ``torch.export``: it needs 3 to 4 s for 200 layers, takes fewer modules, and sees only the
forward pass; the tape sees the backward pass too (``tape``). Where a module asks for the value
of a number that does not exist, a value is assumed, and the graph's notes say which.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from cotenant.errors import ConfigError, CotenantError, MissingExtraError
from cotenant.profiles.graph.backward import with_backward
from cotenant.profiles.graph.failures import LossError, quiet, raised, reason, untraceable, value_of_loss
from cotenant.profiles.graph.ir import Graph, Options

if TYPE_CHECKING:
    from cotenant.profiles.graph.tape import Tape

__all__ = ["Builder", "read_builder", "read_module"]

Builder = Callable[[int], Any]
"""``build(batch) -> (module, inputs)`` or ``(module, inputs, loss)``."""

_MOST_RUN = 200_000_000
"""Weights of the largest model that is made or run for real where fake tensors do not do."""


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("reading PyTorch modules", "torch") from None
    return torch


@quiet()
def read_builder(build: Builder, options: Options, *, name: str = "") -> Graph:
    """The graph of what a builder makes for ``options.batch`` samples.

    The builder runs on fake tensors, so weights cost nothing; a builder that needs real
    numbers runs on real ones, and its weights are made fake afterwards.

    Raises
    ------
    ConfigError
        If the builder returns something else, or the module cannot be traced.
    MissingExtraError
        Without torch.
    """
    _torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    from cotenant.profiles.graph.tape import Lenient

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    label = name or getattr(build, "__name__", "model")
    notes: tuple[str, ...] = ()
    lenient = Lenient()
    try:
        with mode, lenient, warnings.catch_warnings():
            # torch's own copying of modules looks at a fake tensor's address.
            warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
            made = build(options.batch)
        # A number that was asked for may have decided the network's shape.
        real = bool(lenient.assumed) and _weights(_parts(made, label)[0]) <= _MOST_RUN
        notes = tuple(f"while building, {text}" for text in sorted(lenient.assumed)) if not real else ()
    except CotenantError:
        raise
    except (Exception, SystemExit):
        # Numbers were asked for while weights were made; whatever is really wrong shows now.
        real = True
    if real:
        made = _built(build, options, label)
        notes = ("the builder needs real weights: it was run, and they were made fake afterwards",)
    module, inputs, loss = _parts(made, label)
    try:
        graph = read_module(module, inputs, options=options, loss=loss, name=label, mode=mode)
    except ConfigError as error:
        graph = _really_run(build, options, label, error)
    return msgspec.structs.replace(graph, notes=notes + graph.notes)


def _built(build: Builder, options: Options, label: str) -> Any:
    try:
        return build(options.batch)
    except CotenantError:
        raise
    except (Exception, SystemExit) as error:
        raise raised(label, error) from error


def _really_run(build: Builder, options: Options, label: str, problem: ConfigError) -> Graph:
    """The last resort: one step with real numbers on the CPU, recorded by the same tape.

    Raises
    ------
    ConfigError
        ``problem``, if the model is too large to be run unasked, or does not run either.
    """
    torch = _torch()
    module, inputs, loss = _parts(_built(build, options, label), label)
    if _weights(module) > _MOST_RUN:
        raise problem
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    try:
        module = module.to(half) if half is not None else module
        args, kwargs = _arguments(_cast(inputs, half))
        call = _Call(module.train(options.training), args, kwargs, loss, options, None)
        graph = _traced(call, label)
    except (Exception, SystemExit) as error:
        if half is not None or isinstance(error, CotenantError):
            raise problem from None
        raise raised(label, error) from None
    note = f"one step was really run on the CPU, because on fake tensors: {problem}"
    return msgspec.structs.replace(graph, notes=(note, *graph.notes))


def _weights(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def _cast(inputs: Any, half: Any) -> Any:
    torch = _torch()
    from torch.utils import _pytree as pytree

    def made(leaf: Any) -> Any:
        floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(half) if floating and half is not None else leaf

    return pytree.tree_map(made, inputs)


def _parts(made: Any, label: str) -> tuple[Any, Any, Any]:
    torch = _torch()
    parts = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if len(parts) not in (2, 3) or not isinstance(parts[0], torch.nn.Module):
        found = ", ".join(type(part).__name__ for part in parts)
        raise ConfigError(
            f"{label} must return (module, inputs) or (module, inputs, loss), "
            f"with a torch.nn.Module first; it returned ({found})"
        )
    loss = parts[2] if len(parts) == 3 else None
    if loss is not None and not callable(loss):
        raise ConfigError(
            f"{label} returned a loss that is no function but {type(loss).__name__}; "
            "it takes what the module returns: lambda out: criterion(out, target)"
        )
    return parts[0], parts[1], loss


@quiet()
def read_module(
    module: Any,
    inputs: Any,
    *,
    options: Options,
    loss: Callable[[Any], Any] | None = None,
    name: str = "",
    mode: Any = None,
) -> Graph:
    """The graph of one training step of a module.

    Parameters
    ----------
    module : torch.nn.Module
        Real or fake; a real one is left as it is, unless ``mode`` is given.
    inputs : tensor, tuple or dict
    options : Options
        ``batch`` is taken from the inputs' maker and not checked.
    loss : callable, optional
    name : str
    mode : FakeTensorMode, optional
        The mode in which fake inputs were made.

    Raises
    ------
    ConfigError
        If not even the forward pass can be traced; the message has the framework's reason.
    """
    _torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    label = name or type(module).__name__
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _prepared(module, mode, options):
            args, kwargs = _arguments(_fake(inputs, mode, options))
            return _traced(_Call(module, args, kwargs, loss, options, mode), label)
    except CotenantError:
        raise
    except (Exception, SystemExit) as error:
        raise untraceable(label, error) from error


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _fake(inputs: Any, mode: Any, options: Options) -> Any:
    torch = _torch()
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree as pytree

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        fake = leaf if isinstance(leaf, FakeTensor) else mode.from_tensor(leaf)
        return fake.to(half) if half is not None and fake.is_floating_point() else fake

    with mode:
        return pytree.tree_map(made, inputs)


@contextmanager
def _prepared(module: Any, mode: Any, options: Options) -> Iterator[None]:
    """The module with fake weights of the right precision, and its own ones again afterwards."""
    torch = _torch()
    from torch._subclasses.fake_tensor import FakeTensor

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    memo: dict[int, Any] = {}
    before: list[tuple[dict[str, Any], str, Any]] = []

    def made(tensor: Any) -> Any:
        if half is None and isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in memo:
            fake = tensor.detach() if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor.detach())
            fake = fake.to(half) if half is not None and fake.is_floating_point() else fake
            trained = tensor.requires_grad
            is_weight = isinstance(tensor, torch.nn.Parameter)
            memo[id(tensor)] = torch.nn.Parameter(fake, requires_grad=trained) if is_weight else fake
        return memo[id(tensor)]

    training = module.training
    with mode:
        for part in module.modules():
            for table in (part._parameters, part._buffers):
                for key, tensor in table.items():
                    if tensor is not None:
                        before.append((table, key, tensor))
                        table[key] = made(tensor)
    module.train(options.training)
    try:
        yield
    finally:
        for table, key, tensor in before:
            table[key] = tensor
        module.train(training)


class _Call(msgspec.Struct, frozen=True):
    """A module with what it is called with; without a mode its tensors are real."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Any
    options: Options
    mode: Any


def _traced(call: _Call, label: str) -> Graph:
    notes: list[str] = []
    tape = None
    if call.options.training:
        try:
            tape = _run(call, notes, backward=True)
        except CotenantError:
            raise
        except LossError as error:
            notes.append(str(error))
        except Exception as error:
            notes.append(
                f"the backward pass could not be traced ({reason(error)}): "
                "it was derived from the forward pass by rules"
            )
    derived = call.options.training and tape is None
    if tape is None:
        tape = _run(call, notes, backward=False)
    weights = {id(p): (p.numel(), p.requires_grad) for p in call.module.parameters()}
    source = "torch fake tensors" if call.mode is not None else "torch, really run"
    source += ", backward derived" if derived else ""
    graph = tape.graph(name=label, source=source, options=call.options, sizes=list(weights.values()))
    graph = msgspec.structs.replace(
        graph, notes=graph.notes + tuple(dict.fromkeys(notes)), touched_sizes=tuple(tape.touched)
    )
    return with_backward(graph) if derived else graph


def _run(call: _Call, notes: list[str], *, backward: bool) -> Tape:
    torch = _torch()
    from cotenant.profiles.graph.kernels import checkpointed, gpu_kernels
    from cotenant.profiles.graph.tape import Tape

    module, options = call.module, call.options
    tape = Tape(device=options.device, fake=call.mode is not None)
    tape.own(module.named_parameters(), "parameter")
    tape.own(module.named_buffers(), "buffer")
    for number, tensor in enumerate(_tensors((call.args, call.kwargs))):
        tape.own([(f"input{number}", tensor)], "input")
    collects = gc.isenabled()
    # A collection in mid-step would free cyclic garbage at a moment that nothing decides.
    gc.disable()
    try:
        with ExitStack() as stack:
            stack.enter_context(gpu_kernels() if options.device == "gpu" else nullcontext())
            if backward and options.checkpointing:
                stack.enter_context(checkpointed(module, notes))
            stack.enter_context(call.mode or nullcontext())
            stack.enter_context(tape)
            if options.precision == "amp":
                stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            if not backward:
                stack.enter_context(torch.no_grad())
            _step(call, tape, notes, backward=backward)
        trained = [p for p in module.parameters() if p.requires_grad]
        tape.close([p.grad for p in trained if p.grad is not None])
        if any(p.grad is not None and p.grad.is_sparse for p in trained):
            tape.touched = [_touched(p) for p in trained]
    finally:
        if collects:
            gc.enable()
        for weight in module.parameters():
            weight.grad = None
    return tape


def _touched(weight: Any) -> int:
    """Elements of a weight that its optimiser reads and writes: of a sparse gradient, those with a value."""
    sparse = weight.grad is not None and weight.grad.is_sparse
    return int(weight.grad._values().numel() if sparse else weight.numel())


def _step(call: _Call, tape: Tape, notes: list[str], *, backward: bool) -> None:
    torch = _torch()
    # A training loop's variable holds the outputs until the next step; so does this one.
    out = call.module(*call.args, **call.kwargs)
    if not backward:
        return
    value = value_of_loss(call.loss, out) if call.loss is not None else _own_loss(out, notes)
    tape.turn_back()
    with torch.autocast("cpu", enabled=False):
        value.backward()


def _own_loss(out: Any, notes: list[str]) -> Any:
    found = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if found is not None:
        return found
    floats = [t for t in _tensors(out) if t.is_floating_point() and t.requires_grad]
    if not floats:
        raise ConfigError("the module returns no floating tensor that depends on its weights: no loss")
    if len(floats) == 1 and floats[0].numel() == 1:
        return floats[0]
    notes.append("no loss was given: the mean of the outputs was taken")
    total = floats[0].mean()
    for tensor in floats[1:]:
        total = total + tensor.mean()
    return total


def _tensors(tree: Any) -> Sequence[Any]:
    torch = _torch()
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(tree)
    found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not found and hasattr(tree, "values"):
        found = [leaf for leaf in pytree.tree_leaves(list(tree.values())) if isinstance(leaf, torch.Tensor)]
    return found
