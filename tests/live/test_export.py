"""A live log as a run folder and as a workload: what the simulator's tools read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import InputError
from cotenant.live.export import events_of, export_run, workload_of, write_inputs
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job


def live_log() -> list[ev.Event]:
    """Two jobs of one name, the second tried twice; one never ran, one still runs."""
    cluster = Cluster.uniform(2)
    return [
        ev.Opened(0.0, 1, "0", 0, "fifo", {}, {"restore_s": 5.0}, cluster, {}, {"kind": "none"}, {}),
        ev.Submitted(1.0, Job(0, "train", 1.0)),
        ev.Started(1.0, 0, 1, (0,)),
        ev.Launched(1.1, 0, 1, 1, 100, 7),
        ev.Submitted(2.0, Job(1, "train", 2.0, retries=1)),
        ev.Started(2.0, 1, 1, (1,)),
        ev.Ended(12.0, 1, 1, "failed", 10.0, 10.0, final=False, code=1),
        ev.Restarted(12.5, 2, "0", "sjf", adopted=(0,)),
        ev.Started(13.0, 1, 2, (1,)),
        ev.Ended(61.0, 0, 1, "done", 60.0),
        ev.Ended(33.0 + 30.0, 1, 2, "done", 50.0),
        ev.Submitted(64.0, Job(2, "other", 64.0)),
        ev.Rejected(65.0, 2, "cancelled"),
        ev.Submitted(70.0, Job(3, "last", 70.0)),
        ev.Started(70.0, 3, 1, (0,)),
    ]


def test_a_run_folder_is_reported_on_like_a_simulated_one(tmp_path: Path) -> None:
    from cotenant.report.explain import explain
    from cotenant.report.html import build_report
    from cotenant.report.rundir import load_runs

    folder = export_run(live_log(), tmp_path / "run", command=["cotenant", "report", "--live"])
    (run,) = load_runs(folder)
    assert run.policy == "sjf"
    assert run.metrics.summary["jobs_submitted"] == 4
    assert run.metrics.summary["jobs_finished"] == 2
    assert run.metrics.summary["log_complete"] is True
    assert build_report(folder).stat().st_size > 10_000
    told = explain(folder / "runs" / "live" / "seed-0" / "events.jsonl", "train#1")
    assert told.outcome == "done"
    assert [step.what for step in told.steps].count("again") == 1


def test_jobs_that_ended_become_a_workload_with_the_work_that_they_did(tmp_path: Path) -> None:
    found = workload_of(live_log())
    frame = found.workload.frame
    assert frame["name"].to_list() == ["train", "train#1"]
    assert frame["duration_s"].to_list() == [60.0, 50.0]
    assert frame["failed_after_s"].to_list() == [[], [10.0]]
    assert found.left_out == {"never ran": 1, "not ended": 1}
    assert found.policy == "sjf"
    trace, cluster = write_inputs(found, tmp_path / "inputs")
    import cotenant

    result = cotenant.simulate(trace, cluster, policy="fifo")
    assert result.summary["jobs_finished"] == 2


def test_only_jobs_of_lately() -> None:
    assert workload_of(live_log(), since_s=1.5).workload.frame["name"].to_list() == ["train"]
    with pytest.raises(InputError, match=r"no ended job to simulate from \(1 not ended\)"):
        workload_of(live_log(), since_s=65.0)


def test_lines_that_are_no_events_are_named() -> None:
    lines = [ev.encode_event(event) + b"\n" for event in live_log()]
    assert list(events_of(lines)) == live_log()
    with pytest.raises(InputError, match="line 3 of the live log"):
        list(events_of([*lines[:2], b'{"e":"never"}\n']))


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        export_run([], tmp_path / "run", command=[])


def test_explain_says_that_its_owner_holds_a_job_and_that_it_waits_for_others() -> None:
    from cotenant.report.explain import explain_events

    log: list[ev.Event] = [
        live_log()[0],
        ev.Submitted(1.0, Job(0, "a", 1.0)),
        ev.Started(1.0, 0, 1, (0,)),
        ev.Submitted(2.0, Job(1, "b", 2.0)),
        ev.Awaited(2.0, 1, (0,)),
        ev.SuspendRequested(5.0, 0),
        ev.Stopping(5.0, 0, 1),
        ev.Suspended(6.0, 0, 1, 4.0),
    ]
    held = explain_events(log, 0, now_s=66.0)
    assert "held-by-user" in held.verdict
    assert "has waited 1m (" in held.verdict
    waits = explain_events(log, 1, now_s=66.0)
    assert "awaits-jobs" in waits.verdict
    assert "Waits for job 0 to end well." in [step.text for step in waits.steps]
    freed = explain_events([*log, ev.ResumeRequested(70.0, 0), ev.Started(80.0, 0, 1, (0,))], 0)
    assert "Its owner lets it go on." in [step.text for step in freed.steps]


@pytest.mark.parametrize(("own", "lines"), [(True, 2), (False, 1)])
def test_the_report_says_what_was_counted_as_kept_and_is_not_known(
    own: bool, lines: int, tmp_path: Path
) -> None:
    from cotenant.runs.manifest import read_manifest

    log = [
        live_log()[0],
        ev.Submitted(1.0, Job(0, "a", 1.0)),
        ev.Started(1.0, 0, 1, (0,)),
        ev.Suspended(6.0, 0, 1, 4.0, own=own),
    ]
    found = read_manifest(export_run(log, tmp_path / "run", command=[]))[0].assumptions
    assert len(found) == lines
    assert found[-1].startswith(
        "Once a job left its devices whose checkpoints" if own else "These are real runs"
    )
