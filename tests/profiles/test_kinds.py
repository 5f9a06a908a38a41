"""Job kinds, their spellings, and models drawn for traces that name none."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.workload import Workload
from cotenant.profiles.draws import normal, uniform, uniforms
from cotenant.profiles.kinds import KINDS, MIXES, canonical_model, draw_models, find_kind, usage_of

MIB = 2**20


def _workload(names: list[str], gpus: list[int] | None = None, **columns: list[object]) -> Workload:
    n = len(names)
    return Workload(
        pl.DataFrame(
            {
                "name": names,
                "submit_s": [0.0] * n,
                "duration_s": [60.0] * n,
                "gpus": gpus or [1] * n,
                **columns,
            }
        )
    )


def _models(workload: Workload) -> dict[str, str]:
    return dict(zip(workload.frame["name"].to_list(), workload.frame["model"].to_list(), strict=True))


@pytest.mark.parametrize(
    ("given_name", "expected"),
    [
        ("ResNet-50 (batch size 64)", "ResNet-50/b64"),
        ("Recommendation (batch size 8192)", "Recommendation/b8192"),
        ("LM-LSTM/b5", "LM/b5"),
        ("resnet50/b32", "ResNet-50/b32"),
        ("vgg16", "VGG-16/b16"),
        ("CycleGAN", "CycleGAN/b1"),
        ("A2C", "A3C/b4"),
        ("our-own-net", "our-own-net"),
        ("", ""),
    ],
)
def test_spellings_meet_in_one_name(given_name: str, expected: str) -> None:
    assert canonical_model(given_name) == expected


def test_a_batch_size_that_is_not_listed_takes_the_nearest_kind() -> None:
    kind = find_kind("ResNet-50/b100")
    assert kind is not None
    # log(128/100) = 0.25 < log(100/64) = 0.45
    assert kind.name == "ResNet-50/b128"
    assert find_kind("our-own-net/b8") is None


def test_kinds_are_plausible_shares() -> None:
    assert len(MIXES["gavel"]) == 26
    for name, kind in KINDS.items():
        assert kind.name == name == canonical_model(name)
        assert kind.memory_bytes >= 500 * MIB
        assert all(0 < share <= 1 for share in (kind.sm, kind.bandwidth, kind.host))


def test_unknown_models_are_typical_without_a_seed_and_vary_with_one() -> None:
    typical = KINDS["Transformer/b64"]
    assert usage_of("our-own-net") == (typical.sm, typical.bandwidth, typical.host)
    seen = {usage_of("our-own-net", seed)[1] for seed in range(5)}
    assert len(seen) == 5
    assert all(typical.bandwidth / 2 <= share <= 2 * typical.bandwidth for share in seen)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=20, unique=True), st.integers(0, 99))
def test_dropping_jobs_or_reordering_lines_changes_no_other_draw(names: list[str], seed: int) -> None:
    whole = _models(draw_models(_workload(names), seed))
    fewer = _models(draw_models(_workload(names[1:][::-1]), seed))
    assert fewer == {name: whole[name] for name in names[1:]}


def test_the_seed_matters_and_frequencies_follow_the_weights() -> None:
    names = [f"job-{i}" for i in range(4000)]
    mix = {"LM/b5": 3.0, "A3C/b4": 1.0}
    first = draw_models(_workload(names), 1, mix=mix).frame["model"]
    second = draw_models(_workload(names), 2, mix=mix).frame["model"]
    assert first.to_list() != second.to_list()
    # 3 in 4; the standard deviation of the share is sqrt(0.75 x 0.25 / 4000) = 0.0068.
    assert abs((first == "LM/b5").mean() - 0.75) < 0.03  # type: ignore[operator]


def test_gangs_draw_only_kinds_that_run_on_several_devices() -> None:
    names = [f"job-{i}" for i in range(500)]
    drawn = draw_models(_workload(names, [4] * 500), 0, mix="wide").frame["model"].unique()
    assert all(KINDS[name].multi_gpu for name in drawn)
    assert len(drawn) > 20


def test_kinds_larger_than_the_device_are_never_drawn() -> None:
    names = [f"job-{i}" for i in range(500)]
    frame = draw_models(_workload(names), 0, mix="wide", device_memory=4000 * MIB).frame
    assert frame["memory_bytes"].max() <= 4000 * MIB  # type: ignore[operator]
    assert frame["memory_bytes"].min() == KINDS["A3C/b4"].memory_bytes


def test_what_is_declared_stays_and_cpu_jobs_get_no_model() -> None:
    workload = _workload(
        ["a", "b", "c", "d"], [1, 1, 0, 1], model=["ResNet-50/b32", "own", "", ""], memory_bytes=[0, 7, 0, 9]
    )
    frame = draw_models(workload, 0).frame
    assert frame["model"][0] == "ResNet-50/b32"
    assert frame["model"][1] == "own"
    assert frame["model"][2] == ""
    assert frame["model"][3] in KINDS
    assert frame["memory_bytes"].to_list() == [3600 * MIB, 7, 0, 9]


def test_every_draw_is_told_and_nothing_else() -> None:
    drawn = draw_models(_workload(["a", "b"]), 5)
    assert drawn.assumptions == (
        'models of 2 of 2 jobs are drawn, not observed: mix "gavel" of 26 kinds, seed 5, by job name',
        "memory of 2 of 2 jobs is that of their model in the catalogue, not observed",
    )
    told = draw_models(_workload(["a"], model=["LM/b5"], memory_bytes=[1]), 5)
    assert told.assumptions == ()


def test_bad_mixes_are_refused() -> None:
    workload = _workload(["a"])
    with pytest.raises(UnknownNameError, match='no mix of models "gavell"; did you mean "gavel"'):
        draw_models(workload, 0, mix="gavell")
    with pytest.raises(UnknownNameError, match='no job kind "LM/b6"'):
        draw_models(workload, 0, mix={"LM/b6": 1.0})
    with pytest.raises(ConfigError, match='weight of "LM/b5" must be positive'):
        draw_models(workload, 0, mix={"LM/b5": 0.0})
    with pytest.raises(ConfigError, match="no kind fits 100 MiB"):
        draw_models(workload, 0, device_memory=100 * MIB)


def test_draws_are_uniform_and_belong_to_their_names() -> None:
    names = [f"{i}" for i in range(20_000)]
    drawn = uniforms(3, "test", names)
    # Standard error of the mean: 0.289 / sqrt(20,000) = 0.002.
    assert abs(drawn.mean() - 0.5) < 0.01
    assert drawn.min() >= 0 and drawn.max() < 1
    assert uniforms(3, "test", names[7:8])[0] == drawn[7]
    assert uniforms(3, "other", names[7:8])[0] != drawn[7]
    assert uniform(1, "a", "b") != uniform(1, "ab")
    assert normal(1, "a") == normal(1, "a")


_PROGRAM = """
import json, polars as pl
from cotenant.model.workload import Workload
from cotenant.profiles.kinds import draw_models
from cotenant.profiles.truth import ModelledTruth
from cotenant.predictors.contention import ContentionForecast
names = [f"job-{i}" for i in range(40)]
w = Workload(pl.DataFrame({"name": names, "submit_s": [0.0] * 40, "duration_s": [1.0] * 40}))
t = ModelledTruth(3)
f = ContentionForecast(3)
print(json.dumps([draw_models(w, 3).frame["model"].to_list(),
    t.co_speed("LM/b5", ("CycleGAN", "own"), "K80"), f.co_speed("LM/b5", ("CycleGAN", "own"), "K80").mean]))
"""


def test_draws_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    outputs = []
    for salt in ("0", "12345"):
        env = os.environ | {"PYTHONHASHSEED": salt}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=True, timeout=600
        )
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0][0])) > 5
