"""Members of the zoo, each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.predictors.interference.effects import EffectsModel
from cotenant.predictors.interference.jobs import FEATURES, NodeTable, SoloIndex
from cotenant.predictors.interference.kernels import covariance, prior
from cotenant.predictors.interference.links import Link
from cotenant.predictors.interference.lowrank import LowRank
from cotenant.predictors.interference.members import MEMBERS, Contending, PairData, pair_data
from cotenant.predictors.interference.rows import make_rows
from cotenant.predictors.interference.setnet import SetNet
from cotenant.predictors.interference.worlds import linked_worlds
from cotenant.predictors.interference.zoo import EFFECTS, SIMPLICITY, ZOOS
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun

LOADS = {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.7, "e": 0.9, "f": 1.0}
JOBS = {name: JobConfig(model=name, batch=16) for name in LOADS}
WORLD = ("made", "T4")


def _speed(one: str, two: str) -> float:
    return 1.0 / (1.0 + LOADS[one] * LOADS[two])


def _table() -> NodeTable:
    solos = [
        SoloRun(
            source="made", device_type="T4", job=JOBS[n], throughput=10 / x, unit="steps/s", gpu_util=100 * x
        )
        for n, x in LOADS.items()
    ]
    return NodeTable(SoloIndex(solos), [(job, WORLD) for job in JOBS.values()])


def _runs() -> list[CoRun]:
    names = sorted(LOADS)
    return [
        CoRun(
            row_id=one + two, source="made", device_type="T4",
            sides=(CoSide(job=JOBS[one], speed=_speed(one, two)), CoSide(job=JOBS[two], speed=_speed(two, one))),
        )
        for i, one in enumerate(names)
        for two in names[i:]
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_members_learn_something_and_stay_in_bounds(name: str) -> None:
    table = _table()
    rows = make_rows(_runs(), table, {})
    data = pair_data(table, rows.victim, rows.other)
    said = MEMBERS[name]().fit(data, rows.speed).predict(data)
    assert said.shape == rows.speed.shape and np.isfinite(said).all()
    assert (said > 0).all() and (said <= 1.2).all()
    constant = np.abs(rows.speed - np.median(rows.speed)).mean()
    error = np.abs(said - rows.speed).mean()
    assert error <= constant + 1e-12 if name == "constant" else error < 0.8 * constant


def test_every_name_in_a_zoo_exists_and_has_its_place() -> None:
    for names in ZOOS.values():
        for name in names:
            assert name in MEMBERS or name in EFFECTS or name == "low-rank"
            assert name in SIMPLICITY


_SHARE = st.floats(0.0, 1.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(_SHARE, _SHARE, st.floats(-6, 6)), min_size=2, max_size=5))
def test_in_the_contention_model_a_neighbour_never_speeds_a_job_up(
    jobs: list[tuple[float, float, float]],
) -> None:
    model = Contending()
    model._power, model._weights = 0.3, np.array([0.5, 0.7, 0.4, 0.9])
    usage = np.array([[c, min(b, c), 1 - c, length] for c, b, length in jobs])
    total, before = 0.0, 0.0
    for other in range(1, len(jobs)):
        pair = np.stack([usage[0], usage[other]])[None]
        none = np.zeros(1, np.intp)
        total += float(model.excess(PairData(np.zeros((1, 1)), none, none, none, none, pair, 0))[0])
        assert total >= before
        before = total


def test_leaving_out_in_closed_form_is_leaving_out() -> None:
    table = _table()
    rows = make_rows(_runs(), table, {})
    spec = EFFECTS["effects-lean"]
    model = EffectsModel(spec, table).fit(rows)
    out = np.flatnonzero(rows.involves(table.family == table.family[table.ids[(JOBS["d"], WORLD)]]))
    speed, spread = model.leave_out([(out, out)])
    keep = np.setdiff1d(np.arange(len(rows)), out)
    # The same standardisation, so that nothing but the group differs.
    other = EffectsModel(spec, table).fit(rows)
    k = np.linalg.inv(model._inverse)
    z = k[np.ix_(out, keep)] @ np.linalg.solve(k[np.ix_(keep, keep)], model._r[keep])
    scale = other._spread[table.world[rows.victim[out]]]
    assert speed[out] == pytest.approx(Link(spec.softness).backward(other._mean + scale * z), abs=1e-6)
    assert np.isnan(speed[keep]).all() and (spread[out] > 0).all()


@pytest.mark.parametrize("name", sorted(EFFECTS))
def test_what_is_expected_of_rows_alone_is_the_diagonal_of_the_whole_bit_by_bit(name: str) -> None:
    table = _table()
    rows = make_rows(_runs(), table, {})
    model = EffectsModel(EFFECTS[name], table).fit(rows)
    pairs = (rows.victim, rows.other)
    whole = covariance(model._like, pairs, pairs, model._theta, model._kin)
    alone = prior(model._like, pairs, model._theta, model._kin)
    assert alone.tobytes() == np.diag(whole).tobytes()
    assert len(set(alone.tolist())) > 1


def test_the_set_network_reads_sets_and_no_order() -> None:
    rng = np.random.default_rng(3)
    victim, others = rng.normal(size=(120, 2)), rng.normal(size=(120, 3, 2))
    present = (rng.random((120, 3)) < 0.6).astype(float)
    load = (np.abs(others[:, :, 0]) * present).sum(axis=1)
    speed = 1.0 / (1.0 + 0.3 * load)
    net = SetNet(steps=400).fit_sets(victim, others, present, speed)
    said = net.predict_sets(victim, others, present)
    assert np.abs(said - speed).mean() < 0.4 * np.abs(speed - np.median(speed)).mean()
    order = [2, 0, 1]
    assert net.predict_sets(victim, others[:, order], present[:, order]) == pytest.approx(said, abs=1e-12)


def test_low_rank_completes_a_table_of_rank_one() -> None:
    table = _table()
    rows = make_rows(_runs(), table, {})
    seen = rows.pair % 4 != 0
    left = rows.take(seen)
    model = LowRank(table, rank=1, ridge=0.05, sweeps=30).fit(left.victim, left.other, left.speed)
    rest = rows.take(~seen)
    said = model.predict(rest.victim, rest.other)
    assert np.abs(said - rest.speed).mean() < 0.4 * np.abs(rest.speed - np.median(left.speed)).mean()


@settings(max_examples=100, deadline=None)
@given(st.floats(0.03, 1.15), st.sampled_from([0.0, 0.03, 0.15]))
def test_links_go_there_and_back_and_rise(speed: float, softness: float) -> None:
    link = Link(softness)
    top = 1.0 if softness else 1.2
    speed = min(speed, top)
    z = link.forward(np.array([speed, speed + 0.01]))
    assert z[1] >= z[0]
    assert float(link.backward(z)[0]) == pytest.approx(speed, abs=1e-9)
    step = 1e-5
    slope = (link.backward(z[:1] + step) - link.backward(z[:1] - step)) / (2 * step)
    if 0.05 < speed < 1.0:
        assert float(link.slope(z[:1])[0]) == pytest.approx(float(slope[0]), rel=1e-3)


def test_features_say_what_they_mean_and_missing_is_missing() -> None:
    def solo(device: str, batch: int, steps: float, source: str = "s") -> SoloRun:
        job = JobConfig(model="m", batch=batch)
        return SoloRun(source=source, device_type=device, job=job, throughput=steps, unit="steps/s")

    index = SoloIndex(
        [solo("K80", 32, 1.0), solo("V100", 32, 8.0), solo("V100", 64, 4.0), solo("V100", 32, 16.0, "later")]
    )
    found = dict(zip(FEATURES, index.features(JobConfig(model="m", batch=32), ("s", "V100")), strict=True))
    # Eight steps a second; half as many with twice the batch; 8 times a K80; half the later campaign's.
    assert found["log2_iteration_s"] == -3.0 and found["saturation"] == 1.0
    assert found["gain_slowest"] == 3.0 and found["baseline"] == 1.0
    assert np.isnan(found["gpu_util"]) and np.isnan(found["log2_memory"])
    stages = JobConfig(model="g", num_gpus=2, parallel="6,18")
    cut = dict(zip(FEATURES, index.features(stages, ("s", "A100")), strict=True))
    assert (cut["first_stage"], cut["largest_stage"], cut["data_parallel"]) == (0.5, 1.5, 0.0)


def test_worlds_are_linked_by_models_that_they_share() -> None:
    def run(source: str, device: str, one: str, two: str) -> CoRun:
        sides = (CoSide(job=JobConfig(model=one), speed=0.5), CoSide(job=JobConfig(model=two), speed=0.5))
        return CoRun(row_id="x", source=source, device_type=device, framework="PyTorch", sides=sides)

    runs = [run("s", "K80", "a", "b"), run("s", "K80", "b", "c"), run("s", "V100", "a", "c")]
    runs += [run("s", "V100", "b", "c"), run("t", "A100", "a", "z")]
    assert linked_worlds(runs) == [[("s", "K80"), ("s", "V100")], [("t", "A100")]]
