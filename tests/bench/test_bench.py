"""The benchmarks run on tiny inputs, keep their books, and write what their page says. No timings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from bench.draw import draw, offered_load  # noqa: E402

from bench import budgets, common_trace, decide, measure, render, scaling, speed, startup  # noqa: E402


def _cell(policy: str = "fifo", jobs: int = 300, devices: int = 16, **other: Any) -> dict[str, Any]:
    return {
        "policy": policy,
        "jobs": jobs,
        "devices": devices,
        "load": 0.95,
        "shape": "poisson",
        "seed": 0,
        **other,
    }


def _row(cpu_s: float = 1.0, **other: Any) -> dict[str, Any]:
    measured = {
        "status": "ok",
        "cpu_s": cpu_s,
        "start_cpu_s": 1.0,
        "loop_cpu_s": cpu_s / 2,
        "summary_cpu_s": 0.25,
        "peak_bytes": 100 * 2**20,
        "events": 900,
        "most_pending": 7,
        "calibration_s": [0.10, 0.12],
    }
    return {**_cell(), **measured, **other}


# -- the workload ----------------------------------------------------------------------


def test_the_drawn_workload_has_the_stated_shape() -> None:
    workload, cluster = draw(20_000, 512, 1.6, seed=3)
    frame = workload.frame
    shares = {size: (frame["gpus"] == size).mean() for size in (1, 2, 4, 8)}
    assert shares == pytest.approx({1: 0.70, 2: 0.10, 4: 0.12, 8: 0.08}, abs=0.015)
    assert frame["duration_s"].min() >= 60.0
    assert frame["duration_s"].max() <= 604_800.0
    assert frame["duration_s"].median() == pytest.approx(1800.0, rel=0.05)
    assert frame["model"].n_unique() == 26
    assert (frame["memory_bytes"].min(), frame["memory_bytes"].max()) == (1 << 30, 12 << 30)
    error = (frame["estimate_s"] / frame["duration_s"]).log()
    assert error.std() == pytest.approx(0.5, abs=0.02)
    assert offered_load(workload, cluster) == pytest.approx(1.6, rel=0.05)
    assert (cluster.gpu_count, len(cluster.nodes)) == (512, 64)
    assert draw(20_000, 512, 1.6, seed=3)[0].frame.equals(frame)
    assert not draw(20_000, 512, 1.6, seed=4)[0].frame.equals(frame)


def test_a_zero_workload_comes_at_once() -> None:
    workload, cluster = draw(100, 64, 0.0, shape="zero")
    assert workload.frame["submit_s"].to_list() == [0.0] * 100
    assert offered_load(workload, cluster) == 0.0


def test_most_of_a_blocked_workload_waits_for_a_taken_node() -> None:
    workload, cluster = draw(2_000, 80, 0.0, shape="blocked")
    free = workload.frame["device_types"].list.first() == "gpu-32g"
    assert free.mean() == pytest.approx(0.10, abs=0.02)
    assert not free[:1000].any()
    assert workload.frame["duration_s"][:8].to_list() == [604_800.0] * 8
    assert cluster.gpu_count == 80
    assert dict(cluster.nodes[0].gpus) == {"scarce-32g": 8}


# -- one cell --------------------------------------------------------------------------


def test_a_cell_has_the_columns_of_the_page(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    speed.main(
        ["--policies", "colocate", "--jobs", "300", "--devices", "16", "--repeat", "2", "--out", str(out)]
    )
    yardstick, row = measure.read(out)
    assert yardstick["policy"] == "fifo"
    section = PAGE.read_text().partition("## Columns of the results")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    assert set(row) == {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert (row["status"], row["load"], row["done"], row["waiting_at_end"]) == ("ok", 2.0, 300, 0)
    assert row["cpu_s"] == pytest.approx(row["build_cpu_s"] + row["loop_cpu_s"] + row["summary_cpu_s"])
    assert (len(row["repeats"]), min(row["repeats"])) == (2, row["cpu_s"])
    assert row["peak_bytes"] >= row["drawn_bytes"] > 2**20
    assert 0 < row["most_pending"] < 300
    assert row["events"] >= 3 * 300
    assert row["shared_share"] > 0
    assert set(row["machine"]) == {"cpus", "python", "implementation", "system", "architecture"}


def test_the_longest_queue_is_counted_from_events() -> None:
    from bench.cell import _Most

    from cotenant.model import events as ev
    from cotenant.model.jobs import Job

    jobs = [Job(id=i, name=str(i), submit_s=0.0) for i in range(3)]
    most = _Most()
    most.see([ev.Submitted(0.0, job) for job in jobs[:2]])  # 2 wait
    most.see([ev.Started(0.0, 0, 1, (0,)), ev.Submitted(1.0, jobs[2])])  # 2 wait
    most.see([ev.Suspended(2.0, 0, 1, 1.0), ev.Rejected(3.0, 1, "left")])  # 3, then 2
    most.see([ev.Started(3.0, 0, 1, (0,)), ev.Ended(4.0, 0, 1, "failed", 1.0, final=False)])  # 1, then 2
    most.see([ev.Started(4.0, 0, 2, (0,)), ev.Ended(5.0, 0, 2, "done", 1.0)])  # 1 waits
    assert (most.waiting, most.most) == (1, 3)


def test_a_cell_that_fails_says_why() -> None:
    row = measure.run_cell(_cell(policy="no-such-policy", jobs=10))
    assert row["status"] == "failed"
    assert "no-such-policy" in row["error"]


# -- the grid --------------------------------------------------------------------------


def test_a_grid_begins_with_small_cells_and_the_yardstick() -> None:
    cells = list(speed.grid(["srtf", "fifo"], [20, 10], [8]))
    assert [(c["policy"], c["jobs"], c["load"]) for c in cells] == [
        ("fifo", 10, 0.95),
        ("srtf", 10, 0.95),
        ("srtf", 10, 1.6),
        ("fifo", 20, 0.95),
        ("srtf", 20, 0.95),
        ("srtf", 20, 1.6),
    ]
    assert [c["load"] for c in speed.grid(["srtf"], [10], [8], shape="zero")] == [0.0]
    assert [c["load"] for c in speed.grid(["srtf"], [10], [8], [0.5])] == [0.5]
    assert speed.loads_of("colocate:min_gain=0.2") == (2.0,)


def test_cells_of_the_file_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, calls = tmp_path / "r.jsonl", []

    def run(spec: dict[str, Any], budget_s: float | None = None) -> dict[str, Any]:
        calls.append(spec["jobs"])
        return _row(**spec)

    monkeypatch.setattr(speed, "run_cell", run)
    speed.measure_cells([_cell(jobs=10)], out)
    with out.open("a") as file:
        file.write('{"policy": "fifo", "jo')  # the writer was ended here
    speed.measure_cells([_cell(jobs=10), _cell(jobs=20)], out)
    assert calls == [10, 20]
    assert "from the file" in capsys.readouterr().out


def test_larger_cells_than_one_out_of_time_are_skipped_until_there_is_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "r.jsonl", []

    def run(spec: dict[str, Any], budget_s: float | None = None) -> dict[str, Any]:
        calls.append((spec["policy"], spec["jobs"]))
        late = spec["policy"] == "las" and budget_s == 5
        return {**spec, "status": "over-budget", "budget_s": budget_s} if late else _row(**spec)

    monkeypatch.setattr(speed, "run_cell", run)
    cells = [_cell(p, jobs=n) for n in (10, 20) for p in ("fifo", "las")]
    rows = speed.measure_cells(cells, out, budget_s=5)
    assert [row["status"] for row in rows] == ["ok", "over-budget", "ok", "skipped"]
    assert calls == [("fifo", 10), ("las", 10), ("fifo", 20)]
    speed.measure_cells(cells, out, budget_s=5)
    assert len(calls) == 3
    rows = speed.measure_cells(cells, out, budget_s=9)
    assert [row["status"] for row in rows] == ["ok"] * 4
    assert calls[3:] == [("las", 10), ("las", 20)]


def test_a_cell_over_its_time_is_ended() -> None:
    row = measure.run_cell(_cell(jobs=300), budget_s=0.01)
    assert (row["status"], row["budget_s"]) == ("over-budget", 0.01)


def test_zero_and_blocked_are_one_or_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        speed.main(["--zero", "--blocked"])
    assert "ask for one" in capsys.readouterr().err


def test_blocked_jobs_end_too(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    speed.main(["--blocked", "--policies", "fifo", "--jobs", "400", "--devices", "80", "--out", str(out)])
    (row,) = measure.read(out)
    assert (row["status"], row["shape"], row["done"], row["most_pending"]) == ("ok", "blocked", 400, 400)


# -- growth, decisions, start-up, common traces ------------------------------------------


def test_growth_compares_the_ends_of_each_line(tmp_path: Path) -> None:
    rows = [_row(cpu_s=jobs * cost, jobs=jobs) for jobs, cost in ((10, 2.0), (20, 9.0), (40, 3.0))]
    rows += [_row(jobs=99, status="failed"), _row(policy="las", jobs=10)]
    (found,) = scaling.growth(rows, "jobs")
    # The loop is half of the CPU time in these rows: 1.0 and 1.5 s a job.
    assert (found["from"], found["to"], found["devices"]) == (10, 40, 16)
    assert (found["us_from"], found["us_to"], found["ratio"]) == pytest.approx((1.0e6, 1.5e6, 1.5))
    assert scaling.growth(rows, "devices") == []
    out = tmp_path / "r.jsonl"
    common = ["--policies", "fifo", "--jobs", "50", "100", "--devices", "8", "16", "--out", str(out)]
    scaling.main(common)
    ratios = [row for row in measure.read(out) if row.get("kind") == "scaling"]
    assert sorted((row["along"], row["from"], row["to"]) for row in ratios) == [
        ("devices", 8, 16),
        ("devices", 8, 16),
        ("jobs", 50, 100),
        ("jobs", 50, 100),
    ]


def test_quantiles_are_nearest_ranks() -> None:
    values = [float(v) for v in range(100, 0, -1)]
    assert [decide.quantile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert decide.quantile([3.0], 0.5) == 3.0


def test_decisions_are_timed_while_enough_jobs_wait(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    numbers = ["--pending", "50", "--devices", "16", "--calls", "40"]
    decide.main(["--policies", "backfill", *numbers, "--out", str(out)])
    (row,) = measure.read(out)
    assert (row["kind"], row["policy"], row["calls"]) == ("decide", "backfill", 40)
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["worst_ms"]
    assert row["first_instant_ms"] > 0


def test_a_policy_that_cannot_be_timed_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decide.main(["--policies", "no-such", "--out", str(tmp_path / "r.jsonl")])
    assert "no-such" in measure.read(tmp_path / "r.jsonl")[0]["error"]
    assert "no policy" in capsys.readouterr().out


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    startup.main(["--repeat", "1", "--out", str(out)])
    (row,) = measure.read(out)
    assert (len(row["times_s"]), row["best_s"]) == (1, row["times_s"][0])
    assert "typer" in row["slowest_us"]
    assert row["heavy"] == []


def test_common_traces_are_set_against_published_rates(tmp_path: Path) -> None:
    folder = tmp_path / "traces" / "common"
    folder.mkdir(parents=True)
    lines = ["job_id,submit_s,num_gpu,duration_s,model_u1000", *(f"j{i},{i},1,100,{i}" for i in range(20))]
    trace = folder / "common-n20-g8.csv.gz"
    trace.write_text("\n".join(lines) + "\n")
    out = tmp_path / "r.jsonl"
    for _ in range(2):  # the second time everything is in the file
        common_trace.main([str(tmp_path), "--policies", "fifo", "colocate", "--out", str(out)])
    fifo, colocate = measure.read(out)
    assert (fifo["jobs"], fifo["devices"], fifo["trace"]) == (20, 8, "common-n20-g8.csv.gz")
    # Jobs on 8 devices come one a second and run for 100 s: 0 to 7, then 8 at a time.
    # Ends: 8 jobs take 100 s each, job 8+k starts at 100+k, job 16+k at 200+k.
    assert fifo["mean_jct_s"] == pytest.approx((8 * 100 + 8 * 192 + 4 * 284) / 20)
    rate = 20 / fifo["cpu_s"]
    assert fifo["ratios"]["event-driven, no sharing"] == pytest.approx([rate / 10_000, rate / 1_100])
    assert colocate["ratios"] == {
        "with sharing": pytest.approx([20 / colocate["cpu_s"] / s for s in (60, 40)])
    }
    assert common_trace.published_for("srtf", 4096)["event-driven, no sharing"] == (1_100.0, 1_100.0)


def test_common_traces_that_are_not_there_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        common_trace.main([str(tmp_path), "--out", str(tmp_path / "r.jsonl")])
    assert done.value.code == 2
    assert "set COTENANT_DATA" in capsys.readouterr().err


# -- tables ----------------------------------------------------------------------------


def test_budgets_are_held_against_the_right_cells() -> None:
    ok, slow = {"jobs": 100_000, "devices": 10_000, "load": 0.95}, {"devices": 10_000, "load": 2.0}
    rows = [
        _row(cpu_s=1.25, **ok),  # 80,000 jobs/s, exactly the budget
        _row(cpu_s=4.0, policy="colocate", jobs=100_000, **slow),
        _row(policy="colocate", jobs=1_000_000, status="over-budget", budget_s=5, **slow),
    ]
    found = {(v.what, v.bound): v for v in budgets.verdicts(rows)}
    fifo = found["fifo, load 0.95, 100,000 jobs on 10,000 devices", "at least 80,000 jobs/s"]
    assert (fifo.measured, fifo.met) == ("80,000 jobs/s", True)
    colocate = found["colocate, load 2, 100,000 jobs on 10,000 devices", "at least 30,000 jobs/s"]
    assert (colocate.measured, colocate.met) == ("25,000 jobs/s", False)
    late = found["colocate, load 2, 1,000,000 jobs on 10,000 devices", "at most 45 CPU s"]
    assert (late.measured, late.met) == ("over-budget: out of time", None)
    assert found["`cotenant --help`", "under 0.3 s"].met is None
    assert len(budgets.budget_cells()) == 7
    assert {cell["jobs"] for cell in budgets.budget_cells(100_000)} == {100_000}


def test_results_become_tables() -> None:
    machine = {
        "machine": {"cpus": 2, "architecture": "x", "system": "S", "implementation": "P", "python": "3"}
    }
    rows = [
        _row(cpu_s=0.1, spread=0.25, repeats=[0.1, 0.125], **machine),
        _row(cpu_s=99.0, policy="las"),
        _row(cpu_s=0.3, policy="las"),  # the later one counts
        _row(policy="las", devices=64, status="over-budget", budget_s=5),
        _row(policy="las", shape="zero"),
    ]
    lines = render.tables(rows).splitlines()
    assert "| fifo | 0.95 | 3,000 (100 MiB) |  |" in lines
    assert "| las | 0.95 | 1,000 (100 MiB) | over 5 s |" in lines
    # Three FIFOs; 300 jobs in 0.3 s, in 1.3 s with start-up; 900 events; the loop is half.
    assert "| las | 0.95 | 300 | 1,000 | 231 | 3.0 | 3.00 | 7 | 500.0 | 0.25 | 0.100, 0.120 |  |" in lines
    assert "Measured on 2 CPUs (x), S, P 3, one thread." in lines
    assert any("0.100 to 0.120 s" in line and "smaller than 20%" in line for line in lines)
    assert "Best of 2 runs; the slowest was up to 25% slower." in lines
    assert "### All jobs arrive at time 0: 300 jobs" in lines


def test_tables_go_between_the_marks_of_the_page(tmp_path: Path) -> None:
    results, page = tmp_path / "r.jsonl", tmp_path / "page.md"
    measure.append(results, [_row()])
    page.write_text(PAGE.read_text())
    for _ in range(2):  # doing it again changes nothing
        render.main([str(results), "--page", str(page)])
        text = page.read_text()
        assert text.count("### Jobs arrive one by one: 300 jobs") == 1
    assert text.startswith(PAGE.read_text().partition(render.BEGIN)[0])
    with pytest.raises(ValueError, match="results: begin"):
        render.put("no marks", "text")
    with pytest.raises(SystemExit):
        render.main([str(tmp_path / "none.jsonl")])


def test_the_page_names_commands_and_options_that_exist() -> None:
    text, known = PAGE.read_text(), ""
    for module in {"bench.speed", "bench", *re.findall(r"python -m (bench\.\w+)", text)}:
        done = subprocess.run(
            [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert "usage: python -m" in done.stdout
        known += done.stdout
    named = set(re.findall(r"`(?:python[^`]*? )?(--[a-z-]+)", text)) - {"--help"}
    assert named
    assert [option for option in sorted(named) if option not in known] == []


def test_a_torn_line_of_a_results_file_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "r.jsonl"
    measure.append(path, [{"a": 1}])
    with path.open("a") as file:
        file.write('{"b":')
    assert measure.read(path) == [{"a": 1}]
    measure.append(path, [{"c": 3}])
    assert json.loads(path.read_text().splitlines()[-1]) == {"c": 3}
    assert measure.read(path) == [{"a": 1}, {"c": 3}]


def test_the_calibration_loop_takes_some_time() -> None:
    assert measure.calibrate(1) > 0


def test_one_command_runs_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench import __main__ as whole

    called: list[str] = []
    for module in (startup, speed, decide, scaling, common_trace):
        monkeypatch.setattr(module, "main", lambda words, name=module.__name__: called.append(name))
    monkeypatch.setattr(
        speed, "measure_cells", lambda cells, out, **options: called.append(f"{len(cells)} cells of budgets")
    )
    (tmp_path / "traces" / "common").mkdir(parents=True)
    monkeypatch.setenv("COTENANT_DATA", str(tmp_path))
    out = tmp_path / "r.jsonl"
    measure.append(out, [_row(cpu_s=30.0, jobs=1_000_000, devices=10_000)])
    whole.main(["--full", "--out", str(out)])
    assert called[:4] == ["bench.startup", "7 cells of budgets", "bench.decide", "bench.common_trace"]
    assert called[4:] == ["bench.speed"] * 3 + ["bench.scaling"]
    said = capsys.readouterr().out
    assert "NOT MET  fifo, load 0.95, 1,000,000 jobs on 10,000 devices: at most 20 CPU s; 30.0 CPU s" in said
    assert "met  fifo, load 0.95, 1,000,000 jobs on 10,000 devices: at most 512 MiB; 100 MiB" in said
    called.clear()
    whole.main([])
    assert called == ["bench.startup", "bench.speed", "5 cells of budgets", "bench.decide"]
    with pytest.raises(SystemExit):
        whole.main(["--full"])
    assert "--full needs --out" in capsys.readouterr().err
