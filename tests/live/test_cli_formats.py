"""What the live commands show and send, without a scheduler."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.app import livetables
from cotenant.app.livechange import new_share
from cotenant.app.livelogs import Harmless, pieces
from cotenant.app.livesubmit import bodies_of
from cotenant.errors import ConfigError, DeniedError, QuantityError, UnreachableError, UsageError
from cotenant.live.client import connect
from cotenant.live.statedir import open_state
from cotenant.live.tenants import admin_token
from cotenant.live.views import DeviceView, JobView, Resident, StatusView
from cotenant.runs.arrays import expand

GIB = 1 << 30


def job(**changes: Any) -> JobView:
    plain = JobView(
        id=7,
        name="resnet",
        tenant="",
        user="",
        status="running",
        reason="",
        gpus=1,
        devices=("gpu0",),
        priority=0,
        model="",
        command=("python", "train.py"),
        submitted=1000.0,
        started=1060.0,
    )
    return msgspec.structs.replace(plain, **changes)


def device(**changes: Any) -> DeviceView:
    plain = DeviceView(
        device=0,
        name="gpu0",
        uuid="GPU-1",
        index=0,
        kind="gpu",
        device_type="V100",
        state="up",
        memory_bytes=16 * GIB,
        memory_used_bytes=0,
        memory_free_bytes=16 * GIB,
        foreign_bytes=0,
        foreign_pids=(),
        busy=0.55,
        free_milli=600,
        residents=(),
        enforcement={},
    )
    return msgspec.structs.replace(plain, **changes)


def row(columns: tuple[str, ...], cells: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(columns, cells, strict=True))


def test_a_program_is_looked_for_where_the_caller_would_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "train"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    (tmp_path / "job.toml").write_text('name = "a"\ncommand = ["train", "x"]\n')
    (from_file,) = bodies_of([str(tmp_path / "job.toml")], {})
    (from_words,) = bodies_of(["train", "x"], {})
    assert from_file["command"] == from_words["command"] == [str(program), "x"]


# -- tables


def test_a_running_job_is_shown_with_its_share_slowdown_progress_and_end() -> None:
    one = job(
        compute_milli=400,
        compute_limit_milli=800,
        memory_bytes=6 * GIB,
        measured_speed=0.8,
        steps=50,
        total_steps=200,
        ends_at=(1360.0, 1330.0, 1390.0),
    )
    (cells,) = livetables.ps_rows([one], now=1090.0)
    assert row(livetables.PS_COLUMNS, cells) == {
        "job": "7",
        "name": "resnet",
        "status": "running",
        "on": "gpu0",
        "share": "40-80%",
        "MiB": "6,144",
        "slowdown": "1.25",
        "progress": "50/200 (25%)",
        "since": "30s",
        "ends": "4m 30s (4m-5m)",
        "why": "",
    }


def test_a_job_that_waits_shows_why_and_since_when_it_was_submitted() -> None:
    one = job(status="waiting", reason="not now: no room", devices=(), started=None)
    (cells,) = livetables.ps_rows([one], now=1090.0)
    shown = row(livetables.PS_COLUMNS, cells)
    assert (shown["on"], shown["slowdown"], shown["since"], shown["why"]) == (
        "",
        "",
        "1m 30s",
        "not now: no room",
    )


def test_a_job_that_ended_is_told_with_wait_and_time_against_what_was_expected() -> None:
    one = job(
        status="failed",
        reason="exit code 3",
        exit_code=3,
        ended=1180.0,
        predicted_s=(100.0, 90.0, 130.0),
        steps=1500,
    )
    (cells,) = livetables.history_rows([one])
    shown = row(livetables.HISTORY_COLUMNS, cells)
    assert (shown["waited"], shown["took"], shown["exit"], shown["how"]) == ("1m", "2m", "3", "exit code 3")
    assert (shown["expected"], shown["steps"]) == ("1m 40s (1m 30s-2m 10s)", "1,500 steps")


def test_a_job_that_never_started_took_no_time() -> None:
    (cells,) = livetables.history_rows([job(status="cancelled", started=None, ended=1030.0)])
    shown = row(livetables.HISTORY_COLUMNS, cells)
    assert (shown["waited"], shown["took"]) == ("30s", "")


def test_slowdown_now_stands_beside_the_predicted_one_with_its_range_the_right_way_round() -> None:
    beside = Resident(
        id=7,
        name="resnet",
        compute_milli=400,
        compute_limit_milli=1000,
        memory_bytes=GIB,
        mode="spatial",
        predicted_speed=(0.8, 0.5, 1.0),
        measured_speed=0.5,
    )
    other = msgspec.structs.replace(beside, id=8, name="bert", predicted_speed=None, measured_speed=None)
    rows = livetables.device_rows([device(residents=(beside, other), memory_used_bytes=3 * GIB)])
    first, second = (row(livetables.DEVICE_COLUMNS, cells) for cells in rows)
    assert first == {
        "device": "gpu0",
        "state": "up",
        "busy": "55%",
        "memory": "3,072/16,384 MiB",
        "job": "7 resnet",
        "share": "40-100%",
        "slowdown": "2.00",
        "predicted": "1.25 (1.00-2.00)",
    }
    assert (second["device"], second["job"], second["slowdown"], second["predicted"]) == (
        "",
        "8 bert",
        "",
        "",
    )


def test_c22_a_process_that_is_not_ours_is_shown_as_such() -> None:
    rows = livetables.device_rows([device(busy=0.0, foreign_bytes=10 * GIB, foreign_pids=(31, 32))])
    assert [cells[4] for cells in rows] == ["not ours: process 31, 32 (10,240 MiB)"]


def test_c57_a_reading_that_is_missing_is_not_shown_as_zero() -> None:
    shown = row(livetables.DEVICE_COLUMNS, livetables.device_rows([device(busy=None, memory_bytes=0)])[0])
    assert (shown["busy"], shown["memory"], shown["job"]) == ("n/a", "0 MiB", "free")


def test_who_waits_is_listed_with_what_it_asks_for() -> None:
    jobs = [
        job(),
        job(id=8, status="done"),
        job(id=9, status="waiting", gpus=2, memory_bytes=GIB, priority=3, reason="no room"),
        job(id=10, status="held", compute_milli=250, compute_limit_milli=250, reason=""),
        job(id=11, status="suspended", gpus=0),
    ]
    rows = livetables.waiting_rows(jobs, now=1600.0)
    assert rows == [
        ("9", "resnet", "2 devices, 1,024 MiB", "3", "10m", "no room"),
        ("10", "resnet", "25% of 1 device", "", "10m", "held"),
        ("11", "resnet", "no device", "", "10m", "suspended"),
    ]


def test_the_headline_counts_only_what_there_is() -> None:
    status = StatusView(
        version="1.0",
        policy="cotenant",
        forecast="none",
        epoch=1,
        pid=1,
        started=0.0,
        now=3600.0,
        events=0,
        counts={},
        waiting=1,
        running=2,
        devices=1,
        role="leader",
        warnings=(),
    )
    told = livetables.headline(status, [job(), job(), job(status="waiting")])
    assert told == "cotenant 1.0, policy cotenant, up 1h, 2 running, 1 waiting"
    assert livetables.headline(status, []).endswith("up 1h, no jobs")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("dédé job", "dédé job"),
        ("训练-01", "训练-01"),
        ("🚀", "🚀"),
        ("a|b", "a|b"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eabc", "\\u202eabc"),
        ("a\nb", "a\nb"),
    ],
)
def test_c67_names_of_all_kinds_are_shown_and_harm_nothing(
    name: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cotenant.app.console import print_table

    rows = livetables.ps_rows([job(name=name)], now=1090.0)
    print_table(livetables.PS_COLUMNS, rows)
    out = capsys.readouterr().out
    assert all(part in out for part in shown.split("\n"))
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_c67_columns_stand_below_each_other_by_display_width(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.cells import cell_len

    from cotenant.app.console import print_table

    print_table(("name", "status"), [("训练-01", "waiting"), ("abc", "waiting"), ("für 🚀", "waiting")])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len({cell_len(line.partition("waiting")[0]) for line in lines}) == 1


# -- output of jobs


class Output:
    """What a client says of an output, a MiB at a time, as the API does."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def output(self, _: int, *, stream: str, offset: int) -> tuple[int, bytes]:
        assert stream == "stdout"
        begin = max(0, len(self.text) + offset) if offset < 0 else offset
        data = self.text[begin : begin + (1 << 20)]
        return begin + len(data), data


def test_the_last_lines_of_a_long_output_are_its_last_lines() -> None:
    client: Any = Output(
        b"".join(b"line %07d\n" % i for i in range(500_000))
    )  # 6.5 MB, of which 4 MiB are read
    assert b"".join(pieces(client, 0, "stdout", follow=False, tail=2)) == b"line 0499998\nline 0499999\n"
    assert b"".join(pieces(client, 0, "stdout", follow=False, tail=0)) == b""
    assert b"".join(pieces(client, 0, "stdout", follow=False, tail=None)) == client.text


def test_colours_and_progress_bars_pass_and_what_can_do_harm_is_escaped() -> None:
    calm = Harmless()
    assert calm("für 训练 \x1b[1;31mred\x1b[0m\r50%\x1b[K\n\ttab".encode()) == (
        "für 训练 \x1b[1;31mred\x1b[0m\r50%\x1b[K\n\ttab".encode()
    )
    assert calm(b"\x1b]0;title\x07 \x1b[6n \x1bc \x7f") == b"\\x1b]0;title\\x07 \\x1b[6n \\x1bc \\x7f"
    assert calm("\x9b6n".encode()) == b"\\xc2\\x9b6n"


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
@settings(max_examples=200, deadline=None)
def test_where_output_is_cut_does_not_matter(data: bytes, cuts: list[int]) -> None:
    calm, whole = Harmless(), Harmless()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = b"".join(calm(data[a:b]) for a, b in itertools.pairwise(places)) + calm.rest()
    assert pieces == whole(data) + whole.rest()
    assert not any(byte in pieces for byte in b"\x00\x07\x7f")


# -- what is sent


def test_a_command_becomes_a_job_with_the_program_that_the_caller_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "trainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (body,) = bodies_of(["trainer", "--lr", "1\n2"], {"gpus": 0.4, "gpu_memory": "6GiB"})
    assert body == {
        "name": "trainer --lr 1 2",
        "command": [str(program), "--lr", "1\n2"],
        "cwd": str(tmp_path),
        "gpus": 0.4,
        "gpu_memory": "6GiB",
    }
    (other,) = bodies_of(["./no such", "x"], {"name": "n", "cwd": "sub"})
    assert (other["command"], other["cwd"]) == (["./no such", "x"], str(tmp_path / "sub"))


def test_options_stand_above_what_a_file_says_and_its_faults_are_told_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: [x]\npriority: 1\nenv:\n  A: '1'\n  B: '2'\n")
    (body,) = bodies_of(["job.yaml"], {"priority": 5, "env": {"B": "3"}})
    assert (body["priority"], body["env"], body["cwd"]) == (5, {"A": "1", "B": "3"}, str(tmp_path))
    file.write_text("name: a\ncommand: [x]\ngpu_memory: 6\n")
    with pytest.raises(ConfigError, match=r"job\.yaml:3.*no unit"):
        bodies_of(["job.yaml"], {})
    with pytest.raises(ConfigError, match=r"gpu_compute.*at most 100%"):
        bodies_of(["x"], {"gpu_compute": "140%"})
    with pytest.raises(UsageError, match="nothing to submit"):
        bodies_of([], {})


def test_an_array_and_a_sweep_make_a_job_for_each_number_and_combination() -> None:
    body = {
        "name": "t {lr}",
        "command": ["t", "--lr={lr}"],
        "env": {"SEED": "{seed}"},
        "array": 2,
        "sweep": {"lr": ["0.1", "0.01"], "seed": [1, 2], "depth": ["9"]},
    }
    found = expand(body)
    assert [one["name"] for one in found] == [
        f"t {lr} seed={seed} depth=9[{index}]"
        for lr in ("0.1", "0.01")
        for seed in (1, 2)
        for index in (0, 1)
    ]
    assert found[3] == {
        "name": "t 0.1 seed=2 depth=9[1]",
        "command": ["t", "--lr=0.1", "--depth", "9"],
        "env": {"SEED": "2", "COTENANT_ARRAY_INDEX": "1", "COTENANT_ARRAY_SIZE": "2"},
    }
    with pytest.raises(ConfigError, match="40,000 jobs at once; at most 10,000"):
        expand({"name": "a", "array": 10_000, "sweep": {"x": ["1", "2", "3", "4"]}})
    with pytest.raises(ConfigError, match="no values for x"):
        expand({"name": "a", "sweep": {"x": []}})


def test_a_new_share_is_read_with_its_units() -> None:
    assert new_share("40%", "0.8", "6GiB", 2) == {
        "compute_milli": 400,
        "compute_limit_milli": 800,
        "memory_bytes": 6 * GIB,
        "gpus": 2,
    }
    with pytest.raises(QuantityError, match="--limit 120%"):
        new_share(None, "120%", None, None)
    with pytest.raises(QuantityError, match="no unit"):
        new_share(None, None, "6", None)
    with pytest.raises(UsageError, match="nothing to change"):
        new_share(None, None, None, None)


# -- the connection


def test_where_no_scheduler_runs_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"no scheduler runs on .*start it: cotenant up"):
        connect(tmp_path)
    (tmp_path / "daemon.json").write_text(
        '{"pid": 1, "start_ticks": 5, "url": "http://127.0.0.1:1", "epoch": 1}'
    )
    with pytest.raises(UnreachableError, match=r"\(process 1\) does not run any more; its jobs do"):
        connect(tmp_path)


def test_the_environment_names_a_scheduler_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTENANT_URL", "https://host:1/")
    with pytest.raises(DeniedError, match="COTENANT_TOKEN is not"):
        connect()
    monkeypatch.setenv("COTENANT_TOKEN", "secret")
    found = connect()
    assert (found.url, found.token, found.verify) == ("https://host:1", "secret", True)
    # A state folder that is named stands above it.
    with pytest.raises(UnreachableError):
        connect(tmp_path)


@pytest.mark.parametrize("words", [("tenants", "list"), ("tenants", "list", "--json")])
def test_c67_nothing_depends_on_the_locale(words: tuple[str, ...], tmp_path: Path) -> None:
    import json
    import subprocess
    import sys

    # The folder's name is in the message, and in no character set of the C locale.
    state = tmp_path / "训练🚀"
    admin_token(open_state(state))
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    done = subprocess.run(
        [sys.executable, "-m", "cotenant", "token", "--path", *words[2:], "--state", os.fsencode(state)],
        env={**os.environ, **plain},
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode("ascii")
    if "--json" in words:
        assert os.fsencode(json.loads(shown)["path"]) == os.fsencode(state / "token")
    else:
        assert shown.startswith(str(tmp_path))


def test_adding_a_tenant_that_was_there_changes_only_what_is_named_and_says_what_holds(
    tmp_path: Path,
) -> None:
    from typer.testing import CliRunner

    from cotenant.app.main import app

    def add(*words: str) -> Any:
        return CliRunner().invoke(app, ["tenants", "add", "vision", "--state", str(tmp_path / "s"), *words])

    first = add("--quota", "1", "--limit", "2", "--isolation", "trusted", "--weight", "2")
    assert "was there" not in first.stderr
    again = add("--max-priority", "3")
    assert "its former token is good for nothing" in again.stderr
    assert "quota_gpus 1, limit_gpus 2, weight 2, isolation trusted, max_priority 3" in again.stderr
    assert again.stdout.strip().startswith("ct_")
    assert again.stdout != first.stdout
    wrong = add("--quota", "3")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "--quota 3 is more than --limit 2, and --limit was so before" in wrong.stderr
    assert "limit_gpus none" in add("--quota", "3", "--limit", "none").stderr


@pytest.mark.parametrize(
    "words", [("token",), ("tenants", "list"), ("tenants", "add", "a"), ("tenants", "remove", "a")]
)
@pytest.mark.parametrize("elsewhere", [True, False])
def test_what_is_for_the_owner_makes_no_folder_for_a_tenant_nor_where_no_scheduler_ran(
    words: tuple[str, ...], elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from cotenant.app.main import app

    for name in ("COTENANT_STATE_DIR", "COTENANT_URL", "COTENANT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    if elsewhere:
        monkeypatch.setenv("COTENANT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("COTENANT_TOKEN", "a-tenant's")
    done = CliRunner().invoke(app, list(words))
    if elsewhere:
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"{' '.join(words[:2]).removesuffix(' a')} is for whoever runs the scheduler" in done.stderr
    elif words == ("token",):
        assert (done.exit_code, done.stdout) == (4, "")
        assert "there is no token yet; start one: cotenant up" in done.stderr
    assert list(tmp_path.iterdir()) == ([tmp_path / "own"] if "add" in words and not elsewhere else [])


def test_a_name_with_line_breaks_stays_in_its_row() -> None:
    two = job(name="a\nb")
    assert livetables.job_title(two) == 'job 7 "a\\nb"'
    rows = [*livetables.ps_rows([two], 2000.0), *livetables.history_rows([two])]
    assert [row[1] for row in rows] == ["a\\nb"] * 2


@pytest.mark.parametrize(
    ("words", "url", "said"),
    [
        (("submit", "/"), "", "/ is a folder: name a job file"),
        (("submit", "--cwd", "/no/such/folder", "--", "true"), "", "no folder /no/such/folder; make it"),
        (("submit", "--priority", "9" * 20, "--", "true"), "", " 1000000"),
        (("priority", "7", "9" * 20), "", " 1000000"),
        (("ps",), "garbage", "COTENANT_URL is 'garbage', which is no address of a scheduler; write http://"),
        (("ps",), "http://", "COTENANT_URL is 'http://', which is no address"),
        (("submit", "--cwd", "/no/such/folder", "--", "true"), "garbage", "COTENANT_URL is 'garbage'"),
    ],
)
def test_what_cannot_be_is_told_before_anybody_is_asked(
    words: tuple[str, ...], url: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from cotenant.app.main import app

    monkeypatch.delenv("COTENANT_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COTENANT_URL", url)
    monkeypatch.setenv("COTENANT_TOKEN", "secret")
    done = CliRunner().invoke(app, list(words))
    told = done.stderr or str(done.exception)
    assert done.exit_code in (1, 2)
    assert said in " ".join(told.split())


@pytest.mark.parametrize(
    ("url", "ends"),
    [
        ("http://gpu-host:4711", False),
        ("http://127.0.0.1:4712", False),
        ("http://127.0.0.1:4711", True),
        ("http://localhost:4711/", True),
        ("", True),
    ],
)
def test_down_ends_only_the_scheduler_that_the_environment_names(
    url: str, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess
    import sys
    import threading

    from typer.testing import CliRunner

    from cotenant.app.main import app
    from cotenant.executors.local.layout import start_ticks

    monkeypatch.setenv("COTENANT_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("COTENANT_URL", url)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    waiting = threading.Thread(target=process.wait, daemon=True)
    waiting.start()
    try:
        told = {"pid": process.pid, "start_ticks": start_ticks(process.pid), "epoch": 1}
        (tmp_path / "daemon.json").write_bytes(msgspec.json.encode({**told, "url": "http://127.0.0.1:4711"}))
        (tmp_path / "token").write_text("the-owners\n")
        monkeypatch.setenv("COTENANT_TOKEN", "a-tenants")
        refused = CliRunner().invoke(app, ["down"])
        assert (refused.exit_code, process.poll()) == (1, None)
        assert ("COTENANT_TOKEN is not the token of its owner" in " ".join(refused.stderr.split())) == ends
        monkeypatch.setenv("COTENANT_TOKEN", "the-owners")
        done = CliRunner().invoke(app, ["down"])
        if ends:
            waiting.join(60.0)
        assert (done.exit_code == 0, waiting.is_alive()) == (ends, not ends)
        if not ends:
            said = " ".join(done.stderr.split())
            assert f"COTENANT_URL names {url}, and that of {tmp_path} is another one, at http" in said
            named = CliRunner().invoke(app, ["down", "--state", str(tmp_path), "--json"])
            assert msgspec.json.decode(named.stdout)["pid"] == process.pid
    finally:
        process.kill()
        process.wait()
    gone = CliRunner().invoke(app, ["down"])
    assert (gone.exit_code, "no" in gone.stderr) == (1 if url else 4, True)


def test_programs_that_are_not_there_are_noticed(tmp_path: Path) -> None:
    from cotenant.app.livesubmit import bodies_of, missing_programs

    (tmp_path / "run.sh").touch()
    place = {"cwd": str(tmp_path)}
    there = [["sh", "-c", "true"], ["./run.sh"], [str(tmp_path / "run.sh")]]
    absent = [["nosuchcmd-1"], ["./nosuch.sh"], ["nosuchcmd-1", "again"]]
    bodies = [body for words in [*there, *absent] for body in bodies_of(words, place)]
    bodies += bodies_of(["nosuchcmd-2"], {**place, "env": {"PATH": "/elsewhere"}})
    assert missing_programs(bodies) == ["nosuchcmd-1", "./nosuch.sh"]
