"""The state is a fold of the log, whoever reads it; the same inputs give the same bytes."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.engine.log import LogWriter, read_log
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import IllegalEventError, LogError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.settings import Settings

POLICIES = registry.names("policy")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", range(12))
def test_folding_the_written_log_gives_the_state(policy: str, number: int, tmp_path: Path) -> None:
    harness = scenario(number, registry.load("policy", policy))
    run = harness.run()
    path = tmp_path / "events.jsonl"
    path.write_bytes(run.log)
    folded = State(harness.cluster, harness.settings)
    for event in read_log(path):
        folded.apply(event)
    assert picture(folded) == picture(run.state)


def test_every_event_kind_survives_the_round_trip_through_json() -> None:
    seen = set()
    for number in range(40):
        for policy in ("fifo", "srtf", "colocate"):
            drawn = scenario(number, registry.load("policy", policy), samples=number % 2 == 1)
            for event in drawn.run(invariants=False).events:
                seen.add(type(event))
                assert ev.decode_event(ev.encode_event(event)) == event
    rare = {ev.Moved, ev.Released, ev.Resized, ev.MemoSaved, ev.Refused}
    rare |= set(ev.PoolEvent.__args__)  # of clusters with state tiers: tests/pools
    rare |= set(ev.LiveEvent.__args__)  # of jobs that are real: tests/live_dst
    assert set(ev.EVENT_KINDS) - seen <= rare
    for event in (
        ev.Moved(1.0, 2, 1, (3, 4)),
        ev.Released(1.0, 2, (0, 1)),
        ev.Resized(1.0, 2, 1, (3,)),
        ev.MemoSaved(1.0, {"a": [1, 2]}),
        ev.Refused(1.0, 2, "start", ev.Reason("memory"), {"needs_bytes": 5}),
        ev.Restarted(1.0, 2, "0", "fifo", {}, (1,), (2,), ((3, 4),)),
        ev.Launched(1.0, 2, 1, 3, 4000, 77),
        ev.SuspendRequested(1.0, 2, "k"),
        ev.ResumeRequested(1.0, 2),
        ev.ResizeRequested(1.0, 2, compute_milli=300, gpus=2),
        ev.Paused(1.0, 2, 1, paused=False),
        ev.ForeignUse(1.0, 2, 5, (6,)),
        ev.Awaited(1.0, 2, (1,)),
        ev.Ended(1.0, 2, 1, "failed", 5.0, code=-9, detail="out of memory"),
    ):
        assert ev.decode_event(ev.encode_event(event)) == event


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    writer = LogWriter(path)
    writer.write([ev.NodeDown(1.0, 0), ev.NodeUp(2.0, 0)])
    writer.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert list(read_log(path)) == [ev.NodeDown(1.0, 0)]
    path.write_bytes(whole[:10] + b"\n" + whole)
    with pytest.raises(LogError, match=r"log\.jsonl:1: not an event"):
        list(read_log(path))


def test_the_digest_is_of_the_bytes_on_disk(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "log.jsonl"
    writer = LogWriter(path)
    writer.write([ev.NodeDown(1.0, 0)])
    writer.write([ev.NodeUp(2.0, 0)])
    writer.close()
    assert writer.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert writer.events == 2


def test_an_event_that_cannot_have_happened_is_refused() -> None:
    state = State(Cluster.uniform(2), Settings())
    job = Job(0, "a", 0.0)
    state.apply(ev.Submitted(0.0, job))
    with pytest.raises(IllegalEventError, match="lives already"):
        state.apply(ev.Submitted(1.0, job))
    with pytest.raises(IllegalEventError, match="does not run"):
        state.apply(ev.Ended(1.0, 0, 1, "done", 5.0))
    with pytest.raises(IllegalEventError, match="expected PENDING, found unknown"):
        state.apply(ev.Started(1.0, 7, 1, (0,)))


def test_the_hash_seed_of_python_changes_no_byte() -> None:
    code = (
        "from cotenant import registry; from cotenant.checks.scenarios import scenario; import hashlib\n"
        "for p in registry.names('policy'):\n"
        "    for n in range(3): print(p, n, hashlib.sha256(scenario(n, registry.load('policy', p)).run(invariants=False).log).hexdigest())"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": "", "OMP_NUM_THREADS": "1", "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, zone in (("0", "UTC"), ("1", "Asia/Tokyo"))
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 3 * len(POLICIES)


def test_log_lines_are_plain_json_with_a_tag_and_a_time() -> None:
    line = ev.encode_event(ev.Started(1.5, 3, 1, (0, 2)))
    assert msgspec.json.decode(line) == {"e": "started", "t": 1.5, "id": 3, "attempt": 1, "devices": [0, 2]}
