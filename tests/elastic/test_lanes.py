"""Copies beside the computation, with streams of a GPU that is none: they do their work when they are waited for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from cotenant.elastic import lanes
from cotenant.elastic.exchange import Broken
from cotenant.elastic.lanes import Lane
from cotenant.elastic.wires import Nccl


class Stream:
    """As late as it may be: what is queued is done when somebody waits."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.queue: list[Callable[[], None]] = []
        self.done = 0

    def upto(self, end: int) -> None:
        while self.done < end:
            self.done += 1
            self.queue[self.done - 1]()

    def wait_stream(self, other: Stream) -> None:
        end = len(other.queue)
        self.queue.append(lambda: other.upto(end))

    def synchronize(self) -> None:
        self.upto(len(self.queue))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[Lane, Stream]:
    """A lane through pinned memory, and the stream of the computation."""
    compute, side = Stream(), Stream()
    current = [compute]

    @contextlib.contextmanager
    def within(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    copy = lanes._copy

    def later(to: Any, tensors: Any, *, wait: bool) -> None:
        assert not wait
        current[-1].queue.append(lambda: copy(to, tensors, wait=True))

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: compute)
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(lanes, "_copy", later)
    lane = Lane(torch.device("cuda", 0), through_host=True)
    lane._device = torch.device("cpu")
    assert lane.place == "pinned"
    return lane, compute


def test_gradients_are_copied_after_they_were_computed_and_before_the_exchange(gpu: Any) -> None:
    lane, compute = gpu
    grad, buffer = torch.zeros(3), torch.full((3,), 7.0)
    compute.queue.append(lambda: grad.fill_(2.0))
    lane.out([buffer], [grad])
    assert buffer.tolist() == [7.0] * 3  # nobody has waited: the next worker computes
    lane.settle()
    assert buffer.tolist() == [2.0] * 3


@pytest.mark.parametrize("what", ["zero", "out"])
def test_a_buffer_is_filled_again_only_when_it_has_been_read(gpu: Any, what: str) -> None:
    lane, compute = gpu
    grad, buffer = torch.zeros(3), torch.ones(3)
    lane.back([grad], [buffer])
    if what == "zero":
        lane.zero([buffer])
    else:
        lane.out([buffer], [torch.zeros(3)])
    lane.settle()
    compute.synchronize()
    assert grad.tolist() == [1.0] * 3
    assert buffer.tolist() == [0.0] * 3


def test_who_connects_by_nccl_does_not_wait_for_a_lost_process() -> None:
    group = SimpleNamespace(rank=0, size=2, store=HashStore(), lost=False)
    leave = threading.Event()

    def connect(device: Any) -> None:
        group.lost = True
        leave.wait(30.0)  # as for the one that is gone

    with pytest.raises(Broken):
        Nccl(group, None, lambda *_: SimpleNamespace(eager_connect_single_device=connect))
    assert not leave.is_set()
    leave.set()
