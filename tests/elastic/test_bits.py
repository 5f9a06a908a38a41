"""The same bits after every step, on any number of processes."""

from __future__ import annotations

from typing import Any

import pytest

CASES: dict[str, dict[str, Any]] = {
    "cnn, SGD, loader workers": {"model": "cnn", "loaders": 2},
    "cnn, 8 workers in blocks of two": {"model": "cnn", "workers": 8, "most": 4},
    "cnn, sequence, AdamW": {"model": "cnn", "order": "sequence", "optimizer": "adamw"},
    "gpt, AdamW, bf16, accumulated": {
        "model": "gpt",
        "optimizer": "adamw",
        "precision": "bf16",
        "accumulate": 2,
    },
    "gpt, SGD, fp16 with scaler": {"model": "gpt", "precision": "fp16"},
    "lstm, AdamW, 8 workers": {"model": "lstm", "optimizer": "adamw", "workers": 8},
    "branches without gradient": {"model": "gates", "draw": True},
    "branches, sequence": {"model": "gates", "order": "sequence"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_bits_do_not_depend_on_the_number_of_processes(play: Any, options: dict[str, Any]) -> None:
    alone = play.alone(**options)
    assert len(alone) > 5
    assert len(set(alone)) == len(alone)  # every step changes something
    for processes in (2, 3, 4) if options["model"] in ("cnn", "gates") else (3, 4):
        more = {"loaders": 0} if "loaders" in options and processes == 2 else {}
        assert play.together(processes, **options | more) == alone
        assert play.processes == [processes] * len(alone)
        assert play.code == 0
