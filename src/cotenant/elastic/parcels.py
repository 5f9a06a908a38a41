"""State sent from process to process: large tensors straight from and to their memory, the rest as one small file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cotenant.elastic.exchange import Group, from_bytes, to_bytes

__all__ = ["Parcel", "deliver"]

_LARGE_BYTES = 1 << 14
_MARK = "cotenant/large tensor"


class Parcel(NamedTuple):
    """A value taken apart.

    Attributes
    ----------
    rest : Any
        The value with numbers in place of its large tensors.
    tensors : list of Tensor
        Dense and on the CPU; one that occurs twice is there once.
    """

    rest: Any
    tensors: list[Any]

    @classmethod
    def of(cls, value: Any) -> Parcel:
        """Take a value apart; its tensors are given by reference."""
        tensors: list[Any] = []
        known: dict[Any, int] = {}
        return cls(_hollow(value, tensors, known), tensors)

    def whole(self) -> Any:
        """The value again."""
        return _filled(self.rest, self.tensors)


def _hollow(value: Any, tensors: list[Any], known: dict[Any, int]) -> Any:
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.numel() * value.element_size() < _LARGE_BYTES or value.layout != torch.strided:
            return value
        key = (value.data_ptr(), value.dtype, value.shape, value.stride(), value.device)
        if key not in known:
            known[key] = len(tensors)
            tensors.append(_dense(value.detach().cpu()))
        return {_MARK: known[key]}
    if type(value) in (dict, OrderedDict):
        items = {key: _hollow(item, tensors, known) for key, item in value.items()}
        return _like(value, items)
    if type(value) in (list, tuple):
        return type(value)(_hollow(item, tensors, known) for item in value)
    return value


def _filled(value: Any, tensors: Sequence[Any]) -> Any:
    if type(value) in (dict, OrderedDict):
        if _MARK in value:
            return tensors[value[_MARK]]
        return _like(value, {key: _filled(item, tensors) for key, item in value.items()})
    if type(value) in (list, tuple):
        return type(value)(_filled(item, tensors) for item in value)
    return value


def _like(old: Any, items: dict[Any, Any]) -> Any:
    if type(old) is dict:
        return items
    made = OrderedDict(items)
    vars(made).update(vars(old))  # a module's state has the versions of its parts there
    return made


def _dense(tensor: Any) -> Any:
    import torch

    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    ranks = {torch.channels_last: 4, torch.channels_last_3d: 5}
    for one in formats:
        if ranks.get(one, tensor.dim()) == tensor.dim() and tensor.is_contiguous(memory_format=one):
            return tensor
    return tensor.contiguous()


def _bytes(tensor: Any) -> Any:
    """Its memory as it lies."""
    import torch

    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def deliver(group: Group, sources: Mapping[int, int], make: Any) -> Any:
    """Send values from some processes to others, all at once.

    Parameters
    ----------
    group : Group
        All of its processes call this.
    sources : mapping of int to int
        For each process that gets a value, the one that sends it.
    make : callable
        Called on those that send; gives the value.

    Returns
    -------
    Any
        None on those that get nothing.

    Raises
    ------
    Broken
    """
    import torch

    targets = [rank for rank, source in sources.items() if source == group.rank]
    parcel = Parcel.of(make()) if targets else Parcel(None, [])
    shapes = [(str(t.dtype).removeprefix("torch."), tuple(t.shape), t.stride()) for t in parcel.tensors]
    letter = to_bytes({"rest": parcel.rest, "shapes": shapes})
    sizes = torch.zeros(group.size, dtype=torch.int64)
    sizes[group.rank] = letter.numel()
    group.largest(sizes)
    source = sources.get(group.rank)
    if source is None:
        group.swap({}, {rank: [letter] for rank in targets})
        group.swap({}, {rank: [_bytes(tensor) for tensor in parcel.tensors] for rank in targets})
        return None
    letter = torch.empty(int(sizes[source]), dtype=torch.uint8)
    group.swap({source: [letter]}, {})
    told = from_bytes(letter)
    tensors = [
        torch.empty_strided(shape, stride, dtype=getattr(torch, kind))
        for kind, shape, stride in told["shapes"]
    ]
    group.swap({source: [_bytes(tensor) for tensor in tensors]}, {})
    return Parcel(told["rest"], tensors).whole()
