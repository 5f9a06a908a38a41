"""The read model shows what the log says, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.app.livetables import history_rows
from cotenant.live.picture import Picture
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Tenant
from cotenant.model.jobs import Job
from cotenant.model.liveports import Progress
from cotenant.model.placement import Share
from cotenant.model.plan import Reason, Why

GIB = 1 << 30


class Clock:
    def __init__(self) -> None:
        self.t = 0.0

    def now(self) -> float:
        return self.t

    def wall(self, t: float) -> float:
        return 1000.0 + t


def opened() -> ev.Opened:
    cluster = Cluster.uniform(2, gpu_type=DeviceType(name="cpu x1", memory_bytes=8 * GIB))
    return ev.Opened(0.0, 1, "0", 0, "cotenant", {}, {}, cluster, {}, {}, {})


def made(**options: Any) -> tuple[Picture, Clock]:
    clock = Clock()
    picture = Picture(clock, ["cpu:0", "cpu:1"], **options)
    picture.see([opened()])
    return picture, clock


def taken(*devices: int) -> list[ev.Event]:
    """Others, with numbers from 90, are on these devices."""
    return [
        event
        for device in devices
        for event in (ev.Submitted(0.5, job(90 + device)), ev.Started(0.5, 90 + device, 1, (device,)))
    ]


def job(number: int, **fields: Any) -> Job:
    return Job(number, f"job-{number}", float(number), tenant=fields.pop("tenant", "a"), **fields)


def test_a_job_waits_runs_and_ends_with_its_times_and_its_exit_code() -> None:
    picture, _clock = made()
    picture.see(
        [*taken(0, 1), ev.Submitted(1.0, job(1)), ev.Held(1.0, 1, Reason.NO_CAPACITY, {"free_gpus": 0})]
    )
    view = picture.job(1)
    assert view is not None
    assert (view.status, view.submitted, view.started) == ("waiting", 1001.0, None)
    assert view.reason == "not now: too few devices are free (needs gpus 1, free gpus 0)"
    picture.see([ev.Ended(4.0, 91, 1, "done", 3.0), ev.Started(5.0, 1, 1, (1,), why=Why("free-devices"))])
    view = picture.job(1)
    assert view is not None
    assert (view.status, view.started, view.devices, view.reason) == ("running", 1005.0, ("cpu:1",), "")
    picture.see([ev.Ended(65.0, 1, 1, "failed", 0.0, code=3)])
    view = picture.job(1)
    assert view is not None
    assert (view.status, view.ended, view.exit_code) == ("failed", 1065.0, 3)
    assert view.reason == "failed with exit code 3 after 1m"


def test_what_could_not_be_started_has_no_exit_code() -> None:
    picture = Picture(Clock(), ["cpu:0"], ["core"])
    picture.see(
        [
            ev.Submitted(1.0, Job(0, "a", 1.0)),
            ev.Started(1.0, 0, 1, (0,)),
            ev.Ended(1.1, 0, 1, "failed", 0.0, detail="'x' cannot be run: No such file or directory"),
        ]
    )
    view = picture.job(0)
    assert view is not None
    assert (view.status, view.exit_code) == ("failed", None)
    assert picture.residents(1) == ()


def test_neighbours_are_shown_with_the_speed_that_was_foretold_and_the_one_measured() -> None:
    picture, _ = made()
    share = Share("spatial", 2 * GIB, 0)
    picture.see(
        [
            ev.Submitted(0.0, job(0, model="A")),
            ev.Submitted(0.0, job(1, model="B")),
            ev.Started(1.0, 0, 1, (0,), share),
            ev.Started(1.0, 1, 1, (0,), share),
            ev.Foretold(1.0, "gpu", ("A", "B"), (0.9, 0.6), (0.8, 0.5), (1.0, 0.7)),
            ev.Foretold(1.0, "cpu x1", ("A", "B"), (0.8, 0.7), (0.7, 0.6), (0.9, 0.8)),
            ev.Sampled(9.0, 1, 1, 100.0, 90.0, 110.0, 0.65),
        ]
    )
    first, second = picture.residents(0)
    assert (first.id, first.predicted_speed, first.measured_speed) == (0, (0.8, 0.7, 0.9), None)
    assert (second.id, second.predicted_speed, second.measured_speed) == (1, (0.7, 0.6, 0.8), 0.65)
    assert picture.held(0) == (4 * GIB, 0)
    assert picture.held(1) == (0, 0)
    picture.see([ev.Ended(10.0, 1, 1, "done", 10.0)])
    (alone,) = picture.residents(0)
    assert alone.predicted_speed == (1.0, 1.0, 1.0)


def test_a_job_held_by_its_owner_says_so_until_it_is_resumed() -> None:
    picture, _ = made()
    picture.see([ev.Submitted(0.0, job(0)), ev.Started(0.0, 0, 1, (0,)), ev.SuspendRequested(4.0, 0)])
    picture.see([ev.Stopping(4.0, 0, 1)])
    assert picture.job(0).status == "stopping"  # type: ignore[union-attr]
    picture.see([ev.Suspended(5.0, 0, 1, 4.0)])
    view = picture.job(0)
    assert view is not None
    assert (view.status, view.suspensions) == ("held", 1)
    assert view.reason == "suspended by its owner; resume lets it go on"
    picture.see([ev.ResumeRequested(6.0, 0)])
    assert picture.job(0).status == "suspended"  # type: ignore[union-attr]


def test_of_a_job_whose_checkpoints_are_its_own_nobody_says_that_its_state_is_saved() -> None:
    picture, _ = made()
    picture.see(
        [ev.Submitted(0.0, job(0)), ev.Started(0.0, 0, 1, (0,)), ev.Stopping(4.0, 0, 1, beneficiary=7)]
    )
    assert picture.job(0).reason == "leaves its devices for job 7, to go on later"  # type: ignore[union-attr]
    picture.see([ev.Suspended(5.0, 0, 1, 4.0, own=True)])
    own = "it was ended to make room, and what it saved is its own affair; "
    assert picture.job(0).reason == f"{own}its turn is next"  # type: ignore[union-attr]
    picture.see([ev.Drained(6.0, 0)])
    assert picture.job(0).reason.startswith(f"{own}nothing new is started")  # type: ignore[union-attr]
    picture.see([ev.Started(7.0, 0, 1, (0,), resumed=True), ev.Suspended(8.0, 0, 1, 5.0)])
    assert picture.job(0).reason.startswith("its state is saved; nothing new")  # type: ignore[union-attr]


def test_killed_processes_are_counted_over_all_starts_of_a_job() -> None:
    picture, _ = made()
    picture.see([ev.Submitted(0.0, job(0)), ev.Started(0.0, 0, 1, (0,))])
    counts = [(1, 1), (1, 3), (2, 2), (2, 3)]
    picture.see([ev.ProcessKilled(float(n), 0, 1, *one, 9) for n, one in enumerate(counts)])
    view = picture.job(0)
    assert view is not None
    assert view.killed_processes == 6
    (row,) = history_rows([view])
    assert row[-1] == "; 6 of its processes were killed and replaced"


def test_what_a_job_tells_of_itself_gives_its_end() -> None:
    picture, clock = made()
    picture.see([ev.Submitted(0.0, job(0)), ev.Started(0.0, 0, 1, (0,))])
    picture.report(Progress(id=0, attempt=1, serial=1, steps=40, total=100, step_s=0.5, memory_bytes=7))
    clock.t = 20.0
    view = picture.job(0)
    assert view is not None
    assert (view.steps, view.total_steps, view.memory_used_bytes) == (40, 100, 7)
    assert view.ends_at == pytest.approx((1050.0, 1047.0, 1053.0))


def test_only_so_many_ended_jobs_are_remembered_and_all_are_counted() -> None:
    picture, _ = made(kept=3)
    for number in range(5):
        picture.see([ev.Submitted(0.0, job(number)), ev.Rejected(1.0, number, "cancelled")])
    assert [view.id for view in picture.jobs()] == [2, 3, 4]
    assert picture.job(0) is None
    assert picture.counts()["cancelled"] == 5


def test_tenants_newest_jobs_and_names() -> None:
    picture, _ = made()
    picture.see([ev.Submitted(0.0, job(n, tenant="ab"[n % 2])) for n in range(6)])
    assert [view.id for view in picture.jobs(tenant="b", limit=2)] == [3, 5]
    assert picture.named("job-4", None) == 4
    assert picture.named("job-4", "b") is None


def test_foreign_use_and_lost_devices_are_kept_until_they_are_over() -> None:
    picture, _ = made()
    picture.see([ev.ForeignUse(1.0, 0, GIB, (77,)), ev.DeviceDown(1.0, 1, "fell off the bus")])
    assert picture.foreign(0) == (GIB, (77,))
    assert picture.device_state(1) == "down: fell off the bus"
    picture.see([ev.ForeignUse(2.0, 0), ev.DeviceUp(2.0, 1), ev.Drained(2.0, 0)])
    assert picture.foreign(0) == (0, ())
    assert picture.device_state(1) == "drained"


def test_who_waits_while_nothing_new_is_started_says_so() -> None:
    picture, _clock = made()
    picture.see([*taken(0, 1), ev.Submitted(1.0, job(1)), ev.Drained(2.0, 0)])
    picture.see([ev.Held(2.0, 1, Reason.NO_CAPACITY, {})])
    view = picture.job(1)
    assert view is not None
    assert view.reason == "nothing new is started until cotenant undrain"
    picture.see([ev.Undrained(3.0, 0)])
    view = picture.job(1)
    assert view is not None
    assert view.reason == "not now: too few devices are free (needs gpus 1, free gpus 0)"


def test_a_job_that_ended_while_no_scheduler_ran_is_told_of_with_its_own_time() -> None:
    picture, _clock = made()
    picture.see([ev.Submitted(1.0, job(1)), ev.Started(5.0, 1, 1, (1,))])
    picture.see([ev.Submitted(1.0, job(2)), ev.Started(5.0, 2, 1, (0,))])
    picture.see([ev.Ended(605.0, 1, 1, "failed", 0.0, code=3, ago_s=580.0)])
    picture.see([ev.Ended(605.0, 2, 1, "done", 0.0, ago_s=9000.0)])  # no sooner than it began
    one, two = picture.job(1), picture.job(2)
    assert one is not None and two is not None
    assert (one.ended, one.reason) == (1025.0, "failed with exit code 3 after 20s")
    assert two.ended == 1005.0


def test_one_device_is_drained_by_itself_and_when_all_are_that_is_why_jobs_wait() -> None:
    picture, _clock = made()
    picture.see([ev.Submitted(1.0, job(1)), ev.Submitted(1.0, job(2, gpus=0)), ev.Drained(2.0, 0, device=1)])
    picture.see(taken(0))
    picture.see([ev.Held(2.0, n, Reason.NO_CAPACITY, {}) for n in (1, 2)])

    def reason(number: int) -> str:
        view = picture.job(number)
        assert view is not None
        return view.reason

    assert [picture.device_state(d) for d in (0, 1)] == ["up", "drained"]
    assert reason(1).startswith("not now: cpu:1 is drained")
    held = ev.Held(2.5, 1, Reason.NO_CAPACITY, {"needs_gpus": 1, "free_gpus": 0})
    picture.see([held])
    why = "too few devices are free (needs gpus 1, free gpus 0)"
    assert reason(1) == f"not now: cpu:1 is drained until cotenant undrain --device cpu:1; {why}"
    picture.see([ev.Ended(2.8, 90, 1, "done", 1.0), ev.Drained(3.0, 0, device=0)])
    assert reason(1) == "every device is drained until cotenant undrain --device NAME"
    assert reason(2) == "not now: too few devices are free", "it needs none"
    picture.see([ev.Drained(4.0, 0), ev.Undrained(5.0, 0, device=1), ev.Undrained(5.0, 0)])
    assert [picture.device_state(d) for d in (0, 1)] == ["drained", "up"]


def test_why_a_job_waits_is_told_as_it_is_now_though_the_log_says_it_once() -> None:
    from cotenant.report.explain import explain_events

    picture, _ = made()
    log: list[ev.Event] = [opened()]

    def happen(*events: ev.Event) -> tuple[str, str]:
        """How job 1 is told of then, in ``ps`` and in ``explain``."""
        log.extend(events)
        picture.see(events)
        view, now = picture.job(1), picture.present(1)
        assert view is not None and now is not None
        assert view.reason == now.words
        present = (now.reason, now.facts, now.words)
        verdict = explain_events(log, 1, now_s=60.0, present=present).verdict
        assert verdict.startswith("WAITING ") and "; has waited 59s (not now" in verdict
        return view.reason.removeprefix("not now: "), verdict.removeprefix("WAITING ").split(";")[0]

    short = "too few devices are free (needs gpus 1, free gpus 0)"
    one = ev.Submitted(1.0, job(1, compute_milli=400, memory_bytes=GIB))
    assert happen(*taken(0, 1), one, ev.Held(1.0, 1, Reason.NO_CAPACITY)) == (short, f"no-capacity: {short}")
    # Freed, and another one of higher priority goes first.
    late = ev.Submitted(2.0, job(2, priority=5))
    told = happen(ev.Ended(2.0, 91, 1, "done", 1.0), late)
    assert told == ("1 job is ahead of it in the queue", "behind-head: 1 job is ahead of it in the queue")
    # That one is suspended by its owner, and its tenant is given less.
    told = happen(ev.SuspendRequested(3.0, 2), ev.TenantsChanged(3.0, (Tenant(name="a", limit_gpus=1),)))
    limited = "its tenant is at its limit (tenant a, limit gpus 1, used gpus 1, needs gpus 1)"
    assert told == (limited, f"tenant-limit: {limited}")
    # The limit is gone; the free device is kept for somebody else, drained, or is no more.
    told = happen(ev.TenantsChanged(4.0), ev.Submitted(4.0, job(3)), ev.Reserved(4.0, 3, (1,)))
    assert told[0] == "the devices are held for another job (needs gpus 1, free gpus 1)"
    told = happen(ev.Reserved(5.0, 3), ev.Drained(5.0, 0, device=1))
    drained = "cpu:1 is drained until cotenant undrain --device cpu:1"
    assert told == (f"{drained}; {short}", f"no-capacity: {drained}")
    told = happen(ev.Undrained(6.0, 0, device=1), ev.DeviceDown(6.0, 0), ev.DeviceDown(6.0, 1))
    assert (
        told[1]
        == "device-unavailable: devices it could use are down or drained (needs gpus 1, usable gpus 0)"
    )
    # Nothing of it holds any more.
    told = happen(ev.DeviceUp(7.0, 1))
    assert told[0] == (
        "1 device free, and the policy has not started it yet; before, it said: too few devices are free"
    )
    assert sum(isinstance(event, ev.Held) for event in log) == 1


def test_what_only_the_policy_can_judge_stays_until_a_device_is_free() -> None:
    picture, _ = made()
    picture.see([*taken(0, 1), ev.Submitted(1.0, job(1)), ev.Held(1.0, 1, Reason.SLOWDOWN, {"speed": 0.4})])
    assert picture.present(1).reason == Reason.SLOWDOWN  # type: ignore[union-attr]
    picture.see([ev.Ended(2.0, 90, 1, "done", 1.0)])
    assert picture.present(1).reason == ""  # type: ignore[union-attr]
    picture.see([ev.Started(3.0, 1, 1, (0,)), ev.Suspended(4.0, 1, 1, 1.0), *taken(0)])
    # The next wait begins with nothing said.
    assert picture.job(1).reason == (  # type: ignore[union-attr]
        "its state is saved; not now: too few devices are free (needs gpus 1, free gpus 0)"
    )
    assert picture.present(90) is None


def test_listeners_are_told_with_the_number_of_the_event_and_whose_job_it_is() -> None:
    picture, _ = made()
    heard: list[tuple[int, str, Any]] = []
    stop = picture.subscribe(lambda number, kind, facts: heard.append((number, kind, facts["tenant"])))
    picture.see([ev.Submitted(0.0, job(0))])
    stop()
    picture.see([ev.Started(0.0, 0, 1, (0,))])
    assert heard == [(2, "submitted", "a")]


def test_a_granted_wish_holds_for_the_next_place_and_a_refused_one_does_not() -> None:
    picture, _ = made()
    share = Share("spatial", GIB, 400)
    picture.see(
        [
            ev.Submitted(1.0, job(1, compute_milli=400, memory_bytes=GIB)),
            ev.Started(1.0, 1, 1, (0,), share),
            ev.ResizeRequested(2.0, 1, compute_milli=200),
            ev.Resized(2.0, 1, 1, (0,), Share("spatial", GIB, 200), Why("asked-by-owner")),
            ev.ResizeRequested(3.0, 1, compute_milli=900),
            ev.Resized(4.0, 1, 1, (0,), Share("spatial", GIB, 200, 500), Why("idle-compute-back")),
            ev.Suspended(5.0, 1, 1, 4.0),
        ]
    )
    view = picture.job(1)
    assert view is not None
    assert (view.status, view.compute_milli) == ("suspended", 200)


def test_of_a_job_that_outlives_what_was_expected_no_end_is_foreseen() -> None:
    picture, clock = made()
    picture.see([ev.Submitted(0.0, job(0), expected_s=(10.0, 5.0, 30.0)), ev.Started(0.0, 0, 1, (0,))])
    clock.t = 5.0
    view = picture.job(0)
    assert view is not None
    assert (view.reason, view.ends_at) == ("", (1010.0, 1005.0, 1030.0))
    clock.t = 20.0
    view = picture.job(0)
    assert view is not None
    assert (view.reason, view.ends_at) == ("runs longer than expected", None)
    picture.report(Progress(id=0, attempt=1, serial=1, steps=100, total=100, step_s=0.5))
    view = picture.job(0)
    assert view is not None and view.reason == "", "it has made its steps, and is about to end"
    picture.see([ev.Paused(21.0, 0, 1, True)])
    assert picture.job(0).reason == "stopped by signal; it holds its memory"  # type: ignore[union-attr]


def test_when_an_elastic_job_gives_devices_is_told_to_who_waits_for_them() -> None:
    picture, _ = made()
    wide = job(0, min_gpus=1, max_gpus=2)
    picture.see([ev.Submitted(0.0, wide), ev.Started(0.0, 0, 1, (0, 1))])
    picture.see([ev.Submitted(1.0, job(1)), ev.Held(1.0, 1, Reason.ISOLATION, {"free_gpus": 0})])
    apart = "not now: it may not share with the jobs of others that are there (--sharing)"
    assert picture.job(1).reason == f"{apart} (free gpus 0)"  # type: ignore[union-attr]
    picture.quantum_s = 300.0
    when = "; job 0, elastic on 2 devices, gives none of them before it has worked for 5m at a stretch"
    assert picture.job(1).reason == f"{apart}{when} (free gpus 0)"  # type: ignore[union-attr]
    picture.see([ev.Resized(2.0, 0, 1, (0,), in_place=True), ev.Resettled(3.0, 0, 1, (0,))])
    assert "elastic" not in picture.job(1).reason  # type: ignore[union-attr]
