"""The command line from outside: exit codes, messages, and what goes to which stream."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = {
    "compare",
    "demo",
    "explain",
    "generate",
    "import",
    "policies",
    "replay",
    "report",
    "schema",
    "simulate",
    "traces",
    "validate",
}


def simulate(cotenant: Run, *words: str) -> tuple[int, dict[str, object], str]:
    done = cotenant("simulate", *words, "--json")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_help_names_every_command_and_the_exit_codes(cotenant: Run) -> None:
    done = cotenant("--help")
    assert done.returncode == 0
    assert {word for word in COMMANDS if f" {word} " in done.stdout} == COMMANDS
    assert "130 interrupted" in " ".join(done.stdout.split())


def test_without_a_command_the_help_is_shown_as_wrong_usage(cotenant: Run) -> None:
    done = cotenant()
    assert done.returncode == 2
    assert "Usage: cotenant" in done.stdout + done.stderr


def test_the_version_is_printed(inside: Run) -> None:
    from cotenant import __version__

    done = inside("--version")
    assert (done.returncode, done.stdout) == (0, f"cotenant {__version__}\n")


def test_json_is_one_object_with_exact_numbers(cotenant: Run, jobs_csv: Path) -> None:
    code, found, _ = simulate(cotenant, str(jobs_csv), "--policy", "fifo", "--gpus", "2")
    assert code == 0
    (policy,) = found["policies"]  # type: ignore[misc]
    assert policy["policy"] == "fifo"  # type: ignore[index]
    # a ends at 100, b at 300, c (submitted at 50) runs from 300 to 350.
    assert policy["mean_jct_s"] == pytest.approx((100 + 300 + 300) / 3)  # type: ignore[index]
    assert policy["mean_wait_s"] == pytest.approx(250 / 3)  # type: ignore[index]
    assert policy["makespan_s"] == 350.0  # type: ignore[index]
    assert policy["runs"][0]["status"] == "complete"  # type: ignore[index]
    assert found["complete"] is True


def test_the_table_goes_to_standard_output_and_remarks_elsewhere(inside: Run, jobs_csv: Path) -> None:
    done = inside("simulate", str(jobs_csv), "-p", "fifo", "--gpus", "2")
    assert done.returncode == 0
    assert "mean JCT" in done.stdout
    assert "n = 1: one seed" in done.stdout
    assert "written: out" in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr
    quiet = inside("simulate", str(jobs_csv), "-p", "fifo", "--gpus", "2", "--quiet")
    assert quiet.stderr == ""


def test_an_unknown_policy_gives_the_list_and_a_suggestion(inside: Run, jobs_csv: Path) -> None:
    """C25: a word nobody knows is never taken for a default."""
    done = inside("simulate", str(jobs_csv), "--policy", "pakc", "--gpus", "2")
    assert done.returncode == 2
    assert done.stdout == ""
    assert 'no policy "pakc"; did you mean "best-fit"' in done.stderr
    for name in ("fifo", "las", "colocate", "srtf"):
        assert name in done.stderr
    near = inside("simulate", str(jobs_csv), "--policy", "fiffo", "--gpus", "2")
    assert 'did you mean "fifo"?' in near.stderr
    assert not (jobs_csv.parent / "out").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["simulate", "jobs.csv", "-p", "fifo"], 1, "does not say on what cluster it ran; give --gpus N"),
        (["simulate", "nowhere.csv", "-p", "fifo", "--gpus", "2"], 1, "nowhere.csv: no such file"),
        (["simulate", "jobs.csv", "--gpus", "2", "-p", ","], 2, "no policy given; known: "),
        (["simulate", "-p", "fifo", "--gpus", "2"], 1, "give a trace"),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "0"], 1, "gpus must be 1 or more, found 0"),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--seeds", "0"], 1, "seeds must be 1 or more"),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--set", "x=1"], 2, 'no setting "x"'),
        (["simulate", "j", "--set", "max_sharers=abc"], 1, "max_sharers takes a whole number, found 'abc'"),
        (["simulate", "j", "--set", "max_sharers=1.5"], 1, "max_sharers takes a whole number, found '1.5'"),
        (["simulate", "j", "--set", "span_speed=fast"], 1, "span_speed takes a number, found 'fast'"),
        (["simulate", "j", "--set", "mixed_types=2"], 1, "mixed_types takes yes or no, found '2'"),
        (["simulate", "j", "--set", "gang_span=all"], 1, "takes one of never, larger-than-node, any"),
        (["simulate", "j", "--set", "round_s=often"], 1, "takes seconds, or a time such as"),
        (
            ["simulate", "j", "--set", "round_s=-5"],
            1,
            "setting round_s must be zero or more and finite, found -5",
        ),
        (["simulate", "jobs.csv", "-p", "fifo:x=1", "--gpus", "2"], 2, 'Fifo has no parameter "x"'),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--forecast", "lookpu"], 2, '"lookup"?'),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--runtime", "histroy"], 2, '"history"?'),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--cpu-jobs", "eat"], 1, "keep or drop"),
        (["simulate", "jobs.csv", "-p", "absent.py:X", "--gpus", "2"], 2, "no such file: absent.py"),
        (["simulate", "jobs.csv", "-p", "absent.py", "--gpus", "2"], 2, "no such file: absent.py"),
        (["simulate", "jobs.csv", "-p", "las:factor", "--gpus", "2"], 2, "write las:factor=VALUE"),
        (["simulate", "jobs.csv", "-p", "m.py:A:depth", "--gpus", "2"], 2, "write depth=VALUE"),
        (["simulate", "jobs.csv", "-p", "x:least=0,8", "--gpus", "2"], 2, "a comma separates policies"),
        (["policies", "absent.py:X"], 2, "no such file: absent.py"),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--cluster", "c.toml"], 1, "give one of them"),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--polcy", "x"], 2, "--polcy"),
        (
            ["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--gpu-type", "V10O"],
            2,
            'mean "V100"? known: A10',
        ),
        (["simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--gpu-type", "x"], 2, "in a cluster file"),
        (["simulat"], 2, "simulat"),
        (["replay", "jobs.csv"], 1, "cannot be read as a manifest"),
        (["validate", "nowhere.toml"], 1, "nowhere.toml: no such file"),
        (["schema", "jobb"], 2, 'did you mean "job"?'),
        (["policies", "fiffo"], 2, 'did you mean "fifo"?'),
        (["generate", "stedy", "-o", "x.csv"], 2, 'did you mean "steady"?'),
        (["import", "jobs.csv", "-o", "jobs.csv"], 1, "jobs.csv exists; give --force"),
        (["import", "jobs.csv", "-o", "x.csv", "--option", "a"], 1, "write name=value"),
    ],
)
def test_wrong_use_gives_one_clear_line_and_its_exit_code(
    inside: Run, jobs_csv: Path, words: list[str], code: int, message: str
) -> None:
    done = inside(*words)
    assert message in done.stderr
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "fault of cotenant" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_where_an_error_came_from(cotenant: Run, jobs_csv: Path) -> None:
    done = cotenant("simulate", str(jobs_csv), "-p", "fifo", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("zero.csv", b"", 1, "empty"),
        ("zero.csv.gz", gzip.compress(b"", mtime=0), 1, "empty"),
        ("header.csv", b"name,submit_s,duration_s\n", 0, ""),
        ("blank.csv", b"name,submit_s,duration_s\n\n\n", 0, ""),
        ("cpu.csv", b"name,submit_s,duration_s,gpus\na,0,10,0\n", 0, ""),
    ],
)
def test_nothing_at_all_is_a_valid_result_or_a_distinct_message(
    inside: Run, tmp_path: Path, name: str, content: bytes, code: int, message: str
) -> None:
    """C73."""
    (tmp_path / name).write_bytes(content)
    done = inside("simulate", name, "-p", "fifo", "--gpus", "2", "--json")
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "NaN" not in done.stdout
    if code == 0:
        (policy,) = json.loads(done.stdout)["policies"]
        finished = 1 if name == "cpu.csv" else 0
        assert policy["runs"][0]["summary"]["jobs_finished"] == finished
        assert policy["mean_jct_s"] == (10.0 if finished else None)
    else:
        assert name in done.stderr


def test_a_folder_and_a_missing_file_are_told_apart(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    folder = inside("simulate", "folder", "-p", "fifo", "--gpus", "2")
    missing = inside("simulate", "missing", "-p", "fifo", "--gpus", "2")
    assert folder.returncode == missing.returncode == 1
    assert "no such file" in missing.stderr
    assert "no such file" not in folder.stderr


def test_a_cluster_without_devices_refuses_for_ever_with_exit_code_3(inside: Run, jobs_csv: Path) -> None:
    cluster = jobs_csv.parent / "c.toml"
    cluster.write_text('[[nodes]]\nname = "n0"\ngpus = 0\ncpus = 8\n')
    done = inside("simulate", str(jobs_csv), "-p", "fifo", "--cluster", "c.toml", "--json")
    assert done.returncode == 3, done.stderr
    assert "none of the 3 jobs can ever run" in done.stderr
    assert json.loads(done.stdout)["policies"][0]["runs"][0]["summary"]["jobs_rejected"] == 3


def test_a_job_that_never_fits_does_not_spoil_the_rest(inside: Run, jobs_csv: Path) -> None:
    code, found, _ = simulate(inside, str(jobs_csv), "-p", "fifo", "--gpus", "1")
    assert code == 0
    summary = found["policies"][0]["runs"][0]["summary"]  # type: ignore[index]
    # c wants two devices; a and b take turns on the one there is: a ends at 100, b at 400.
    assert (summary["jobs_finished"], summary["jobs_rejected"]) == (2, 1)
    assert summary["jct_s_mean"] == pytest.approx(250.0)


def test_a_folder_that_is_not_ours_is_not_written(inside: Run, jobs_csv: Path) -> None:
    other = jobs_csv.parent / "thesis"
    other.mkdir()
    (other / "text.tex").write_text("x")
    done = inside("simulate", str(jobs_csv), "-p", "fifo", "--gpus", "2", "-o", "thesis")
    assert done.returncode == 1
    assert "not empty and holds no earlier run" in done.stderr
    assert [p.name for p in other.iterdir()] == ["text.tex"]
    forced = inside("simulate", str(jobs_csv), "-p", "fifo", "--gpus", "2", "-o", "thesis", "--force")
    assert forced.returncode == 0
    assert (other / "text.tex").read_text() == "x"


def test_a_failing_policy_leaves_the_others_whole(cotenant: Run, jobs_csv: Path, mine_py: Path) -> None:
    code, found, err = simulate(
        cotenant, str(jobs_csv), "-p", "mine.py:Failing:after_s=60,fifo", "--gpus", "2", "--workers", "2"
    )
    assert code == 1
    assert "mine.py:Failing:after_s=60 raised ValueError: boom" in err
    failed, fifo = found["policies"]  # type: ignore[misc]
    assert (failed["runs"][0]["status"], fifo["runs"][0]["status"]) == ("failed", "complete")  # type: ignore[index]
    assert fifo["makespan_s"] == 350.0  # type: ignore[index]
    manifest = json.loads((jobs_csv.parent / "out" / "manifest.json").read_text())
    assert [run["status"] for run in manifest["runs"]] == ["failed", "complete"]
    error = jobs_csv.parent / "out" / manifest["runs"][0]["folder"] / "error.txt"
    assert "ValueError: boom" in error.read_text()


def test_a_policy_of_ones_own_is_run_and_named_as_written(inside: Run, jobs_csv: Path, mine_py: Path) -> None:
    code, found, _ = simulate(inside, str(jobs_csv), "-p", "mine.py:Mine:factor=2.5", "--gpus", "2")
    assert code == 0
    (policy,) = found["policies"]  # type: ignore[misc]
    assert policy["policy"] == "mine.py:Mine:factor=2.5"  # type: ignore[index]
    assert policy["params"] == {"factor": 2.5}  # type: ignore[index]
    manifest = json.loads((jobs_csv.parent / "out" / "manifest.json").read_text())
    assert [i["role"] for i in manifest["inputs"]] == ["trace", "policy"]
    shown = inside("policies", "mine.py:Mine")
    assert "A policy of one's own." in shown.stdout
    assert "factor" in shown.stdout


def test_the_seeds_of_a_run_without_chance_count_as_one(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,submit_s,duration_s,gpus,model\na,0,100,1,ResNet-50\n")
    done = inside("simulate", "t.csv", "-p", "fifo", "--gpus", "2", "--seeds", "3")
    assert "1 in effect" in done.stdout
    code, found, _ = simulate(inside, "t.csv", "-p", "fifo", "--gpus", "2", "--seeds", "3")
    assert code == 0
    assert found["policies"][0]["runs_complete"] == 3  # type: ignore[index]
    assert found["policies"][0]["independent_runs"] == 1  # type: ignore[index]
    assert found["seeds"] == [0, 1, 2]


def test_names_from_a_trace_cannot_leave_their_place(inside: Run, tmp_path: Path) -> None:
    names = ["../../etc/passwd", "a[red]b", "x\x1b[31my", "=cmd()", "名前"]
    rows = [f'"{name}",{i},10,1' for i, name in enumerate(names)]
    (tmp_path / "t.csv").write_text("name,submit_s,duration_s,gpus\n" + "\n".join(rows) + "\n")
    done = inside("simulate", "t.csv", "-p", "fifo", "--gpus", "1", "-o", "o")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    found = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_dir()}
    assert found == {"o", "o/runs", "o/runs/fifo", "o/runs/fifo/seed-0"}


def test_a_policy_specification_never_becomes_a_path(inside: Run, jobs_csv: Path, mine_py: Path) -> None:
    work = jobs_csv.parent / "work"
    work.mkdir()
    done = inside("simulate", str(jobs_csv), "-p", "../mine.py:Mine", "--gpus", "2", "-o", "o", cwd=work)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (work / "o" / "runs").iterdir()] == ["mine.py-Mine"]
    assert sorted(p.name for p in work.iterdir()) == ["o"]


def test_a_run_file_says_all_that_the_options_say(inside: Run, jobs_csv: Path) -> None:
    (jobs_csv.parent / "run.toml").write_text(
        'trace = "jobs.csv"\npolicies = ["fifo"]\ngpus = 2\nseeds = 2\n[settings]\nmax_sharers = 2\n'
    )
    checked = inside("validate", "run.toml")
    assert checked.stdout.startswith("run.toml: valid run: 1 policies, 2 seeds")
    code, found, _ = simulate(inside, "--run", "run.toml")
    assert code == 0
    assert found["policies"][0]["runs_complete"] == 2  # type: ignore[index]
    (jobs_csv.parent / "run.toml").write_text('trace = "jobs.csv"\npolices = ["fifo"]\n')
    wrong = inside("simulate", "--run", "run.toml")
    assert wrong.returncode == 1
    assert "run.toml" in wrong.stderr
    assert "'policies'" in wrong.stderr
    both = inside("simulate", str(jobs_csv), "--run", "run.toml")
    assert "leave out the trace" in both.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus", "4"),
        ("--gpus-per-node", "8"),  # its default, but typed
        ("--gpu-type", "A100"),
        ("--seeds", "3"),
        ("--seed", "1"),
        ("--set", "max_sharers=1"),
        ("--runtime", "perfect"),
        ("--forecast", "perfect"),
        ("--truth", "modelled"),
        ("--profiles", "p"),
        ("--format", "native"),
        ("--option", "a=b"),
        ("--cluster", "c.toml"),
        ("--incidents", "i.toml"),
        ("--cpu-jobs", "drop"),
        ("--policy", "las"),
        ("--strict",),
    ],
)
def test_nothing_typed_beside_a_run_file_is_ignored(
    inside: Run, jobs_csv: Path, words: tuple[str, ...]
) -> None:
    (jobs_csv.parent / "run.toml").write_text('trace = "jobs.csv"\npolicies = ["fifo"]\ngpus = 2\n')
    done = inside("simulate", "--run", "run.toml", *words)
    assert done.returncode == 1
    assert done.stderr == f"error: --run FILE says it all; leave out {words[0]}, or write it into the file\n"
    assert not (jobs_csv.parent / "out").exists()
    fine = inside(
        "simulate", "--run", "run.toml", "-o", "o", "--workers", "1", "--json", "--quiet", "--force"
    )
    assert fine.returncode == 0, fine.stderr


def test_a_device_type_by_any_of_its_names_gives_the_same_bytes(inside: Run, jobs_csv: Path) -> None:
    logs = set()
    for i, name in enumerate(("V100", "v100", "Tesla V100", "nvidia-v100-sxm2-16gb")):
        words = ("-p", "colocate", "--gpus", "2", "--gpu-type", name, "-o", f"o{i}")
        assert inside("simulate", "jobs.csv", *words).returncode == 0
        logs.add((jobs_csv.parent / f"o{i}" / "runs" / "colocate" / "seed-0" / "events.jsonl").read_bytes())
    assert len(logs) == 1


def test_settings_that_are_times_take_units(inside: Run, jobs_csv: Path) -> None:
    words = (
        "-p",
        "fifo",
        "--gpus",
        "2",
        "--set",
        "checkpoint_s=10min",
        "--set",
        "round_s=90",
        "--set",
        "start_s=0",
    )
    assert inside("simulate", "jobs.csv", *words).returncode == 0
    settings = json.loads((jobs_csv.parent / "out" / "manifest.json").read_text())["settings"]
    assert (settings["checkpoint_s"], settings["round_s"], settings["start_s"]) == (600.0, 90.0, 0.0)


def test_results_are_compared_reported_and_explained(inside: Run, jobs_csv: Path, mine_py: Path) -> None:
    done = inside("simulate", "jobs.csv", "-p", "fifo,mine.py:Mine:factor=2", "--gpus", "2", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    table = inside("compare", "out")
    assert "mine.py:Mine:factor=2" in table.stdout
    assert "Completion time, mean" in table.stdout
    assert "fifo: all 2 seeds gave the same result, so n = 1 in effect" in table.stdout
    words = [line.split() for line in table.stdout.splitlines()]
    # a and b, of one GPU, start at once; c, of two, waits 250 s.
    assert ["1", "2", "0s", "0s"] in words
    assert ["2-4", "1", "4m", "10s", "4m", "10s"] in words
    assert ["1", "c", "(4m", "10s)", "c", "(4m", "10s)"] in words
    (command,) = [
        line.removeprefix("why: ") for line in table.stdout.splitlines() if line.startswith("why: ")
    ]
    assert command == "cotenant explain out --policy fifo --seed 0 c"
    assert inside(*command.split()[1:]).returncode == 0
    found = json.loads(inside("compare", "out", "--json").stdout)
    # The same rule under another name: the same times, so a mean of 700 / 3 s for both.
    assert found["wait_by_size"]["2-4"]["fifo"] == {"jobs": 1, "wait_s_mean": 250.0}
    assert found["longest_in_queue"]["fifo"] == [{"job": "c", "queued_s": 250.0}]
    means = [found["policies"][name]["jct_s_mean"]["mean"] for name in ("fifo", "mine.py:Mine:factor=2")]
    assert means == pytest.approx([700 / 3, 700 / 3])
    assert found["comparisons"][0]["speedup"]["mean"] == pytest.approx(1.0)

    page = inside("report", "out")
    assert page.returncode == 0, page.stderr
    html = (jobs_csv.parent / "out" / "report.html").read_text()
    assert "mine.py:Mine:factor=2" in html

    why = inside("explain", "out/runs/fifo/seed-0", "c")
    assert why.returncode == 0, why.stderr
    assert "250s" in why.stdout or "4m 10s" in why.stdout
    assert json.loads(inside("explain", "out/runs/fifo/seed-0", "c", "--json").stdout)["name"] == "c"
    many = inside("explain", "out", "c")
    assert many.returncode == 1
    assert (
        "holds 4 logs; name the policy with --policy (and --seed): fifo, mine.py:Mine:factor=2" in many.stderr
    )
    chosen = inside("explain", "out", "c", "--policy", "mine.py:Mine:factor=2", "--seed", "1")
    assert chosen.returncode == 0, chosen.stderr
    assert inside("explain", "out", "c", "--policy", "fifo").stdout == why.stdout
    assert 'no policy in out: "las"' in inside("explain", "out", "c", "--policy", "las").stderr
    assert (
        "fifo has no seed 9; it has 0, 1" in inside("explain", "out", "c", "--policy=fifo", "--seed=9").stderr
    )
    nobody = inside("explain", "out/runs/fifo/seed-0", "zz")
    assert nobody.returncode == 1
    assert "zz" in nobody.stderr


def test_two_folders_with_the_same_policy_are_told_apart(inside: Run, jobs_csv: Path) -> None:
    for name, gpus in (("small", "2"), ("large", "4")):
        assert inside("simulate", "jobs.csv", "-p", "fifo", "--gpus", gpus, "-o", name).returncode == 0
    found = json.loads(inside("compare", "small", "large", "--json").stdout)
    # Four devices: c need not wait, so completion takes 100, 300 and 50 s.
    assert found["policies"]["small/fifo"]["jct_s_mean"]["mean"] == pytest.approx(700 / 3)
    assert found["policies"]["large/fifo"]["jct_s_mean"]["mean"] == pytest.approx(150.0)
    missing = inside("compare", "nowhere")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "nowhere: no such folder" in missing.stderr


def test_a_trace_becomes_a_native_file_and_back(inside: Run, jobs_csv: Path) -> None:
    done = inside("import", "jobs.csv", "-o", "copy.parquet", "--json")
    found = json.loads(done.stdout)
    assert (found["jobs"], found["data_report"]["rows_read"]) == (3, 3)
    checked = inside("validate", "copy.parquet")
    assert checked.returncode == 0, checked.stderr
    assert "valid trace: 3 jobs" in checked.stdout


def test_generated_workloads_depend_on_the_seed_alone(inside: Run, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        done = inside("generate", "steady", "--jobs", "50", "--seed", seed, "-o", f"{name}.csv")
        assert done.returncode == 0, done.stderr
    a, b, c = ((tmp_path / f"{name}.csv").read_bytes() for name in "abc")
    assert a == b != c


def test_each_kind_of_file_is_recognised_and_checked(inside: Run, jobs_csv: Path) -> None:
    files = {
        "cluster.toml": (
            '[[nodes]]\nname = "n"\ncount = 2\ngpus = 4\ntype = "V100"\n',
            "cluster: 2 nodes, 8 dev",
        ),
        "job.toml": ('name = "a"\ngpus = 2\ngpu_memory = "6GiB"\n', 'job: "a", 2 GPU'),
        "spec.toml": ('[synthetic]\npreset = "steady"\njobs = 7\n', "spec: it describes 7 jobs"),
        "jobs2.csv": (jobs_csv.read_text(), "trace: 3 jobs"),
    }
    for name, (text, expected) in files.items():
        (jobs_csv.parent / name).write_text(text)
        done = inside("validate", name)
        assert (done.returncode, expected in done.stdout) == (0, True), (done.stdout, done.stderr)
    never = inside("validate", "job.toml", "--cluster", "cluster.toml")
    assert never.returncode == 0, never.stderr
    (jobs_csv.parent / "job.toml").write_text('name = "a"\ngpus = 9\n')
    assert inside("validate", "job.toml", "--cluster", "cluster.toml").returncode == 3
    (jobs_csv.parent / "odd.toml").write_text("colour = 3\n")
    odd = inside("validate", "odd.toml")
    assert "cannot tell what this describes from its keys (colour)" in odd.stderr


def test_jobs_of_a_trace_that_can_never_run_on_a_cluster_are_counted_with_reasons(
    inside: Run, tmp_path: Path
) -> None:
    (tmp_path / "c.toml").write_text(
        '[[nodes]]\nname = "n"\ngpus = 4\ntype = "V100"\n[[tenants]]\nname = "t"\nlimit_gpus = 2\n'
    )
    head = "name,submit_s,duration_s,gpus,tenant,device_types\n"
    rows = ["a,0,10,4,,", "b,0,10,8,,", "c,0,10,8,,", "d,0,10,1,,A100", "e,0,10,3,t,"]
    (tmp_path / "t.csv").write_text(head + "\n".join(rows) + "\n")
    done = inside("validate", "t.csv", "--cluster", "c.toml")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: 4 of 5 jobs can never run on the cluster of c.toml: 2 never-fits (first 'b': needs gpus 8, "
        "cluster gpus 4); 1 device-type (first 'd': needs types ['A100'], cluster types ['V100']); "
        "1 tenant-limit (first 'e': asks 3, limit 2)\n"
    )
    (tmp_path / "run.toml").write_text('trace = "t.csv"\npolicies = ["fifo"]\ngpus = 4\n')
    assert inside("validate", "run.toml", "--cluster", "c.toml").returncode == 3
    (tmp_path / "t.csv").write_text(head + rows[0] + "\n")
    fine = inside("validate", "t.csv", "--cluster", "c.toml")
    assert fine.returncode == 0
    assert "1 jobs, each of which can run on the cluster" in fine.stdout
    odd = inside("validate", "c.toml", "--cluster", "c.toml")
    assert (odd.returncode, "c.toml is a cluster" in odd.stderr) == (1, True)


def test_checking_a_run_file_runs_no_code_of_its_policies(inside: Run, jobs_csv: Path) -> None:
    (jobs_csv.parent / "trap.py").write_text("raise SystemExit('ran')\n")
    (jobs_csv.parent / "run.toml").write_text('trace = "jobs.csv"\npolicies = ["trap.py:X"]\ngpus = 2\n')
    done = inside("validate", "run.toml", cwd=jobs_csv.parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["job", "cluster", "run", "spec", "event", "manifest"])
def test_schemas_are_json_schemas(inside: Run, kind: str) -> None:
    found = json.loads(inside("schema", kind).stdout)
    assert found.get("$ref", "").startswith("#/$defs/") or "anyOf" in found
    assert found["$defs"]


def test_policies_and_formats_are_listed(inside: Run) -> None:
    from cotenant import registry

    found = json.loads(inside("policies", "--json").stdout)["policies"]
    assert [p["name"] for p in found] == registry.names("policy")
    assert [p["summary"] for p in found if p["summary"].startswith("cannot be loaded")] == []
    assert all(p["summary"] and p["card"].endswith(".md") for p in found)
    formats = json.loads(inside("traces", "--json").stdout)["formats"]
    assert [f["format"] for f in formats] == registry.names("trace format")
    assert all(f["title"] for f in formats)


def test_the_demo_writes_a_report(inside: Run, tmp_path: Path) -> None:
    done = inside("demo", "-o", "d", "--jobs", "60", "--seeds", "1", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert [p["policy"] for p in policies] == ["fifo", "backfill", "srtf", "las", "colocate"]
    assert (tmp_path / "d" / "report.html").stat().st_size > 10_000
    assert inside("replay", "d").returncode == 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "gpus", "mean_jct_s"),
    [("n500-g64", "64", 8250.8), ("n2000-g64", "64", 8984.1), ("n8000-g512", "512", 5703.9)],
)
def test_strict_fifo_over_one_big_node_gives_the_known_numbers(
    inside: Run, data_dir: Path, name: str, gpus: str, mean_jct_s: float
) -> None:
    """The common trace's README gives these means, exact where only counts matter."""
    trace = data_dir / "traces" / "common" / f"common-{name}.csv.gz"
    code, found, _ = simulate(inside, str(trace), "--policy", "fifo", "--gpus", gpus, "--gpus-per-node", gpus)
    assert code == 0
    assert found["policies"][0]["mean_jct_s"] == pytest.approx(mean_jct_s, abs=0.05)  # type: ignore[index]


def test_incidents_of_a_file_happen(inside: Run, jobs_csv: Path) -> None:
    (jobs_csv.parent / "i.toml").write_text(
        '[[incident]]\nkind = "node-down"\nat = "2min"\nnode = "n0"\nlasts = "80s"\n'
    )
    code, found, _ = simulate(inside, "jobs.csv", "-p", "fifo", "--gpus", "2", "--incidents", "i.toml")
    assert code == 0
    # b loses its device at 120 and begins again at 200: 500; then c until 550.
    assert found["policies"][0]["makespan_s"] == pytest.approx(550.0)  # type: ignore[index]


def test_completion_offers_commands(cotenant: Run) -> None:
    env = {"_COTENANT_COMPLETE": "complete_bash", "COMP_WORDS": "cotenant sim", "COMP_CWORD": "1"}
    done = cotenant(env=env)
    assert done.stdout.split() == ["simulate"]


def test_a_policy_whose_starts_are_all_refused_is_not_silent(inside: Run, jobs_csv: Path) -> None:
    (jobs_csv.parent / "over.py").write_text(
        "from cotenant import Params, Plan\n"
        "from cotenant.model.placement import Share\n"
        "from cotenant.model.plan import Start\n\n\n"
        "class Over(Params):\n"
        '    """Wants more memory than there is."""\n\n'
        "    def decide(self, view):\n"
        '        share = Share("spatial", 1 << 50, 500, 1000)\n'
        "        return Plan(tuple(Start(r.id, tuple(range(r.job.gpus)), share) for r in view.queue))\n"
    )
    done = inside("simulate", str(jobs_csv), "-p", "over.py:Over", "--gpus", "2", "--gpu-type", "V100")
    assert done.returncode == 0, done.stderr
    # At 0 two starts are refused, at 50 three.
    assert "over.py:Over: 3 of 3 jobs never started; 5 decisions refused: memory (5)." in done.stdout


def test_what_is_replaced_is_said(inside: Run, jobs_csv: Path) -> None:
    first = inside("simulate", str(jobs_csv), "-p", "fifo,las", "--gpus", "2", "--seeds", "2")
    assert "replaced" not in first.stderr
    second = inside("simulate", str(jobs_csv), "-p", "srtf", "--gpus", "2")
    assert "replaced: the earlier runs in out (fifo seeds 0, 1, las seeds 0, 1)" in second.stderr


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("simulate --policy fi", ["fifo", "first-fit"]),
        ("simulate --policy las,grr,sr", ["las,grr,srtf"]),
        ("simulate --forecast ad", ["adaptive"]),
        ("simulate --runtime rec", ["recent"]),
        ("simulate --format phil", ["philly-csv", "philly-raw"]),
        ("simulate --truth ca", ["campaign"]),
        ("simulate --set restore", ["restore_s="]),
        ("simulate --gpu-type H2", ["H200"]),
        ("import --format gav", ["gavel"]),
        ("policies gitt", ["gittins"]),
        ("devices RTX40", ["RTX4090"]),
        ("predict memory --device V100,K", ["V100,K80"]),
        ("predict resources --device T", ["T4"]),
        ("predict interference --device K", ["K80"]),
        ("predict runtime --format helio", ["helios"]),
    ],
)
def test_shells_complete_registered_names(cotenant: Run, typed: str, found: list[str]) -> None:
    words = f"cotenant {typed}"
    env = {
        "_COTENANT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert cotenant(env=env).stdout.split() == found
