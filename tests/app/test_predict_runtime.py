"""``cotenant predict runtime``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cotenant.app.main import app


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["predict", "runtime", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    rows = [f"run-{k},{k * 100000},{60 if k % 4 else 6000},1,ann" for k in range(24)]
    path.write_text("name,submit_s,duration_s,gpus,user\n" + "\n".join(rows) + "\n")
    return str(path)


def test_quantiles_of_alike_jobs(trace: str) -> None:
    code, out, _ = run(trace, "--user", "ann", "--name", "run-77", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["runs_s"]["p50"] == pytest.approx(60.0)
    assert found["latest_alike"] == 24
    code, out, _ = run(trace, "--user", "ann", "--name", "run-77", "--elapsed", "10min", "--json")
    assert json.loads(out)["runs_s"]["p50"] == pytest.approx(6000.0)


def test_errors_over_the_history(trace: str) -> None:
    code, out, _ = run(trace, "--evaluate")
    assert code == 0
    assert "history" in out
    assert "recent" in out


def test_the_steps_of_a_run_say_when_it_ends(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    # The first five of 2 s warm up, then 0.5 s each; 41 ends of steps.
    ends = [0.0]
    for k in range(40):
        ends.append(ends[-1] + (2.0 if k < 5 else 0.5))
    steps.write_text("".join(f"{round(t * 1e9)}\n" for t in ends))
    code, out, _ = run("--steps", str(steps), "--iterations", "141", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["sample"]["iteration_s"] == pytest.approx(0.5)
    assert found["remaining_s"]["at_s"] == pytest.approx(50.0)
    assert "will finish 50s after" in run("--steps", str(steps), "--iterations", "141")[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give a trace of jobs that ended"),
        (["--steps", "absent"], "absent: no such file"),
        (["absent.csv"], "absent.csv"),
        (["absent.csv", "--steps", "x"], "not both"),
    ],
)
def test_what_is_missing_is_named(words: list[str], told: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert told in err


def test_more_steps_than_iterations_and_too_few_are_refused(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.write_text("1\n2\n")
    assert "holds 2 steps" in run("--steps", str(steps))[2]
    steps.write_text("".join(f"{k}000000000\n" for k in range(1, 30)))
    assert "holds 29 steps, more than --iterations 10" in run("--steps", str(steps), "--iterations", "10")[2]


def test_questions_that_make_no_sense_are_refused_and_thin_answers_say_so(trace: str) -> None:
    assert "--gpus is a number of devices, 0 or more, found -1" in run(trace, "--gpus", "-1")[2]
    assert (
        "--elapsed soon: is no duration; write one such as 230ms, 90s" in run(trace, "--elapsed", "soon")[2]
    )
    _, out, _ = run(trace, "--gpus", "99", "--user", "nobody")
    assert "no job like it ended; from the latest 24 of all jobs" in out
    _, _, err = run(trace, "--elapsed", "9000d")
    assert "rule of thumb" in err
    # 24 jobs, a quarter of them a hundred times as long: the first ranges cannot hold what they promise.
    assert "and 24 jobs are few for that" in run(trace, "--evaluate")[2]


@pytest.mark.parametrize("rows", [[], ["a,0,50,1,failed", "b,5,60,1,cancelled"]])
def test_a_history_without_an_end_foretells_nothing(tmp_path: Path, rows: list[str]) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["name,submit_s,duration_s,gpus,outcome", *rows]) + "\n")
    code, out, err = run(str(path), "--gpus", "2")
    assert (code, out) == (1, "")
    assert f"no job of it ended well ({len(rows)} jobs in all)" in err


def test_json_says_where_the_history_ends(trace: str) -> None:
    # The longest of the history's jobs ran 6,000 s.
    for elapsed, beyond in (("10min", False), ("2h", True)):
        code, out, err = run(trace, "--user", "ann", "--elapsed", elapsed, "--json")
        assert (code, json.loads(out)["beyond_history"]) == (0, beyond)
        assert ("rule of thumb" in err) == beyond
