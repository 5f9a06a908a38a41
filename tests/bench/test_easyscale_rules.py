"""The artifact's rules of EasyScale, restated: numbers by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cotenant.experiments.elasticjobs import Elastic
from cotenant.experiments.minibatches import mini_batch_s

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from bench.easyscale_rules import simulate  # noqa: E402


def test_the_artifacts_rules_restated_by_hand() -> None:
    # Submitted at 100 s, in at 120 s: alone 20 s of start and 50 mini-batches. Elastic, 40 s at half speed, then two devices
    # without another restart.
    job = Elastic("a", 100.0, "resnet50", 2, 256, 2.0, False, "V100")
    work_s = 50 * mini_batch_s("resnet50", 256, "V100", neutral=False)
    assert simulate([job], "yarn")[0] == pytest.approx(40.0 + work_s)
    assert simulate([job], "homo")[0] == pytest.approx(80.0 + work_s - 20.0)


def test_newcomers_go_first_and_nothing_is_given_back() -> None:
    # Two equal jobs of 16 workers on 16 P100: 1, 2, 4, then 8 devices each, so each step takes two rounds or more.
    jobs = [Elastic(n, 100.0, "resnet50", 16, 64, 8.0, False, "P100") for n in "ab"]
    alone, _ = simulate(jobs[:1], "homo")
    both, _ = simulate(jobs, "homo")
    assert both > alone
    steps = 8.0 * 12800.0 / (64 * 16)
    assert both >= 2 * steps * mini_batch_s("resnet50", 64, "P100", neutral=False)
