"""The roofline by hand, and what must hold of it whatever the step."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.predictors.resources.roofline import DEFAULT, Efficiency, rates_of, step_times
from cotenant.predictors.resources.work import KernelGroup, StepWork

WORKS = st.builds(
    lambda groups, forward, weights: StepWork(
        name="m",
        batch=1,
        forward=forward,
        backward=forward,
        weights=weights,
        update_bytes=16.0 * weights,
        groups=tuple(KernelGroup(*g) for g in groups),
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["convolution", "matrix", "other"]),
            st.integers(-2, 10),
            st.integers(1, 200),
            st.floats(0, 1e13),
            st.floats(1, 1e11),
        ),
        max_size=8,
    ),
    st.integers(0, 500),
    st.integers(0, 300),
)
DEVICES = st.sampled_from(["K80", "V100", "T4", "A100", "H100", "MI300X"])


def test_by_hand() -> None:
    work = StepWork(
        name="m",
        batch=1,
        optimiser="momentum",
        forward=2,
        backward=3,
        weights=5,
        update_bytes=7.2e9,
        groups=(
            KernelGroup("convolution", 6, 2, 7.85e12, 9e9),
            KernelGroup("matrix", 0, 1, 1e9, 9e9),
            KernelGroup("other", 0, 2, 0.0, 18e9),
        ),
    )
    e = Efficiency(
        convolution=0.5,
        matrix=0.5,
        bandwidth=0.5,
        kernel_us=1000.0,
        forward_us=10_000.0,
        backward_us=20_000.0,
        update_us=5000.0,
        step_ms=20.0,
        overlap=1.0,
        convolution_traffic=2.0,
        other_traffic=1.0,
        cache=0.0,
    )
    times = step_times([work], [rates_of("V100")], e)
    # V100: 15.7 TFLOP/s and 900 GB/s, of which half: 1 s, 20 ms and 40 ms of kernels, 16 ms of
    # update; 5 operators and 20 kernels of the optimiser, each 1 ms more.
    assert times.busy_s[0] == pytest.approx(1.0 + 0.02 + 0.04 + 0.016 + 0.025)
    assert times.host_s[0] == pytest.approx(2 * 0.01 + 3 * 0.02 + 20 * 0.005 + 0.02)
    assert times.iteration_s[0] == pytest.approx(1.101 + 0.2)
    assert times.traffic_bytes[0] == pytest.approx(18e9 + 9e9 + 18e9 + 7.2e9)
    assert times.mem_util[0] == pytest.approx(100 * (52.2 / 450) / 1.301)


def test_sixteen_bits_run_at_the_rate_with_sums_of_thirty_two() -> None:
    assert rates_of("RTX3090").matrix_flops["amp"] == 71e12
    assert rates_of("V100").matrix_flops["amp"] == 125e12
    assert rates_of("K80").matrix_flops["amp"] == 4.37e12


def test_a_core_is_its_own_host() -> None:
    rates = rates_of("AMD EPYC x1")
    assert (rates.host, rates.known) == (True, False)
    assert not rates_of("SomeNewGPU").host
    work = StepWork(name="m", batch=1, forward=9, groups=(KernelGroup("matrix", 0, 1, 1e9, 1e6),))
    assert step_times([work], [rates]).gpu_util[0] == 100.0


@settings(max_examples=100)
@given(WORKS, DEVICES)
def test_shares_are_shares(work: StepWork, device: str) -> None:
    times = step_times([work], [rates_of(device)])
    assert times.iteration_s[0] > 0
    assert times.iteration_s[0] >= max(times.busy_s[0], times.host_s[0]) * (1 - 1e-9)
    assert 0 <= times.mem_util[0] <= times.gpu_util[0] * (1 + 1e-9) <= 100 * (1 + 1e-9)


@settings(max_examples=60)
@given(WORKS, st.lists(DEVICES, min_size=2, max_size=4))
def test_each_row_stands_alone(work: StepWork, devices: list[str]) -> None:
    small = StepWork(name="s", batch=1, groups=(KernelGroup("other", 0, 1, 0.0, 1e6),))
    works = [work if i % 2 else small for i in range(len(devices))]
    together = step_times(works, [rates_of(d) for d in devices]).iteration_s
    alone = [step_times([w], [rates_of(d)]).iteration_s[0] for w, d in zip(works, devices, strict=True)]
    np.testing.assert_allclose(together, alone)


@settings(max_examples=60)
@given(WORKS, st.sampled_from(["convolution", "matrix", "bandwidth"]))
def test_better_factors_never_slow_down(work: StepWork, factor: str) -> None:
    better = msgspec.structs.replace(DEFAULT, **{factor: 2 * getattr(DEFAULT, factor)})
    rates = [rates_of("V100")]
    assert step_times([work], rates, better).iteration_s[0] <= step_times([work], rates).iteration_s[0] * (
        1 + 1e-9
    )
