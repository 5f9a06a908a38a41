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


@pytest.mark.parametrize(("loops", "workers", "processes"), [("JM", 3, (0, 2)), ("JJM", 4, (3,))])
def test_several_loops_as_two_ddp_models(
    tmp_path: Path, loops: str, workers: int, processes: tuple[int, ...]
) -> None:
    expected = ordering.reference(tmp_path, loops, workers, function=ordering.plain_turns)
    assert len(set(expected)) == 2 * ordering.WORKING_STEPS
    for count in processes:
        assert ordering.elastically(tmp_path, count, ordering.our_turns, loops, workers, 2) == expected


@pytest.mark.parametrize("times", [1, 2])
def test_more_than_one_backward_in_a_turn_is_told(capsys: Any, times: int) -> None:
    run = elastic.Run(2, order="ddp", threads=1)
    model = torch.nn.Linear(1, 1)
    data = torch.utils.data.TensorDataset(torch.ones(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in run.steps(run.adopt(model, torch.utils.data.DataLoader(data, batch_size=1), opt), epochs=1):
        for (x,) in step:
            for _ in range(times):
                model(x).sum().backward()
        opt.step()
    told = capsys.readouterr().err
    assert told.count("backward() more than once in a turn") == times - 1
    assert ("grade statistical against DDP" in told) == (times == 2)


@pytest.mark.skipif(
    not LONG, reason="COTENANT_ELASTIC_LONG=1 compares all models with DDP of 2, 3, 4, 8 processes"
)
@pytest.mark.parametrize(("kind", "workers", "processes"), REST)
def test_as_ddp_every_model(tmp_path: Path, kind: str, workers: int, processes: tuple[int, ...]) -> None:
    test_as_ddp_after_every_step(tmp_path, kind, workers, processes)


def test_a_ring_by_hand() -> None:
    # 10 floats, 3 processes: 6 segments of 7 -> 8 bytes, so chunks of 4 floats.
    assert ddp.ring(10, 4, 3) == [(0, 4, 0), (4, 8, 1), (8, 10, 2)]
    # In float32 1e8 + 1 is 1e8. Chunk 0 is summed 2, 1, 0; chunk 1: 0, 2, 1; chunk 2: 1, 0, 2.
    rows = [torch.full((10,), value) for value in (1.0, 1e8, -1e8)]
    out = torch.empty(10)
    ddp.fold(rows, 0, ddp.ring(10, 4, 3), out)
    assert out.tolist() == [1.0] * 4 + [0.0] * 4 + [0.0] * 2


def test_a_parameter_without_gradient_is_refused_as_ddp_does() -> None:
    run = elastic.Run(2, order="ddp", threads=1)
    model = torch.nn.ModuleList([torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)])
    data = torch.utils.data.TensorDataset(torch.ones(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = run.adopt(model, torch.utils.data.DataLoader(data, batch_size=1), opt)
    step = next(run.steps(loader, epochs=1))
    with pytest.raises(InputError, match=r"no gradient for parameter 2 .*logical worker 0: DDP stops there"):
        for (x,) in step:
            model[0](x).sum().backward()


def test_other_versions_are_named_or_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert ddp.check_version(strict=True)
    monkeypatch.setattr(ddp, "VERIFIED", ("1.0",))
    assert not ddp.check_version(strict=False)
    assert "grade statistical against DDP" in capsys.readouterr().err
    with pytest.raises(InputError, match="asks for bitwise"):
        elastic.Run(2, order="ddp", least="bitwise")


@pytest.mark.skipif(
    not LONG, reason="COTENANT_ELASTIC_LONG=1 also changes the number of processes on the way"
)
def test_as_ddp_through_changes(tmp_path: Path) -> None:
    expected = ordering.reference(tmp_path, "mlp", 4, 6)

    def watch(supervisor: Any, steps: int) -> None:
        supervisor.want(2 if steps < 8 else 4 if steps < 16 else 1)

    assert ordering.elastically(tmp_path, 2, ordering.ours, "mlp", 4, 6, watch=watch) == expected
