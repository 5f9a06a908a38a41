"""Scripts for Lightning Fabric: the same parameters before and after they are elastic, on any number of processes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant import elastic
from cotenant.errors import InputError, MissingExtraError, StateError

torch = pytest.importorskip("torch")
pytest.importorskip(
    "lightning.fabric", reason="lightning is not installed: pip install 'cotenant[lightning]'"
)
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

_SPEC = importlib.util.spec_from_file_location("elastic_fabrics", Path(__file__).with_name("fabrics.py"))
fabrics = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fabrics)
ordering = fabrics.ordering


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COTENANT_ELASTIC", "PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)


@pytest.mark.parametrize(("kind", "precision"), [("cnn", "32-true"), ("gpt", "bf16-mixed")])
def test_as_fabric_under_ddp(tmp_path: Path, kind: str, precision: str) -> None:
    ordering.all_of([ordering.Fork(fabrics.before, rank, tmp_path, kind, 2, precision) for rank in range(2)])
    expected = (tmp_path / "ddp").read_text().split()
    assert len(set(expected[::2])) == fabrics.EPOCHS * ordering.WORKING_STEPS
    for processes in (0, 2):
        found = ordering.elastically(tmp_path, processes, fabrics.after, kind, 2, precision)
        # Digests are equal; the mean of losses is float32's there, float64's here.
        assert found[::2] == expected[::2]
        assert [float(one) for one in found[1::2]] == pytest.approx(
            [float(one) for one in expected[1::2]], abs=2e-4
        )


def test_as_fabric_on_one_device_that_accumulates(tmp_path: Path) -> None:
    ordering.all_of([ordering.Fork(fabrics.accumulated_before, tmp_path, 4)])
    expected = (tmp_path / "ddp").read_text().split()
    assert len(set(expected)) == ordering.WORKING_STEPS
    for processes in (0, 3):
        assert ordering.elastically(tmp_path, processes, fabrics.accumulated_after, 4) == expected


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_same_bits_through_changes_and_a_resume(tmp_path: Path, precision: str) -> None:
    expected = ordering.elastically(tmp_path, 0, fabrics.changing, precision, 3, None)
    assert len(expected) == 18
    assert len({line.split("|")[0] for line in expected}) > 12  # fp16 skips a few
    assert all(line.split("|")[4] == "3.0" for line in expected)  # the largest of ranks 0 to 3
    assert (len({line.split("|")[6] for line in expected}) > 1) == (precision == "16-mixed")
    reference = torch.load(tmp_path / "weights", weights_only=True)
    state, sizes = str(tmp_path / "state"), set()

    def watch(supervisor: Any, steps: int) -> None:
        sizes.add(len(supervisor.members))
        supervisor.want(3 if steps < 4 else 2)

    first = ordering.elastically(tmp_path, 2, fabrics.changing, precision, 2, state, watch=watch)
    rest = ordering.elastically(tmp_path, 0, fabrics.changing, precision, 3, state)
    assert first + rest == expected
    assert {2, 3} <= sizes
    again = torch.load(tmp_path / "weights", weights_only=True)
    for name, value in reference["model"].items():
        assert torch.equal(value, again["model"][name]), name
    saved = next((tmp_path / "state").iterdir())
    assert set(torch.load(saved, weights_only=True)["model"]["model"]) == set(reference["model"])


def _steps(**options: Any) -> Any:
    """A Fabric that is set up, its model, optimiser and loader."""
    fabric = elastic.Run(2, threads=1).fabric(accelerator="cpu", **options)
    net = nn.Linear(3, 1)
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    data = TensorDataset(torch.ones(8, 3))
    return fabric, model, optimizer, fabric.setup_dataloaders(DataLoader(data, batch_size=2, shuffle=True))


def test_another_precision_is_not_the_same_bits(tmp_path: Path) -> None:
    def train(precision: str, epochs: int) -> None:
        fabric = elastic.Run(2, threads=1, state=tmp_path, least="bitwise").fabric(
            accelerator="cpu", precision=precision
        )
        net = nn.Linear(3, 1)
        model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
        data = TensorDataset(torch.ones(4, 3))
        for step in fabric.steps(fabric.setup_dataloaders(DataLoader(data, batch_size=2)), epochs):
            for (x,) in step:
                fabric.backward(model(x).sum())
            optimizer.step()

    train("32-true", 1)
    train("32-true", 2)
    with pytest.raises(StateError, match="precision Precision 32-true -> MixedPrecision bf16-mixed"):
        train("bf16-mixed", 3)


def _within(act: Callable[[Any, Any, Any, Any], Any]) -> None:
    fabric, model, optimizer, loader = _steps()
    for (x,) in next(fabric.steps(loader, 1)):
        loss = model(x).sum()
        fabric.backward(loss)
        act(fabric, model, optimizer, loss)


def _between(act: Callable[[Any, Any, Any], Any]) -> None:
    fabric, model, _, loader = _steps()
    for step in fabric.steps(loader, 1):
        for (x,) in step:
            fabric.backward(model(x).sum())
        act(fabric, model, x)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": 4}, "devices=4: leave it out; processes are started by cotenant run --elastic"),
        ({"strategy": "ddp"}, "strategy='ddp': leave it out"),
        ({"accelerator": "tpu"}, "accelerator='tpu': elastic runs are on cpu or cuda"),
    ],
)
def test_options_that_are_the_runs_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        elastic.Run(2).fabric(**options)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda fabric, model, opt, loss: opt.step(), r"optimizer.step\(\) in the inner loop"),
        (
            lambda fabric, model, opt, loss: fabric.clip_gradients(model, opt, max_norm=1.0),
            r"clip_gradients\(\) in",
        ),
        (
            lambda fabric, model, opt, loss: fabric.clip_gradients(model, opt, clip_val=1.0),
            r"clip_gradients\(\) in",
        ),
        (
            lambda fabric, model, opt, loss: fabric.save("never", {"model": model}),
            r"fabric.save\(\) in the inner",
        ),
        (lambda fabric, model, opt, loss: fabric.all_reduce(loss).item(), "is read in the inner loop"),
        (
            lambda fabric, model, opt, loss: fabric.all_reduce(torch.ones(2)),
            r"of shape \(2,\): single numbers",
        ),
        (lambda fabric, model, opt, loss: fabric.all_reduce(loss, reduce_op="product"), "'product'"),
        (lambda fabric, model, opt, loss: fabric.all_gather(loss), "cannot see what the others have"),
    ],
)
def test_what_a_turn_cannot_do_is_refused(act: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _within(act)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (
            lambda fabric, model, x: fabric.backward(model(x).sum()),
            r"fabric.backward\(\) outside of the inner loop",
        ),
        (lambda fabric, model, x: fabric.all_reduce(1, reduce_op="sum"), "'sum'.* outside of the inner loop"),
        (lambda fabric, model, x: fabric.barrier(), "meet in the steps only"),
        (lambda fabric, model, x: fabric.rank_zero_first(), "meet in the steps only"),
        (lambda fabric, model, x: fabric.broadcast(1), "processes come and go"),
    ],
)
def test_what_cannot_be_done_between_turns_is_refused(act: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _between(act)


def test_what_would_be_lost_or_read_otherwise_is_refused() -> None:
    fabric, _, optimizer, loader = _steps()
    with pytest.raises(InputError, match=r"takes what fabric\.setup_dataloaders"):
        next(fabric.steps(DataLoader(TensorDataset(torch.ones(8, 3))), 1))
    data = TensorDataset(torch.ones(8, 3))
    alone = fabric.setup_dataloaders(DataLoader(data), use_distributed_sampler=False)
    with pytest.raises(InputError, match="every logical worker would read all samples"):
        next(fabric.steps(alone, 1))
    own = DataLoader(data, sampler=DistributedSampler(data, 3, 0))
    with pytest.raises(InputError, match="deals out to 3 processes, the run has 2"):
        next(fabric.steps(fabric.setup_dataloaders(own), 1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.raises(InputError, match="optimiser 0 has a scheduler that is not kept"):
        next(fabric.steps(loader, 1))
    fabric.keep(scheduler)
    assert next(fabric.steps(loader, 1)).number == 0
    with pytest.raises(InputError, match=r"before fabric\.setup"):
        next(elastic.Run(2).fabric(accelerator="cpu").steps(loader, 1))


def test_ranks_are_logical_workers_and_reduced_numbers_outlive_their_step() -> None:
    class Log:
        def __init__(self) -> None:
            self.lines: list[Any] = []

        def log_metrics(self, metrics: Any, step: Any) -> None:
            self.lines.append((metrics, step))

    log = Log()
    fabric, model, optimizer, loader = _steps(loggers=log)
    kept, ranks = [], []
    for step in fabric.steps(loader, 1):
        for (x,) in step:
            fabric.backward(model(x).sum())
            ranks.append((fabric.global_rank, fabric.world_size, fabric.is_global_zero))
            number = fabric.all_reduce(10.0 * step.number + fabric.global_rank, reduce_op="sum")
            other = fabric.all_reduce(step.number + fabric.global_rank)
        kept.append(other)
        optimizer.step()
        fabric.log_dict({"sum": number}, step.number)
    assert ranks == [(0, 2, True), (1, 2, False)] * 2
    assert [one.item() for one in kept] == [0.5, 1.5]  # read when the run is over
    assert log.lines == [({"sum": 1.0}, 0), ({"sum": 21.0}, 1)]


def test_several_models_are_kept_each_under_its_number(tmp_path: Path) -> None:
    fabric = elastic.Run(2, threads=1, state=tmp_path).fabric(accelerator="cpu")
    parts = [nn.Linear(3, 3), nn.Linear(3, 1)]
    (one, first), (two, second) = [
        fabric.setup(part, torch.optim.SGD(part.parameters(), lr=0.1)) for part in parts
    ]
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.ones(8, 3)), batch_size=2))
    for step in fabric.steps(loader, 1):
        for (x,) in step:
            fabric.backward(two(one(x)).sum())
        first.step()
        second.step()
    saved = torch.load(next(tmp_path.iterdir()), weights_only=True)
    for number, part in enumerate(parts):
        assert torch.equal(saved["model"][str(number)]["weight"], part.weight)


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.fabric", "lightning_fabric"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"cotenant\[lightning\]"):
        elastic.Run(2).fabric()
