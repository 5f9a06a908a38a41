"""The contention model, composition of sets, and the two truths."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.ports import Truth
from cotenant.profiles.compose import Composer, speed_of
from cotenant.profiles.kinds import kind_names
from cotenant.profiles.pairfit import ANALYTIC, FITTED, UNKNOWN, PairFit
from cotenant.profiles.physics import Contention, on_device
from cotenant.profiles.table import CoRunTable, PairRow
from cotenant.profiles.truth import MeasuredTruth, ModelledTruth

MODELS = st.sampled_from([*kind_names(), "own-net", ""])
DEVICES = st.sampled_from(["K80", "V100", "A100-80GB", "H100", "G2"])
SETS = st.lists(MODELS, min_size=1, max_size=3).map(lambda names: tuple(sorted(names)))
SHARES = st.tuples(*[st.floats(0, 1)] * 3)
TABLE = CoRunTable(
    [
        PairRow("c", "V100", "LM/b5", "CycleGAN/b1", 0.5, 0.8),
        PairRow("c", "V100", "LM/b5", "A3C/b4", 0.9, 0.75),
        PairRow("c", "V100", "A3C/b4", "A3C/b4", 0.6, 0.8),
        PairRow("c", "K80", "LM/b5", "LM/b5", None, None, failed=True),
    ]
)
WORLDS: tuple[Truth, ...] = (ModelledTruth(1), ModelledTruth(2, 1.0), MeasuredTruth(TABLE, seed=3))


def test_the_contention_model_by_hand() -> None:
    model = Contention(compute=0.5, bandwidth=1.0, host=2.0)
    # over: 0.64 + 0.5 - 1 = 0.14; 0.5 x 0.14 + 1 x sqrt(0.64) x 0.25 + 2 x 0.1 x 0.2 = 0.31
    assert model.excess((0.64, 0.3, 0.1), [(0.5, 0.25, 0.2)]) == pytest.approx(0.31)
    assert model.excess((0.64, 0.3, 0.1), []) == 0.0
    # Three jobs of 0.4: pairs do not exceed the device, all three do by 0.2.
    assert model.joint(0.4, [0.4, 0.4]) == pytest.approx(0.1)


def test_shares_on_another_device_by_hand() -> None:
    # K80 is 0.2 of a V100: an iteration takes 0.5 + 0.5 / 0.2 = 3.0; busy 2.5 / 3, host 0.3 / 3.
    assert on_device((0.5, 0.2, 0.3), "K80") == pytest.approx((2.5 / 3, 1.0 / 3, 0.1))


@settings(max_examples=150, deadline=None)
@given(SHARES, st.lists(SHARES, max_size=4))
def test_pairs_plus_joint_is_the_set_and_a_neighbour_never_helps(
    victim: tuple[float, float, float], others: list[tuple[float, float, float]]
) -> None:
    model = Contention()
    whole = model.excess(victim, others)
    pairs = sum(model.excess(victim, [other]) for other in others)
    joint = model.joint(victim[0], [other[0] for other in others])
    assert pairs + joint == pytest.approx(whole, abs=1e-12)
    assert joint >= 0.0
    if others:
        assert model.excess(victim, others[1:]) <= whole + 1e-12


@settings(max_examples=150, deadline=None)
@given(MODELS, SETS, DEVICES, st.sampled_from(WORLDS))
def test_speeds_are_in_range_ordered_and_monotone(
    model: str, beside: tuple[str, ...], device: str, world: Truth
) -> None:
    speed = world.co_speed(model, beside, device)
    assert 0.02 <= speed <= 1.0
    assert world.co_speed(model, beside[::-1], device) == speed
    assert world.co_speed(model, (), device) == 1.0
    for fewer in itertools.combinations(beside, len(beside) - 1):
        assert world.co_speed(model, fewer, device) >= speed - 1e-12
    assert world.source(model, beside, device) in ("measured", "composed", "modelled")


def test_measured_pairs_are_answered_as_measured_on_cards_of_the_same_chip() -> None:
    world = MeasuredTruth(TABLE)
    for device in ("V100", "V100-32GB", "v100m16"):
        assert world.co_speed("LM (batch size 5)", ("CycleGAN",), device) == pytest.approx(0.5)
        assert world.source("LM/b5", ("CycleGAN/b1",), device) == "measured"
    assert world.co_speed("A3C/b4", ("A3C/b4",), "V100") == pytest.approx(0.7)
    assert world.source("LM/b5", ("CycleGAN/b1",), "K80") == "modelled"


def test_sets_of_measured_pairs_are_composed() -> None:
    world = MeasuredTruth(TABLE)
    # 1/0.5 - 1 = 1 and 1/0.9 - 1 = 0.1111; the device is exceeded by pairs already, so that the
    # set adds 0.30 x ((0.55 + 0.92 + 0.10 - 1) - (0.55 + 0.92 - 1)) = 0.03.
    expected = 1.0 / (1.0 + 1.0 + 1.0 / 0.9 - 1.0 + 0.30 * 0.10)
    assert world.co_speed("LM/b5", ("A3C/b4", "CycleGAN/b1"), "V100") == pytest.approx(expected)
    assert world.source("LM/b5", ("A3C/b4", "CycleGAN/b1"), "V100") == "composed"
    assert world.source("LM/b5", ("A3C/b4", "LM/b80"), "V100") == "modelled"


def test_pairs_that_failed_have_no_speed_of_their_own() -> None:
    assert MeasuredTruth(TABLE).source("LM/b5", ("LM/b5",), "K80") == "modelled"


def test_noise_belongs_to_seed_device_and_pair() -> None:
    quiet, first, again, second = ModelledTruth(1, 0.0), ModelledTruth(1), ModelledTruth(1), ModelledTruth(2)
    query = ("LM/b5", ("CycleGAN/b1",), "V100")
    assert first.co_speed(*query) == again.co_speed(*query)
    assert len({world.co_speed(*query) for world in (quiet, first, second)}) == 3
    # compute 0.30 x (0.55 + 0.92 - 1) + bandwidth 0.90 x sqrt(0.55) x 0.38 + host 0.05 x 0.10
    excess = 0.30 * 0.47 + 0.90 * 0.55**0.5 * 0.38 + 0.005
    assert quiet.co_speed(*query) == pytest.approx(1.0 / (1.0 + excess))
    with pytest.raises(ConfigError, match=r"must lie in \[0, 2\), found -1"):
        ModelledTruth(1, -1)


def test_a_fit_moves_towards_what_was_measured() -> None:
    rows = [PairRow("c", "V100", "LM/b5", other, 0.4, 0.9) for other in ("LM/b80", "CycleGAN/b1", "GNN/b256")]
    table = CoRunTable(rows)
    plain, fitted = PairFit([]), PairFit(table.sides())
    before, after = (speed_of(fit.pair("LM/b5", "LM/b80", "V100")[0]) for fit in (plain, fitted))
    assert abs(after - 0.4) < 0.5 * abs(before - 0.4)
    assert fitted.pair("LM/b5", "LM/b80", "V100")[1] == FITTED
    # Another batch size of a measured architecture learns from it, an unmeasured one does not.
    assert fitted.pair("LM/b10", "CycleGAN/b1", "V100")[1] == FITTED
    assert fitted.pair("BERT-base/b4", "CycleGAN/b1", "V100")[1] == ANALYTIC
    assert fitted.pair("own", "CycleGAN/b1", "V100")[1] == UNKNOWN
    assert fitted.pair("LM/b5", "LM/b80", "K80") == (plain.pair("LM/b5", "LM/b80", "K80")[0], ANALYTIC)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(MODELS, st.one_of(SETS, st.just(())), DEVICES), min_size=1, max_size=20))
def test_many_at_once_is_the_same_as_one_by_one(queries: list[tuple[str, tuple[str, ...], str]]) -> None:
    fit = PairFit(TABLE.sides())
    composer = Composer(fit.pair, fit.usage, fit.contention)
    speeds, levels = composer.speeds(queries)
    for query, speed, level in zip(queries, speeds, levels, strict=True):
        excess, worst = composer.excess(*query)
        assert speed == pytest.approx(speed_of(excess), abs=1e-12)
        assert level == worst


def test_joint_terms_of_many_sets_by_hand() -> None:
    found = Contention(compute=0.5).joints(np.array([0.4, 0.9]), np.array([[0.4, 0.4], [0.5, 0.0]]))
    assert found == pytest.approx([0.1, 0.0])


def _cluster(*types: tuple[str, float]) -> Cluster:
    kinds = tuple(DeviceType(name=name, speed=speed) for name, speed in types)
    return Cluster(nodes=tuple(Node(name=t.name, gpus=((t.name, 1),)) for t in kinds), types=kinds)


def test_speeds_alone_are_relative_to_the_type_of_speed_one() -> None:
    uniform = ModelledTruth(0, cluster=_cluster(("P100", 1.0)))
    assert uniform.solo_speed("ResNet-50/b64", "P100") == 1.0
    mixed = ModelledTruth(0, cluster=_cluster(("V100", 1.0), ("P100", 0.66), ("G2", 0.5), ("T4", 0.4)))
    # gavel-2020, steps/s: 2.619 on a P100, 4.395 on a V100.
    assert mixed.solo_speed("ResNet-50 (batch size 64)", "P100") == pytest.approx(2.619 / 4.395, rel=1e-3)
    assert mixed.solo_speed("own-net", "P100") == 0.66
    assert mixed.solo_speed("ResNet-50/b64", "G2") == 0.5
    assert mixed.solo_speed("ResNet-50/b64", "T4") == 0.4
    assert ModelledTruth(0).solo_speed("own-net", "A100") == 2.08


def test_descriptions_are_plain_json() -> None:
    for world in WORLDS:
        told = world.describe()
        assert msgspec.json.decode(msgspec.json.encode(told)) == told
    assert WORLDS[2].describe()["table"]["speeds"] == 5
    assert isinstance(WORLDS[0], Truth)
