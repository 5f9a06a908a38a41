"""How wide intervals are."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.predictors.interference.cases import KNOWN, Cases
from cotenant.predictors.interference.selection import _multiple, choose


def test_a_quantile_over_few_groups_is_drawn_towards_a_typical_one_and_stretched() -> None:
    # (2 * 1 + 10 * 2) / 12 * (1.06 + 0.4 / 2 + 2 / 4)
    assert _multiple(1.0, 2) == pytest.approx(22 / 12 * 1.76)
    assert _multiple(1.0, 10_000) == pytest.approx(1.06, abs=0.002)
    assert _multiple(3.0, 20) > _multiple(2.0, 20) > _multiple(2.0, 40)


@pytest.mark.parametrize("groups", [5, 12, 40])
def test_intervals_cover_groups_that_err_together(groups: int) -> None:
    rng = np.random.default_rng(groups)
    inside = []
    for _ in range(60):
        number = np.repeat(np.arange(groups), 10)
        error = 0.04 * rng.normal(size=groups)[number] + 0.03 * rng.normal(size=len(number))
        truth = 0.6 + error
        cases = Cases(
            np.arange(len(number)), number, np.full((1, len(number)), 0.6), np.full(len(number), 0.05)
        )
        found = choose(["additive"], {(0, KNOWN): cases}, truth, np.full(len(number), 1.2))[0, KNOWN]
        width = found.scale[0] + found.scale[1] * 0.05
        fresh = 0.04 * rng.normal() + 0.03 * rng.normal(size=10)
        inside.append(((fresh >= -found.low * width) & (fresh <= found.high * width)).mean())
    assert 0.86 <= np.mean(inside) <= 0.96
