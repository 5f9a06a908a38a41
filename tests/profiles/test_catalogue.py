"""Device types: names, aliases, memory, coarse speeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.profiles.catalogue import (
    DEVICES_VARIABLE,
    canonical_type,
    datasheet,
    device_type,
    known,
    measured_as,
    relative_speed,
    under_name,
    use_devices,
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


def test_rates_are_what_the_datasheets_say() -> None:
    h100 = datasheet("h100-sxm")
    assert (h100.bandwidth_gbs, h100.tflops["bf16"], h100.units) == (3350, 989, 132)
    # A K80 has no 16-bit units: the rate in 32 bits holds.
    assert datasheet("K80").peak_tflops("bf16") == 4.37
    with pytest.raises(UnknownNameError, match='no precision "int8"'):
        h100.peak_tflops("int8")


def test_every_type_names_its_source_and_rates_that_do_not_fall_with_narrower_numbers() -> None:
    for name in known():
        sheet = datasheet(name)
        assert sheet.source
        assert sheet.units > 0
        assert sheet.bandwidth_gbs > 100
        assert sheet.peak_tflops("fp16") >= sheet.peak_tflops("tf32") >= sheet.peak_tflops("fp32") > 0


OWN = """
[[device]]
name = "Z1"
aliases = ["Zeta One"]
memory_mib = 10000
bandwidth_gbs = 900
tflops = { fp16 = 500 }
source = "ours"

[[device]]
name = "T4"
memory_mib = 15000
bandwidth_gbs = 320
tflops = { fp16 = 65 }
source = "our T4s, with error correction"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DEVICES_VARIABLE, "")
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


def test_a_file_adds_types_and_replaces_built_in_ones(own: Path) -> None:
    use_devices(own)
    # sqrt(900/900 x 500/125) = 2
    assert relative_speed("zeta-one") == 2.0
    assert device_type("t4").memory_bytes == 15_000 * MIB
    assert canonical_type("K80") == "K80"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("memory_mib = 10000", "memory = 10000", "unknown field `memory`"),
        ("memory_mib = 10000", "memory_mib = 0", ">= 1"),
        ("fp16 = 500", "int8 = 500", '"int8" is none'),
        ("{ fp16 = 500 }", "{}", "it has none"),
        ("[[device]]", "[[device", "own.toml"),
    ],
)
def test_a_wrong_file_is_refused_in_words(own: Path, old: str, new: str, told: str) -> None:
    own.write_text(OWN.replace(old, new, 1))
    with pytest.raises(ConfigError, match=r"own\.toml") as caught:
        use_devices(own)
    assert told in str(caught.value)
    assert canonical_type("Z1") is None
