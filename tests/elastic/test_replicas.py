"""Processes whose parameters are no longer the same are told, and nothing is applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cotenant.elastic.contexts import Buffers
from cotenant.elastic.replicas import SPREAD, UNCHECKED, Replicas
from cotenant.errors import InputError


def _model(kind: Any = torch.float32, *, last: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(300, 200)).to(kind)
    return model.to(memory_format=torch.channels_last) if last else model


def _edit(parameter: Any, index: Any, value: float) -> None:
    with torch.no_grad():
        parameter[index] = value


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_an_edit_of_a_whole_parameter_is_seen_at_every_step(kind: Any) -> None:
    mine, theirs = _model(kind), _model(kind)
    one, other = Replicas(mine), Replicas(theirs)
    assert [one.prints(step) for step in range(5)] == [other.prints(step) for step in range(5)]
    _edit(theirs[2].weight, ..., 0.5)
    for step in (0, 1, 99, 12345):
        found = [one.prints(step), one.prints(step), other.prints(step)]
        with pytest.raises(InputError, match=rf"step {step}: .* differs is 2\.weight .* on 0 1, .* on 2\)"):
            one.check(found, step)


@pytest.mark.parametrize("place", [(0, 0), (77, 41), (199, 299)])
def test_an_edit_of_one_element_is_seen_within_a_round_of_steps(place: tuple[int, int]) -> None:
    mine, theirs = _model(), _model()
    one, other = Replicas(mine), Replicas(theirs)
    one.prints(0), other.prints(0)  # what is remembered of them does not hide an edit
    _edit(theirs[2].weight, place, 9.0)
    assert 1 <= sum(one.prints(step) != other.prints(step) for step in range(SPREAD)) <= 2


def test_layout_in_memory_does_not_matter_and_nan_is_equal_to_itself() -> None:
    mine, theirs = _model(), _model(last=True)
    for model in (mine, theirs):
        _edit(model[0].weight, (3, 1, 2, 2), float("nan"))
    one, other = Replicas(mine), Replicas(theirs)
    assert not theirs[0].weight.is_contiguous()
    for step in range(8):
        one.check([one.prints(step), other.prints(step)], step)
    _edit(theirs[0].weight, (3, 1, 2, 2), 0.0)
    assert any(one.prints(step) != other.prints(step) for step in range(8))


def test_other_memory_given_to_a_parameter_is_looked_at() -> None:
    mine, theirs = _model(), _model()
    one, other = Replicas(mine), Replicas(theirs)
    assert one.prints(3) == other.prints(3)
    theirs[2].bias.data = theirs[2].bias.data + 1
    assert one.prints(3) != other.prints(3)


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNCHECKED, "1")
    one = Replicas(_model())
    one.check([one.prints(0), one.prints(0)], 0)
    assert not one.prints(0)


class Counting(nn.Module):
    """A mask that nothing changes, a batch norm, and a count that a turn may change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(100)
        self.attention = nn.Module()
        self.attention.register_buffer("mask", torch.ones(1000, dtype=torch.bool))
        self.register_buffer("count", torch.zeros(1), persistent=False)


def _counting() -> tuple[nn.Module, Buffers, Replicas]:
    model = Counting()
    buffers = Buffers(model)
    return model, buffers, Replicas(model, buffers)


def test_buffers_are_compared_but_those_that_workers_have_their_own_of() -> None:
    (mine, own, one), (theirs, other_own, other) = _counting(), _counting()
    found = [one.prints(4), other.prints(4)]
    one.check(found, 4)
    _edit(theirs.norm.running_mean, ..., 3.0)
    assert [one.prints(4), other.prints(4)] == found
    own.enter({}), other_own.enter({})
    theirs.count += 1  # in a turn of a worker that only the second one has
    learnt = other_own.leave()
    assert other.prints(4) != found[1]
    one.check([found[0], other.prints(4)], 4)
    own.enter(learnt)  # which the first one learns by the exchange
    assert one.prints(4) == other.prints(4)
    theirs.attention.mask = ~mine.attention.mask
    with pytest.raises(
        InputError, match=r"step 5: .* the same buffers; the first that differs is attention\.mask .* on 0, "
    ):
        one.check([one.prints(5), other.prints(5)], 5)


# What differs in the state of an optimiser is seen once it has become part of the parameters, a step later.
@pytest.mark.parametrize(
    ("model", "name", "step", "words"),
    [
        ("cnn", "0.weight", 2, "parameters; the first that differs is 0.weight "),
        ("cnn", "1.bias", 2, "parameters; the first that differs is 1.bias "),
        ("gpt", "mask", 2, "buffers; the first that differs is mask "),
        ("cnn", "optimizer 5.bias", 3, "parameters; the first that differs is 5.bias "),
    ],
)
def test_what_one_process_does_alone_ends_all_before_the_next_gradient(
    play: Any, tmp_path: Path, model: str, name: str, step: int, words: str
) -> None:
    error = tmp_path / "error"
    done = play.together(2, model=model, edit=1, parameter=name, epochs=1, error=str(error))
    assert (len(done), play.code) == (step, 1)
    told = f"step {step}: processes no longer have the same {words}"
    assert error.read_text().count(told) == 2  # both say it
