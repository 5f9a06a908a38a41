"""The story of a real job: processes, wishes of its owner, and how it ended."""

from __future__ import annotations

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason
from cotenant.model.quantities import GIB
from cotenant.report.explain import explain_events

CLUSTER = Cluster(
    types=(DeviceType(name="x", memory_bytes=24 * GIB),), nodes=(Node(name="n", gpus=(("x", 2),)),)
)
OPENED = ev.Opened(0.0, 1, "0", 0, "fifo", {}, {}, CLUSTER, {}, {}, {})


def told(*events: ev.Event) -> list[str]:
    story = explain_events([OPENED, ev.Submitted(0.0, Job(0, "a", 0.0)), *events], 0)
    return [step.text for step in story.steps]


def test_process_pause_and_exit_code_are_told() -> None:
    lines = told(
        ev.Started(1.0, 0, 1, (0,)),
        ev.Launched(2.0, 0, 1, 1, 4711, 9),
        ev.Paused(3.0, 0, 1),
        ev.Paused(4.0, 0, 1, paused=False),
        ev.Ended(9.0, 0, 1, "failed", 5.0, code=-9, detail="out of memory"),
    )
    assert lines[2:5] == [
        "Its process runs (pid 4711).",
        "Stopped by signal; it holds its memory and does no work.",
        "Goes on where it was stopped.",
    ]
    assert "(signal 9: out of memory)" in lines[5]


def test_what_its_owner_wished_and_was_refused_is_not_blamed_on_the_policy() -> None:
    lines = told(
        ev.Started(1.0, 0, 1, (0,)),
        ev.ResizeRequested(2.0, 0, memory_bytes=GIB),
        ev.Refused(2.0, 0, "resize", Reason.MEMORY),
        ev.Refused(3.0, 0, "stop", Reason.MIN_QUANTUM),
    )
    assert lines[2] == "Its owner asks for 1,024 MiB on each device."
    assert lines[3].startswith("REFUSED memory: its owner's wish to resize it breaks a rule")
    assert lines[4].startswith("REFUSED minimum-quantum: the policy's decision to stop it breaks a rule")


def test_killed_processes_and_the_time_on_devices_are_told_beside_the_work() -> None:
    lines = told(
        ev.Started(1.0, 0, 1, (0, 1)),
        ev.Launched(2.0, 0, 1, 1, 4711, 9),
        ev.ProcessKilled(30.0, 0, 1, 1, 1, 9, ago_s=0.4),
        ev.ProcessKilled(50.0, 0, 1, 1, 3, 11, ago_s=12.0),
        ev.Suspended(61.0, 0, 1, 40.0),
        ev.Started(100.0, 0, 1, (0,), resumed=True),
        ev.Ended(140.0, 0, 1, "done", 62.0, ago_s=10.0),
    )
    assert lines[3] == "One of its processes was killed (signal 9); another takes its place."
    assert lines[4] == (
        "One of its processes was killed (signal 11), 12s before that was seen; another takes its place; "
        "3 since it was launched."
    )
    assert lines[5] == "Suspended with 40s of work kept, 1m on its devices; queued again."
    assert lines[7].startswith("Ended: done, 1m 2s of useful work, 30s on its devices (1m 30s in all).")


def test_of_one_that_runs_the_time_on_devices_is_told_so_far_and_of_simulated_ones_none() -> None:
    log = [OPENED, ev.Submitted(0.0, Job(0, "a", 0.0)), ev.Started(1.0, 0, 1, (0,))]
    assert explain_events(log, 0, now_s=61.0).verdict == "running."
    log.append(ev.Launched(2.0, 0, 1, 1, 4711, 9))
    assert explain_events(log, 0, now_s=61.0).verdict == "running; 1m on its devices so far."


def test_of_a_job_whose_checkpoints_are_its_own_nobody_claims_what_was_kept() -> None:
    lines = told(
        ev.Started(1.0, 0, 1, (0,)),
        ev.Suspended(9.0, 0, 1, 8.0, own=True),
        ev.Started(10.0, 0, 1, (0,), resumed=True),
        ev.Ended(19.0, 0, 1, "lost", 8.0, 9.0, final=False, own=True),
        ev.Started(20.0, 0, 2, (0,)),
        ev.Suspended(29.0, 0, 2, 9.0),
        ev.Started(30.0, 0, 2, (0,), resumed=True),
    )
    goes_on = "It goes on from a checkpoint of its own if it keeps one, else from the beginning."
    assert lines[2] == f"Ended after 8s of work to make room; queued again. {goes_on}"
    assert lines[3].startswith("Started anew, from what it keeps itself, on device 0")
    assert lines[4].startswith(f"Attempt 1 ended (lost, 17s of work; i{goes_on[1:-1]})")
    assert lines[6:] == ["Suspended with 9s of work kept; queued again.", lines[7]]
    assert lines[7].startswith("Resumed on device 0")


def test_an_end_that_nobody_saw_is_told_with_its_own_time_and_when_it_was_seen() -> None:
    log = [OPENED, ev.Submitted(0.0, Job(0, "a", 0.0)), ev.Submitted(0.0, Job(1, "b", 0.0))]
    log += [ev.Started(1.0, 0, 1, (0,)), ev.Launched(1.0, 0, 1, 1, 4711, 9), ev.Started(1.0, 1, 1, (0,))]
    log += [ev.Ended(100.0, 0, 1, "done", 20.0, ago_s=79.0)]
    told = explain_events(log, 0)
    assert told.verdict.startswith("done at 00:00:21 with 20s of useful work, 20s on its devices")
    assert (told.steps[-1].t, told.neighbours[0].end_s) == (21.0, 21.0)
    assert told.steps[-1].text.endswith(" Seen 1m 19s later.")


def test_work_of_an_elastic_job_is_told_with_its_size_and_what_was_saved_is_not_said_to_be_lost() -> None:
    elastic = Job(0, "a", 0.0, min_gpus=1, max_gpus=2)
    log = [OPENED, ev.Submitted(0.0, elastic), ev.Submitted(0.0, Job(1, "b", 0.0))]
    log += [ev.Started(1.0, 0, 1, (0, 1)), ev.Launched(1.0, 0, 1, 1, 4711, 9), ev.Started(2.0, 1, 1, (1,))]
    log += [ev.Rated(3.0, 0, 1.6), ev.Suspended(61.0, 0, 1, 80.0)]
    log += [
        ev.Started(70.0, 0, 1, (0, 1), resumed=True),
        ev.Ended(90.0, 0, 1, "failed", 110.0, 110.0, code=9),
    ]
    told = explain_events(log, 0)
    assert any(
        s.text.startswith("Suspended with 1m 20s of work (as on 1 device alone) kept") for s in told.steps
    )
    assert (
        "with 1m 50s of work (as on 1 device alone), of no use as it failed; the state it last saved holds 1m 20s "
        "of it, 20s on its devices (1m 20s in all)"
    ) in told.verdict
    assert told.neighbours[0].text.endswith(
        "slowest 1.00 of its speed alone on 1 device (1.00x), foretold until it was measured"
    )


def test_only_who_really_goes_before_a_job_is_counted_as_ahead() -> None:
    log: list[ev.Event] = [OPENED, *(ev.Submitted(0.0, Job(n, f"j{n}", 0.0)) for n in range(4))]
    log += [ev.Awaited(0.0, 1, (0,)), ev.SuspendRequested(0.0, 2), ev.PriorityChanged(0.0, 3, 5)]
    log += [ev.Submitted(1.0, Job(4, "high", 1.0, priority=9)), ev.Submitted(1.0, Job(5, "low", 1.0))]
    assert "; nobody ahead." in explain_events(log, 4).steps[0].text
    # Those numbered 0, 3 and 4: 1 awaits 0, and 2 is held by its owner.
    assert "; 3 jobs ahead, asking for 3 GPUs." in explain_events(log, 5).steps[0].text
    log += [ev.Awaited(2.0, 1), ev.ResumeRequested(2.0, 2), ev.PriorityChanged(2.0, 3, -1)]
    log += [ev.Submitted(3.0, Job(6, "last", 3.0))]
    assert "; 5 jobs ahead" in explain_events(log, 6).steps[0].text
