"""Whether all processes have the same parameters and buffers: a look at some of the bytes of each, at every exchange."""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cotenant.errors import InputError

if TYPE_CHECKING:
    from cotenant.elastic.contexts import Buffers

__all__ = ["SPREAD", "UNCHECKED", "Replicas"]

UNCHECKED = "COTENANT_ELASTIC_REPLICAS_UNCHECKED"
"""Environment variable, the same for all processes: 1 to go on with parameters that differ."""
SPREAD = 512
"""Steps in which all elements of a parameter are looked at once."""
_LEAST = 64
_DIGITS = 8


class Replicas:
    """The parameters of a model, of which every process should have the same, and its buffers.

    At each step one window of every tensor is looked at: 1/512 of its elements, at least 64, the next ones at
    the next step. So an edit of a whole parameter is seen at once, one of a single element within 512 steps; of
    10 M parameters in float32 that is 80 kB a step.

    Not looked at are buffers that turns change, as every worker has its own (running statistics): what a process
    does to them outside of turns is overwritten. Nor is the state of optimisers: the next update carries what
    differs there into the parameters.

    Parameters
    ----------
    model : Module
    buffers : Buffers, optional
    """

    def __init__(self, model: Any, buffers: Buffers | None = None) -> None:
        self._named = [(name, parameter) for name, parameter in model.named_parameters() if _plain(parameter)]
        self._buffers = buffers
        self._seen: dict[int, _Memory] = {}

    def prints(self, step: int) -> str:
        """CRC-32 of the bytes in the window of each, eight digits: equal also for equal NaNs; zero: not looked at."""
        if os.environ.get(UNCHECKED) == "1":
            return ""
        found, elsewhere = array("I"), dict[int, Any]()
        for number, (_, tensor) in enumerate(self._tensors()):
            if tensor is None:
                found.append(0)
                continue
            seen = self._seen.get(number)
            if seen is None or tensor.data_ptr() != seen.address:
                seen = self._seen[number] = _memory(tensor)
            if seen.data is None:
                elsewhere[number] = tensor
                found.append(0)
            else:
                begin = step % seen.windows * seen.width
                found.append(zlib.crc32(seen.data[begin : begin + seen.width]))
        for number, data in _fetched(elsewhere, step):
            found[number] = zlib.crc32(data)
        return found.tobytes().hex()

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        yield from self._named
        for name, tensor in self._buffers.common() if self._buffers is not None else ():
            yield name, tensor if tensor is not None and _plain(tensor) else None

    def check(self, prints: Sequence[str], step: int) -> None:
        """Compare what all processes have.

        Parameters
        ----------
        prints : sequence of str
            By rank, all of the same step.
        step : int

        Raises
        ------
        InputError
            Names step, processes and the first tensor that differs.
        """
        if len(set(prints)) <= 1:
            return
        if len({len(one) for one in prints}) > 1:
            raise InputError(f"step {step}: processes have different numbers of parameters or buffers")
        for number, (name, _) in enumerate(self._tensors()):
            holders: dict[str, list[str]] = {}
            for rank, one in enumerate(prints):
                holders.setdefault(one[number * _DIGITS : (number + 1) * _DIGITS], []).append(str(rank))
            # Workers of one process may be the first whose turns change a buffer: the others learn of it now.
            if len(holders) > 1 and (number < len(self._named) or "0" * _DIGITS not in holders):
                told = ", ".join(f"{seen} on {' '.join(ranks)}" for seen, ranks in holders.items())
                what = "parameters" if number < len(self._named) else "buffers"
                raise InputError(
                    f"step {step}: processes no longer have the same {what}; the first that differs is {name}"
                    f" (CRC of some of it, on processes of rank: {told}). The gradient of this step has not been applied."
                    " Look for what one process alone does to the model (under run.first), a random number drawn outside"
                    " of the inner loop that is not the same everywhere, and what an update reads but run.keep() was"
                    " not given: a new process lacks it"
                )


def _plain(parameter: Any) -> bool:
    import torch

    kinds = (torch.Tensor, torch.nn.Parameter)
    return type(parameter) in kinds and parameter.layout is torch.strided and parameter.device.type != "meta"


def _windows(total: int) -> tuple[int, int]:
    """Elements of a window of so many, and the number of windows."""
    width = max(_LEAST, -(-total // SPREAD))
    return width, max(1, -(-total // width))


class _Memory(NamedTuple):
    """Where a tensor is; its bytes without a copy, bytes of a window, and the number of windows.

    No bytes if they are not there in order: on another device, or laid out otherwise.
    """

    address: int
    data: memoryview | None = None
    width: int = 0
    windows: int = 1


def _memory(tensor: Any) -> _Memory:
    import torch

    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        return _Memory(tensor.data_ptr())
    width, count = _windows(tensor.numel())
    flat = tensor.detach().view(-1).view(torch.uint8)
    return _Memory(tensor.data_ptr(), memoryview(flat.numpy()), width * tensor.element_size(), count)


def _fetched(parameters: Mapping[int, Any], step: int) -> Iterator[tuple[int, memoryview]]:
    """The bytes in the windows of other parameters, in one copy for each device and type."""
    import torch

    kinds: dict[Any, dict[int, Any]] = {}
    for number, parameter in parameters.items():
        width, count = _windows(parameter.numel())
        begin = step % count * width
        window = _window(parameter.detach(), begin, min(begin + width, parameter.numel()))
        kinds.setdefault((window.device, window.dtype), {})[number] = window
    for windows in kinds.values():
        data = memoryview(torch.cat(list(windows.values())).view(torch.uint8).cpu().numpy())
        begin = 0
        for number, window in windows.items():
            end = begin + window.numel() * window.element_size()
            yield number, data[begin:end]
            begin = end


def _window(parameter: Any, begin: int, end: int) -> Any:
    import torch

    if parameter.is_contiguous():
        return parameter.view(-1)[begin:end]
    # By its place in the tensor, not in memory, which may be laid out otherwise in another process.
    return parameter.take(torch.arange(begin, end, device=parameter.device))
