"""From the memory of gradients to the memory that is exchanged, and back, beside the computation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Kind", "Lane", "kinds"]


class Lane:
    """Copies between a device and the buffers of the exchange.

    On a GPU whose gradients go through the host, copies run on a stream of their own into pinned memory,
    so that the next logical worker computes meanwhile. Elsewhere the same calls copy at once.

    Parameters
    ----------
    device : torch.device, optional
        Of the parameters; None is the CPU.
    through_host : bool
        Exchange from host memory; else from the device's own.

    Attributes
    ----------
    place : str
        Where buffers are.
    """

    def __init__(self, device: Any = None, *, through_host: bool = False) -> None:
        self._stream: Any = None
        self._device = device
        self._where = "cpu" if device is None or through_host else device
        if device is not None and through_host and device.type == "cuda":
            import torch

            self._stream = torch.cuda.Stream(device)
        self.place = "pinned" if self._stream is not None else str(self._where)

    def buffer(self, size: int, dtype: Any) -> Any:
        """Memory of so many elements, whatever is in them."""
        import torch

        return torch.empty(size, dtype=dtype, device=self._where, pin_memory=self._stream is not None)

    def out(self, to: Sequence[Any], tensors: Sequence[Any]) -> None:
        """Begin to copy gradients into parts of buffers; what they held must have been read by then."""
        if not tensors:
            return
        with self._beside(tensors):
            _copy(to, tensors, wait=self._stream is None)

    def zero(self, parts: Sequence[Any]) -> None:
        """Zeros in parts of buffers, after what was begun before."""
        if not parts:
            return
        if self._stream is None:
            _zero(parts)
            return
        import torch

        # Not by the host, which would not wait: copies back of the step before may still have to read the parts.
        with self._beside(()):
            _copy(parts, [torch.zeros_like(part, device=self._device) for part in parts], wait=False)

    def settle(self) -> None:
        """Wait until all that was begun is in the buffers."""
        if self._stream is not None:
            self._stream.synchronize()

    def back(self, to: Sequence[Any], parts: Sequence[Any]) -> None:
        """Copy parts of buffers into gradients, in the order of the computation."""
        if to:
            _copy(to, parts, wait=self._stream is None)

    @contextlib.contextmanager
    def _beside(self, tensors: Sequence[Any]) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        import torch

        # The stream begins when the gradients are there, and when copies back, queued before, have read the buffers.
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield
        for tensor in tensors:
            if tensor.is_cuda:
                tensor.record_stream(self._stream)  # not to be given away before it is copied


def _copy(to: Sequence[Any], tensors: Sequence[Any], *, wait: bool) -> None:
    import torch

    with torch.no_grad():
        torch._foreach_copy_(list(to), list(tensors), non_blocking=not wait)


def _zero(parts: Sequence[Any]) -> None:
    import torch

    with torch.no_grad():
        torch._foreach_zero_(list(parts))


class Kind:
    """Gradients of one data type, end to end in one buffer.

    Parameters
    ----------
    parameters : sequence of Parameter
        All of the run.
    numbers : sequence of int
        Which of them, in the order in which they lie.

    Attributes
    ----------
    size : int
        Elements.
    """

    def __init__(self, parameters: Sequence[Any], numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)
        self.dtype = parameters[self.numbers[0]].dtype
        self._shapes: list[tuple[Any, Any, int]] = []
        offset = 0
        for number in self.numbers:
            parameter = parameters[number]
            # As they lie in the parameter's own memory, where that has no holes: a plain copy, also of channels_last.
            dense = _dense(parameter)
            stride = parameter.stride() if dense else _row_major(parameter.shape)
            self._shapes.append((parameter.shape, stride, offset))
            offset += parameter.numel()
        self.size = offset

    def views(self, flat: Any) -> list[Any]:
        """The parts of a buffer in the shapes of the parameters."""
        return [flat.as_strided(shape, stride, offset) for shape, stride, offset in self._shapes]

    def fill(self, lane: Lane, views: Sequence[Any], grads: Sequence[Any]) -> None:
        """Begin to copy gradients into a buffer; one that is None is zeros."""
        there = [n for n, number in enumerate(self.numbers) if grads[number] is not None]
        lane.zero([views[n] for n, number in enumerate(self.numbers) if grads[number] is None])
        lane.out([views[n] for n in there], [grads[self.numbers[n]] for n in there])

    def empty(self, lane: Lane, views: Sequence[Any], grads: list[Any], parameters: Sequence[Any]) -> None:
        """Copy a buffer into gradients; one that is None is made."""
        import torch

        for number in self.numbers:
            if grads[number] is None:
                grads[number] = torch.empty_like(parameters[number], requires_grad=False)
        lane.back([grads[number] for number in self.numbers], views)


def kinds(parameters: Sequence[Any]) -> list[Kind]:
    """One for each data type, in the order in which they first appear."""
    found: dict[Any, list[int]] = {}
    for number, parameter in enumerate(parameters):
        found.setdefault(parameter.dtype, []).append(number)
    return [Kind(parameters, numbers) for numbers in found.values()]


def _dense(tensor: Any) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))
