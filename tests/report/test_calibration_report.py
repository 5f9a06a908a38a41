"""The calibration section of the report: its numbers, its sentence, and drawn by a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.checks.scenarios import scenario
from cotenant.model.quantities import GIB
from cotenant.policies.colocate import Colocate
from cotenant.policies.fifo import Fifo
from cotenant.report.headlines import foretold_in_words
from cotenant.report.html import build_report
from cotenant.report.rundir import load_run, write_run_metrics
from cotenant.testing import FixedForecast, FixedTruth, Harness

SPEEDS = {("a", ("b",)): 0.8, ("b", ("a",)): 0.6, ("a", ("a",)): 0.7, ("b", ("b",)): 0.5}


def shared_run(folder: Path, offset: float = 0.1) -> Path:
    """Pairs of a and b on one device after the other; b runs alone once."""
    forecast = FixedForecast({k: v + offset for k, v in SPEEDS.items()}, default=0.45 + offset, spread=0.0625)
    harness = Harness(
        "1x2",
        Colocate(min_gain=0.0, min_speed=0.1, guest_s=0.0),
        memory_bytes=16 * GIB,
        truth=FixedTruth(SPEEDS, default=0.45),
        forecast=forecast,
    )
    for i in range(12):
        harness.submit(
            f"<b>{i}",
            at_s=20.0 * i,
            runs_s=50.0 + i,
            model="ab"[i % 3 == 1],
            memory_bytes=(9 if i == 0 else 5) * GIB,
        )
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(harness.run().log)
    return folder


@pytest.fixture
def report(tmp_path: Path) -> Path:
    shared_run(tmp_path / "runs" / "colocate" / "seed-1")
    return build_report(tmp_path)


def specs(page: Path) -> dict[str, dict]:
    found = re.search(r'id="specs">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_every_side_is_a_point_with_its_interval(report: Path) -> None:
    rows = load_run(report.parent / "runs" / "colocate" / "seed-1").foretold
    (drawn,) = (s for k, s in specs(report).items() if k.startswith("chart-foretold"))
    points = drawn["datasets"]["rows"]
    assert len(points) == rows.height > 2
    for point, row in zip(
        sorted(points, key=lambda p: (p["model"], p["beside"])), rows.iter_rows(named=True), strict=True
    ):
        assert point["mean"] == pytest.approx(point["happened"] + 0.1)
        assert point["low"] == pytest.approx(row["low"], abs=1e-3)
        assert point["interval"] == f"{row['low']:.3f} to {row['high']:.3f}"
    (bars,) = (s for k, s in specs(report).items() if k.startswith("chart-inside"))
    assert {row["inside"] for row in bars["datasets"]["rows"]} == {0.0}
    assert sum(row["sides"] for row in bars["datasets"]["rows"]) == rows.height


def test_a_sentence_reads_it(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert (
        "right within 0.1 on average; 0 % inside the 90 % interval (0 % by job-hours), so the intervals are too"
        in text
    )
    assert "too optimistic by 0.1" in text


def test_wide_and_even_are_told_too() -> None:
    summary = {
        "forecast_sides": 400,
        "forecast_error_mean": 0.0,
        "forecast_bias_mean": 0.0,
        "forecast_inside_share": 1.0,
        "forecast_inside_hours_share": 1.0,
        "forecast_width_mean": 0.4,
        "forecast_judged_share": 1.0,
    }
    assert foretold_in_words([summary]) == (
        "right within 0 on average; 100 % inside the 90 % interval (100 % by job-hours), so the intervals are wider"
        " than need be; neither too optimistic nor too pessimistic; of 400 speeds"
    )
    assert "wider" not in (foretold_in_words([summary | {"forecast_width_mean": 0.0}]) or "")
    # Of 20 speeds all may lie inside by chance: 0.9 + 2 sqrt(0.09 / 20) > 1.
    few = foretold_in_words([summary | {"forecast_sides": 20, "forecast_judged_share": 0.5}])
    assert few is not None
    assert "wider" not in few
    assert few.endswith("of 20 speeds (50 % of the time beside others can be judged)")
    assert foretold_in_words([{"forecast_sides": None}, {}]) is None


def test_no_section_where_nobody_shared(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "fifo" / "seed-1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(scenario(1, Fifo).run(invariants=False).log)
    assert "Foretold, and what happened" not in build_report(tmp_path).read_text(encoding="utf-8")


def test_the_table_is_kept_beside_the_log_and_folders_without_it_still_open(tmp_path: Path) -> None:
    folder = shared_run(tmp_path / "runs" / "colocate" / "seed-1")
    written = write_run_metrics(folder)
    assert load_run(folder).foretold.equals(written.foretold)
    (folder / "foretold.parquet").unlink()
    assert load_run(folder).foretold.height == 0


@pytest.mark.browser
def test_a_browser_draws_every_point_and_the_diagonal(report: Path, in_browser: Callable[..., str]) -> None:
    dom = in_browser(report)
    box = re.search(r'<div id="chart-foretold.*?</figure>', dom, re.DOTALL)
    assert box
    (drawn,) = (s for k, s in specs(report).items() if k.startswith("chart-foretold"))
    assert box.group().count('aria-roledescription="circle"') == len(drawn["datasets"]["rows"])
    assert box.group().count('aria-roledescription="line mark"') == 1
    assert ">This chart could not be drawn" not in dom
