"""Running times expected against those that happened: numbers, sentence, page, explanation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.ports import Interval
from cotenant.model.settings import Settings
from cotenant.policies.fifo import Fifo
from cotenant.policies.srtf import Srtf
from cotenant.report.explain import explain
from cotenant.report.fold import MetricFold
from cotenant.report.headlines import expected_in_words
from cotenant.report.html import build_report
from cotenant.report.metrics import RunMetrics
from cotenant.report.rundir import load_run, write_run_metrics
from cotenant.testing import Harness, TrueRuntime

OPENED = ev.Opened(0.0, ev.SCHEMA, "0", 1, "srtf", {}, {}, Cluster.uniform(1), {}, {}, {})
COLUMNS = ("expected_s", "expected_low_s", "expected_high_s", "happened_s")


def folded(*events: ev.Event) -> RunMetrics:
    return MetricFold().see_all([OPENED, *events]).result()


def one(
    number: int, expected: tuple[float, float, float] | None, work_s: float, outcome: str
) -> list[ev.Event]:
    t = 1000.0 * number
    return [
        ev.Submitted(t, Job(number, f"j{number}", t), expected),
        ev.Started(t, number, 1, (0,)),
        ev.Ended(t + work_s, number, 1, outcome, work_s),  # type: ignore[arg-type]
    ]


def three_and_more() -> list[ev.Event]:
    return [
        *one(0, (100.0, 50.0, 200.0), 50.0, "done"),  # half as long: on the low end, so inside
        *one(1, (100.0, 50.0, 400.0), 400.0 / 3, "done"),  # a third longer, inside
        *one(2, (100.0, 80.0, 120.0), 400.0, "done"),  # four times as long, outside
        *one(3, (100.0, 80.0, 120.0), 1.0, "failed"),
        *one(4, None, 7.0, "done"),
    ]


def test_numbers_by_hand() -> None:
    run = folded(*three_and_more())
    s = run.summary
    # expected / happened: 2, 3/4, 1/4. Off by 2, 4/3, 4. High over low: 4, 8, 1.5.
    assert (s["runtime_jobs"], s["runtime_jobs_not_done"]) == (3, 1)
    assert s["runtime_factor_median"] == pytest.approx(2.0)
    assert s["runtime_bias_factor"] == pytest.approx(0.75)
    assert s["runtime_inside_share"] == pytest.approx(2 / 3)
    assert s["runtime_factor_width_median"] == pytest.approx(4.0)
    rows = run.jobs.select(COLUMNS).rows()
    assert rows[0] == (100.0, 50.0, 200.0, 50.0)
    assert rows[3] == (100.0, 80.0, 120.0, None)  # nobody knows how long it would have run
    assert rows[4] == (None, None, None, None)


def test_a_low_end_of_zero_has_no_width_in_factors() -> None:
    s = folded(*one(0, (10.0, 0.0, 20.0), 10.0, "done")).summary
    assert (s["runtime_factor_width_median"], s["runtime_inside_share"]) == (None, 1.0)
    assert expected_in_words([s]) == (
        "within x1 (median); 100 % inside the 90 % interval; neither too long nor too short; of 1 job done"
    )


def test_jobs_that_nobody_expected_anything_of_in_other_blocks_do_not_shift_the_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = folded(*three_and_more()).jobs
    for piece in (1, 2, 5):
        monkeypatch.setattr("cotenant.report.fold.PIECE", piece)
        assert folded(*reversed_ids()).jobs["expected_s"].to_list() == [100.0, None, 100.0, 100.0, 100.0]
        assert folded(*three_and_more()).jobs.equals(whole)


def reversed_ids() -> list[ev.Event]:
    """Five submissions whose ids fall: of the second to last of them (id 1) nothing is expected."""
    told = (100.0, 90.0, 110.0)
    return [ev.Submitted(0.0, Job(i, f"j{i}", 0.0), None if i == 1 else told) for i in (4, 3, 2, 1, 0)]


class Remembers(TrueRuntime):
    """Tells the true lengths and notes what it is told of them."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__(seconds)
        self.seen: dict[str, float] = {}

    def observe(self, job: Job, work_s: float) -> None:
        self.seen[job.name] = work_s


def interrupted() -> tuple[Harness, Remembers]:
    """a is suspended for b, loses its devices, and is done; c fails twice first."""
    lengths = {"a": 1000.0, "b": 5.0, "c": 60.0}
    runtime = Remembers(lengths)
    settings = Settings(checkpoint_s=20.0, restore_s=2.0)
    harness = Harness("1x1", Srtf(), settings=settings, runtime=runtime)
    harness.submit("a", runs_s=1000.0, at_s=0.0)
    harness.submit("b", runs_s=5.0, at_s=30.0)
    harness.submit("c", runs_s=60.0, at_s=5000.0, failed_after_s=[10.0, 25.0])
    harness.happen(ev.NodeDown(300.0, 0))
    harness.happen(ev.NodeUp(305.0, 0))
    return harness, runtime


def test_what_happened_is_what_the_forecast_is_told_whatever_came_between() -> None:
    harness, runtime = interrupted()
    run = harness.run()
    assert run.of("a", ev.Suspended)
    assert [e.outcome for e in run.of("a", ev.Ended)] == ["lost", "done"]
    assert [e.outcome for e in run.of("c", ev.Ended)] == ["failed", "failed", "done"]
    jobs = MetricFold().see_all(run.events).result().jobs
    happened = dict(jobs.select("name", "happened_s").iter_rows())
    assert happened == runtime.seen == {"a": 1000.0, "b": 5.0, "c": 60.0}
    assert dict(jobs.select("name", "work_s").iter_rows())["c"] == 10.0 + 25.0 + 60.0


def test_who_knows_is_right_about_all() -> None:
    harness, _ = interrupted()
    s = MetricFold().see_all(harness.run().events).result().summary
    keys = ("factor_median", "bias_factor", "inside_share", "factor_width_median", "jobs", "jobs_not_done")
    assert [s[f"runtime_{key}"] for key in keys] == [1.0, 1.0, 1.0, 1.0, 3, 0]


def test_a_policy_that_reads_no_predictions_has_none() -> None:
    harness = Harness("1x1", Fifo())
    harness.submit("a", runs_s=100.0)
    fold = MetricFold().see_all(harness.run().events)
    run = fold.result()
    found = {key: value for key, value in run.summary.items() if key.startswith("runtime_")}
    assert len(found) == 6
    assert set(found.values()) == {None}
    assert run.jobs.select(COLUMNS).rows() == [(None,) * 4]
    assert not fold.jobs.expected_s.size  # no memory either
    assert expected_in_words([run.summary]) is None


def test_the_sentence_says_which_way_and_whether_the_intervals_hold() -> None:
    s = {
        "runtime_jobs": 400,
        "runtime_jobs_not_done": 0,
        "runtime_factor_median": 2.0,
        "runtime_bias_factor": 0.5,
        "runtime_inside_share": 0.7,
        "runtime_factor_width_median": 3.0,
    }
    assert expected_in_words([s]) == (
        "within x2 (median); 70 % inside the 90 % interval, its ends x3 apart, so the intervals are too narrow;"
        " too short by x2; of 400 jobs done"
    )
    wide = expected_in_words([s | {"runtime_inside_share": 1.0}])
    assert wide is not None
    assert "wider than need be" in wide
    # Means over seeds of each number; counts are sums.
    both = expected_in_words([s, s | {"runtime_factor_median": 4.0, "runtime_jobs_not_done": 3}])
    assert both is not None
    assert both.startswith("within x3 (median)")
    assert both.endswith("of 800 jobs done (3 ended otherwise)")


class Guesses(TrueRuntime):
    """Always the same."""

    def predict_s(self, job: Job) -> Interval:
        return Interval(60.0, 30.0, 120.0)


def guessed_run(folder: Path, jobs: int) -> Path:
    """Lengths 20, 21, 22, ... seconds; of all 60 s are expected, 30 to 120."""
    harness = Harness("1x4", Srtf(), runtime=Guesses({}))
    for i in range(jobs):
        harness.submit(f"<b>{i}", at_s=float(i), runs_s=20.0 + i)
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(harness.run().log)
    return folder


def charts(page: Path) -> dict[str, list[dict[str, Any]]]:
    found = re.search(r'id="specs">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    specs = json.loads(found.group(1))
    return {
        kind: [r for k, s in specs.items() if k.startswith(f"chart-{kind}-") for r in s["datasets"]["rows"]]
        for kind in ("expected", "lengths", "foretold")
    }


@pytest.fixture
def report(tmp_path: Path) -> Path:
    guessed_run(tmp_path / "runs" / "srtf" / "seed-1", 20)
    return build_report(tmp_path)


def test_every_job_is_a_point_and_every_group_is_judged(report: Path) -> None:
    drawn = charts(report)
    points = sorted(drawn["expected"], key=lambda p: p["happened"])
    assert [p["happened"] for p in points] == [20.0 + i for i in range(20)]
    assert {(p["mean"], p["low"], p["high"], p["interval"]) for p in points} == {(60, 30, 120, "30s to 2m")}
    assert [p["type"] for p in points] == ["outside"] * 10 + ["inside its interval"] * 10
    # Four groups of five, in the order of the jobs: 20 to 24 s, 25 to 29 s, both below the interval, ...
    assert [(r["jobs"], r["inside"]) for r in drawn["lengths"]] == [(5, 0.0), (5, 0.0), (5, 1.0), (5, 1.0)]
    assert drawn["lengths"][0]["factor"] == pytest.approx(60 / 22, abs=1e-3)
    assert not drawn["foretold"]
    text = report.read_text(encoding="utf-8")
    assert "Foretold, and what happened" in text
    assert "50 % inside the 90 % interval, its ends x4 apart, so the intervals are too narrow" in text


def test_of_many_jobs_some_are_drawn_evenly(tmp_path: Path) -> None:
    guessed_run(tmp_path / "runs" / "srtf" / "seed-1", 901)
    points = charts(build_report(tmp_path))["expected"]
    # 901 jobs, of which 800: from the first to the last (20 s and 920 s long), at most 2 apart.
    assert len(points) == 800
    happened = [p["happened"] for p in points]
    assert (happened[0], happened[-1]) == (20.0, 920.0)
    assert set(np.diff(happened).round().tolist()) == {1.0, 2.0}
    assert "Drawn are 800 of them" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_no_section_where_nothing_was_expected_and_folders_of_earlier_versions_open(tmp_path: Path) -> None:
    folder = guessed_run(tmp_path / "runs" / "srtf" / "seed-1", 5)
    written = write_run_metrics(folder)
    assert load_run(folder).jobs.equals(written.jobs)
    # As an earlier version wrote it.
    old = {k: v for k, v in written.summary.items() if not k.startswith("runtime_")}
    (folder / "metrics.json").write_text(json.dumps(old), encoding="utf-8")
    written.jobs.drop(COLUMNS).write_parquet(folder / "jobs.parquet")
    assert "Foretold, and what happened" not in build_report(tmp_path).read_text(encoding="utf-8")


def test_explain_says_what_was_expected_and_what_came_of_it(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    events = [OPENED, *three_and_more()]
    log.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in events))
    first, third = explain(log, "j0").steps, explain(log, "j2").steps
    assert first[0].text == (
        "Submitted, asks for 1 GPU; nobody ahead; expected to run 1m 40s (between 50s and 3m 20s) alone on the reference device."
    )
    assert first[-1].text == (
        "Ended: done, 50s of useful work. Alone it runs 50s, expected were 1m 40s (between 50s and 3m 20s): x0.5 as long,"
        " inside the interval."
    )
    assert third[-1].text.endswith("x4 as long, longer than the interval.")
    assert explain(log, "j3").steps[-1].text == "Ended: failed, 1s of useful work."
    assert "expected" not in explain(log, "j4").text


@pytest.mark.browser
def test_a_browser_draws_every_point_and_the_diagonal(report: Path, in_browser: Callable[..., str]) -> None:
    dom = in_browser(report)
    box = re.search(r'<div id="chart-expected.*?</figure>', dom, re.DOTALL)
    assert box
    assert box.group().count('aria-roledescription="circle"') == 20
    assert box.group().count('aria-roledescription="line mark"') == 1
    assert ">This chart could not be drawn" not in dom
