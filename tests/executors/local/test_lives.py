"""One attempt from start to end: environment, output, exit codes, stops, whole trees."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from hostlab import Lab, cores, gone, job, marked, wait_for

from cotenant.executors.local import layout, shepherd
from cotenant.executors.local.devices import DeviceInfo
from cotenant.executors.local.launching import Limits
from cotenant.executors.local.outputs import read_output
from cotenant.model.liveports import AttemptPaused, Launch, Progress
from cotenant.model.placement import Share

STATUS = """
import mmap, os, struct, sys, time
def status():
    file = os.open(os.environ["COTENANT_STATUS"], os.O_RDWR)
    return mmap.mmap(file, 4096)
"""


def test_a_job_runs_in_its_folder_with_exactly_the_environment_that_it_was_given(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    host = lab.host()
    code = (
        "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), sorted(os.sched_getaffinity(0))]))"
    )
    host.launch(
        job(code, 7, attempt=3, serial=2, env={"MINE": "1", "COTENANT_JOB_ID": "99", "OMP_NUM_THREADS": "5"})
    )
    assert lab.ended(host, 7).outcome == "done"
    env, cwd, affinity = json.loads(lab.output(7, 2))
    assert cwd == str(lab.path(7, "work")) and affinity == [cores()[0]]
    assert "SECRET_OF_THE_DAEMON" not in env and "PYTHONPATH" not in env
    assert env["MINE"] == "1" and env["OMP_NUM_THREADS"] == "5" and env["MKL_NUM_THREADS"] == "1"
    # What names the attempt cannot be overridden (C42: its environment is its own reservation's).
    assert (env["COTENANT_JOB_ID"], env["COTENANT_ATTEMPT"]) == ("7", "3")
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env["COTENANT_STATE"] == str(lab.path(7, "state")) and "COTENANT_RESUME" not in env


@pytest.mark.parametrize(
    ("code", "outcome", "number", "signalled"),
    [
        ("pass", "done", 0, 0),
        ("raise SystemExit(3)", "failed", 3, 0),
        ("import os; os.kill(os.getpid(), 11)", "failed", 0, 11),
        ("raise MemoryError('no room')", "out-of-memory", 1, 0),
        ("raise SystemExit(85)", "failed", 85, 0),
    ],
)
def test_how_a_job_ended_is_told_as_it_was(
    lab: Lab, code: str, outcome: str, number: int, signalled: int
) -> None:
    host = lab.host()
    host.launch(job(code))
    ended = lab.ended(host)
    assert (ended.outcome, ended.code, ended.signal) == (outcome, number, signalled)


def test_a_command_that_is_not_there_a_folder_that_is_not_there_and_a_device_that_is_not_there(
    lab: Lab,
) -> None:
    host = lab.host()
    host.launch(Launch(id=0, attempt=1, serial=0, epoch=1, command=("no-such-command",)))
    ended = lab.ended(host, 0)
    assert (
        ended.outcome == "not-started"
        and "No such file" in ended.detail
        and "no-such-command" in ended.detail
    )
    host.launch(job("pass", 1, cwd="/no/such/folder"))
    ended = lab.ended(host, 1)
    assert ended.outcome == "not-started" and "working folder" in ended.detail
    host.launch(job("pass", 2, devices=(9,)))
    ended = lab.ended(host, 2)
    assert ended.outcome == "not-started" and "device 9" in ended.detail
    assert host.running() == []


def test_a_process_that_cannot_be_made_is_an_answer_not_an_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = lab.host()

    def refused(*_: object, **__: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "posix_spawn", refused)
    host.launch(job("pass"))
    ended = lab.ended(host)
    assert ended.outcome == "not-started" and "temporarily unavailable" in ended.detail
    assert ended.again, "processes come back"
    monkeypatch.undo()
    host.launch(job("open('ran', 'a').write('x')"))
    assert lab.ended(host).outcome == "done", "one that was not started for want of them is tried anew"
    host.launch(job("open('ran', 'a').write('x')"))
    assert lab.ended(host).outcome == "done"
    assert lab.path(0, "work", "ran").read_text() == "x", (
        "the same serial is told of again, not started again"
    )


def test_a_program_that_is_not_there_is_not_tried_anew(lab: Lab) -> None:
    host = lab.host()
    host.launch(Launch(id=0, attempt=1, serial=0, epoch=1, command=("/no/such/program",), devices=(0,)))
    ended = lab.ended(host)
    assert (ended.outcome, ended.again) == ("not-started", False)
    wait_for(lambda: not list(lab.path(0, "serial-0").glob("*.room")), "the room that was kept is given back")


def test_a_shepherd_that_cannot_make_a_process_is_tried_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The shepherd itself, as it runs: its fork fails once."""
    broken = tmp_path / "broken.py"
    text = Path(shepherd.__file__).read_text()
    once = "import os\n_fork = os.fork\ndef _none():\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = _none\n"
    # It finds the package by its own place.
    head, tail = text.split('if __name__ == "__main__":', 1)
    tail = tail.replace("__file__", repr(shepherd.__file__), 1)
    broken.write_text(
        f'{head}if __name__ == "__main__":{tail}'.replace(
            "import contextlib\n", f"import contextlib\n{once}", 1
        )
    )
    host = lab.host()
    monkeypatch.setattr(shepherd, "__file__", str(broken))
    host.launch(job("open('ran', 'a').write('x')"))
    ended = lab.ended(host)
    assert (ended.outcome, ended.again) == (
        "not-started",
        True,
    ) and "no process could be made" in ended.detail
    monkeypatch.undo()

    def done() -> bool:
        host.launch(job("open('ran', 'a').write('x')"))
        return lab.ended(host).outcome == "done"

    wait_for(done, "it is tried anew once the shepherd has left")
    assert lab.path(0, "work", "ran").read_text() == "x"


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel does not count root's processes")
def test_a_shepherd_that_may_make_no_process_says_so(lab: Lab) -> None:
    host = lab.host()
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    try:
        host.launch(job("pass"))
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    assert lab.ended(host).outcome == "not-started"


def test_a_job_is_not_of_the_real_time_class_that_its_scheduler_may_be_of(lab: Lab) -> None:
    host = lab.host()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pytest.skip("only root may have it")
    try:
        host.launch(job("import os; print(os.sched_getscheduler(0), os.SCHED_OTHER)"))
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    assert lab.ended(host).outcome == "done"
    found, other = lab.output().split()
    assert found == other


def test_a_launch_told_twice_starts_once(lab: Lab) -> None:
    host = lab.host()
    launch = job("open('ran', 'a').write('x')")
    for _ in range(3):
        host.launch(launch)
    assert lab.ended(host).outcome == "done"
    host.launch(launch)
    assert lab.ended(host).outcome == "done", "told again"
    assert (lab.path(0, "work", "ran")).read_text() == "x"


@pytest.mark.parametrize("mode", ["suspend", "terminate"])
def test_a_job_without_runtime_gets_term_and_after_the_grace_kill(lab: Lab, mode: str) -> None:
    code = (
        "import signal, time; signal.signal(15, lambda *_: print('asked', flush=True)); print('up', flush=True)\n"
        "while 1: time.sleep(1)"
    )
    # On a busy machine a job may come to nothing within a short grace.
    for number, term_s in enumerate((0.3, 3.0, 30.0)):
        host = lab.host(limits=Limits(suspend_s=60.0, term_s=term_s))
        host.launch(job(code, number))
        lab.started(host, number)
        wait_for(lambda n=number: "up" in lab.output(n), "the job's first word")
        host.stop(number, 1, 0, mode)  # type: ignore[arg-type]
        ended = lab.ended(host, number)
        assert (ended.outcome, ended.signal) == ("killed", signal.SIGKILL)
        host.close()
        lab.hosts.clear()
        if lab.output(number).split() == ["up", "asked"]:
            return
    pytest.fail(f"not asked: {lab.output(number)}")


def test_a_job_that_can_saves_and_is_suspended_and_goes_on(lab: Lab) -> None:
    code = (
        STATUS
        + """
start = 5 if os.environ.get("COTENANT_RESUME") else 0
while start and not os.path.exists(os.environ["COTENANT_STATE"] + "/go"): time.sleep(0.01)
page = status()
struct.pack_into("<QQ", page, 8, start, 7); struct.pack_into("<Q", page, 40, 3)
print("started at", start, flush=True)
for step in range(start + 1, 8):
    time.sleep(0.02)
    struct.pack_into("<Q", page, 8, step)
    if step == 5 and not start:
        while struct.unpack_from("<Q", page, 64)[0] != 1: time.sleep(0.01)
        open(os.environ["COTENANT_STATE"] + "/saved", "w").write("5")
        struct.pack_into("<QQQ", page, 40, 7, 1000, 5)
        sys.exit(85)
"""
    )
    host = lab.host(limits=Limits(suspend_s=30.0, term_s=1.0))
    host.launch(job(code))
    lab.until(host, lambda r: isinstance(r, Progress) and r.steps == 5)
    host.stop(0, 1, 0, "suspend")
    ended = lab.ended(host)
    assert (ended.outcome, ended.steps) == ("suspended", 5)
    host.launch(job(code, serial=1, resume=True))
    # Before it tells of itself, it is told as it was left: so many steps, of so many.
    lab.until(host, lambda r: isinstance(r, Progress) and r.serial == 1 and (r.steps, r.total) == (5, 7))
    (go,) = lab.folder.glob("**/saved")
    go.with_name("go").touch()
    ended = lab.ended(host)
    assert (ended.outcome, ended.steps) == ("done", 2), "steps of this start alone"
    assert lab.output(serial=1) == "started at 5\n"


HEEDLESS = (
    STATUS
    + """
page = status(); struct.pack_into("<Q", page, 40, {flags})
print("up", flush=True)
while not struct.unpack_from("<Q", page, 64)[0]: time.sleep(0.01)
{then}
"""
)


def test_a_job_that_does_not_save_in_time_is_terminated(lab: Lab) -> None:
    host = lab.host(limits=Limits(suspend_s=0.3, term_s=120.0))
    host.launch(job(HEEDLESS.format(flags=3, then="time.sleep(300)")))
    wait_for(lambda: host.poll(0.05) is not None and "up" in lab.output(), "the job")
    host.stop(0, 1, 0, "suspend")
    ended = lab.ended(host)
    assert (ended.outcome, ended.signal) == ("killed", signal.SIGTERM)


def test_a_job_that_says_it_is_saving_gets_more_time(lab: Lab) -> None:
    # Also between the end of the save and its own end.
    then = "struct.pack_into('<Q', page, 40, 11); time.sleep(2.5); struct.pack_into('<Q', page, 40, 7); time.sleep(0.4); sys.exit(85)"
    host = lab.host(limits=Limits(suspend_s=1.5, term_s=1.0))
    host.launch(job(HEEDLESS.format(flags=3, then=then)))
    wait_for(lambda: host.poll(0.05) is not None and "up" in lab.output(), "the job")
    host.stop(0, 1, 0, "suspend")
    assert lab.ended(host).outcome == "suspended"
    saved = json.loads(lab.path(0, "serial-0", "exit.json").read_text())
    assert 1.5 < saved["save_s"] < 180.0, "and the next grace is worked out from that"


def test_a_harder_stop_overtakes_a_gentle_one(lab: Lab) -> None:
    host = lab.host(limits=Limits(suspend_s=300.0, term_s=300.0))
    host.launch(job(HEEDLESS.format(flags=3, then="time.sleep(300)")))
    wait_for(lambda: host.poll(0.05) is not None and "up" in lab.output(), "the job")
    host.stop(0, 1, 0, "suspend")
    host.stop(0, 1, 0, "kill")
    ended = lab.ended(host)
    assert (ended.outcome, ended.signal) == ("killed", signal.SIGKILL)


def test_a_state_that_is_not_of_the_last_step_is_no_suspension(lab: Lab) -> None:
    code = (
        STATUS
        + "page = status(); struct.pack_into('<Q', page, 8, 9); struct.pack_into('<QQQ', page, 40, 7, 10, 4); sys.exit(85)"
    )
    host = lab.host()
    host.launch(job(code))
    ended = lab.ended(host)
    assert ended.outcome == "failed" and "not of its last step" in ended.detail


TREE = """
import os, subprocess, sys, time
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            {mark}
            open(sys.argv[0] if 0 else 'pids', 'a').write(f"{{os.getpid()}}\\n")
            time.sleep(300)
        os._exit(0)
    os.wait()
daemon()
while not (os.path.exists("pids") and open("pids").read()): time.sleep(0.01)
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"])
time.sleep({stay})
"""


def test_daemons_that_a_job_leaves_behind_end_with_it(lab: Lab) -> None:
    host = lab.host(limits=Limits(suspend_s=1.0, term_s=0.5))
    host.launch(job(TREE.format(mark="pass", stay=0.2)))
    assert lab.ended(host).outcome == "done"
    daemon = int((lab.path(0, "work", "pids")).read_text())
    assert gone(daemon) and marked(lab.folder / "jobs") == []


def test_a_kill_ends_the_whole_tree_even_of_a_job_that_ignores_term(lab: Lab) -> None:
    host = lab.host()
    host.launch(
        job("import signal; signal.signal(15, signal.SIG_IGN)\n" + TREE.format(mark="pass", stay=300))
    )
    pids = wait_for(
        lambda: lab.path(0, "work", "pids").is_file() and lab.path(0, "work", "pids").read_text(), "a daemon"
    )
    host.stop(0, 1, 0, "kill")
    ended = lab.ended(host)
    assert (ended.outcome, ended.signal) == ("killed", signal.SIGKILL) and gone(int(pids))


def test_paused_is_not_gone(lab: Lab) -> None:
    """C38: a job stopped by signal holds its memory, and is listed so until it goes on."""
    host = lab.host()
    host.launch(
        job(
            "hold = bytearray(30 << 20)\nimport time\nfor n in range(10**6): print(n, flush=True); time.sleep(0.01)"
        )
    )
    lab.started(host)
    wait_for(lab.output, "the first line")
    host.pause(0, 1, 0, True)
    told = lab.until(host, lambda r: isinstance(r, AttemptPaused))
    assert told.paused
    found = host.running()
    assert [f.paused for f in found] == [True]
    state = Path(f"/proc/{found[0].pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T"
    resident = int(Path(f"/proc/{found[0].pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident >= 30 << 20

    def still() -> bool:
        before = lab.output()
        time.sleep(0.2)
        return lab.output() == before

    wait_for(still, "what it had written before is taken up, and it does nothing while it is paused")
    lines = lab.output()
    host.pause(0, 1, 0, False)
    assert not lab.until(host, lambda r: isinstance(r, AttemptPaused)).paused
    wait_for(lambda: lab.output() != lines, "it goes on")
    host.pause(0, 1, 0, True)
    host.stop(0, 1, 0, "terminate")
    assert lab.ended(host).outcome == "killed", "a paused job can be stopped"


def test_output_is_rotated_and_read_by_one_offset(lab: Lab) -> None:
    host = lab.host(limits=Limits(log_bytes=1000, log_keep=2))
    host.launch(job("import sys\nfor n in range(500): sys.stdout.write(f'{n:09d}\\n')"))
    assert lab.ended(host).outcome == "done"
    folder = lab.path(0, "serial-0")
    logs = sorted(p.name for p in folder.glob("stdout.log*"))
    assert logs == ["stdout.log", "stdout.log.3", "stdout.log.4"]
    assert [(folder / n).stat().st_size for n in logs] == [0, 1000, 1000]
    piece = read_output(str(folder), "stdout", 0, limit=1000)
    assert piece.offset == 3000 and piece.data[:10] == b"000000300\n", "what was rotated away is said to be"
    piece = read_output(str(folder), "stdout", 4990, limit=1000)
    assert (piece.offset, piece.data, piece.end) == (4990, b"000000499\n", 5000)
    assert read_output(str(folder), "stdout", -20, limit=1000).offset == 4980
    assert read_output(str(folder), "stdout", 5000, limit=1000).data == b""


def test_steps_of_a_job_without_runtime_are_counted(lab: Lab) -> None:
    host = lab.host()
    code = "import os, time\nf = open(os.environ['COTENANT_STEPS'], 'a', buffering=1)\nfor n in range(40):\n f.write(f'{time.monotonic_ns()} 1\\n'); time.sleep(0.02)\n while n == 30 and not os.path.exists('go'): time.sleep(0.02)"
    host.launch(job(code))
    found = lab.until(host, lambda r: isinstance(r, Progress) and r.steps > 20 and r.step_s > 0)
    assert 0.015 < found.step_s < 20.0
    lab.path(0, "work", "go").touch()
    assert lab.ended(host).steps == 40


def test_the_last_word_of_a_job_keeps_what_it_used(lab: Lab) -> None:
    host = lab.host()
    code = "hold = b'x' * (40 << 20)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    host.launch(job(code))
    before = lab.until(host, lambda r: isinstance(r, Progress) and r.memory_bytes > 40 << 20)
    assert isinstance(before, Progress)
    lab.path(0, "work", "go").touch()
    wait_for(lab.path(0, "serial-0", "exit.json").exists, "its end, while nobody looks")
    last = host._sampler.one(host._attempts[0, 0])
    assert last is not None and last.memory_bytes > 40 << 20 and last.cpu_s >= before.cpu_s


def test_names_of_all_kinds_reach_no_path(lab: Lab) -> None:
    """C67: words may hold anything; folders are numbers."""
    host = lab.host()
    words = ("../../x", "训练-01", "a|b", "\x1b[31m", "=1+1", "🙂")
    host.launch(
        Launch(
            id=0,
            attempt=1,
            serial=0,
            epoch=1,
            tenant="../../etc",
            env={"NAME": words[1]},
            command=(
                sys.executable,
                "-S",
                "-c",
                "import os, sys; print(ascii(sys.argv[1:] + [os.environ['NAME']]))",
                *words,
            ),
        )
    )
    assert lab.ended(host).outcome == "done"
    assert lab.output().strip() == ascii([*words, words[1]])
    assert sorted(p.name for p in lab.folder.iterdir()) == ["epoch", "jobs", "live", "notify"]
    assert sorted(p.name for p in lab.path(0).iterdir()) == ["serial-0", "state", "work"]
    assert {p.stat().st_mode & 0o077 for p in lab.path(0).rglob("*")} <= {0, 0o077 & 0o022, 0o044}
    assert lab.path(0, "serial-0", "spec.json").stat().st_mode & 0o077 == 0


def test_two_jobs_at_one_time_get_each_its_own(lab: Lab) -> None:
    """C42: started in reverse order, each has its own limit."""
    host = lab.host()
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
    small, large = 600 << 20, 24_576 << 20
    for number, size in ((1, large), (0, small)):
        host.launch(job(code, number, share=Share("spatial", size, 400, 400), devices=(0,)))
    for number, size in ((0, small), (1, large)):
        assert lab.ended(host, number).outcome == "done"
        assert int(lab.output(number)) == size * 5 // 4 + (256 << 20)


def test_a_gang_gets_rendezvous_words_and_ends_as_one(lab: Lab) -> None:
    if len(cores()) < 2:
        pytest.skip("a gang needs two cores")
    host = lab.host()
    code = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'], os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'], flush=True)\n"
    host.launch(job(code, 0, devices=(0, 1), gpus=2, processes="per-device"))
    assert lab.ended(host).outcome == "done"
    lines = sorted(line.split() for line in lab.output().splitlines())
    assert [line[:4] for line in lines] == [["0", "2", "0", "127.0.0.1"], ["1", "2", "1", "127.0.0.1"]]
    assert lines[0][4] == lines[1][4] and 1024 < int(lines[0][4]) < 65536
    failing = code + "import time\nif os.environ['RANK'] == '1': raise SystemExit(4)\ntime.sleep(300)"
    host.launch(job(failing, 1, devices=(0, 1), gpus=2, processes="per-device"))
    ended = lab.ended(host, 1)
    assert (ended.outcome, ended.code) == ("failed", 4)
    host.launch(
        job(
            "import os; print('WORLD_SIZE' in os.environ, os.environ['COTENANT_GPUS'])",
            2,
            devices=(0, 1),
            gpus=2,
        )
    )
    assert lab.ended(host, 2).outcome == "done" and lab.output(2) == "False 2\n"


def test_a_job_finds_its_card_by_uuid_whatever_its_number(lab: Lab) -> None:
    """C45: numbers are ours, what the job is told is the card itself."""
    cards = [
        DeviceInfo(device=0, name="gpu1", uuid="GPU-aaaa", kind="nvidia", memory_bytes=24 << 30),
        DeviceInfo(device=1, name="gpu0", uuid="GPU-bbbb", kind="nvidia", memory_bytes=80 << 30),
    ]
    host = lab.host(devices=cards)
    host.launch(
        job(
            "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'])",
            devices=(1,),
        )
    )
    lab.ended(host)
    assert lab.output() == "GPU-bbbb PCI_BUS_ID\n"


def test_a_shepherd_that_has_done_its_work_is_no_zombie(lab: Lab) -> None:
    host = lab.host()
    pids = []
    for number in range(3):
        host.launch(job("pass", number))
        pids.append(host._attempts[number, 0].shepherd)
        lab.ended(host, number)
        host.forget(number)
    wait_for(
        lambda: host.poll(0.02) is not None and not any(Path(f"/proc/{pid}").exists() for pid in pids),
        "all leave",
    )


def test_a_full_disk_costs_output_and_not_the_job(tmp_path: Path) -> None:
    from cotenant.executors.local.outputs import OutputFile

    read, write = os.pipe()
    os.set_blocking(read, False)
    out = OutputFile(str(tmp_path / "stdout.log"), read, limit=100)
    os.close(out._file)
    out._file = os.open("/dev/full", os.O_WRONLY)
    os.write(write, b"x" * 30)
    assert out.pump() and out.dropped == 30 and out.tail == b"x" * 30
    os.close(write)
    out.close()


def test_the_share_stands_where_the_gate_reads_it(lab: Lab) -> None:
    from cotenant.shares.backends.plain import StepGate

    card = DeviceInfo(device=0, name="gpu0", uuid="GPU-aaaa", kind="nvidia", memory_bytes=24 << 30)
    host = lab.host(devices=[card], gpus=[StepGate()])
    host.launch(job("import time; time.sleep(300)", share=Share("spatial", 1 << 30, 300, 500)))
    lab.started(host)
    status = os.open(lab.path(0, "serial-0", "status"), os.O_RDONLY)
    assert os.pread(status, 8, 0) == b"CTST0001"
    assert (layout.read_word(status, 72, 4), layout.read_word(status, 76, 4)) == (300, 500)
    host.reshare(0, 1, 0, Share("spatial", 1 << 30, 200, 250))
    assert (layout.read_word(status, 72, 4), layout.read_word(status, 76, 4)) == (200, 250)
    os.close(status)
    host.stop(0, 1, 0, "kill")
    lab.ended(host)
