"""Those who come while the disk is busy are written together."""

from __future__ import annotations

import threading
import time

import pytest

from cotenant.errors import StoreError
from cotenant.live.store.grouping import Grouped


class Disk:
    """Writes groups, the first of them only when told to."""

    def __init__(self, *, error: BaseException | None = None) -> None:
        self.groups: list[list[int]] = []
        self.go, self.began = threading.Event(), threading.Event()
        self.error = error

    def write(self, items: list[int]) -> list[str]:
        self.groups.append(items)
        self.began.set()
        assert self.go.wait(180)
        if self.error is not None and len(self.groups) == 1:
            raise self.error
        return [f"w{n}" for n in items]


def together(disk: Disk, grouped: Grouped[int, str], callers: list[list[int]]) -> list[object]:
    """The first caller's write is held up until all others wait behind it."""
    found: list[object] = [None] * len(callers)

    def call(place: int) -> None:
        try:
            found[place] = grouped.submit(callers[place])
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(callers))]
    threads[0].start()
    assert disk.began.wait(180)
    for count, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(grouped._queue) < count:
            time.sleep(0.001)
    disk.go.set()
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive()
    return found


def test_whoever_waits_shares_the_next_write_and_gets_his_own_results() -> None:
    disk = Disk()
    found = together(disk, Grouped(disk.write), [[1], [2, 3], [4], []])
    assert found == [["w1"], ["w2", "w3"], ["w4"], []]
    assert disk.groups == [[1], [2, 3, 4]]


def test_a_group_has_a_largest_size_and_nobody_is_split() -> None:
    disk = Disk()
    together(disk, Grouped(disk.write, most=3), [[1], [2, 3], [4, 5], [6, 7, 8, 9], [10]])
    assert disk.groups == [[1], [2, 3], [4, 5], [6, 7, 8, 9], [10]]


def test_an_error_is_told_to_all_of_the_group_and_to_nobody_else() -> None:
    disk = Disk(error=StoreError("full"))
    first, second = together(disk, Grouped(disk.write), [[1], [2]])
    assert isinstance(first, StoreError)
    assert str(first) == "full"
    assert second == ["w2"]


def test_ctrl_c_in_the_one_that_writes_leaves_nobody_waiting() -> None:
    disk = Disk(error=KeyboardInterrupt())
    grouped: Grouped[int, str] = Grouped(disk.write)
    first, second = together(disk, grouped, [[1], [2]])
    assert isinstance(first, KeyboardInterrupt)
    assert second == ["w2"]
    assert grouped.submit([3]) == ["w3"]


def test_one_alone_is_written_at_once() -> None:
    disk = Disk()
    disk.go.set()
    grouped: Grouped[int, str] = Grouped(disk.write)
    assert [grouped.submit([n]) for n in range(3)] == [["w0"], ["w1"], ["w2"]]
    with pytest.raises(StoreError, match="no"):
        Grouped(lambda items: (_ for _ in ()).throw(StoreError("no"))).submit([1])
