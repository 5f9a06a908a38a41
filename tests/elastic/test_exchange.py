"""What processes send each other, with processes that are threads of the test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from cotenant.elastic.exchange import Broken, Group
from cotenant.elastic.gradients import share
from cotenant.elastic.memory import Memory
from cotenant.elastic.reduction import staging

LIMIT_S = 30.0


def groups(size: int, lost: Callable[[], bool], build_s: float = 20.0) -> list[Group]:
    """All members of a group; fewer, if it could not be built in time."""
    store, made = HashStore(), {}

    def build(rank: int) -> None:
        with contextlib.suppress(Broken):
            made[rank] = Group(store, rank, size, lost, build_s=build_s)

    threads = [threading.Thread(target=build, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    return [made[rank] for rank in sorted(made)]


def test_who_is_late_for_longer_than_building_may_take_is_waited_for() -> None:
    """A long turn, or a large checkpoint on a slow disk: gloo would wait for as long as the group may take to build."""
    build_s, members = 0.2, []
    while len(members) < 2:  # a busy machine may take longer to build it
        build_s *= 2
        members = groups(2, lambda: False, build_s)
    early, late = torch.tensor([3]), torch.tensor([5])
    waits = threading.Thread(target=members[0].largest, args=(early,))
    waits.start()
    waits.join(1.5 * build_s)
    assert waits.is_alive()
    members[1].largest(late)
    waits.join(LIMIT_S)
    assert (early.item(), late.item()) == (5, 5)
    for member in members:
        member.close()


@pytest.mark.parametrize("what", ["receive", "send", "receive of one, send to the other"])
def test_who_waits_for_a_silent_process_is_told_that_the_group_is_lost(what: str) -> None:
    gone = threading.Event()
    members = groups(3, gone.is_set)
    much = torch.zeros(1 << 24)  # more than connections take by themselves
    receive: dict[int, list[Any]] = {2: [torch.empty(8)]} if "receive" in what else {}
    send: dict[int, list[Any]] = {1: [much]} if "send" in what else {}
    found: list[str] = []

    def wait() -> None:
        try:
            members[0].swap(receive, send)
        except Broken:
            found.append("broken")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    gone.set()  # the others hold their connections open
    waiting.join(LIMIT_S)
    assert found == ["broken"]
    with pytest.raises(Broken):
        members[0].largest(torch.zeros(1, dtype=torch.int64))
    for member in members:
        member.close()


def test_a_group_that_is_closed_asks_the_store_no_more() -> None:
    """A thread that is within the store when Python ends aborts the process, which then looks killed."""
    asks, at_it = threading.Event(), []

    def lost() -> bool:
        at_it.append(True)
        asks.set()
        time.sleep(0.3)
        at_it.pop()
        return False

    (alone,) = groups(1, lost)
    assert asks.wait(LIMIT_S) and at_it
    alone.close()
    assert at_it == []


def test_a_larger_generation_finds_memory_that_has_been_used() -> None:
    memory, addresses = [Memory() for _ in range(4)], []
    for size in (2, 4):
        members = groups(size, lambda: False)
        shares, sums = share(4, size), {}

        def step(group: Group, shares: Any = shares, sums: Any = sums) -> None:
            parameter = torch.nn.Parameter(torch.zeros(1000))
            staged = staging([parameter], "blocks", shares, group, memory[group.rank])
            staged.begin()
            for worker in range(*shares[group.rank]):
                added = torch.full((1000,), float(worker + 1))
                parameter.grad = added if parameter.grad is None else parameter.grad.add_(added)
                staged.ended(worker)
            sums[group.rank] = staged.total()[0]

        threads = [threading.Thread(target=step, args=(group,)) for group in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        for group in members:
            group.close()
        assert [sums[rank].unique().tolist() for rank in range(size)] == [[10.0]] * size
        addresses.append([held.data_ptr() for _, held in sorted(memory[0]._held.items(), key=str)])
    assert addresses[0] == addresses[1]
