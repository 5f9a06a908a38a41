"""Cases C24, C54, C55 and C57: readings that mislead."""

from __future__ import annotations

import pytest

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.attribution import attribute
from cotenant.profiles.samplers.pressure import good_partner, may_share, pressure_of
from cotenant.profiles.samplers.readings import METERS, DeviceReading
from cotenant.profiles.samplers.series import Summary, summarise
from cotenant.profiles.samplers.words import number, read_query_gpu


def _minute(**meters: float) -> Summary:
    return summarise([DeviceReading(device="g", **meters) for _ in range(60)])


P = _minute(busy_pct=100.0, sm_active_pct=15.0, sm_occupancy_pct=6.0, dram_active_pct=10.0)
Q = _minute(busy_pct=100.0, sm_active_pct=92.0, dram_active_pct=80.0)
BUSY = _minute(busy_pct=100.0)


def test_c54_the_partner_is_chosen_by_what_is_used_not_by_busy_time() -> None:
    p, q = good_partner(pressure_of(P)), good_partner(pressure_of(Q))
    assert (p.yes, q.yes) == (True, False)
    assert p.reason == "SM active 15%; memory bandwidth 10%"
    assert q.reason == "SM active 92%; memory bandwidth 80%"
    assert may_share(pressure_of(P), pressure_of(P)).yes
    assert not may_share(pressure_of(P), pressure_of(Q)).yes


def test_c54_with_busy_time_alone_the_interval_is_wide_and_two_are_not_packed() -> None:
    pressure = pressure_of(BUSY)
    assert (pressure.compute.low, pressure.compute.high, pressure.compute.direct) == (0.0, 1.0, False)
    known = pressure_of(P).compute
    assert pressure.compute.high - pressure.compute.low > 5 * (known.high - known.low)
    verdict = may_share(pressure, pressure)
    assert not verdict.yes
    assert "only busy time" in verdict.reason
    assert not good_partner(pressure).yes


def test_c54_no_meter_at_all_bounds_nothing() -> None:
    pressure = pressure_of(summarise([DeviceReading(device="g")]))
    assert (pressure.compute.low, pressure.compute.high, pressure.compute.meter) == (0.0, 1.0, "")
    assert good_partner(pressure).reason == "not measured; not measured"


def test_c54_the_three_meters_have_three_names() -> None:
    assert METERS["busy_pct"] == "busy time"
    assert METERS["sm_active_pct"] == "SM active"
    assert METERS["dram_active_pct"] == "memory bandwidth"
    assert len(set(METERS.values())) == len(METERS)


def test_c55_what_jobs_get_adds_up_to_the_device() -> None:
    jobs: dict[str, float | None] = dict.fromkeys("abcd")
    for device in (80.0, 200.0):
        equal = attribute(device, jobs, rule="equal")
        assert equal.total == pytest.approx(device)
        assert {part.how for part in equal.parts} == {"by equal parts"}
        assert equal.rest == pytest.approx(0.0)


def test_c55_measured_first_then_a_stated_rule_then_missing() -> None:
    measured: dict[str, float | None] = {"a": 30.0, "b": None, "c": None}
    none = attribute(80.0, measured)
    assert [(p.value, p.how) for p in none.parts] == [
        (30.0, "measured"),
        (None, "missing"),
        (None, "missing"),
    ]
    assert none.rest is None
    by_memory = attribute(80.0, measured, rule="memory", memory_mib={"b": 1000.0, "c": 3000.0})
    assert [p.value for p in by_memory.parts] == [30.0, 12.5, 37.5]
    assert [p.how for p in by_memory.parts] == ["measured", "by memory", "by memory"]
    # Without every memory there is no proportion.
    unknown = attribute(80.0, measured, rule="memory", memory_mib={"b": 1000.0, "c": None})
    assert [p.how for p in unknown.parts] == ["measured", "missing", "missing"]
    whole = attribute(80.0, {"a": 30.0, "b": 40.0})
    assert whole.rest == pytest.approx(10.0)
    assert attribute(None, measured, rule="equal").total == 30.0
    with pytest.raises(ConfigError, match="known: none, memory, equal"):
        attribute(80.0, measured, rule="fair")


QUERY = """\
0, GPU-aa, 24564, 1024, 37, 55
1, GPU-bb, [N/A], [N/A], [N/A], 40
2, GPU-cc, 24564, 2048, [Not Supported], [Unknown Error]
3, GPU-dd, 24564, 512, N/A, 41
GPU is lost.  Reboot the system to recover this GPU
"""


def test_c57_words_are_missing_values_and_a_lost_device_is_an_event() -> None:
    devices, failures = read_query_gpu(QUERY)
    assert [d.device for d in devices] == ["GPU-aa", "GPU-bb", "GPU-cc", "GPU-dd"]
    assert [d.memory_total_mib for d in devices] == [24564.0, None, 24564.0, 24564.0]
    assert [d.memory_used_mib for d in devices] == [1024.0, None, 2048.0, 512.0]
    assert [d.busy_pct for d in devices] == [37.0, None, None, None]
    assert [f.reason for f in failures] == ["GPU is lost.  Reboot the system to recover this GPU"]


@pytest.mark.parametrize("word", ["[N/A]", "N/A", "[Nicht unterstützt]", "无", "", "ERR!", "inf", "-nan"])
def test_c57_whatever_the_word_it_is_no_number(word: str) -> None:
    assert number(word) is None


def test_c57_averages_skip_what_is_missing() -> None:
    readings = [DeviceReading(device="g", busy_pct=v) for v in (40.0, None, 60.0, None)]
    summary = summarise(readings)
    assert summary.mean("busy_pct") == 50.0
    assert (summary.meters["busy_pct"].count, summary.meters["busy_pct"].missing) == (2, 2)
    assert summary.mean("sm_active_pct") is None


def test_c24_impossible_readings_are_thrown_out_and_counted() -> None:
    values = (10100.0, 17592186040000.0, 10110.0, -3.0, 10120.0)
    readings = [DeviceReading(device="g", memory_total_mib=24564.0, memory_used_mib=v) for v in values]
    summary = summarise(readings)
    assert summary.peak("memory_used_mib") == 10120.0
    assert summary.mean("memory_used_mib") == pytest.approx(10110.0)
    assert summary.meters["memory_used_mib"].rejected == 2
    assert not summary.suspect
    assert summarise([*readings, readings[3]]).suspect
