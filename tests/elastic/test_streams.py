"""Streams, samplers, schedules and averaged weights: the same bits on any number of processes."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant import elastic
from cotenant.elastic import identity
from cotenant.elastic.hashing import of_value
from cotenant.elastic.samplers import Sampled
from cotenant.elastic.sampling import NOTHING
from cotenant.elastic.streams import Streams
from cotenant.errors import InputError, StateError

torch = pytest.importorskip("torch")
DistributedSampler = torch.utils.data.DistributedSampler
WeightedRandomSampler = torch.utils.data.WeightedRandomSampler

CASES: dict[str, dict[str, Any]] = {
    "stream without state, processes that read": {"data": "counted", "epochs": 2, "loaders": 2},
    "stream with state, one cycle": {"data": "stateful", "epochs": 2, "loaders": 1, "schedule": "one cycle"},
    "streams to the shortest, SWA": {
        "data": "counted",
        "epochs": 3,
        "last": "drop",
        "schedule": "swa",
        "sizes": [17, 23, 9, 20],
    },
    "weighted sampler, plateau": {"data": "weighted", "epochs": 3, "schedule": "plateau"},
    "own sampler, some steps": {"data": "drawn", "steps": 14},
    "stream, two loops in a step": {"data": "counted", "epochs": 2, "turns": 2},
    "batches of a batch sampler": {"data": "buckets", "epochs": 3},
    "with replacement, chain": {"data": "again", "epochs": 2, "last": "pad", "schedule": "chain"},
}


def changing(supervisor: Any, steps: int) -> None:
    """Two processes, then three, then one."""
    for after, processes in ((5, 1), (2, 3)):
        if steps >= after:
            supervisor.want(processes)
            return


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_bits_and_epochs_do_not_depend_on_the_processes(
    play: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    options = options | {"script": "streaming.py"}
    alone = play.alone(**options)
    assert len(set(alone)) == len(alone) > 5
    more = {"loaders": 0} if "loaders" in options else {}
    assert play.together(2, up_to=3, on_poll=changing, sleep=0.03, **options | more) == alone
    assert len(set(play.processes)) >= 2
    # Stopped in a later epoch, and resumed on another number.
    state = {"state": str(tmp_path / "state"), "log": str(tmp_path / "log")}

    def stopping(supervisor: Any, steps: int) -> None:
        if steps >= 2 * len(alone) // 3:
            supervisor.stop()

    first = play.together(3, on_poll=stopping, sleep=0.04, **options, **state)
    assert (play.code, 3 <= len(first) < len(alone)) == (85, True)
    assert play.alone(**options, **state) == alone


@pytest.mark.parametrize(("kind", "turns"), [("counted", {}), ("stateful", {"turns": 2})])
def test_killed_within_a_turn(play: Any, tmp_path: Path, kind: str, turns: Any) -> None:
    options = {"script": "streaming.py", "data": kind, "epochs": 1, "sizes": [8, 0, 11, 5]} | turns
    alone = play.alone(**options)
    assert len(alone) == 4  # of 11 samples by three; one of the streams is empty
    kill = {"flag": str(tmp_path / "killed"), "where": "turn", "step": 2, "name": "0"}
    assert play.together(2, kill=kill, **options) == alone
    assert Path(kill["flag"]).exists()


def test_a_sampler_that_draws_differently_in_two_processes(play: Any, tmp_path: Path) -> None:
    error = tmp_path / "error"
    done = play.together(2, script="streaming.py", data="odd", epochs=3, error=str(error))
    assert (len(done), play.code) == (4, 1)  # the first epoch is the same: 43 samples are 4 steps
    assert "sampler Drawn drew different orders of epoch 1 in different processes" in error.read_text()


class Numbers(torch.utils.data.IterableDataset[Any]):
    """0, 1, 2, ...; with a state that counts before or after a sample."""

    before = True

    def __init__(self, worker: int = 0, size: int = 9) -> None:
        self.worker, self.size, self.done = worker, size, 0

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "seen": np.arange(2, dtype=np.int32) + self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        assert state["seen"].tolist() == [self.done, self.done + 1]

    def __iter__(self) -> Iterator[Any]:
        while self.done < self.size:
            number = self.done
            self.done += self.before
            yield torch.tensor([float(number)])
            self.done += not self.before


class Late(Numbers):
    before = False


class Plain:
    """Without state; ``given`` are its samples, whenever it is read."""

    given: tuple[float, ...] = (0, 1, 2, 3, 4)

    def __init__(self, worker: int) -> None:
        self.worker = worker

    def __iter__(self) -> Iterator[float]:
        return iter(self.given)


def read(streams: Streams, marks: list[Any], mine: tuple[int, ...] = (0,), epoch: int = 0) -> list[Any]:
    """All that is left: samples as a list, and the mark after them."""
    found = list(streams.open(epoch, 0, mine, marks))
    return [([] if batch is NOTHING else batch.flatten().tolist(), mark) for batch, mark in found]


def test_a_stream_goes_on_from_every_mark_by_its_state() -> None:
    streams = Streams(Numbers, 2, 1, 0)
    whole = read(streams, [{}])
    assert [batch for batch, _ in whole] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    assert [mark["more"] for _, mark in whole] == [True, True, True, True, False]
    for number, (_, mark) in enumerate(whole[:-1], 1):
        assert mark["state"]["stream"]["done"] == 2 * number  # of what was used, not of what was looked at
        assert of_value(read(streams, [mark])) == of_value(whole[number:])
    assert not streams.over(0, 5, [whole[3][1]])
    assert streams.over(0, 5, [whole[4][1]])
    assert len(read(streams, [whole[4][1]], epoch=1)) == 5  # a mark of an epoch that is over


def test_the_stream_of_the_page_goes_on_from_every_mark(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "elastic-data.md"
    (code,) = re.findall(r"```python\n(class Lines.*?)\nmodel, loader", page.read_text(), re.S)
    names: dict[str, Any] = {"torch": torch, "Path": Path}
    exec(code, names)
    for number, text in enumerate(("a\nb\nc\n", "", "d\ne\n")):
        (tmp_path / str(number)).write_text(text)
    files = [tmp_path / str(number) for number in range(3)]
    streams = Streams(lambda worker: names["Lines"](files), 2, 1, 0, settings={"collate_fn": "".join})
    whole = list(streams.open(0, 0, [0], [{}]))
    assert [batch for batch, _ in whole] == ["ab", "cd", "e"]
    for number, (_, mark) in enumerate(whole[:-1], 1):
        assert list(streams.open(0, 0, [0], [mark])) == whole[number:]


class Itself(torch.utils.data.IterableDataset[Any]):
    """Its own iterator; a new one is made each time."""

    def __init__(self, worker: int) -> None:
        self.next = worker

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.next += 1
        if self.next > 6:
            raise StopIteration
        return float(self.next)


def test_data_sets_that_are_their_own_iterators_and_iterators_with_a_state() -> None:
    whole = read(Streams(Itself, 2, 1, 0), [{}])
    assert [batch for batch, _ in whole] == [[1, 2], [3, 4], [5, 6]]
    assert read(Streams(Itself, 2, 1, 0), [whole[0][1]]) == whole[1:]

    class Inner(Numbers):
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            self.done += 1
            if self.done > self.size:
                raise StopIteration
            return float(self.done)

    class Outer(Plain):
        def __iter__(self) -> Any:
            return Inner(self.worker, 5)

    streams = Streams(Outer, 2, 1, 0)
    whole = read(streams, [{}])
    assert [batch for batch, _ in whole] == [[1, 2], [3, 4], [5]]
    assert whole[0][1]["state"]["iterator"]["done"] == 2
    assert of_value(read(streams, [whole[0][1]])) == of_value(whole[1:])


def test_one_that_says_the_wrong_thing_is_found() -> None:
    streams = Streams(Late, 2, 1, 0)
    with pytest.raises(StateError, match=r"worker 0 \(Late\) .* sample 2 .* count before yield"):
        read(streams, [read(streams, [{}])[0][1]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 1, 9, 3), "sample 2 .* is another one than before; it has no state_dict, so it was read again"),
        ((0, 1), "it had more than 2 samples, and has ended now"),
        ((0,), "it has ended after 1 samples, 2 had been taken"),
    ],
)
def test_one_that_cannot_be_read_again_is_found(
    given: tuple[float, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Streams(Plain, 2, 2, 0)
    whole = read(streams, [{}, {}], (0, 1))
    assert [batch for batch, _ in whole] == [[0, 1], [0, 1], [2, 3], [2, 3], [4], [4]]
    marks = [whole[0][1], whole[1][1]]
    assert read(streams, marks, (1,)) == whole[3::2]
    monkeypatch.setattr(Plain, "given", given)
    with pytest.raises(StateError, match=words):
        read(streams, marks)


def test_streams_end_with_the_longest_or_before_the_shortest() -> None:
    sizes = [5, 2, 4]
    for last, steps in (("short", 3), ("drop", 1)):
        streams = Streams(lambda worker: Numbers(worker, sizes[worker]), 2, 3, 0, last=last)  # type: ignore[arg-type]
        marks: list[Any] = [{}, {}, {}]
        done = 0
        batches = streams.open(0, 0, range(3), marks)
        while not streams.over(0, done, marks):
            for worker in range(3):
                if streams.live(0, done, worker, marks[worker]):
                    _, marks[worker] = next(batches)
            streams.check(0, done, marks)
            done += 1
        assert done == steps


def test_streams_without_a_step_are_refused() -> None:
    for last, sizes, words in (
        ("drop", [4, 1], r"stream of logical worker 1 gave less than one batch of 2 in epoch 0"),
        ("short", [0, 0], "none of the 2 streams gave a sample in epoch 0"),
    ):
        streams = Streams(lambda worker, sizes=sizes: Numbers(worker, sizes[worker]), 2, 2, 0, last=last)  # type: ignore[arg-type,misc]
        marks = [mark for _, mark in itertools.islice(streams.open(0, 0, range(2), [{}, {}]), 2)]
        with pytest.raises(InputError, match=words):
            streams.check(0, 0, marks)


class Odd(Numbers):
    def state_dict(self) -> dict[str, Any]:
        return {"done": Path("here")}


def test_a_state_that_could_not_be_loaded_is_refused_at_the_first_batch() -> None:
    with pytest.raises(
        StateError, match=r"stream of logical worker 0 \(Odd\) has state that cannot be loaded"
    ):
        read(Streams(Odd, 2, 1, 0), [{}])


ONE = Numbers()
DATA = torch.utils.data.TensorDataset(torch.ones(8, 1))


@pytest.mark.parametrize(
    ("dataset", "more", "words"),
    [
        (ONE, {}, "Numbers is one stream, for 2 logical workers: give a function .*lambda worker: Numbers"),
        ((n for n in range(3)), {}, "data set generator can be read only once"),
        (lambda worker: (n for n in range(3)), {}, "gave a generator, which can be read only once"),
        (lambda worker: 3, {}, "gave a int: it must give something that can be iterated"),
        (lambda worker: ONE, {}, "gave the same stream twice"),
        (Numbers, {"last": "pad"}, "last is 'pad': for streams it must be short or drop"),
        (Numbers, {"persistent_workers": True}, "persistent_workers does not go with streams"),
        (Numbers, {"sampler": [0]}, "a sampler does not go with streams"),
        (Numbers, {"batch_size": None}, "batch_size, of one logical worker, is missing"),
        (DATA, {"sampler": iter([0])}, "needs __iter__ and __len__"),
        (DATA, {"sampler": [0], "batch_sampler": [[0]]}, "give one of them"),
        (DATA, {"batch_sampler": [[0]]}, "batch_size=2 with a batch_sampler"),
        (DATA, {"sampler": DistributedSampler(DATA, 2, 0)}, "gives the share of one process of 2"),
        (DATA, {"sampler": [0, 1, 2], "last": "drop"}, "gives 3 indices in an epoch, which is no step"),
    ],
)
def test_what_cannot_be_read_by_several_is_refused(dataset: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        elastic.Run(2, threads=1).prepare(torch.nn.Linear(1, 1), dataset, **{"batch_size": 2} | more)


class Endless:
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle([0])


def test_samplers_are_drawn_once_for_each_epoch() -> None:
    class Own:
        random, draws = random.Random(1), 0

        def __len__(self) -> int:
            return 8

        def __iter__(self) -> Iterator[int]:
            self.draws += 1
            return iter(self.random.sample(range(8), 8))

    after = random.Random(1)
    orders = [after.sample(range(8), 8) for _ in range(4)]
    sampler = Own()
    loader = Sampled(DATA, sampler, 2, 2, 0)
    assert [loader.order(3), loader.order(3), sampler.draws] == [orders[3], orders[3], 4]
    assert next(loader.keys(3, 1, [1]))[0][1] == orders[3][5]
    with pytest.raises(InputError, match="has been drawn for epoch 3 and cannot go back to 1"):
        loader.order(1)
    with pytest.raises(InputError, match="says that it has 3 in an epoch, and gives more"):
        Sampled(DATA, Endless(), 2, 2, 0)
    weighted = [
        Sampled(DATA, WeightedRandomSampler(torch.arange(8) + more, 8), 2, 2, 0) for more in (0.0, 0.0, 5.0)
    ]
    first, same, other = (loader.identity() for loader in weighted)
    assert first == same
    assert identity.grade(first, other)[0] is elastic.Grade.CHANGED
    # Back to an epoch: the sampler is one of PyTorch, and depends on the generators alone.
    assert weighted[0].order(2) != weighted[0].order(0) == weighted[1].order(0)


def test_batches_are_dealt_out_whole() -> None:
    batches = [[0, 1], [2], [3, 4, 5], [6], [7]]
    for last, expected in (("short", [[2], [6]]), ("drop", [[2], [6]]), ("pad", [[2], [6], [0, 1]])):
        loader = Sampled(DATA, batches, None, 2, 0, last=last, random_data=False)  # type: ignore[arg-type]
        assert list(loader.keys(0, 0, [1])) == expected
        assert loader.steps == (2 if last == "drop" else 3)
