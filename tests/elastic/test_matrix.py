"""Eight kinds of models, four optimisers, three precisions, N = 4 and 8: the same bits after every step.

The whole matrix: COTENANT_ELASTIC_LONG=1.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
_SPEC = importlib.util.spec_from_file_location("elastic_matrix", Path(__file__).with_name("matrix.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
matrix = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(matrix)
WHOLE = list(itertools.product(matrix.KINDS, matrix.OPTIMIZERS, matrix.PRECISIONS, matrix.WORKERS))
FAST = [
    ("cnn", "sgd", "fp32", 8),
    ("vit", "adam", "bf16", 4),
    ("gpt", "adafactor", "fp32", 4),
    ("lstm", "adamw", "fp32", 8),
    ("dlrm", "sgd", "bf16", 4),
    ("gnn", "adam", "fp32", 4),
    ("gan", "adamw", "fp16", 4),
    ("diffusion", "adafactor", "fp32", 8),
]
LONG = bool(os.environ.get("COTENANT_ELASTIC_LONG"))


@pytest.mark.parametrize(("kind", "optimizer", "precision", "workers"), WHOLE if LONG else FAST)
def test_cell_of_the_matrix(play: Any, kind: str, optimizer: str, precision: str, workers: int) -> None:
    cell: dict[str, Any] = {
        "kind": kind,
        "optimizer": optimizer,
        "precision": precision,
        "workers": workers,
    }
    if LONG:  # on 1 to 4 processes, and with changes on the way
        assert matrix.run_cell(play, cell) == "equal"
        return
    alone = play.alone(script="models.py", **cell)
    assert len(set(alone)) == len(alone) == matrix.STEPS
    assert play.together(3, script="models.py", **cell) == alone
    assert play.processes == [3] * matrix.STEPS


def test_another_order_of_summation_is_seen(play: Any) -> None:
    """The control: the same gradients, summed in another order, give other bits; so a cell can fail."""
    cell: dict[str, Any] = {"script": "models.py", "kind": "vit", "optimizer": "sgd", "precision": "fp32"}
    alone = play.alone(workers=8, **cell)
    other = play.together(3, workers=8, order="sequence", **cell)
    assert len(other) == len(alone) == 6
    assert other[0] != alone[0]
