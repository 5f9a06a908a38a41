"""What explains a decision: every rule in words, every number with its unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cotenant.policies
from cotenant.model.plan import Why
from cotenant.report.phrases import devices_named, facts_in_words, rule
from cotenant.report.rulewords import RULE_WORDS

SAY_IT_THEMSELVES = {"head-of-queue", "cpu-only"}
"""Rules whose name is the whole explanation."""


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"price_s": 17.55}, "price 17.6s"),
        ({"gain_s": 5371.0}, "gain 1h 29m"),
        ({"price_gpu_s": 116.9}, "price 116.9 GPU-seconds"),
        ({"left_bytes": 1111490560}, "left 1,060 MiB"),
        ({"utilisation_percent": 131.4}, "utilisation 131.4 %"),
        ({"reserved_from_s": 3600.0}, "reserved from 01:00:00"),
        ({"beside": [95]}, "beside job 95"),
        ({"beside": [213, 7, 9]}, "beside jobs 213, 7 and 9"),
        ({"with": 122, "guest_speed": 0.495}, "with job 122, guest speed 0.495"),
        ({"beside": []}, "beside []"),
        ({"beside": "ResNet-50"}, "beside ResNet-50"),
        ({"price_s": float("inf")}, "price s inf"),
        ({"needs_bytes": True}, "needs bytes True"),
        ({"needs_gpus": 8, "_s": 3.0}, "needs gpus 8,  s 3"),
    ],
)
def test_numbers_have_their_unit_and_jobs_are_named_as_jobs(facts: dict[str, object], words: str) -> None:
    assert facts_in_words(facts) == words


def test_one_device_is_no_devices() -> None:
    assert devices_named((3,)) == "device 3"
    assert devices_named((0, 2)) == "devices 0, 2"


def test_a_rule_is_told_with_its_numbers_and_its_meaning() -> None:
    told = rule(Why("lower-rank", {"price_gpu_s": 5.0}))
    assert told == (
        " Rule: lower-rank (price 5 GPU-seconds): in this policy's order the job that gets the devices goes before it."
    )


def test_every_rule_that_a_policy_of_the_package_names_has_words() -> None:
    source = Path(cotenant.policies.__file__).parent
    found = {
        name for file in source.rglob("*.py") for name in re.findall(r'Why\(\s*"([a-z-]+)"', file.read_text())
    }
    assert len(found) > 50
    assert found - set(RULE_WORDS) - SAY_IT_THEMSELVES == set()
