"""Factors come back from runs that were made with them, and one that waits does no harm."""

from __future__ import annotations

from types import ModuleType

import msgspec
import numpy as np
import pytest

from cotenant.predictors.resources.calibration import calibrate
from cotenant.predictors.resources.roofline import DEFAULT, rates_of, step_times


def _off(rows: list, efficiency: object) -> np.ndarray:
    times = step_times([r.work for r in rows], [r.rates for r in rows], efficiency)  # type: ignore[arg-type]
    return np.abs(np.log(times.iteration_s / np.array([r.iteration_s for r in rows])))


def test_factors_are_found_again(made: ModuleType) -> None:
    rows = made.observations()
    found = calibrate(rows)
    assert found.convolution == pytest.approx(made.TRUTH.convolution, rel=0.1)
    assert found.matrix == pytest.approx(made.TRUTH.matrix, rel=0.1)
    assert found.context_mib == pytest.approx(made.TRUTH.context_mib, rel=0.1)
    assert np.max(_off(rows, found)) < 0.1 < np.max(_off(rows, DEFAULT))


def test_a_family_that_waits_moves_nothing_much(made: ModuleType) -> None:
    rows = made.observations()
    waiting = [
        msgspec.structs.replace(r, iteration_s=(r.iteration_s or 0) * 20, gpu_util=(r.gpu_util or 0) / 20)
        if r.family == "family3"
        else r
        for r in rows
    ]
    honest = [r for r in rows if r.family != "family3"]
    found = calibrate(waiting)
    assert np.median(_off(honest, found)) < 0.1
    # Its times are left out, so that they move nothing at all; its memory counts as before.
    untimed = [msgspec.structs.replace(r, iteration_s=None, gpu_util=None, mem_util=None) for r in waiting]
    without = calibrate([u if u.family == "family3" else r for u, r in zip(untimed, rows, strict=True)])
    for name, value in msgspec.structs.asdict(without).items():
        assert getattr(found, name) == pytest.approx(value, rel=0.01), name


def test_many_families_that_are_off_are_no_exception(made: ModuleType) -> None:
    rows = made.observations(families=8)
    # Four of eight: the device itself is slower than the datasheet says, and all of them count.
    half = [
        msgspec.structs.replace(r, iteration_s=(r.iteration_s or 0) * 30, gpu_util=(r.gpu_util or 0) / 30)
        if int(r.family.removeprefix("family")) % 2
        else r
        for r in rows
    ]
    # The slow ones are all the matrix work there is; without them that factor stays as it was.
    assert calibrate([r for r in half if r in rows]).matrix == pytest.approx(DEFAULT.matrix, rel=1e-6)
    assert calibrate(half).matrix < 0.98 * DEFAULT.matrix


def test_nothing_to_learn_keeps_the_prior(made: ModuleType) -> None:
    assert calibrate([]) == DEFAULT
    empty = msgspec.structs.replace(
        made.observations()[0], iteration_s=None, gpu_util=None, mem_util=None, mem_mib=None
    )
    found = msgspec.structs.asdict(calibrate([empty]))
    for name, value in msgspec.structs.asdict(DEFAULT).items():
        assert found[name] == pytest.approx(value, rel=1e-6)


def test_no_more_than_the_datasheet_says(made: ModuleType) -> None:
    rows = [msgspec.structs.replace(r, iteration_s=(r.iteration_s or 0) / 50) for r in made.observations()]
    found = calibrate(rows)
    assert max(found.convolution, found.matrix, found.bandwidth) <= 1.0


def test_an_unknown_device_is_scaled_from_nothing(made: ModuleType) -> None:
    rows = made.observations()
    strange = [msgspec.structs.replace(r, rates=rates_of("SomeNewGPU")) for r in rows]
    found = calibrate(strange)
    assert np.median(_off(strange, found)) < 0.2
