"""The fold of a log into metrics: hand-computed runs, and equality under any split."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import LogError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Tenant
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason
from cotenant.report import fold as fold_module
from cotenant.report.bins import StepBins
from cotenant.report.fold import MetricFold

GPU = DeviceType(name="g", power_w=300.0, idle_w=60.0)


def opened(cluster: Cluster, **settings: object) -> ev.Opened:
    return ev.Opened(0.0, ev.SCHEMA, "0", 1, "fifo", {}, settings, cluster, {}, {}, {})


def metrics(*events: ev.Event):
    fold = MetricFold()
    fold.see(list(events))
    return fold.result()


def two_jobs() -> list[ev.Event]:
    """Two nodes of two devices; one job of one device, then one of all four."""
    return [
        opened(Cluster.uniform(4, gpus_per_node=2, gpu_type=GPU)),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(0.0, 0, 1, (0,)),
        ev.Rated(0.0, 0, 0.0),  # loading
        ev.Rated(2.0, 0, 1.0),
        ev.Submitted(4.0, Job(1, "b", 4.0, gpus=4)),
        ev.Held(4.0, 1, Reason.FRAGMENTED),
        ev.Ended(12.0, 0, 1, "done", 10.0),
        ev.Started(12.0, 1, 1, (0, 1, 2, 3)),
        ev.Rated(12.0, 1, 0.5),
        ev.Ended(32.0, 1, 1, "done", 10.0),
        ev.Closed(32.0, 11, 2, 2),
    ]


def test_times_of_two_jobs():
    s = metrics(*two_jobs()).summary
    # a: 0 -> 12, waits 0, 10 s of work. b: 4 -> 32, waits 8, 10 s of work.
    assert (s["makespan_s"], s["jct_s_mean"], s["wait_s_mean"], s["longest_wait_s"]) == (32, 20, 4, 8)
    assert s["slowdown_mean"] == pytest.approx((12 / 10 + 28 / 10) / 2)
    assert s["corun_slowdown_mean"] == pytest.approx((12 / 10 + 20 / 10) / 2)
    assert s["jct_s_p95"] == pytest.approx(12 + 0.95 * 16)


def test_capacity_of_two_jobs():
    s = metrics(*two_jobs()).summary
    # 4 devices for 32 s = 128. Allocated 12 x 1 + 20 x 4 = 92. Busy from 2 s on: 10 + 80 = 90.
    assert s["gpu_hours_available"] == pytest.approx(128 / 3600)
    assert s["allocated_share"] == pytest.approx(92 / 128)
    assert s["busy_share"] == pytest.approx(90 / 128)
    assert s["gpu_hours_overhead"] == pytest.approx(2 / 3600)
    # Useful: 10 x 1 + 10 x 4 = 50 of 128.
    assert s["goodput_share"] == pytest.approx(50 / 128)
    assert s["goodput_gpus_mean"] == pytest.approx(50 / 32)
    # Largest hole in one node: 2 for 12 s, then 0.
    assert s["largest_placeable_gpus_mean"] == pytest.approx(24 / 32)
    assert s["largest_placeable_gpus_min"] == 0
    # While b (two whole nodes) waits, 4 to 12 s, one device is free beside a: 8 of 128.
    assert s["stranded_share"] == pytest.approx(8 / 128)
    # 300 W x 90 s + 60 W x (128 - 90) s.
    assert s["energy_kwh"] == pytest.approx((300 * 90 + 60 * 38) / 3.6e6)


def test_finish_time_fairness():
    s = metrics(*two_jobs()).summary
    # Demand is 1 GPU until 4 s, 5 until 12 s, 4 until 32 s. a sees (4 + 40) / 12 / 4 < 1: rho = 1.2.
    # b sees (40 + 80) / 28 / 4 = 15/14: rho = 28 / (10 x 15/14) = 2.6133.
    assert s["rho_max"] == pytest.approx(28 / (10 * 15 / 14))
    assert s["rho_mean"] == pytest.approx((1.2 + 28 / (10 * 15 / 14)) / 2)
    assert s["rho_above_1_share"] == 1.0


def test_timeline_integrates_to_the_totals():
    run = metrics(*two_jobs())
    width = run.timeline["width_s"]
    assert width.sum() == pytest.approx(32)
    assert (run.timeline["allocated_gpus"] * width).sum() == pytest.approx(92)
    assert (run.timeline["goodput_gpus"] * width).sum() == pytest.approx(50)
    assert (run.timeline["queue_gpus"] * width).sum() == pytest.approx(8 * 4)
    assert (run.timeline["waiting:fragmented"] * width).sum() == pytest.approx(8)


def test_suspension_sharing_and_preemption_cycles():
    c = Cluster.uniform(1, gpu_type=GPU)
    run = metrics(
        opened(c),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Submitted(0.0, Job(1, "b", 0.0)),
        ev.Started(0.0, 0, 1, (0,)),
        ev.Rated(0.0, 0, 1.0),
        ev.Stopping(10.0, 0, 1, beneficiary=1),
        ev.Suspended(12.0, 0, 1, 10.0),
        ev.Started(12.0, 1, 1, (0,)),
        ev.Rated(12.0, 1, 1.0),
        ev.Stopping(20.0, 1, 1, beneficiary=0),
        ev.Suspended(20.0, 1, 1, 8.0),
        ev.Started(20.0, 0, 1, (0,), resumed=True),
        ev.Rated(20.0, 0, 1.0),
        ev.Started(25.0, 1, 1, (0,), resumed=True),
        ev.Rated(25.0, 0, 0.5),
        ev.Rated(25.0, 1, 0.5),
        ev.Ended(35.0, 0, 1, "done", 20.0),
        ev.Rated(35.0, 1, 1.0),
        ev.Ended(40.0, 1, 1, "failed", 18.0, lost_s=3.0),
        ev.Closed(40.0, 18, 2, 2),
    )
    a, b = run.jobs.rows(named=True)
    # a runs 0-12 and 20-35, queued 12-20; b runs 12-20 and 25-40, queued 0-12 and 20-25.
    assert (a["run_s"], a["queued_s"], a["work_s"], a["preemptions"]) == (27, 8, 20, 1)
    assert (b["run_s"], b["queued_s"], b["work_s"], b["wait_s"], b["outcome"]) == (23, 17, 18, 12, "failed")
    s = run.summary
    assert (s["evictions"], s["preemption_cycles"], s["preemptions"]) == (2, 1, 2)
    # Allocated all 40 s, shared 25-35, busy all but the 2 s of saving.
    assert s["allocated_share"] == 1.0
    assert s["shared_share"] == pytest.approx(10 / 40)
    assert s["busy_share"] == pytest.approx(38 / 40)
    assert s["gpu_hours_lost"] == pytest.approx(3 / 3600)


def test_moves_hold_both_places_until_released():
    c = Cluster.uniform(4, gpus_per_node=2)
    run = metrics(
        opened(c),
        ev.Submitted(0.0, Job(0, "a", 0.0, gpus=2)),
        ev.Started(0.0, 0, 1, (0, 1)),
        ev.Rated(0.0, 0, 1.0),
        ev.Rated(10.0, 0, 0.0),
        ev.Moved(10.0, 0, 1, (2, 3)),
        ev.Released(14.0, 0, (0, 1)),
        ev.Rated(14.0, 0, 1.0),
        ev.Ended(20.0, 0, 1, "done", 16.0),
        ev.Closed(20.0, 8, 1, 1),
    )
    # 2 devices for 20 s and 2 more for the 4 s of the move; busy 10 + 6 s on two devices.
    assert run.summary["allocated_share"] == pytest.approx((40 + 8) / 80)
    assert run.summary["busy_share"] == pytest.approx(32 / 80)
    assert run.summary["moves"] == 1
    assert run.summary["energy_kwh"] is None  # no power known


def test_lost_nodes_are_not_available_and_not_free():
    c = Cluster.uniform(4, gpus_per_node=2)
    run = metrics(
        opened(c),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(0.0, 0, 1, (0,)),
        ev.Rated(0.0, 0, 1.0),
        ev.NodeDown(5.0, 0),
        ev.NodeDown(5.0, 0),
        ev.Ended(5.0, 0, 1, "lost", 0.0, lost_s=5.0, final=False),
        ev.Started(5.0, 0, 2, (2,)),
        ev.Rated(5.0, 0, 1.0),
        ev.NodeUp(15.0, 0),
        ev.Ended(20.0, 0, 2, "done", 15.0),
        ev.Closed(20.0, 11, 1, 1),
    )
    # 80 device seconds less 2 devices x 10 s.
    assert run.summary["gpu_hours_available"] == pytest.approx(60 / 3600)
    assert run.summary["allocated_share"] == pytest.approx(20 / 60)
    # Free in one node: 2 (node 1) until 5 s, 1 until 15 s, then 2 again.
    assert run.summary["largest_placeable_gpus_mean"] == pytest.approx((2 * 5 + 1 * 10 + 2 * 5) / 20)
    row = run.jobs.row(0, named=True)
    assert (row["attempts"], row["work_s"], row["lost_s"], row["outcome"]) == (2, 15, 5, "done")


def test_counts_add_up_whatever_becomes_of_a_job():
    c = Cluster.uniform(2)
    run = metrics(
        opened(c),
        *(ev.Submitted(0.0, Job(i, f"j{i}", 0.0)) for i in range(7)),
        ev.Rejected(0.0, 0, "never-fits"),
        ev.Rejected(1.0, 1, "cancelled"),
        ev.Started(1.0, 2, 1, (0,)),
        ev.Ended(2.0, 2, 1, "done", 1.0),
        ev.Started(2.0, 3, 1, (0,)),
        ev.Ended(3.0, 3, 1, "failed", 1.0),
        ev.Started(3.0, 4, 1, (0,)),
        ev.Ended(4.0, 4, 1, "lost", 0.0),
        ev.Started(4.0, 5, 1, (0,)),
        ev.PriorityChanged(9.0, 6, 3),
    )
    s = run.summary
    parts = ("finished", "failed", "cancelled", "lost", "preempted", "rejected", "waiting", "running")
    assert [s[f"jobs_{p}"] for p in parts] == [1, 1, 1, 1, 0, 1, 1, 1]
    assert sum(s[f"jobs_{p}"] for p in parts) == s["jobs_submitted"] == 7
    assert s["longest_wait_s"] == 9  # job 6 still waits, and counts
    assert s["log_complete"] is False


def test_the_longest_time_in_the_queue_counts_waits_after_suspensions():
    s = metrics(
        opened(Cluster.uniform(1)),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(2.0, 0, 1, (0,)),
        ev.Suspended(5.0, 0, 1, 3.0),
        ev.Submitted(5.0, Job(1, "b", 5.0)),
        ev.Started(5.0, 1, 1, (0,)),
        ev.Ended(25.0, 1, 1, "done", 20.0),
        ev.Started(25.0, 0, 1, (0,), resumed=True),
        ev.Ended(26.0, 0, 1, "done", 4.0),
        ev.Submitted(26.0, Job(2, "c", 26.0)),
        ev.Submitted(26.0, Job(3, "d", 26.0)),
        ev.Rejected(50.0, 3, "cancelled"),
        ev.Closed(50.0, 12, 4, 2, waiting=1),
    ).summary
    # a waits 2 and then 20, so 22; c still waits after 24; d waited as long and left, so it does not count.
    assert (s["longest_wait_s"], s["longest_queued_s"]) == (24, 24)
    s = metrics(
        opened(Cluster.uniform(1)),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(2.0, 0, 1, (0,)),
        ev.Suspended(5.0, 0, 1, 3.0),
        ev.Started(25.0, 0, 1, (0,), resumed=True),
        ev.Ended(26.0, 0, 1, "done", 4.0),
        ev.Closed(26.0, 5, 1, 1),
    ).summary
    assert (s["longest_wait_s"], s["longest_queued_s"]) == (2, 22)


def test_a_job_that_leaves_after_a_suspension_has_no_completion_time():
    run = metrics(
        opened(Cluster.uniform(1)),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(0.0, 0, 1, (0,)),
        ev.Suspended(5.0, 0, 1, 5.0),
        ev.Rejected(9.0, 0, "left"),
    )
    row = run.jobs.row(0, named=True)
    assert (row["outcome"], row["jct_s"], row["slowdown"]) == ("rejected", None, None)
    assert (row["run_s"], row["queued_s"], row["work_s"]) == (5, 4, 5)


def test_jain_index_by_weighted_useful_hours():
    tenants = (Tenant(name="x", weight=2.0), Tenant(name="y", weight=1.0))
    run = metrics(
        opened(Cluster.uniform(2, tenants=tenants), rate_events=False),
        ev.Submitted(0.0, Job(0, "a", 0.0, tenant="x")),
        ev.Submitted(0.0, Job(1, "b", 0.0, tenant="y")),
        ev.Started(0.0, 0, 1, (0,)),
        ev.Started(0.0, 1, 1, (1,)),
        ev.Ended(10.0, 0, 1, "done", 8.0),
        ev.Ended(10.0, 1, 1, "done", 2.0),
    )
    # 8 / 2 = 4 and 2 / 1 = 2: (4 + 2)^2 / (2 x (16 + 4)) = 0.9.
    assert run.summary["jain_tenants"] == pytest.approx(0.9)
    assert run.summary["busy_share"] is None  # speeds were not logged
    assert run.summary["gpu_hours_useful"] == pytest.approx(10 / 3600)


@pytest.mark.parametrize("extra", [[], [ev.Submitted(5.0, Job(0, "a", 5.0))]])
def test_empty_runs_are_not_available_rather_than_zero(extra):
    run = metrics(opened(Cluster.uniform(2)), *extra)
    s = run.summary
    for key in ("jct_s_mean", "slowdown_p95", "makespan_s", "goodput_share", "allocated_share", "rho_max"):
        assert s[key] is None, key
    json.dumps(s, allow_nan=False)
    assert run.jobs.height == len(extra)


def test_nothing_at_all():
    assert MetricFold().result().summary["jobs_submitted"] == 0


def test_a_trace_that_starts_late_gives_the_same_numbers():
    late = _shifted()
    a, b = metrics(*two_jobs()).summary, metrics(*late).summary
    assert {k: v for k, v in a.items() if not isinstance(v, float)} == {
        k: v for k, v in b.items() if not isinstance(v, float)
    }
    for key, value in a.items():
        if isinstance(value, float):
            assert b[key] == pytest.approx(value), key


def _shifted() -> list[ev.Event]:
    out: list[ev.Event] = []
    for line in map(ev.encode_event, two_jobs()):
        plain = json.loads(line)
        plain["t"] += 0.0 if plain["e"] == "opened" else 86400.0
        out.append(ev.decode_event(json.dumps(plain)))
    return out


def test_time_that_runs_backwards_is_refused():
    with pytest.raises(LogError, match="event 3 of the log"):
        metrics(
            opened(Cluster.uniform(2)),
            ev.Submitted(5.0, Job(0, "a", 5.0)),
            ev.Submitted(4.0, Job(1, "b", 4.0)),
        )


def test_unknown_jobs_and_missing_opening_lines_are_refused():
    with pytest.raises(LogError, match="job 7"):
        metrics(opened(Cluster.uniform(2)), ev.Started(1.0, 7, 1, (0,)))
    with pytest.raises(LogError, match="opening line"):
        metrics(ev.Submitted(0.0, Job(0, "a", 0.0)))
    with pytest.raises(LogError, match="twice"):
        metrics(
            opened(Cluster.uniform(2)),
            ev.Submitted(0.0, Job(0, "a", 0.0)),
            ev.Submitted(0.0, Job(0, "b", 0.0)),
        )


@st.composite
def logs(draw) -> list[ev.Event]:
    """A legal random history on three nodes of two devices, with sharing, suspension and loss."""
    out: list[ev.Event] = [opened(Cluster.uniform(6, gpus_per_node=2, gpu_type=GPU))]
    t, count = 0.0, 0
    waiting: list[int] = []
    running: dict[int, float] = {}
    attempt: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 60))):
        t += draw(st.sampled_from([0.0, 0.0, 0.5, 3.0, 100.25]))
        act = draw(
            st.sampled_from(
                ["submit", "submit", "start", "start", "rate", "end", "stop", "down", "aside", "up"]
            )
        )
        if act == "submit":
            out.append(ev.Submitted(t, Job(count, f"j{count}", t, gpus=draw(st.sampled_from([1, 2, 3])))))
            waiting.append(count)
            attempt[count] = 1
            count += 1
        elif act == "start" and waiting:
            job = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            devices = tuple(sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=3))))
            out.append(ev.Started(t, job, attempt[job], devices))
            if draw(st.booleans()):
                out.append(ev.Rated(t, job, draw(st.sampled_from([0.0, 0.5]))))
            running[job] = t
        elif act in ("rate", "end", "stop") and running:
            job = draw(st.sampled_from(sorted(running)))
            if act == "rate":
                out.append(ev.Rated(t, job, draw(st.sampled_from([0.0, 0.5, 1.0]))))
            elif act == "end":
                final = draw(st.booleans())
                out.append(ev.Ended(t, job, attempt[job], "done" if final else "lost", 1.0, 0.5, final))
                del running[job]
                if not final:
                    attempt[job] += 1
                    waiting.append(job)
            else:
                out.append(ev.Suspended(t, job, attempt[job], 1.0))
                del running[job]
                waiting.append(job)
                out.append(ev.Held(t, job, draw(st.sampled_from([Reason.NO_CAPACITY, Reason.FRAGMENTED]))))
        elif act == "down":
            out.append(ev.DeviceDown(t, draw(st.integers(0, 5))))
        elif act == "aside":
            device = draw(st.integers(0, 5))
            out.append(ev.Drained(t, device // 2, device=device))
        elif act == "up":
            out.append(ev.NodeUp(t, draw(st.integers(0, 2))))
    return out


@settings(max_examples=80, deadline=None)
@given(log=logs(), block=st.integers(1, 9), cuts=st.lists(st.integers(1, 7), min_size=1, max_size=20))
def test_any_split_gives_what_one_piece_gives(log, block, cuts):
    whole = metrics(*log)
    before = fold_module.BLOCK
    fold_module.BLOCK = block
    try:
        fold, at = MetricFold(), 0
        for i in range(len(log)):
            step = cuts[i % len(cuts)]
            fold.see(log[at : at + step])
            at += step
        parts = fold.result()
    finally:
        fold_module.BLOCK = before
    assert parts.jobs.equals(whole.jobs)
    _close(parts.summary, whole.summary)
    assert parts.timeline.columns == whole.timeline.columns
    assert np.allclose(
        parts.timeline.to_numpy().astype(float),
        whole.timeline.to_numpy().astype(float),
        atol=1e-6,
        equal_nan=True,
    )
    assert parts.segments.equals(whole.segments)
    assert np.allclose(parts.devices.to_numpy(), whole.devices.to_numpy(), atol=1e-6, equal_nan=True)


def _close(a, b) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            _close(a[key], b[key])
    elif isinstance(a, float):
        assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6), (a, b)
    else:
        assert a == b


@settings(max_examples=60, deadline=None)
@given(log=logs())
def test_against_a_plain_replay(log):
    """A slow replay, event by event, gives the same capacity numbers."""
    held: dict[int, tuple[int, ...]] = {}
    rate: dict[int, float] = {}
    queue: dict[int, int] = {}
    down: set[int] = set()
    gpus: dict[int, int] = {}
    total = dict.fromkeys(("allocated", "busy", "shared", "placeable", "stranded", "queue"), 0.0)
    start = last = None
    lows = []
    for e in log[1:]:
        if start is not None and e.t > last:
            residents = [sum(d in ds for ds in held.values()) for d in range(6)]
            progress = [any(d in held[j] and rate[j] > 0 for j in held) for d in range(6)]
            free = [[d for d in (2 * n, 2 * n + 1) if not residents[d] and d not in down] for n in range(3)]
            need = min((min(g, 2) for g in queue.values()), default=0)
            now = {
                "allocated": sum(r > 0 for r in residents),
                "busy": sum(progress),
                "shared": sum(r > 1 for r in residents),
                "placeable": max(map(len, free)),
                "stranded": sum(len(f) for f in free if len(f) < need),
                "queue": len(queue),
            }
            lows.append(now["placeable"])
            for key, value in now.items():
                total[key] += value * (e.t - last)
        if isinstance(e, ev.Submitted):
            start = e.t if start is None else start
            queue[e.job.id] = gpus[e.job.id] = e.job.gpus
        elif isinstance(e, ev.Started):
            held[e.id], rate[e.id] = e.devices, 1.0
            del queue[e.id]
        elif isinstance(e, ev.Rated):
            rate[e.id] = e.rate
        elif isinstance(e, ev.Suspended) or (isinstance(e, ev.Ended) and not e.final):
            del held[e.id]
            queue[e.id] = gpus[e.id]
        elif isinstance(e, ev.Ended):
            del held[e.id]
        elif isinstance(e, (ev.DeviceDown, ev.Drained)):
            down.add(e.device)
        last = e.t
    run = metrics(*log)
    window = run.summary["window_s"]
    if start is None or window == 0:
        return
    width = run.timeline["width_s"]
    for key, column in (
        ("allocated", "allocated_gpus"),
        ("shared", "shared_gpus"),
        ("placeable", "largest_placeable_gpus"),
        ("stranded", "stranded_gpus"),
        ("queue", "queue_jobs"),
    ):
        assert (run.timeline[column] * width).sum() == pytest.approx(total[key], abs=1e-4), key
    if run.summary["busy_share"] is not None:
        assert (run.timeline["busy_gpus"] * width).sum() == pytest.approx(total["busy"], abs=1e-4)
    assert run.summary["largest_placeable_gpus_min"] == min(lows)


def test_the_picture_of_the_first_devices_ends_when_it_is_full(monkeypatch):
    from cotenant.report import occupancy

    monkeypatch.setattr(occupancy, "SEGMENT_LIMIT", 2)
    log: list[ev.Event] = [
        opened(Cluster.uniform(2)),
        *(ev.Submitted(0.0, Job(i, f"j{i}", 0.0)) for i in range(6)),
    ]
    log.append(ev.Started(0.0, 5, 1, (1,)))
    for i in range(5):
        log += [ev.Started(10.0 * i, i, 1, (0,)), ev.Ended(10.0 * i + 10, i, 1, "done", 10.0)]
    log.append(ev.Ended(60.0, 5, 1, "done", 60.0))
    # The third stay ends at 30 s: there the picture ends, with the long job drawn to its edge.
    rows = metrics(*log).segments.select("device", "id", "from_s", "to_s").rows()
    assert rows == [(0, 0, 0, 10), (1, 5, 0, 30), (0, 1, 10, 20), (0, 2, 20, 30)]


def test_fold_from_a_file_equals_the_online_fold(tmp_path: Path):
    from cotenant.report.rundir import fold_file

    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in two_jobs()))
    assert fold_file(path).summary == metrics(*two_jobs()).summary


def test_bins_stay_exact_when_they_merge():
    bins = StepBins(1, 10.0, max_bins=4, width_s=1.0)
    bins.add(0, [10.5], [2.0])  # 2 from 10.5 on
    bins.add(0, [40.0], [-1.0])  # 1 from 40 on: four bins of 8 s, from 10
    starts, widths, means = bins.means(42.0, 4)
    assert starts.tolist() == [10, 18, 26, 34]
    assert widths.tolist() == [8, 8, 8, 8]
    assert means[0] == pytest.approx([2 * 7.5 / 8, 2, 2, (2 * 6 + 1 * 2) / 8])


def test_time_queued_counts_the_waits_after_suspensions_too():
    s = metrics(
        opened(Cluster.uniform(1, gpu_type=GPU)),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(3.0, 0, 1, (0,)),
        ev.Stopping(10.0, 0, 1),
        ev.Suspended(10.0, 0, 1, 7.0),
        ev.Started(30.0, 0, 1, (0,), resumed=True),
        ev.Ended(40.0, 0, 1, "done", 17.0),
        ev.Submitted(40.0, Job(1, "never started", 40.0)),
        ev.Closed(50.0, 9, 2, 1, waiting=1),
    ).summary
    # a waits 3 s at first and 20 s after its suspension; the other one never starts, so it has no wait to count.
    assert (s["wait_s_mean"], s["queued_s_mean"]) == (3.0, 23.0)


def test_work_that_survives_an_interruption_counts_once():
    # 50 s done, 40 kept; the attempt goes on from there, fails after 90, and all is done again.
    events = [
        opened(Cluster.uniform(1)),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Started(0.0, 0, 1, (0,)),
        ev.Ended(50.0, 0, 1, "preempted", 40.0, lost_s=10.0, final=False),
        ev.Started(50.0, 0, 1, (0,), resumed=True),
        ev.Ended(100.0, 0, 1, "failed", 90.0, lost_s=90.0, final=False),
        ev.Started(100.0, 0, 2, (0,)),
        ev.Suspended(160.0, 0, 2, 60.0),
        ev.Started(160.0, 0, 2, (0,), resumed=True),
        ev.Ended(200.0, 0, 2, "done", 100.0),
        ev.Closed(200.0, 10, 1, 1),
    ]
    # Work: 40, then 90 in all, then 90 + 60, then 90 + 100.
    for count, work_s in ((4, 40.0), (6, 90.0), (8, 150.0), (10, 190.0)):
        row = metrics(*events[:count]).jobs.row(0, named=True)
        assert (row["work_s"], row["preemptions"]) == (work_s, 1 + (count >= 8))
    assert (row["lost_s"], row["slowdown"]) == (100.0, pytest.approx(200 / 190))
    # Of the device's 200 s only the last 100 are of use: what is lost is not useful as well.
    s = metrics(*events).summary
    assert (s["gpu_hours_useful"], s["gpu_hours_lost"]) == (
        pytest.approx(100 / 3600),
        pytest.approx(100 / 3600),
    )
