"""Sparse gradients: optimisers see the same rows in the same order, whatever the number of processes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from cotenant import elastic
from cotenant.errors import InputError

torch = pytest.importorskip("torch")
DLRM = {"script": "tables.py"}


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"optimizer": "sgd", "order": "sequence"},
        {"optimizer": "adam", "workers": 8, "most": 4},
        {"optimizer": "sgd", "accumulate": 2},
        {"optimizer": "adam", "loops": True},
    ],
    ids=lambda options: " ".join(str(value) for value in options.values()),
)
def test_the_same_bits_on_any_number_of_processes(play: Any, options: dict[str, Any]) -> None:
    alone = play.alone(**options, **DLRM)
    assert len(alone) == len(set(alone)) == (6 if options.get("workers") == 8 else 10)
    for processes in (2, 3, 4) if options == {"optimizer": "adam"} else (3,):
        assert play.together(processes, **options, **DLRM) == alone
        assert play.processes == [processes] * len(alone)


def test_the_same_gradients_as_dense_ones(play: Any) -> None:
    """In the order of workers; with an optimiser that leaves rows without gradient alone, so parameters, too."""
    options = {"optimizer": "sgd", "order": "sequence", "whole": True, "bags": 0}
    alone = play.alone(sparse=False, **options, **DLRM)
    assert play.together(2, **options, **DLRM) == alone


def test_killed_within_a_turn(play: Any, tmp_path: Path) -> None:
    alone = play.alone(optimizer="adam", **DLRM)
    kill = {"flag": str(tmp_path / "killed"), "where": "turn", "step": 3, "name": "1"}
    assert play.together(3, kill=kill, optimizer="adam", **DLRM) == alone
    assert (tmp_path / "killed").exists()


def test_killed_when_one_has_the_step_and_another_not(play: Any, tmp_path: Path) -> None:
    ends = [str(tmp_path / "alone.pt"), str(tmp_path / "together.pt")]
    alone = play.alone(optimizer="adam", weights=ends[0], **DLRM)
    log, halfway = str(tmp_path / "log"), {"flag": str(tmp_path / "given"), "step": 3}
    with contextlib.suppress(AssertionError):  # who writes was killed: the line of that step is missing
        play.together(3, halfway=halfway, log=log, weights=ends[1], optimizer="adam", **DLRM)
    assert (tmp_path / "given").exists()
    lines = play.lines({"log": log})
    assert [line[1] for line in lines] == [alone[int(line[0])] for line in lines]
    first, second = (torch.load(path, weights_only=True) for path in ends)
    assert all(torch.equal(first[name], second[name]) for name in first)


class Words(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, index, 7 - index])


def _run(model: Any, order: Any = "sequence") -> Any:
    run = elastic.Run(4, seed=3, order=order)
    model, loader = run.prepare(model, Words(), 1, shuffle=False)
    run.keep(torch.optim.SGD(model.parameters(), lr=0.1))
    return next(run.steps(loader, epochs=1))


@pytest.mark.parametrize("order", ["blocks", "sequence"])
def test_rows_are_sorted_and_each_is_there_once(order: str) -> None:
    model = torch.nn.Embedding(10, 1, sparse=True)
    for x in _run(model, order):
        # Word 0 of worker 0: 1 + 1, its word 7: 1; and so on. Workers 0 to 3 have samples 0 to 3.
        model(x).sum().backward()
    grad = model.weight.grad
    assert grad.is_coalesced()
    assert grad.indices().tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert grad.values().flatten().tolist() == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_rows_are_summed_in_the_order_of_workers() -> None:
    model = torch.nn.Embedding(10, 1, sparse=True)
    numbers = iter([1e8, 1.0, -1e8, 1.0])
    for x in _run(model, "blocks"):
        (model(x * 0 + 4).sum() * next(numbers)).backward()
    # Each worker has the word three times: 3e8 + 3 is 3e8 in fp32, less 3e8 is 0, and 3 is left.
    assert model.weight.grad.values().item() == 3.0 / 4


def test_refused_with_the_reason() -> None:
    table = torch.nn.Embedding(10, 2, sparse=True)
    with pytest.raises(InputError, match="the model is a Embedding with sparse gradients, which order='ddp'"):
        elastic.Run(4, order="ddp").prepare(table, Words(), 1)
    model = torch.nn.Embedding(10, 2, sparse=True)
    with pytest.raises(InputError, match="its weight is used elsewhere"):
        for x in _run(model):
            (model(x).sum() + model.weight.sum()).backward()
    plain = torch.nn.Embedding(10, 2)
    with pytest.raises(InputError, match="has a sparse gradient, and is not the weight of an Embedding"):
        for x in _run(plain):
            torch.nn.functional.embedding(x, plain.weight, sparse=True).sum().backward()
