"""Device types: names, aliases, memory, coarse speeds."""

from __future__ import annotations

import pytest

from cotenant.errors import UnknownNameError
from cotenant.profiles.catalogue import (
    canonical_type,
    device_type,
    known,
    measured_as,
    relative_speed,
    under_name,
)

MIB = 2**20


def test_an_eighty_gb_card_has_what_its_driver_reports() -> None:
    assert device_type("H100").memory_bytes == 81_559 * MIB


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("v100-16gb", "V100"),
        ("V100M32", "V100-32GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("geforce rtx 3090", "RTX3090"),
        ("h100 sxm", "H100"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_aliases_ignore_case_spaces_and_vendor(asked: str, found: str) -> None:
    assert device_type(asked).name == found


def test_an_unknown_type_offers_the_nearest_and_all() -> None:
    with pytest.raises(
        UnknownNameError, match=r'no device type "V10O"; did you mean "V100"\? known: A10, .*V100'
    ):
        device_type("V10O")


def test_every_type_has_memory_power_and_a_positive_speed() -> None:
    assert len(known()) == 20
    for name in known():
        found = device_type(name)
        assert found.name == name
        assert found.memory_bytes > 10 * 1024 * MIB
        assert found.power_w > 0
        assert found.idle_w == 0
        assert found.speed > 0


def test_speeds_follow_the_stated_rules() -> None:
    assert relative_speed("V100") == 1.0
    # sqrt(0.209 x 0.196) and sqrt(0.773 x 0.559), the two campaigns' geometric means.
    assert relative_speed("K80") == 0.20
    assert relative_speed("P100") == 0.66
    # sqrt(1555 / 900 x 312 / 125) = 2.077
    assert relative_speed("A100") == 2.08
    assert relative_speed("G2") == 1.0


def test_cards_that_differ_in_memory_alone_share_measurements() -> None:
    assert (measured_as("V100-32GB"), measured_as("a100-80gb"), measured_as("K80")) == ("V100", "A100", "K80")
    assert canonical_type("G2") is None
    assert measured_as("G2") == "V100"


def test_a_type_can_keep_the_name_it_was_asked_for() -> None:
    assert under_name("V100M32").name == "V100M32"
    assert under_name("V100M32").memory_bytes == device_type("V100-32GB").memory_bytes
