"""Explanations of single jobs, from hand-written logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import InputError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, Tenant
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.plan import Reason, Why
from cotenant.report.explain import explain
from cotenant.report.reasons import meaning, remedy

SHARED = Share("spatial", 1 << 30, 400, 1000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two nodes of two devices: sharing, a gang that waits, a preemption, a job that never fits."""
    events: list[ev.Event] = [
        ev.Opened(0.0, 1, "0", 0, "p", {}, {}, Cluster.uniform(4, gpus_per_node=2), {}, {}, {}),
        ev.Submitted(0.0, Job(0, "long", 0.0, tenant="x")),
        ev.Started(0.0, 0, 1, (0,), SHARED),
        ev.Submitted(10.0, Job(1, "neighbour", 10.0, tenant="x")),
        ev.Started(10.0, 1, 1, (0,), SHARED, why=Why("packed", {"slowdown": 1.25})),
        ev.Rated(10.0, 0, 0.8),
        ev.Rated(10.0, 1, 0.5),
        ev.Submitted(20.0, Job(2, "third", 20.0)),
        ev.Started(20.0, 2, 1, (2,)),
        ev.Submitted(30.0, Job(3, "gang\x1b[0m", 30.0, gpus=2)),
        ev.Held(30.0, 3, Reason.FRAGMENTED, {"needs_gpus": 2}),
        ev.Submitted(31.0, Job(4, "7", 31.0, gpus=4)),
        ev.Submitted(32.0, Job(5, "huge", 32.0, gpus=8)),
        ev.Rejected(32.0, 5, "never-fits", {"cluster_gpus": 4}),
        ev.Submitted(33.0, Job(6, "last", 33.0)),
        ev.Submitted(34.0, Job(7, "other", 34.0)),
        ev.Stopping(40.0, 2, 1, beneficiary=3, why=Why("lower-rank", {"price_gpu_s": 5.0})),
        ev.Suspended(45.0, 2, 1, 20.0),
        ev.Started(45.0, 3, 1, (2, 3)),
        ev.Ended(50.0, 1, 1, "done", 20.0),
        ev.Rated(50.0, 0, 1.0),
        ev.Ended(60.0, 0, 1, "failed", 52.0),
        ev.Closed(100.0, 22, 8, 2, waiting=4, running=1),
    ]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in events))
    return path


def test_a_waiting_gang_gets_the_numbers_behind_its_reason(log):
    told = explain(log, 3)
    (wait,) = told.waits
    assert (wait.start_s, wait.end_s) == (30, 45)
    (cause,) = wait.causes
    # Devices 1 and 3 are free, one on each node; nobody waits before it.
    assert (cause.reason, cause.free_gpus, cause.largest_hole_gpus, cause.ahead_jobs) == (
        "fragmented",
        2,
        1,
        0,
    )
    assert "WAITING fragmented: enough devices are free in all, but not where it needs them" in told.text
    assert "2 wholly free, 1 on any one node" in told.text
    assert "a running job that ends on the right node, or a move of one" in told.unblock
    assert "\x1b" not in told.text
    assert told.outcome == "running"


def test_a_preempted_job_learns_for_whom_and_why(log):
    told = explain(log, "third")
    assert "Told to leave its devices for job 3" in told.text
    assert "lower-rank (price 5 GPU-seconds)" in told.text
    assert [s.what for s in told.steps] == ["submitted", "started", "stopping", "suspended"]
    assert told.outcome == "waiting"
    assert told.steps[-1].text == (
        "Suspended with 20s of work kept; queued again: stopped for job 3 'gang\\\\x1b[0m' (lower-rank);"
        " waits for its rank."
    )
    assert "not now, which is not never" in told.verdict
    assert "ahead" not in told.text.split("Suspended")[1]
    assert told.unblock == (
        "the start of jobs with a better rank, or a policy that does not stop it for them"
    )


def test_never_fits_is_not_not_now(log):
    told = explain(log, "huge")
    assert told.outcome == "rejected"
    assert told.verdict == (
        "REJECTED never-fits: no device or node of this cluster can ever hold it (cluster gpus 4)."
        " Waiting would not have helped."
    )


def test_neighbours_and_the_speed_beside_them(log):
    (met,) = explain(log, "long").neighbours
    assert (met.id, met.name, met.start_s, met.end_s, met.lowest_rate) == (1, "neighbour", 10, 50, 0.8)
    (met,) = explain(log, "neighbour").neighbours
    assert (met.id, met.lowest_rate) == (0, 0.5)
    assert "spatial, 40 % guaranteed" in explain(log, "neighbour").text
    assert "(1.25x)" in explain(log, "long").text


def test_a_name_goes_before_an_id_and_unknown_jobs_are_refused(log):
    assert explain(log, "7").id == 4
    assert explain(log, "7").text.startswith("Job '7' (number 4): ")
    assert explain(log, "#7").name == "other"
    assert explain(log, 6).name == "last"
    with pytest.raises(InputError, match='no job "nobody"; it holds 8 jobs'):
        explain(log, "nobody")


def test_a_number_alone_is_a_name_and_the_message_says_how_to_write_a_number(log):
    with pytest.raises(InputError, match=r'no job "5"; job number 5 is written #5; it holds 8 jobs'):
        explain(log, "5")
    assert explain(log, "#5").name == "huge"


def test_jobs_behind_others_say_how_many_are_ahead(log):
    told = explain(log, "last")
    # The gang of 2 and the job of 4 wait before it; the huge one was rejected.
    assert "2 jobs ahead, asking for 6 GPUs" in told.steps[0].text
    # By the end the policy has stopped a job for a later one: it ranks.
    assert told.unblock == "the start of jobs with a better rank"


def test_every_reason_to_wait_has_words_and_a_remedy():
    for reason in Reason:
        if reason in (Reason.NOT_PENDING, Reason.NOT_RUNNING):
            continue  # refusals of decisions, never of waiting
        assert meaning(reason) != reason.replace("-", " ") or " " in meaning(reason)
        assert remedy(reason), reason


def written(path: Path, *events: ev.Event) -> Path:
    opened = ev.Opened(0.0, 1, "0", 0, "p", {}, {}, Cluster.uniform(1), {}, {}, {})
    path.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in (opened, *events)))
    return path


def test_refused_decisions_are_told_with_their_reason_and_numbers(tmp_path):
    facts = {"needs_bytes": 4096, "free_bytes": 0}
    log = written(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Refused(0.0, 0, "start", Reason.MEMORY, facts),
        ev.Refused(60.0, 0, "start", Reason.MEMORY, facts),
        ev.Refused(3600.0, 0, "start", Reason.MEMORY, facts),
        ev.Closed(7200.0, 6, 1, 0, waiting=1),
    )
    told = explain(log, "a")
    assert [step.what for step in told.steps] == ["submitted", "refused"]
    refused = told.steps[1]
    assert refused.t == 0.0
    assert refused.text == (
        "REFUSED memory: the policy's decision to start it breaks a rule: no device has that much memory left "
        "(needs 4,096 B, free 0 MiB). Refused 3 times, last at 01:00:00."
    )
    assert "its start was refused, memory" in told.verdict
    assert told.unblock.startswith("a policy that decides within the rules; against memory: ")
    assert "jobs ahead" not in told.unblock


def test_a_job_with_nobody_ahead_is_not_told_to_wait_for_those_ahead(tmp_path):
    log = written(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Submitted(1.0, Job(1, "b", 1.0)),
        ev.Closed(10.0, 4, 2, 0, waiting=2),
    )
    assert explain(log, "a").unblock.startswith("a policy that starts it: nobody was ahead")
    assert explain(log, "b").unblock.startswith("an earlier start of the jobs ahead")


def test_a_start_tells_where_first_and_then_what_it_had_waited_for(tmp_path):
    log = written(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Submitted(1.0, Job(1, "b", 1.0)),
        ev.Started(1.0, 0, 1, (0,)),
        ev.Ended(61.0, 0, 1, "done", 60.0),
        ev.Started(61.0, 1, 1, (0,)),
        ev.Closed(61.0, 7, 2, 1, running=1),
    )
    assert explain(log, "b").steps[-1].text == (
        "Started (attempt 1) on device 0 on 1 node, whole, after 1m of waiting (no-capacity: too few devices"
        " are free, as the cluster stood; the log gives no reason of its own)."
    )


def test_a_fact_that_is_a_moment_is_told_as_one(tmp_path):
    log = written(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Held(0.0, 0, Reason.RESERVED, {"reserved_from_s": 5.707e6}),
        ev.Closed(1.0, 3, 1, 0, waiting=1),
    )
    # 66 days are 5,702,400 s; 4,600 s are left.
    assert "(reserved from 66-01:16:40)" in explain(log, "a").text


def test_meetings_with_the_same_job_that_touch_are_one(tmp_path):
    log = written(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(0.0, 0, 1, (0,), SHARED),
        ev.Submitted(0.0, Job(1, "b", 0.0)),
        ev.Started(0.0, 1, 1, (0,), SHARED),
        ev.Rated(0.0, 0, 0.5),
        ev.Suspended(10.0, 1, 1, 5.0),
        ev.Started(10.0, 1, 2, (0,), SHARED, resumed=True),
        ev.Rated(10.0, 0, 0.4),
        ev.Suspended(20.0, 1, 2, 5.0),
        ev.Started(30.0, 1, 3, (0,), SHARED, resumed=True),
        ev.Suspended(35.0, 1, 3, 5.0),
        ev.Started(35.0, 1, 4, (0,), SHARED, resumed=True),
        ev.Closed(40.0, 13, 2, 0, running=2),
    )
    met = explain(log, "a").neighbours
    assert [(n.id, n.start_s, n.end_s, n.lowest_rate) for n in met] == [(1, 0, 20, 0.4), (1, 30, None, 0.4)]


def test_the_part_of_a_wait_without_a_reason_is_told_and_the_advice_follows_the_longest(tmp_path):
    def wait(held_s: float) -> ev.Event:
        return ev.Held(held_s, 2, Reason.NO_CAPACITY, {"needs_gpus": 1})

    def told(name: str, held_s: float):
        return explain(
            written(
                tmp_path / name,
                ev.Submitted(0.0, Job(0, "a", 0.0)),
                ev.Started(0.0, 0, 1, (0,)),
                ev.Submitted(0.0, Job(1, "b", 0.0)),
                ev.Submitted(0.0, Job(2, "c", 0.0)),
                wait(held_s),
                ev.Ended(7200.0, 0, 1, "done", 7200.0),
                ev.Started(7200.0, 2, 1, (0,)),
                ev.Closed(7200.0, 9, 3, 1, waiting=1, running=1),
            ),
            "c",
        )

    late = told("late.jsonl", 5400.0)
    assert [(s.t, s.what) for s in late.steps] == [
        (0, "submitted"),
        (0, "behind"),
        (5400, "waiting"),
        (7200, "started"),
    ]
    assert late.steps[1].text == "Behind 1 job of the queue for 1h 30m."
    # 90 minutes behind others, and 30 for want of a device.
    assert late.unblock.startswith("an earlier start of the jobs ahead")
    # Ten minutes behind others, and 110 for want of a device.
    assert told("early.jsonl", 600.0).unblock.startswith("running jobs that end")


def test_only_the_count_of_free_devices_of_the_decision_is_told_where_the_clusters_differs(tmp_path):
    def held(name: str, free: int) -> str:
        facts = {"needs_gpus": 2, "free_gpus": free, "largest_block_gpus": free}
        log = written(
            tmp_path / name,
            ev.Submitted(0.0, Job(0, "a", 0.0, gpus=2)),
            ev.Held(0.0, 0, Reason.NO_CAPACITY, facts),
            ev.Closed(1.0, 3, 1, 0, waiting=1),
        )
        told = explain(log, "a")
        # What is missing is counted from the same number.
        assert f"({2 - free} more free GPU" in told.unblock
        return told.text

    # One device is free; a policy that holds it for another job counts none.
    assert "1 wholly free, 1 on any one node; nobody ahead." in held("same.jsonl", 1)
    differs = held("differs.jsonl", 0)
    assert "free gpus 0" in differs
    assert "wholly free" not in differs


def test_under_a_policy_that_ranks_nobody_is_said_to_be_ahead(tmp_path):
    log = written(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(0.0, 0, 1, (0,), why=Why("first-in-rank")),
        ev.Submitted(1.0, Job(1, "b", 1.0)),
        ev.Stopping(1.0, 0, 1, beneficiary=1, why=Why("lower-rank", {"price_gpu_s": 5.0})),
        ev.Suspended(1.0, 0, 1, 1.0),
        ev.Started(1.0, 1, 1, (0,), why=Why("devices-emptied")),
        ev.Submitted(2.0, Job(2, "c", 2.0)),
        ev.Held(3601.0, 0, Reason.NO_CAPACITY, {"needs_gpus": 1, "free_gpus": 0}),
        ev.Ended(3661.0, 1, 1, "done", 3660.0),
        ev.Started(3661.0, 0, 2, (0,), why=Why("first-in-rank"), resumed=True),
        ev.Closed(3661.0, 12, 3, 1, waiting=1, running=1),
    )
    told = explain(log, "a")
    assert [s.text for s in told.steps if s.what in ("behind", "waiting")] == [
        "Stopped for job 1 'b' (lower-rank); waited for its rank for 1h.",
        "WAITING no-capacity: too few devices are free (needs gpus 1, free gpus 0). Asks for 1 GPU;"
        " 0 wholly free, 0 on any one node; waits for its rank among 1 other job.",
    ]
    assert "ahead" not in told.text.split("Suspended")[1]
    assert told.unblock == "the start of jobs with a better rank"
    assert (
        explain(log, "c").steps[0].text == "Submitted, asks for 1 GPU; waits for its rank among 1 other job."
    )


def tenants(path: Path, *events: ev.Event) -> Path:
    cluster = Cluster.uniform(
        8, gpus_per_node=4, tenants=(Tenant(name="vision", limit_gpus=4), Tenant(name="x"))
    )
    opened = ev.Opened(0.0, 1, "0", 0, "p", {}, {}, cluster, {}, {}, {})
    path.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in (opened, *events)))
    return path


@pytest.mark.parametrize("held", [True, False])
def test_a_job_above_its_tenants_ceiling_never_fits_whether_the_log_says_so_or_not(tmp_path, held):
    facts = {"tenant": "vision", "limit_gpus": 4, "used_gpus": 0}  # as policies write them
    log = tenants(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "big", 0.0, tenant="vision", gpus=8)),
        *([ev.Held(0.0, 0, Reason.TENANT_LIMIT, facts)] if held else []),
        ev.Closed(100.0, 3, 1, 0, waiting=1),
    )
    told = explain(log, "big")
    assert "WAITING tenant-limit: never fits this tenant's ceiling (asks 8, limit 4)" in told.verdict
    assert "not never" not in told.verdict
    assert ("the log gives no reason of its own" in told.verdict) is not held
    assert told.unblock == (
        "a ceiling of 8 GPUs or more for tenant 'vision', or a job that asks for 4 or fewer"
    )


def test_the_remedy_is_for_the_reason_in_force_when_the_log_ends(tmp_path):
    log = tenants(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "first", 0.0, tenant="vision", gpus=3)),
        ev.Started(0.0, 0, 1, (0, 1, 2)),
        ev.Submitted(1.0, Job(1, "second", 1.0, tenant="vision", gpus=2)),
        ev.Held(1.0, 1, Reason.NO_CAPACITY, {"needs_gpus": 2}),
        ev.Held(5.0, 1, Reason.RESERVED, {}),
        ev.Closed(9.0, 6, 2, 0, waiting=1, running=1),
    )
    assert explain(log, "second").unblock == "the start of the job they are held for"


def test_a_reason_that_the_log_leaves_out_is_seen_in_the_state(tmp_path):
    log = tenants(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "first", 0.0, tenant="vision", gpus=3)),
        ev.Submitted(0.0, Job(1, "second", 0.0, tenant="vision", gpus=2)),
        ev.Submitted(0.0, Job(2, "third", 0.0, tenant="x", gpus=4)),
        ev.Submitted(0.0, Job(3, "fourth", 0.0, tenant="x", gpus=4)),
        ev.Started(0.0, 0, 1, (0, 1, 2)),
        ev.Started(0.0, 2, 1, (4, 5, 6, 7)),
        ev.Ended(60.0, 0, 1, "done", 60.0),
        ev.Started(60.0, 1, 1, (0, 1)),
        ev.Closed(90.0, 10, 4, 1, waiting=1, running=2),
    )
    second, fourth = explain(log, "second"), explain(log, "fourth")
    # While it waited its tenant held 3 of 4 and it asked for 2; one device was free.
    assert second.waits[0].derived.reason == "tenant-limit"
    assert second.unblock == "an end of jobs of tenant 'vision' (holds 3 of its 4), or a higher ceiling"
    assert (
        "after 1m of waiting (tenant-limit: its tenant is at its limit, as the cluster stood" in second.text
    )
    # At the end devices 2 and 3 are free, and it asks for four.
    assert fourth.verdict.startswith("WAITING no-capacity: too few devices are free")
    assert fourth.unblock.endswith("(2 more free GPUs needed at 00:01:30)")
    assert "policy" not in fourth.unblock


def test_a_lifted_ceiling_is_no_reason_any_more(tmp_path):
    log = tenants(
        tmp_path / "events.jsonl",
        ev.Submitted(0.0, Job(0, "big", 0.0, tenant="vision", gpus=8)),
        ev.TenantLimitChanged(5.0, "vision", None),
        ev.Closed(9.0, 4, 1, 0, waiting=1),
    )
    told = explain(log, "big")
    assert told.waits[0].derived is None
    assert told.unblock.startswith("a policy that starts it: nobody was ahead")


def test_what_was_foretold_of_it_and_what_happened(tmp_path):
    from cotenant.model.cluster import DeviceType

    kind = DeviceType(name="V", memory_bytes=1 << 34)
    side = Share("spatial", 1 << 30, 0)
    cluster = Cluster.uniform(2, gpus_per_node=2, gpu_type=kind)
    events = [
        ev.Opened(0.0, ev.SCHEMA, "0", 1, "p", {}, {}, cluster, {}, {}, {}),
        *(ev.Submitted(0.0, Job(i, f"j{i}", 0.0, model="aab"[i])) for i in range(3)),
        ev.Started(0.0, 1, 1, (1,)),
        ev.Rated(0.0, 1, 0.5),  # an a alone on a V
        ev.Started(0.0, 0, 1, (0,), side),
        ev.Started(0.0, 2, 1, (0,), side),
        ev.Rated(0.0, 0, 0.3),
        ev.Rated(0.0, 2, 0.4),
        ev.Foretold(0.0, "V", ("a", "b"), (0.8, 0.5), (0.7, 0.4), (0.9, 0.6)),
        ev.Ended(3600.0, 0, 1, "done", 1080.0),
        ev.Ended(3600.0, 2, 1, "done", 1440.0),
    ]
    log = tmp_path / "events.jsonl"
    log.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in events))
    # 0.3 beside b, 0.5 alone (as the other a ran): 0.6 of its speed alone.
    (promise,) = explain(log, "j0").promises
    assert (
        promise.text
        == "1h beside b on V: foretold 0.80 (0.70 to 0.90), happened 0.60: slower than the interval"
    )
    assert promise.text in explain(log, 0).text
    # Nobody saw a b alone, and j1 shared with nobody.
    assert explain(log, "j2").promises == explain(log, "j1").promises == ()
