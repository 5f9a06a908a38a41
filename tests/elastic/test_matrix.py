"""Eight kinds of models, four optimisers, three precisions, N = 4 and 8: the same bits after every step.

The whole matrix: COTENANT_ELASTIC_LONG=1.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
KINDS = ("cnn", "vit", "gpt", "lstm", "dlrm", "gnn", "gan", "diffusion")
WHOLE = list(
    itertools.product(KINDS, ("sgd", "adam", "adamw", "adafactor"), ("fp32", "bf16", "fp16"), (4, 8))
)
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
    if kind == "lstm" and precision == "fp16":
        pytest.skip("PyTorch has no fp16 LSTM on this CPU")
    cell: dict[str, Any] = {
        "script": "models.py",
        "kind": kind,
        "optimizer": optimizer,
        "precision": precision,
        "workers": workers,
    }
    alone = play.alone(**cell)
    assert len(alone) == 6
    assert len(set(alone)) == 6
    for processes in (2, 3, 4) if LONG else (3,):
        assert play.together(processes, **cell) == alone
        assert play.processes == [processes] * 6


def test_another_order_of_summation_is_seen(play: Any) -> None:
    """The control: the same gradients, summed in another order, give other bits; so a cell can fail."""
    cell: dict[str, Any] = {"script": "models.py", "kind": "vit", "optimizer": "sgd", "precision": "fp32"}
    alone = play.alone(workers=8, **cell)
    other = play.together(3, workers=8, order="sequence", **cell)
    assert len(other) == len(alone) == 6
    assert other[0] != alone[0]
