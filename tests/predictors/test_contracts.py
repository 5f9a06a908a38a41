"""Every registered forecast keeps its contract; the plain ones say what they promise."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import polars as pl
import pytest

from cotenant import registry
from cotenant.checks import check_forecast, check_runtime
from cotenant.model.workload import Workload
from cotenant.predictors.base import SpeedSetup
from cotenant.predictors.forecast import build_runtime, build_speeds
from cotenant.predictors.simple import NoForecast, UtilisationSumForecast
from cotenant.profiles.kinds import kind_names
from cotenant.profiles.truth import ModelledTruth

KINDS = kind_names()[:12]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs on a V100 at speeds of an additive rule with a ripple."""
    path = tmp_path_factory.mktemp("table") / "pairs.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("device_type", "a", "b", "a_speed", "b_speed"))
        for i, a in enumerate(KINDS):
            for j, b in enumerate(KINDS[i:], i):
                ripple = 0.04 * math.sin(7.0 * i + 3.0 * j)
                rows.writerow(("V100", a, b, 0.5 + 0.02 * i + ripple, 0.5 + 0.02 * j - ripple))
    return path


@pytest.mark.parametrize("name", registry.names("predictor"))
def test_every_forecast_of_speeds_keeps_the_contract(name: str, table: Path) -> None:
    _, forecast = build_speeds(3, table, name)
    check_forecast(forecast, [*KINDS[:4], "VGG-16/b16", "own-net"], ["V100", "A100", "G2"])
    assert forecast.describe()["oracle"] is (name == "perfect")


@pytest.mark.parametrize("name", registry.names("runtime forecast"))
def test_every_forecast_of_running_times_keeps_the_contract(name: str) -> None:
    frame = pl.DataFrame(
        {
            "name": ["a-1", "a-2", "b"],
            "submit_s": [0.0, 1.0, 2.0],
            "duration_s": [10.0, 20.0, 30.0],
            "gpus": [1, 2, 1],
        }
    )
    workload = Workload(frame)
    check_runtime(build_runtime(name, workload, 0), list(workload.jobs()))


def test_the_sum_of_utilisations_is_the_additive_rule_for_sets_of_any_size() -> None:
    forecast = UtilisationSumForecast.from_setup(SpeedSetup(seed=2, truth=ModelledTruth(1)))
    trio = ("ResNet-18/b64", "ResNet-50/b64", "CycleGAN/b1")
    shares = [forecast.usage(name, "V100")[0] for name in trio]
    assert sum(shares) > 1.5
    found = forecast.co_speed(trio[0], trio[1:], "V100")
    assert found.mean == pytest.approx(1.0 / sum(shares))
    light = forecast.co_speed("A3C/b4", ("DQN/b128",), "V100")
    assert light.mean == 1.0


def test_who_knows_nothing_expects_nothing() -> None:
    forecast = NoForecast.from_setup(SpeedSetup(seed=2, truth=ModelledTruth(1)))
    found = forecast.co_speed("CycleGAN/b1", ("CycleGAN/b1",) * 3, "V100")
    assert (found.low, found.mean, found.high) == (1.0, 1.0, 1.0)
    assert forecast.co_speeds([("a", ("b",), "V100")] * 2) == [found, found]
    assert forecast.solo_speed("ResNet-50/b64", "K80") < forecast.solo_speed("ResNet-50/b64", "V100")
