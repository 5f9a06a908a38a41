"""Whether all processes have the same parameters: a look at some of the bytes of each, at every exchange."""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cotenant.errors import InputError

__all__ = ["SPREAD", "UNCHECKED", "Replicas"]

UNCHECKED = "COTENANT_ELASTIC_REPLICAS_UNCHECKED"
"""Environment variable, the same for all processes: 1 to go on with parameters that differ."""
SPREAD = 512
"""Steps in which all elements of a parameter are looked at once."""
_LEAST = 64
_DIGITS = 8


class Replicas:
    """The parameters of a model, of which every process should have the same.

    At each step one window of every parameter is looked at: 1/512 of its elements, at least 64, the next ones at
    the next step. So an edit of a whole parameter is seen at once, one of a single element within 512 steps; of
    10 M parameters in float32 that is 80 kB a step.

    Parameters
    ----------
    model : Module
    """

    def __init__(self, model: Any) -> None:
        self._named = [(name, parameter) for name, parameter in model.named_parameters() if _plain(parameter)]
        self._seen: list[tuple[int, memoryview | None, int, int]] = [(-1, None, 0, 1) for _ in self._named]

    def prints(self, step: int) -> str:
        """CRC-32 of the bytes in every parameter's window, eight digits each: equal also for equal NaNs."""
        if os.environ.get(UNCHECKED) == "1":
            return ""
        found, elsewhere = array("I"), []
        for number, (_, parameter) in enumerate(self._named):
            address, memory, width, count = self._seen[number]
            if parameter.data_ptr() != address:
                _, memory, width, count = self._seen[number] = _memory(parameter)
            if memory is None:
                elsewhere.append(number)
                found.append(0)
            else:
                begin = step % count * width
                found.append(zlib.crc32(memory[begin : begin + width]))
        for number, data in _fetched({n: self._named[n][1] for n in elsewhere}, step):
            found[number] = zlib.crc32(data)
        return found.tobytes().hex()

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
            Names step, processes and the first parameter that differs.
        """
        if len(set(prints)) <= 1:
            return
        for number, (name, _) in enumerate(self._named):
            holders: dict[str, list[str]] = {}
            for rank, one in enumerate(prints):
                holders.setdefault(one[number * _DIGITS : (number + 1) * _DIGITS], []).append(str(rank))
            if len(holders) > 1:
                told = ", ".join(f"{seen} on {' '.join(ranks)}" for seen, ranks in holders.items())
                raise InputError(
                    f"step {step}: processes no longer have the same parameters; the first that differs is {name}"
                    f" (CRC of some of it, on processes of rank: {told}). The gradient of this step has not been applied."
                    " Look for what one process alone does to the model (under run.first), a random number drawn outside"
                    " of the inner loop that is not the same everywhere, and what an update reads but run.keep() was"
                    " not given: a new process lacks it"
                )
        raise InputError(f"step {step}: processes have different numbers of parameters")


def _plain(parameter: Any) -> bool:
    import torch

    kinds = (torch.Tensor, torch.nn.Parameter)
    return type(parameter) in kinds and parameter.layout is torch.strided and parameter.device.type != "meta"


def _windows(total: int) -> tuple[int, int]:
    """Elements of a window of so many, and the number of windows."""
    width = max(_LEAST, -(-total // SPREAD))
    return width, max(1, -(-total // width))


def _memory(parameter: Any) -> tuple[int, memoryview | None, int, int]:
    """Address and bytes of a parameter, without a copy, bytes of a window, and their number.

    No bytes if they are not there in order: on another device, or laid out otherwise.
    """
    import torch

    if parameter.device.type != "cpu" or not parameter.is_contiguous():
        return parameter.data_ptr(), None, 0, 1
    width, count = _windows(parameter.numel())
    flat = parameter.detach().view(-1).view(torch.uint8)
    return parameter.data_ptr(), memoryview(flat.numpy()), width * parameter.element_size(), count


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
