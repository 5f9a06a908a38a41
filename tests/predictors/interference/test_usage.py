"""What jobs use alone, what pairs contend for, and solo runs on which campaigns agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.predictors.interference.effects import EffectsModel
from cotenant.predictors.interference.jobs import NodeTable, SoloIndex
from cotenant.predictors.interference.kernels import Likeness
from cotenant.predictors.interference.rows import make_rows
from cotenant.predictors.interference.usage import COLUMNS, Usage, iteration_s, terms, usage_of
from cotenant.predictors.interference.zoo import EFFECTS
from cotenant.predictors.resources.roofline import Efficiency, Steps, rates_of
from cotenant.predictors.resources.work import KernelGroup, StepWork
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun

RESNET = JobConfig(model="ResNet-50", family="ResNet-50", dataset="ImageNet", batch=64)


def _solo(job: JobConfig, speed: float, *, source: str = "own", gpu_util: float | None = None) -> SoloRun:
    return SoloRun(
        source=source, device_type="V100", job=job, throughput=speed, unit="steps/s", gpu_util=gpu_util
    )


def test_iterations_take_as_long_as_the_unit_says() -> None:
    assert iteration_s(_solo(RESNET, 4.0)) == pytest.approx(0.25)
    images = SoloRun(source="own", device_type="V100", job=RESNET, throughput=320.0, unit="images/s")
    assert iteration_s(images) == pytest.approx(0.2)
    assert iteration_s(SoloRun(source="own", device_type="V100", job=RESNET)) is None


def test_lengths_of_kernels_by_hand() -> None:
    # On 900 GB/s, with no other cost: 2 kernels of 1 ms and 1 of 4 ms move 1.8 and 3.6 GB.
    groups = (KernelGroup("other", 0, 2, 0.0, 1.8e9), KernelGroup("matrix", 3, 1, 1.0, 3.6e9))
    steps = Steps([StepWork(name="x", batch=1, groups=groups)], [rates_of("V100")])
    assert rates_of("V100").bandwidth == pytest.approx(900e9)
    mean, long = steps.kernel_s(Efficiency(bandwidth=1.0, kernel_us=0.0))
    assert mean[0] == pytest.approx((2e-3 + 4e-3) / 3)
    assert long[0] == pytest.approx((2 * 1e-3**2 + 4e-3**2) / (2e-3 + 4e-3))


def test_a_longer_iteration_of_the_same_graph_leaves_the_device_idler() -> None:
    column = {name: i for i, name in enumerate(COLUMNS)}
    fast, slow = (usage_of(RESNET, "V100", _solo(RESNET, speed)) for speed in (5.0, 1.0))
    assert slow[column["busy"]] == pytest.approx(fast[column["busy"]] / 5.0, rel=0.2)
    assert fast[column["log2_kernel_s"]] == slow[column["log2_kernel_s"]]
    measured = usage_of(RESNET, "V100", _solo(RESNET, 5.0, gpu_util=37.0))
    assert measured[column["busy"]] == pytest.approx(0.37)
    unknown = usage_of(JobConfig(model="nobody knows", batch=8), "V100", None)
    assert all(math.isnan(value) for value in unknown)


def test_what_is_missing_gets_the_mean_of_those_that_there_were() -> None:
    use = Usage()
    nan = math.nan
    use.add([[0.4, nan, 0.2, -10.0, -8.0], [nan, nan, 0.4, nan, nan]])
    use.settle()
    use.add([[nan, 0.5, nan, nan, nan]])
    assert use.filled() == pytest.approx(
        np.array([[0.4, 0.24, 0.2, -10.0, -8.0], [0.7, 0.42, 0.4, -10.0, -8.0], [0.7, 0.5, 0.3, -10.0, -8.0]])
    )


_SHARE = st.floats(0.02, 1.0)
_LENGTH = st.floats(-20.0, -5.0)


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(_SHARE, _SHARE, _SHARE, _LENGTH, _LENGTH), st.tuples(_SHARE, _SHARE, _SHARE, _LENGTH, _LENGTH)
)
def test_terms_fall_as_the_neighbour_wants_more_and_are_fair_to_both(
    one: tuple[float, ...], two: tuple[float, ...]
) -> None:
    more = (min(two[0] * 1.5, 1.0), min(two[1] * 1.5, 1.0), min(two[2] * 1.5, 1.0), *two[3:])
    usage = np.array([one, two, more])
    found = terms(usage, np.array([0, 0, 1]), np.array([1, 2, 0]))
    assert (found[1, 2:] <= found[0, 2:] + 1e-12).all()
    assert found[0, :2] == pytest.approx(-found[2, :2])
    assert found[0, 3] == pytest.approx(found[2, 3])


def test_campaigns_agree_on_the_mean_of_what_they_measured_alone() -> None:
    other = JobConfig(model="other", batch=64)
    solos = [
        _solo(RESNET, 1.0, source="late"),
        _solo(RESNET, 2.25, source="early"),
        _solo(other, 3.0, source="late"),
    ]
    index = SoloIndex([*solos, _solo(other, 30.0, source="early")])
    late, early = ("late", "V100"), ("early", "V100")
    assert index.agreed(RESNET, late) == pytest.approx(1 / 1.5)
    assert index.agreed(RESNET, early) == pytest.approx(1.0)
    # Ten times as fast is not the same run.
    assert index.agreed(other, late) == pytest.approx(1.0)
    table = NodeTable(index, [(RESNET, late), (RESNET, early)])
    assert table.agreed.tolist() == [1.0, 1.0]
    table.doubt({late})
    assert table.agreed == pytest.approx([1 / 1.5, 1.0])
    table.add([(other, late)])
    assert table.agreed == pytest.approx([1 / 1.5, 1.0, 1.0])


def test_effects_answer_in_the_scale_of_the_doubted_world() -> None:
    jobs = [JobConfig(model=name, batch=64) for name in "abcd"]
    speeds = {"a": 0.9, "b": 0.6, "c": 0.7, "d": 0.5}
    index = SoloIndex(
        [_solo(job, 1.0, source="late") for job in jobs] + [_solo(job, 1.44, source="early") for job in jobs]
    )
    runs = [
        CoRun(
            row_id=one.model + two.model, source="late", device_type="V100",
            sides=(CoSide(job=one, speed=speeds[one.model]), CoSide(job=two, speed=speeds[two.model])),
        )
        for i, one in enumerate(jobs)
        for two in jobs[i + 1 :]
    ]  # fmt: skip
    table = NodeTable(index, [(job, ("late", "V100")) for job in jobs])
    rows = make_rows(runs, table, {})
    table.doubt({("late", "V100")})
    assert table.agreed == pytest.approx([1 / 1.2] * 4)
    said = EffectsModel(EFFECTS["effects-lean"], table).fit(rows).predict(rows.victim, rows.other)
    assert said == pytest.approx(rows.speed, abs=0.06)


def test_terms_far_outside_of_what_was_measured_are_not_believed() -> None:
    utils = {"a": 50.0, "b": 60.0, "idle": 1.0}
    jobs = {name: JobConfig(model=name, batch=64) for name in utils}
    solos = [_solo(job, 1.0, gpu_util=utils[name]) for name, job in jobs.items()]
    table = NodeTable(SoloIndex(solos), [(job, ("own", "V100")) for job in jobs.values()])
    like = Likeness(table)
    both, idle = (np.array([0, 1]), np.array([1, 0])), (np.array([0]), np.array([2]))
    like.settle(both)
    seen, asked = terms(table.usage, *both), terms(table.usage, *idle)
    assert asked[0, 4] > seen[:, 4].max() + 0.5
    assert like.contended(idle)[0, 4] == pytest.approx(seen[:, 4].max() + 0.5 - seen[:, 4].mean())
    assert like.contended(both).sum(axis=0) == pytest.approx(np.zeros(6), abs=1e-12)
