"""Sums, samples, contexts, grades and refusals, each by itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant import elastic
from cotenant.elastic import gradients, identity, members
from cotenant.elastic.contexts import Buffers, Context
from cotenant.elastic.sampling import Loader
from cotenant.errors import InputError, StateError

torch = pytest.importorskip("torch")


class Numbers(torch.utils.data.Dataset[Any]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)]), torch.rand(())


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.set_num_threads(threads)


@given(st.integers(1, 33), st.data())
def test_subtrees_of_all_processes_are_the_whole_tree(leaves: int, data: Any) -> None:
    processes = data.draw(st.integers(1, leaves))
    shares = gradients.share(leaves, processes)
    nodes = [gradients.cover(low, high, leaves) for low, high in shares]
    assert [leaf for part in nodes for low, high in part for leaf in range(low, high)] == list(range(leaves))
    sizes = [high - low for low, high in shares]
    assert max(sizes) - min(sizes) <= 1

    def made(node: tuple[int, int]) -> bool:
        return any(node in part for part in nodes) or all(made(one) for one in gradients.children(node))

    assert made((0, leaves))


def test_blocks_are_summed_as_a_tree_and_sequence_from_the_left() -> None:
    # In float32 1e8 + 1 is 1e8, so the order shows: (1e8 + 1) + (-1e8 + 1) = 0, ((1e8 + 1) - 1e8) + 1 = 1.
    values = [1e8, 1.0, -1e8, 1.0]
    found = {}
    for order in ("blocks", "sequence"):
        parameter = torch.nn.Parameter(torch.zeros(1))
        staging = gradients.Staging([parameter], 4, 1, (0, 4), order)
        staging.begin()
        for worker, value in enumerate(values):
            (parameter * value).sum().backward()
            staging.ended(worker)
        staging.finish(staging.done[0, 4], 4)
        found[order] = float(parameter.grad)
    assert found == {"blocks": 0.0, "sequence": 0.25}


def test_a_gradient_that_is_not_there_is_an_added_zero() -> None:
    (total,) = gradients.add([None], [torch.tensor([-0.0])])
    assert str(float(total)) == "0.0"
    assert gradients.add([None], [None]) == [None]


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 6), st.sampled_from(["short", "pad", "drop"]))
def test_an_epoch_deals_out_each_sample_once(size: int, batch: int, workers: int, last: Any) -> None:
    if last == "drop" and size < batch * workers:
        with pytest.raises(InputError, match="gives no step"):
            Loader(Numbers(size), batch, workers, 0, last=last)
        return
    loader = Loader(Numbers(size), batch, workers, 0, last=last)
    keys = [key for part in loader.keys(2, 0, range(workers)) for key in part]
    indices = [index for _, index in keys]
    assert len({seed for seed, _ in keys}) == len(keys)  # a seed for each place
    if last == "short":
        assert sorted(indices) == list(range(size))
    elif last == "pad":
        assert set(indices) == set(range(size))
        assert len(indices) % workers == 0
    else:
        assert len(set(indices)) == len(indices) == size - size % (batch * workers)
    counts = [loader.count(step, worker) for step in range(loader.steps) for worker in range(workers)]
    assert sum(counts) == len(indices)
    # A worker reads the same whoever reads for it, and from wherever one begins.
    alone = list(loader.keys(2, 0, [workers - 1]))
    assert all(part in list(loader.keys(2, 0, range(workers))) for part in alone)
    assert list(loader.keys(2, loader.steps, range(workers))) == []


def test_workers_read_as_distributed_samplers_do() -> None:
    loader = Loader(Numbers(10), 2, 2, 0, shuffle=False, random_data=False)
    assert list(loader.keys(0, 0, [1])) == [[1, 3], [5, 7], [9]]
    assert loader.keys(0, 0, [0]).__next__() == [0, 2]


def _draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_context_goes_on_where_it_was_left_also_packed() -> None:
    other = Context.seeded(2)
    used = Context.seeded(1).enter(keep=True)
    whole = [_draw() for _ in range(3)]
    used = Context.seeded(1).enter(keep=False)
    first = _draw()
    left = Context.unpacked(Context.leave(used).packed())
    other.enter(keep=False)
    assert _draw() != whole[1]
    left.enter(keep=True)
    assert [first, _draw(), _draw()] == whole
    left.enter(keep=False)  # kept as it was: the turn is taken again
    assert _draw() == whole[1]


def test_each_worker_has_its_own_statistics_and_masks_are_left_alone() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(1, momentum=0.5))
    model.register_buffer("mask", torch.ones(3))
    buffers = Buffers(model)
    buffers.enter({})
    model(torch.tensor([[2.0], [4.0]]))
    first = buffers.leave()
    assert sorted(first) == ["0.num_batches_tracked", "0.running_mean", "0.running_var"]
    buffers.enter({})
    assert float(model[0].running_mean) == 0.0
    buffers.enter(first)
    assert float(model[0].running_mean) == 1.5  # half of the mean of 2 and 4
    model.mask.add_(1.0)
    assert "mask" in buffers.leave()


@pytest.mark.parametrize(
    ("name", "left"), [("seed", "CHANGED"), ("CPU threads", "STATISTICAL"), ("order", "STATISTICAL")]
)
def test_what_differs_decides_the_grade(name: str, left: str, capsys: Any) -> None:
    there = {"seed": "0", "CPU threads": "1", "order": "blocks"}
    here = there | {name: "x"}
    assert identity.grade(there, there) == (elastic.Grade.BITWISE, [])
    assert identity.judge(there, here, elastic.Grade.CHANGED, "file") is elastic.Grade[left]
    assert f"grade {left.lower()}: {name} {there[name]} -> x" in capsys.readouterr().err
    with pytest.raises(StateError, match="asks for bitwise"):
        identity.judge(there, here, elastic.Grade.BITWISE, "file")


def test_another_number_of_blocks_is_told_as_such_and_not_at_all_in_an_order_without_blocks() -> None:
    there = {"order": "blocks", "leaves": "3"}
    assert identity.grade(there, there | {"leaves": "4"}) == (
        elastic.Grade.STATISTICAL,
        ["blocks (max_processes) 3 -> 4"],
    )
    sequence = {"order": "sequence", "leaves": "6"}
    assert identity.grade(there, sequence) == (elastic.Grade.STATISTICAL, ["order blocks -> sequence"])
    assert identity.grade(sequence, there)[1] == ["order sequence -> blocks"]
    more = sequence | {"logical workers": "8", "leaves": "8"}
    assert identity.grade(sequence | {"logical workers": "6"}, more)[1] == ["logical workers 6 -> 8"]


def _run(
    folder: Path | None = None, steps: int = 99, leaves: bool = True, **more: Any
) -> tuple[elastic.Run, Any, int]:
    run = elastic.Run(2, seed=1, threads=1, state=folder, **more)
    model, loader = run.prepare(torch.nn.Linear(1, 1), Numbers(12), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run.keep(optimizer)
    done = 0
    for step in run.steps(loader, epochs=2):
        for x, _ in step:
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if done == steps:
            run.save()
            if leaves:
                break
    return run, model, done


def test_sequence_on_one_process_is_plain_accumulation() -> None:
    _, model, done = _run(order="sequence")
    assert done == 6
    torch.manual_seed(0)
    run = elastic.Run(2, seed=1, threads=1)
    plain = torch.nn.Linear(1, 1)
    loader = Loader(Numbers(12), 2, 2, 1)
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-3)
    for epoch in range(2):
        for number, keys in enumerate(loader.keys(epoch, 0, [0, 1])):
            x = torch.tensor([[float(index)] for _, index in keys])
            (plain(x).sum() / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    assert run.first
    assert torch.equal(plain.weight, model.weight)
    assert torch.equal(plain.bias, model.bias)


def test_a_checkpoint_is_one_plain_file_and_names_what_differs(tmp_path: Path, capsys: Any) -> None:
    _run(tmp_path, every_steps=3)
    (file,) = tmp_path.iterdir()
    content = torch.load(file, weights_only=True)
    assert content["cotenant"]["place"] == (6, 2, 0)
    assert content["cotenant"]["identity"]["logical workers"] == "2"
    assert len(content["workers"]) == 2
    assert sorted(content["model"]["model"]) == ["bias", "weight"]
    run, _, done = _run(tmp_path)
    assert (done, run.grade) == (0, elastic.Grade.BITWISE)
    run, _, done = _run(tmp_path, order="sequence")
    assert (done, run.grade) == (0, elastic.Grade.STATISTICAL)
    assert "order blocks -> sequence" in capsys.readouterr().err
    with pytest.raises(StateError, match=r"grade statistical: order blocks -> sequence.*asks for bitwise"):
        _run(tmp_path, order="sequence", least="bitwise")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(StateError, match="truncated or damaged"):
        _run(tmp_path)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_saved_in_a_step_is_that_step_whole(tmp_path: Path, leaves: bool) -> None:
    _, expected, _ = _run()
    _, _, done = _run(tmp_path, steps=4, leaves=leaves, keep=9)
    assert done == (4 if leaves else 6)
    for file in sorted(tmp_path.glob("*.pt"))[1:]:
        file.unlink()  # that of the run's end
    _, resumed, done = _run(tmp_path)
    assert done == 2
    assert torch.equal(resumed.weight, expected.weight)


def test_a_step_is_taken_whole_and_applied_behind_its_turns() -> None:
    run = elastic.Run(2, threads=1)
    model, loader = run.prepare(torch.nn.Linear(1, 1), Numbers(12), 2)
    with pytest.raises(InputError, match="no optimiser is kept"):
        next(run.steps(loader, epochs=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run.keep(optimizer)
    steps = run.steps(loader, epochs=1)
    step = next(steps)
    with pytest.raises(InputError, match="nothing noted"):
        step.mean("loss")
    with pytest.raises(InputError, match="outside of the inner loop"):
        step.note(loss=1.0)
    for x, _ in step:
        model(x).sum().backward()
        with pytest.raises(InputError, match="in the inner loop"):
            optimizer.step()
        break
    with pytest.raises(InputError, match="left before its end"):
        next(steps)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (torch.nn.SyncBatchNorm(2), "1 is a SyncBatchNorm: it needs all workers"),
        (torch.nn.Embedding(2, 2, max_norm=1.0), "1 is a Embedding with max_norm"),
        (torch.nn.LazyLinear(2), "1 is a LazyLinear not yet initialised"),
    ],
)
def test_models_that_cannot_be_elastic_are_refused_with_the_place(layer: Any, words: str) -> None:
    run = elastic.Run(2, threads=1)
    with pytest.raises(InputError, match=words):
        run.prepare(torch.nn.Sequential(torch.nn.Flatten(), layer), Numbers(4), 1)


def test_bad_numbers_and_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="divisor"):
        elastic.Run(6, 4)
    with pytest.raises(InputError, match="order is 'ring'"):
        elastic.Run(4, order="ring")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs __len__"):
        elastic.Run(4, threads=1).prepare(torch.nn.Linear(1, 1), 5, 1)
    monkeypatch.setenv(members.ADDRESS, "nowhere")
    with pytest.raises(InputError, match="HOST:PORT:NAME"):
        members.Member.from_environment()


def _tiny(inner: Any, **more: Any) -> None:
    run = elastic.Run(2, threads=1)
    model = torch.nn.Linear(2, 1)
    data = torch.utils.data.TensorDataset(torch.ones(8, 2))
    other = torch.nn.Linear(2, 1) if more.get("other") else model
    opt = torch.optim.SGD(other.parameters(), lr=0.1)
    model, loader = run.prepare(model, data, batch_size=2)
    run.keep(opt)
    for step in run.steps(loader, epochs=1):
        for (x,) in step:
            inner(model(x).sum(), opt)
        opt.step()
        opt.zero_grad()


def test_what_would_train_nothing_is_refused() -> None:
    def wiped(loss: Any, opt: Any) -> None:
        loss.backward()
        opt.zero_grad()

    for inner in (lambda loss, opt: None, wiped):
        with pytest.raises(
            InputError, match=r"step 0: no parameter has a gradient .*zero_grad\(\) not after it"
        ):
            _tiny(inner)
    with pytest.raises(
        InputError, match=r"2 parameters of group 0 are none of the model's .*make it after run.prepare"
    ):
        _tiny(lambda loss, opt: loss.backward(), other=True)
    _tiny(lambda loss, opt: loss.backward())


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"state folder .*file: File exists"):
        elastic.Run(2, state=tmp_path / "file")
