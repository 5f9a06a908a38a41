"""Several inner loops in a step, with an update after each: the same bits, whatever happens between them."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from cotenant import elastic
from cotenant.errors import InputError

torch = pytest.importorskip("torch")
_SPEC = importlib.util.spec_from_file_location("elastic_loops", Path(__file__).with_name("loops.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
loops = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(loops)
GAN = {"script": "loops.py"}


@pytest.mark.parametrize("order", ["blocks", "sequence", "ddp"])
def test_the_same_bits_on_any_number_of_processes(play: Any, order: str) -> None:
    alone = play.alone(order=order, **GAN)
    assert len(alone) == len(set(alone)) == 10
    for processes in (2, 3, 4):
        assert play.together(processes, order=order, **GAN) == alone
        assert play.processes == [processes] * 10


def test_as_plain_accumulation_in_the_order_of_workers(play: Any) -> None:
    expected = loops.plainly(4, 2)
    assert len(set(expected)) == 10
    assert play.alone(order="sequence", drop=0.0, **GAN) == expected
    assert play.together(3, order="sequence", drop=0.0, **GAN) == expected


@pytest.mark.parametrize(
    ("order", "where"),
    [("blocks", "turn 1"), ("blocks", "after 0"), ("sequence", "after 0"), ("ddp", "turn 1")],
)
def test_killed_in_the_middle_of_a_step(play: Any, tmp_path: Path, order: str, where: str) -> None:
    alone = play.alone(order=order, **GAN)
    kill = {"flag": str(tmp_path / "killed"), "name": "1", "step": 3, "where": where}
    assert play.together(3, kill=kill, order=order, **GAN) == alone
    assert (tmp_path / "killed").exists()
    assert play.code == 0


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"order": "blocks"}, "turn 1"),
        ({"order": "sequence", "stream": True}, "after 0"),
        ({"order": "ddp"}, "after 0"),
    ],
)
def test_a_newcomer_in_the_middle_of_a_step(
    play: Any, tmp_path: Path, options: dict[str, Any], where: str
) -> None:
    alone = play.alone(**options, **GAN)
    kill = {"flag": str(tmp_path / "killed"), "name": "1", "step": 3, "where": where, "newcomer": True}
    replays = tmp_path / "replays"

    def on_poll(supervisor: Any, steps: int) -> None:
        supervisor.want(4 if steps >= 3 else 3)

    more = {"kill": kill, "replays": str(replays), **options, **GAN}
    assert play.together(3, up_to=4, on_poll=on_poll, **more) == alone
    assert (tmp_path / "killed").exists()
    assert set(replays.read_text().split()) == {"3"}


@pytest.mark.parametrize("loop", [6, 7])
def test_killed_when_one_has_the_loop_and_another_not(play: Any, tmp_path: Path, loop: int) -> None:
    alone, ends = play.alone(ends=str(tmp_path / "alone"), **GAN), tmp_path / "together"
    log = str(tmp_path / "log")
    halfway = {"flag": str(tmp_path / "given"), "step": loop}
    with contextlib.suppress(AssertionError):  # who writes was killed: the line of that step may be missing
        play.together(3, halfway=halfway, ends=str(ends), log=log, **GAN)
    assert (tmp_path / "given").exists()
    assert ends.read_text() == (tmp_path / "alone").read_text()
    lines = play.lines({"log": log})
    assert len(lines) >= 9
    assert all(line[1] == alone[int(line[0])] for line in lines)


def _training() -> tuple[Any, Any, Any, Any]:
    run = elastic.Run(2, seed=3)
    model, optimizers = loops.made(0.0)
    model, loader = run.prepare(model, loops.Pictures(), 2)
    run.keep(optimizers)
    return run, model, loader, optimizers


def test_gradients_of_others_are_left_as_they_were() -> None:
    run, model, loader, (judge, maker) = _training()
    step = next(run.steps(loader, epochs=1))
    for real, noise in step.turn(judge):
        model.loss(0, real, noise).backward()
    before = [p.grad.clone() for p in model.judge.parameters()]
    assert all(p.grad is None for p in model.maker.parameters())
    for real, noise in step.turn(maker):
        model.loss(1, real, noise).backward()
    assert all(torch.equal(p.grad, b) for p, b in zip(model.judge.parameters(), before, strict=True))
    assert all(p.grad is not None for p in model.maker.parameters())


def test_what_is_wrong_is_told() -> None:
    run, model, loader, (judge, _) = _training()
    step = next(run.steps(loader, epochs=1))
    with pytest.raises(InputError, match="SGD that is not kept"):
        step.turn(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(InputError, match="without an optimiser"):
        step.turn()
    for _ in step.turn(judge):
        break
    with pytest.raises(InputError, match="was left before its end"):
        step.turn(judge)


def test_loops_of_some_and_of_all_parameters_are_not_mixed() -> None:
    run, model, loader, (judge, _) = _training()
    step = next(run.steps(loader, epochs=1))
    for real, noise in step.turn(judge):
        model.loss(0, real, noise).backward()
    with pytest.raises(InputError, match="has had its turns"):
        next(iter(step))
