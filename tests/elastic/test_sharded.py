"""Sharded by fully_shard: the same bits on any number of processes, and as unsharded accumulation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

LONG = os.environ.get("COTENANT_ELASTIC_LONG") == "1"
CASES: dict[str, dict[str, Any]] = {
    "BatchNorm, unused parameters, AdamW, clipped": {"model": "net"},
    "tied weights, workers without samples": {"model": "gpt", "optimizer": "adam", "clip": False},
    "bf16 parameters, fp32 sums": {"model": "gpt", "mixed": True, "optimizer": "sgd"},
    "fp16 with scaler": {"model": "net", "precision": "fp16", "optimizer": "sgd"},
    "accumulated over two steps": {"model": "net", "accumulate": 2, "optimizer": "adam"},
    "offload policy": {"model": "net", "offload": True},
}
MORE: dict[str, dict[str, Any]] = {
    f"{model}, {optimizer}, {precision or 'fp32'}, {workers} workers": {
        "model": model,
        "optimizer": optimizer,
        "precision": precision,
        "workers": workers,
    }
    for model in ("net", "gpt")
    for optimizer in ("sgd", "adam", "adamw")
    for precision in ("", "bf16")
    for workers in ((4, 7) if model == "gpt" else (4,))
}


@pytest.fixture
def sharded(play: Any, tmp_path: Path) -> Any:
    def together(processes: int, name: str = "", **options: Any) -> list[str]:
        folder = str(tmp_path / f"state{name or play.count}")
        options = {"script": "sharded_training.py", "sharded": True, "state": folder} | options
        return list(play.together(processes, **options))

    return together


def alone(play: Any, **options: Any) -> list[str]:
    return list(play.alone(script="sharded_training.py", **options))


@pytest.mark.parametrize(
    "options", (CASES | MORE if LONG else CASES).values(), ids=CASES | MORE if LONG else CASES
)
def test_bits_are_those_of_unsharded_accumulation(play: Any, sharded: Any, options: dict[str, Any]) -> None:
    expected = alone(play, **options)
    assert len(set(expected)) >= len(expected) // options.get("accumulate", 1) > 3
    assert alone(play, sharded=True, **options) == expected
    for processes in (2, 3, 4) if LONG or options["model"] == "net" else (3,):
        assert sharded(processes, **options) == expected
        assert play.processes == [processes] * len(expected)
        assert play.code == 0
