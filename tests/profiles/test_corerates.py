"""Sets of this machine's cores as device types: measured, kept, told as what they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from cotenant.errors import ConfigError
from cotenant.predictors.resources.roofline import rates_of
from cotenant.profiles import catalogue, corebench, corerates
from cotenant.profiles.corerates import cache_file, core_set_of, core_sets, core_sheet, core_type
from cotenant.profiles.samplers.cpu import cpu_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="core sets are measured on Linux")

FIRST = core_sets()[0]
RATES: dict[str, Any] = {
    "flops": {"fp32": 1e11, "fp64": 5e10},
    "copy_bytes_per_s": 2e10,
    "busy_share": 0.99,
}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Measurements that were made, in place of the seconds that they take; the cache is empty."""
    made: list[tuple[int, ...]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def measure(cores: tuple[int, ...]) -> corerates.CoreRates:
        made.append(cores)
        return corerates.CoreRates(**RATES, numpy=corerates.version("numpy"), date="2026-01-02")

    monkeypatch.setattr(corerates, "_measure", measure)
    return made


def test_a_row_says_what_was_measured_how_and_when(measured: list[tuple[int, ...]]) -> None:
    sheet = core_sheet(FIRST)
    assert sheet.name == core_type(FIRST) == f"{cpu_model() or 'CPU'} x1"
    assert (sheet.bandwidth_gbs, sheet.tflops) == (20.0, {"fp32": 0.1, "fp64": 0.05})
    assert sheet.memory_mib == psutil.virtual_memory().total // 2**20
    assert (sheet.units, sheet.host) == (1, True)
    assert sheet.source.startswith("measured here on 2026-01-02 with numpy ")
    assert sheet.note == "reached rates, not the processor's peak"
    assert measured == [FIRST]


def test_it_is_measured_once_and_again_on_request(measured: list[tuple[int, ...]]) -> None:
    assert core_sheet(FIRST) == core_sheet(FIRST)
    assert len(measured) == 1
    core_sheet(FIRST, again=True)
    assert len(measured) == 2
    # What cannot be read is measured anew, as is what another numpy reached.
    kept = json.loads(cache_file().read_text())
    cache_file().write_text(json.dumps(kept).replace(corerates.version("numpy"), "0.1"))
    core_sheet(FIRST)
    cache_file().write_text("{")
    core_sheet(FIRST)
    assert len(measured) == 4
    assert list(json.loads(cache_file().read_text())) == [core_type(FIRST)]


def test_a_home_that_cannot_be_written_to_costs_time_and_nothing_else(
    measured: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert core_sheet(FIRST).units == 1
    core_sheet(FIRST)
    assert len(measured) == 2


def test_a_disturbed_measurement_says_so(
    measured: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RATES, "busy_share", 0.3)
    assert core_sheet(FIRST).note == "others had 70% of the cores meanwhile; measure again when they are free"


def test_names_of_core_sets() -> None:
    assert core_set_of(f"cpu:{FIRST[0]}") == FIRST
    assert core_set_of(core_type(FIRST)) == FIRST
    assert core_set_of("V100") is None and core_set_of("some other processor x1") is None
    with pytest.raises(ConfigError, match="core 4095 is not there"):
        core_set_of("cpu:4095")
    with pytest.raises(ConfigError, match="this machine gives us"):
        core_set_of(f"{cpu_model() or 'CPU'} x4096")


def test_the_roofline_takes_them_for_a_host(
    measured: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_added", {})
    catalogue.add_types(core_sheet(FIRST))
    rates = rates_of(core_type(FIRST))
    assert rates.known and rates.host
    assert (rates.matrix_flops["fp32"], rates.bandwidth) == (1e11, 2e10)
    assert core_type(FIRST) in catalogue.known()
    catalogue._added.clear()
    catalogue.add_types()
    assert core_type(FIRST) not in catalogue.known()


def test_the_measurement_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corebench, "GEMM_SIZE", 64)
    monkeypatch.setattr(corebench, "COPY_MIB", 4)
    found = corebench.measured(FIRST)
    # Any core since 1990 does more than a million and less than ten million million a second.
    assert all(1e6 < flops < 1e13 for flops in found["flops"].values())
    assert set(found["flops"]) == {"fp32", "fp64"}
    assert 1e7 < found["copy_bytes_per_s"] < 1e13
    assert 0 < found["busy_share"] <= 1


def test_what_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(ConfigError, match=r"cannot be measured here: .*No such file"):
        core_sheet(FIRST)
