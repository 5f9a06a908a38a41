"""The order ``ddp``: the same parameters after every step as DistributedDataParallel itself, on any number of processes."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from cotenant import elastic
from cotenant.errors import InputError

torch = pytest.importorskip("torch")
from cotenant.elastic import ddp  # noqa: E402

_SPEC = importlib.util.spec_from_file_location("elastic_ordering", Path(__file__).with_name("ordering.py"))
ordering = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(ordering)
LONG = os.environ.get("COTENANT_ELASTIC_LONG") == "1"
FAST = [("mlp", 3, (0, 2)), ("gpt", 4, (3,)), ("cnn", 3, (3,)), ("centred", 3, (1, 2))]
REST = [
    *((kind, n, (0, 2, n)) for kind in ("cnn", "gpt", "lstm", "dlrm", "mlp") for n in (2, 3, 4)),
    *((kind, 8, (1, 3, 8)) for kind in ("cnn", "gpt", "lstm", "dlrm", "mlp", "wide", "centred")),
    ("double", 3, (0, 2)),
]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTENANT_ELASTIC", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


@pytest.mark.parametrize(("kind", "workers", "processes"), FAST)
def test_as_ddp_after_every_step(tmp_path: Path, kind: str, workers: int, processes: tuple[int, ...]) -> None:
    expected = ordering.reference(tmp_path, kind, workers)
    assert len(set(expected)) == 2 * ordering.WORKING_STEPS
    for count in processes:
        assert ordering.elastically(tmp_path, count, ordering.ours, kind, workers, 2) == expected


@pytest.mark.skipif(
    not LONG, reason="COTENANT_ELASTIC_LONG=1 compares all models with DDP of 2, 3, 4, 8 processes"
)
@pytest.mark.parametrize(("kind", "workers", "processes"), REST)
def test_as_ddp_every_model(tmp_path: Path, kind: str, workers: int, processes: tuple[int, ...]) -> None:
    test_as_ddp_after_every_step(tmp_path, kind, workers, processes)
