"""Embeddings with sparse gradients: a step touches the rows that it looked up, not the table."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from cotenant.predictors.resources.work import work_of  # noqa: E402
from cotenant.profiles.graph.features import features_of  # noqa: E402
from cotenant.profiles.graph.ir import Graph, Options  # noqa: E402
from cotenant.profiles.graph.liveness import moment_bytes, peak_of  # noqa: E402
from cotenant.profiles.graph.torchreader import read_module  # noqa: E402

torch.set_num_threads(1)

ROWS, WIDTH, SAMPLES, WORDS = 1000, 16, 8, 4
LOOKED_UP = SAMPLES * WORDS * WIDTH
HEAD = WIDTH * 4 + 4


class Tables(nn.Module):
    """A table read word by word, one read in bags, and a head."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.bags = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.words(x).mean(1) + self.bags(x)).mean()


def graph(*, sparse: bool, **options: Any) -> Graph:
    ids = torch.zeros(SAMPLES, WORDS, dtype=torch.int64)
    return read_module(Tables(sparse=sparse), (ids,), options=Options(batch=SAMPLES, **options))


def test_gradients_are_as_large_as_what_was_looked_up() -> None:
    found = graph(sparse=True)
    assert found.source == "torch fake tensors" and found.notes == ()
    assert found.trained_sizes == (ROWS * WIDTH, ROWS * WIDTH, WIDTH * 4, 4)
    assert found.touched_sizes == (LOOKED_UP, LOOKED_UP, WIDTH * 4, 4)
    assert sorted(s.size_bytes for s in found.storages if s.role == "gradient") == [
        *(4 * 4, 4 * 4 * WIDTH),
        *(4 * LOOKED_UP, 4 * LOOKED_UP),
    ]
    assert [s.size_bytes for s in found.storages if s.role == "input"] == [8 * SAMPLES * WORDS]


def test_a_step_of_sgd_moves_the_rows_and_not_the_tables() -> None:
    # Weight and gradient are read and the weight is written: three times four bytes an element.
    sparse, dense = features_of(graph(sparse=True)), features_of(graph(sparse=False))
    assert sparse.moved_step_bytes == 3 * 4 * (2 * LOOKED_UP + HEAD)
    assert dense.moved_step_bytes == 3 * 4 * (2 * ROWS * WIDTH + HEAD)
    assert sparse.gradient_bytes == 4 * (2 * LOOKED_UP + HEAD)
    # The dense backward pass fills two tables of zeros with rows; the sparse one makes rows.
    assert dense.moved_backward_bytes - sparse.moved_backward_bytes > 2 * 4 * (ROWS * WIDTH - 2 * LOOKED_UP)
    assert work_of(graph(sparse=True)).update_bytes == sparse.moved_step_bytes


def test_memory_holds_no_gradient_of_the_tables() -> None:
    sparse, dense = peak_of(graph(sparse=True)), peak_of(graph(sparse=False))
    assert sparse.gradient_bytes <= 4 * (2 * LOOKED_UP + HEAD)
    assert dense.total_bytes - sparse.total_bytes > 4 * (2 * ROWS * WIDTH) - 4 * 4 * LOOKED_UP
    adagrad = graph(sparse=True, optimiser="adagrad")
    assert moment_bytes(adagrad) == 2 * 4 * (2 * LOOKED_UP + HEAD)
    assert peak_of(adagrad).optimiser_bytes == 4 * (2 * ROWS * WIDTH + HEAD)


def test_the_forward_pass_alone_touches_nothing() -> None:
    found = graph(sparse=True, training=False)
    assert found.touched_sizes == ()
    assert features_of(found).moved_step_bytes == 0
