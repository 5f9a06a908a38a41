"""Cells of the matrix with changes in the middle, and one that is wrong on purpose."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
_SPEC = importlib.util.spec_from_file_location("elastic_matrix", Path(__file__).with_name("matrix.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
matrix = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(matrix)
CELL = {"kind": "gpt", "optimizer": "sgd", "precision": "fp32", "workers": 4}


def test_a_plain_sum_of_the_processes_sums_is_seen_to_differ(play: Any) -> None:
    alone = play.alone(script="matrix.py", cell=CELL)
    assert len(set(alone)) == matrix.STEPS
    wrong = play.together(3, script="matrix.py", cell=CELL, wrong=True)
    assert len(wrong) == matrix.STEPS
    assert wrong != alone
    assert play.together(3, script="matrix.py", cell=CELL) == alone


@pytest.mark.parametrize(
    "cell",
    [
        CELL,
        {"kind": "cnn", "optimizer": "adamw", "precision": "bf16", "workers": 8},
        {"kind": "gan", "optimizer": "adam", "precision": "fp16", "workers": 4},
    ],
)
def test_one_then_four_two_three_processes_give_the_same_bits(play: Any, cell: dict[str, Any]) -> None:
    alone = play.alone(script="matrix.py", cell=cell)
    assert matrix.changing(play, cell) == alone
    assert play.processes == [1, *matrix.CHANGES]


def test_what_a_cell_that_fails_said_is_kept(play: Any) -> None:
    found = matrix.found_in(play, CELL | {"kind": "nothing"})
    assert found.startswith("failed: KeyError: 'nothing' (at models.py:")


def test_the_command_is_content_only_with_every_cell_equal() -> None:
    names = itertools.product(matrix.KINDS, matrix.OPTIMIZERS, matrix.PRECISIONS, matrix.WORKERS)
    done = dict.fromkeys((" ".join(map(str, name)) for name in names), "equal")
    assert matrix.code(done) == 0
    one = next(iter(done))
    assert matrix.code(done | {one: "differs on 2 processes"}) == 1
    assert matrix.code({name: found for name, found in done.items() if name != one}) == 1
