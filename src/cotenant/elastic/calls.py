"""What goes into each module, what comes out, and which gradient comes back, as digests in the order of time.

Hooks are on the model only while a turn is logged. They read, and keep nothing: bits and memory stay as they are.
"""

from __future__ import annotations

import functools
import weakref
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.elastic.hashing import of_tensor, of_value

__all__ = ["GRADIENT", "INPUT", "KINDS", "OUTPUT", "RANDOM", "SCRIPT", "Calls"]

INPUT, OUTPUT, GRADIENT, RANDOM = range(4)
KINDS = 4
"""An event is two numbers: module times KINDS plus kind, and a digest."""
SCRIPT = "(script)"
"""Module 0: code outside of the model."""


class Calls:
    """Events of the model's modules in one turn.

    Nothing inside of compiled or scripted modules is watched, nor what ``Module.compile`` was called of: hooks would
    change what is compiled.

    Attributes
    ----------
    names : list of str
        Of modules, in the numbering of events; the model itself has the empty name.
    events : list of int
    """

    def __init__(self, model: Any) -> None:
        self._modules = list(_watched(model))
        self.names = [SCRIPT, *(name for name, _ in self._modules)]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.events: list[int] = []
        self._on = False
        self._random = 0
        self._known: dict[int, tuple[Any, int, int]] = {}
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Watch the modules."""
        if not self._handles:
            for number, (_, module) in enumerate(self._modules, 1):
                before = functools.partial(self._called, number)
                after = functools.partial(self._returned, number)
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                self._handles.append(module.register_forward_hook(after))

    def detach(self) -> None:
        """Leave the modules alone."""
        self._on = False
        while self._handles:
            self._handles.pop().remove()

    def begin(self) -> None:
        """A turn begins."""
        self.events, self._on, self._random = [], True, _generators()
        self._known.clear()

    def end(self) -> list[int]:
        """Its events."""
        self._on = False
        self._known.clear()
        return self.events

    def _called(self, number: int, module: Any, args: Any, kwargs: Any) -> None:
        del module
        if self._on:
            parent = self.names[number].rpartition(".")[0]
            self._drawn(self._numbers[parent] if self.names[number] and parent in self._numbers else 0)
            self._add(number, INPUT, self._digest((args, kwargs) if kwargs else args))

    def _returned(self, number: int, module: Any, args: Any, output: Any) -> None:
        del module, args
        if self._on:
            self._drawn(number)
            seen = {key for key, (kept, _, _) in self._known.items() if kept() is not None}
            self._add(number, OUTPUT, self._digest(output))
            for tensor in _tensors(output):
                # A module often hands on what its last part gave: once is enough.
                if tensor.requires_grad and tensor.grad_fn is not None and id(tensor) not in seen:
                    tensor.register_hook(functools.partial(self._came_back, number))

    def _came_back(self, number: int, gradient: Any) -> None:
        if self._on:
            self._add(number, GRADIENT, _safe(gradient, 0))

    def _drawn(self, number: int) -> None:
        """Note that random numbers were drawn since the last event, within this module."""
        now = _generators()
        if now != self._random:
            self._random = now
            self._add(number, RANDOM, now)

    def _add(self, number: int, kind: int, digest: int) -> None:
        self.events += (number * KINDS + kind, digest)

    def _digest(self, value: Any) -> int:
        """Of all tensors of a value; of each once, as long as it is not written to."""
        start = 0
        for tensor in _tensors(value):
            kept, version, digest = self._known.get(id(tensor), (lambda: None, 0, 0))
            if kept() is not tensor or version != _version(tensor):
                digest = _safe(tensor, 0)
                self._known[id(tensor)] = (weakref.ref(tensor), _version(tensor), digest)
            start = zlib.crc32(digest.to_bytes(4, "little"), start)
        return start


def _watched(model: Any, name: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    seen = set() if seen is None else seen
    if id(model) in seen:
        return
    seen.add(id(model))
    if getattr(model, "_compiled_call_impl", None) is not None:
        return  # its hooks are compiled with it
    yield name, model
    if {one.__name__ for one in type(model).__mro__} & {"OptimizedModule", "ScriptModule"}:
        return
    for key, module in model.named_children():
        yield from _watched(module, f"{name}.{key}" if name else key, seen)


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if torch.is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _safe(tensor: Any, start: int) -> int:
    try:
        return of_tensor(tensor, start)
    except (RuntimeError, NotImplementedError, TypeError):  # of a transform, say: there are no bytes to read
        return of_value(type(tensor).__name__, start)


def _generators() -> int:
    import torch

    found = zlib.crc32(torch.get_rng_state().numpy())
    return zlib.crc32(torch.cuda.get_rng_state().numpy(), found) if torch.cuda.is_initialized() else found
