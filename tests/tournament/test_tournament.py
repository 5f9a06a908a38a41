"""The tournament: worlds at their load, results that are kept, a ranking by hand."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from cotenant.errors import CotenantError, InputError, UnknownNameError, UsageError
from cotenant.tournament.contest import Plan, contest_json, hold, ranking_frame, results_frame
from cotenant.tournament.pages import html_page, markdown_page
from cotenant.tournament.play import Game, Played
from cotenant.tournament.ranking import grid_of, holm, rank, scores_by
from cotenant.tournament.scenarios import cluster_of, scenarios
from cotenant.tournament.workloads import SOURCES, capacity, offered_load, window

ROOT = Path(__file__).resolve().parents[2]
GAME = Game(jobs=20, gpus=32)


@pytest.fixture(autouse=True)
def _code_stands_still(monkeypatch):
    monkeypatch.setattr("cotenant.tournament.contest.fingerprint", lambda: "this")


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("condition", ["base", "heterogeneous"])
def test_every_workload_is_brought_to_its_load_and_fits_the_cluster(name, condition, data_dir):
    cluster = cluster_of(condition, 64)
    for data in (str(data_dir), None):
        jobs, said = window(name, 1, jobs=100, load=0.75, cluster=cluster, data=data)
        frame = jobs.frame
        assert offered_load(jobs, cluster) == pytest.approx(0.75)
        assert 0 < frame.height <= 100
        assert frame["submit_s"][0] == 0.0
        assert frame["gpus"].min() >= 1 and frame["gpus"].max() <= 32
        assert frame["duration_s"].max() <= 86400.0
        assert ("synthetic stand-in" in said) == (data is None and name != "helios")


def test_seeds_draw_other_windows_and_equal_seeds_the_same(data_dir):
    cluster = cluster_of("base", 32)
    one, same, other = (
        window("philly", seed, jobs=50, load=1.0, cluster=cluster, data=str(data_dir))[0].frame
        for seed in (1, 1, 2)
    )
    assert one.equals(same)
    assert not one.equals(other)


def test_a_change_of_ones_own_policy_plays_that_one_again(tmp_path):
    plugin = tmp_path / "mine.py"
    text = "from cotenant.policies.fifo import Fifo\n\n\nclass Mine(Fifo):\n    pass\n"
    plugin.write_text(text)
    plan = msgspec.structs.replace(
        PLAN, policies=("fifo", f"{plugin}:Mine"), workloads=("helios",), conditions=("base",), seeds=1
    )
    first = hold(plan, tmp_path / "a")
    assert first.results[0].values == first.results[1].values
    assert hold(plan, tmp_path / "a").kept == 2
    plugin.write_text(text + "# another version\n")
    assert hold(plan, tmp_path / "a").kept == 1


def test_a_mixed_cluster_has_half_a_quarter_and_a_quarter():
    cluster = cluster_of("heterogeneous", 32)
    assert [node.gpus[0][0] for node in cluster.nodes] == ["V100-32GB", "V100-32GB", "P100", "K80"]
    speeds = {kind.name: kind.speed for kind in cluster.types}
    assert capacity(cluster) == pytest.approx(
        16 * speeds["V100-32GB"] + 8 * speeds["P100"] + 8 * speeds["K80"]
    )


def test_the_base_is_played_at_every_load_and_the_others_at_the_middle():
    grid = scenarios(["philly"], [0.5, 1.2, 2.0], ["base", "failures"])
    assert [s.label for s in grid] == [
        "philly-0.5-base", "philly-1.2-base", "philly-2-base", "philly-1.2-failures",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="load"):
        scenarios(["philly"], [0.0], ["base"])
    with pytest.raises(UsageError, match="known: base"):
        scenarios(["philly"], [1.0], ["rain"])


def _played(policy, seed, jct, wait=0.0, makespan=100.0, workload="w", finished=10.0, error=""):
    values = {
        "jct_s_mean": jct,
        "wait_s_p99": wait,
        "makespan_s": makespan,
        "queued_s_p99": wait,
        "slowdown_max": 1.0,
    }
    values |= {"jobs_finished": finished, "jobs_unfinished": 0.0}
    return Played(
        policy=policy, workload=workload, load=1.0, condition="base", seed=seed,
        values={} if error else values, error=error, game=GAME,
    )  # fmt: skip


def test_a_ranking_by_hand():
    # Two seeds. a: 10 and 20; b: 20 and 10. Ratios of both: 1 and 2, or 2 and 1; geometric mean: root of 2.
    results = [_played("a", 0, 10.0), _played("b", 0, 20.0), _played("a", 1, 20.0), _played("b", 1, 10.0)]
    rows = rank(grid_of(results, ["a", "b"]))
    assert [row.policy for row in rows] == ["a", "b"]  # equal scores: by name
    for row in rows:
        assert row.scores["jct_s_mean"].mean == pytest.approx(math.sqrt(2.0))
        assert row.scores["jct_s_mean"].low == pytest.approx(
            1.0
        )  # one draw in four takes the good seed twice
        assert row.scores["jct_s_mean"].high == pytest.approx(2.0)
        assert row.scores["overall"].mean == pytest.approx(2.0 ** (1 / 6))  # of three metrics one differs
    assert rows[0].p_value is None
    assert (rows[1].wins, rows[1].losses, rows[1].firsts) == (0, 0, 1)


def test_waits_are_compared_with_a_minute_added():
    rows = rank(grid_of([_played("a", 0, 10.0, wait=0.0), _played("b", 0, 10.0, wait=60.0)], ["a", "b"]))
    assert rows[1].scores["wait_s_p99"].mean == pytest.approx(2.0)


@pytest.mark.parametrize(
    "bad",
    [_played("a", 0, 1.0, finished=9.0), _played("a", 0, 1.0, error="ValueError: no")],
    ids=["left", "error"],
)
def test_who_leaves_jobs_behind_or_fails_stands_last_however_quick(bad):
    rows = rank(grid_of([bad, _played("b", 0, 50.0)], ["a", "b"]))
    assert [(row.policy, row.failed) for row in rows] == [("b", 0), ("a", 1)]


def test_who_is_always_better_is_significantly_better():
    results = []
    for number in range(8):
        results += [
            _played("a", 0, 10.0, workload=f"w{number}"),
            _played("b", 0, 11.0 + number, workload=f"w{number}"),
        ]
    rows = rank(grid_of(results, ["b", "a"]))
    assert [row.policy for row in rows] == ["a", "b"]
    assert rows[1].p_value == pytest.approx(2 / 2**8)  # all eight signs alike, exact, two-sided
    assert (rows[1].wins, rows[1].losses) == (0, 8)
    assert rows[1].best_in == "w0-1-base" and rows[1].worst_in == "w7-1-base"


def test_perfect_forecasts_count_for_no_rank():
    known = msgspec.structs.replace(_played("b", 0, 1.0), condition="perfect-forecast")
    unknown = msgspec.structs.replace(_played("a", 0, 99.0), condition="perfect-forecast")
    rows = rank(grid_of([_played("a", 0, 10.0), _played("b", 0, 20.0), unknown, known], ["a", "b"]))
    assert rows[0].policy == "a"
    assert rows[1].scores["jct_s_mean"].mean == pytest.approx(2.0)


def test_scores_by_part_are_those_of_the_base():
    results = [_played("a", 0, 10.0, workload=w) for w in ("x", "y")]
    results += [_played("b", 0, jct, workload=w) for w, jct in (("x", 20.0), ("y", 10.0))]
    found = scores_by(grid_of(results, ["a", "b"]), "jct_s_mean", 0)
    assert found["b"] == pytest.approx({"x": 2.0, "y": 1.0})


def test_holm_by_hand():
    assert holm([0.04, None, 0.01, 0.03]) == pytest.approx([0.06, None, 0.03, 0.06], nan_ok=True)


PLAN = Plan(
    policies=("fifo,best-fit",),
    workloads=("philly", "helios"),
    loads=(1.5,),
    conditions=("base", "failures"),
    seeds=2,
    jobs=20,
    gpus=32,
)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_results_are_kept_and_the_rest_is_played_to_the_same_bytes(tmp_path):
    whole = hold(PLAN, tmp_path / "a")
    assert whole.kept == 0 and len(whole.results) == 2 * 2 * 2 * 2
    assert not [r.error for r in whole.results if r.error]
    before = _files(tmp_path / "a")
    for path in sorted((tmp_path / "a").rglob("seed-1/fifo.json")):
        path.unlink()
    again = hold(PLAN, tmp_path / "a")
    assert again.kept == 12
    assert _files(tmp_path / "a") == before
    assert markdown_page(again, "c") == markdown_page(whole, "c")
    assert html_page(again, "c") == html_page(whole, "c")
    assert results_frame(again).equals(results_frame(whole))
    assert ranking_frame(again)["policy"].to_list() == [row.policy for row in whole.rows]


def test_two_processes_give_the_same_bytes_as_one(tmp_path):
    small = msgspec.structs.replace(PLAN, workloads=("helios",), conditions=("base",))
    hold(small, tmp_path / "one", workers=1)
    hold(small, tmp_path / "two", workers=2)
    assert _files(tmp_path / "one") == _files(tmp_path / "two")


def test_results_of_another_game_or_code_are_played_again(tmp_path, monkeypatch):
    small = msgspec.structs.replace(PLAN, workloads=("helios",), conditions=("base",), seeds=1)
    hold(small, tmp_path / "a")
    assert hold(small, tmp_path / "a").kept == 2
    assert hold(msgspec.structs.replace(small, jobs=21), tmp_path / "a").kept == 0
    monkeypatch.setattr("cotenant.tournament.contest.fingerprint", lambda: "other")
    assert hold(msgspec.structs.replace(small, jobs=21), tmp_path / "a").kept == 0


def test_a_policy_of_ones_own_that_raises_is_told_and_stops_nobody(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def decide(self, view):\n        raise ValueError('not today')\n"
    )
    plan = msgspec.structs.replace(
        PLAN,
        policies=("fifo", f"{tmp_path / 'mine.py'}:Mine"),
        workloads=("helios",),
        conditions=("base",),
        seeds=1,
    )
    contest = hold(plan, tmp_path / "a")
    assert [row.failed for row in contest.rows] == [0, 1]
    assert "not today" in markdown_page(contest, "c")
    found = contest_json(contest, "c")
    assert found["ranking"][0]["policy"] == "fifo"


def test_where_nobody_gives_a_result_that_is_an_error(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def decide(self, view):\n        raise ValueError('no')\n"
    )
    plan = msgspec.structs.replace(
        PLAN,
        policies=(f"{tmp_path / 'mine.py'}:Mine",),
        workloads=("helios",),
        conditions=("base",),
        seeds=1,
    )
    with pytest.raises(CotenantError, match="every policy raised"):
        hold(plan, tmp_path / "a")


def test_bad_input_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match='did you mean "philly"'):
        hold(msgspec.structs.replace(PLAN, workloads=("phily",)), tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="other things"):
        hold(PLAN, tmp_path / "b")


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as a POSIX signal")
def test_an_interrupt_ends_at_once_and_keeps_what_is_there(tmp_path):
    out = tmp_path / "out"
    words = [
        "--policies",
        "fifo,las",
        "--workloads",
        "helios",
        "--seeds",
        "99",  # so many that the signal comes before the end, however late
        "--jobs",
        "200",
        "--workers",
        "2",
    ]
    run = subprocess.Popen(
        [sys.executable, "-m", "cotenant", "tournament", *words, "-o", str(out)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT,
        env={**os.environ, "COTENANT_DATA": "/nowhere"},
    )  # fmt: skip
    until = time.monotonic() + 600.0
    while not list(out.rglob("seed-*/*.json")) and run.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 130
    assert b"interrupted" in said and b"Traceback" not in said
    assert f"kept in {out}; the same command goes on from there" in said.decode()
    for path in out.rglob("seed-*/*.json"):
        assert json.loads(path.read_bytes())["policy"] in ("fifo", "las")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("tournament") / "out"
    words = [
        "--policies",
        "fifo,las,best-fit",
        "--workloads",
        "helios,tiresias",
        "--loads",
        "1,2",
        "--seeds",
        "2",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "cotenant", "tournament", *words, "--jobs", "20", "--gpus", "32", "--workers", "1",
         "--json", "-o", str(out)],
        check=False, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "COTENANT_DATA": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((out / "tournament.json").read_text())
    assert "of 72 runs" in done.stderr  # 3 policies, 2 seeds, 2 workloads: two loads, four conditions more
    return out / "tournament.html"


def test_the_command_writes_page_markdown_and_tables(page):
    assert {p.name for p in page.parent.iterdir()} == {
        "cells", "game.json", "ranking.csv", "results.csv", "tournament.html", "tournament.json", "tournament.md",
    }  # fmt: skip
    assert 'src="http' not in page.read_text()
    assert "| 1. " in (page.parent / "tournament.md").read_text()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 390])
def test_a_browser_draws_every_plot(page, in_browser, width):
    dom = in_browser(page, width)
    boxes = re.findall(r'<div id="chart-[^"]*"', dom)
    assert len(boxes) == 8
    assert dom.count("<svg") + dom.count("<canvas") >= 8
    assert ">This chart could not be drawn" not in dom
