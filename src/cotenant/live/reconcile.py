"""After a restart: what the log says runs, against what really runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cotenant.live.attempts import Former, Run
from cotenant.model import events as ev
from cotenant.model.liveports import Found
from cotenant.model.records import JobRecord

if TYPE_CHECKING:
    from cotenant.live.executor import LiveExecutor

__all__ = ["reconcile"]


def reconcile(executor: LiveExecutor, now: float) -> dict[str, Any]:
    """Give an executor its runs: adopt what runs as the log says, ask for the rest, end what should not run.

    A job that the log has running and that is not found is asked for by launching the same serial
    again: one that ended meanwhile is answered by its end, one that was never launched starts now.

    Returns
    -------
    dict
        ``adopted``, ``asked`` (job numbers) and ``killed`` (job, serial), as in ``Restarted``.
    """
    found = {(f.id, f.serial): f for f in executor.host.running()}
    adopted: list[int] = []
    asked: list[int] = []
    ours: set[tuple[int, int]] = set()
    for record in executor.state.running.values():
        run = _run_of(executor, record, now)
        executor.runs[record.id] = run
        here = found.get((run.id, run.serial))
        if here is not None:
            _adopt(executor, run, record, here, now)
            ours.add((run.id, run.serial))
            adopted.append(run.id)
        elif run.former is not None:
            key = run.id, run.former.serial
            ours.add(key)
            (adopted if key in found else asked).append(run.id)
        else:
            asked.append(run.id)
    killed = sorted(found.keys() - ours)
    for key in killed:
        executor.acting.expel(*key, found[key].attempt)
    return {"adopted": tuple(sorted(adopted)), "asked": tuple(sorted(asked)), "killed": tuple(killed)}


def _run_of(executor: LiveExecutor, record: JobRecord, now: float) -> Run:
    endings, state = executor.endings, executor.state
    assert record.place is not None  # noqa: S101 - who runs has a place
    base_s = endings.base.get(record.id, 0.0)
    process = record.process
    changed = process is not None and process.serial == record.serial - 1
    resumed = changed or base_s > 0.0 or (record.work_s > 0.0 and record.rated_s == record.started_s)
    run = Run(record.job, record.place, record.attempt, record.serial, resumed, now)
    run.work_s, run.base_s, run.rate = record.work_at(now), base_s, record.rate
    run.want = endings.wants.get(record.id, "")
    serial, killed = endings.killed.get(record.id, (-1, 0))
    run.killed = killed if serial == run.serial else 0
    run.phase, run.since_s, run.asked_s = "unsure", now, now
    if changed:
        leaving = state.ledger.leaving.get(record.id)
        devices = leaving.devices if leaving is not None else endings.formers.get(record.id, ())
        run.former = Former(record.serial - 1, devices, moves=leaving is not None)
        run.phase = "wanted"
    elif process is not None and process.serial == record.serial:
        run.shift = record.settling or None  # asked again: who runs it knows where its processes are
        run.phase, run.asked_s = "asked", now - executor.patience.again_s
    if not executor.down.isdisjoint(run.place.devices) and run.want != "cancel":
        run.want, run.cause = "lost", "a device is gone"
    if record.sample is not None:
        run.sampled, run.sampled_s = (record.sample.work_s, record.sample.co_speed), record.sample.t
    return run


def _adopt(executor: LiveExecutor, run: Run, record: JobRecord, here: Found, now: float) -> None:
    run.former, run.reshare = None, run.place.share.mode != "exclusive"
    if not here.pid:
        run.phase = "asked"  # its shepherd is there; that it runs is still to be told
        return
    run.phase = "up"
    if record.sample is not None:
        run.moved_s = now  # it told of steps before
    run.stood_s = now
    # Stopped for neither reason, it was about to be, or about to go on: the next audit sees to it.
    run.halted = here.paused and record.paused
    run.turned = here.paused and not record.paused and run.place.share.mode == "time-sliced"
    if record.process is None or record.process.serial != run.serial:
        executor.out.append(ev.Launched(now, run.id, run.attempt, run.serial, here.pid, here.start_ticks))
    wished = executor.endings.halts.get(run.id, False)
    if executor.asked(run.id).suspend == "pause" and wished != record.paused:
        run.halt = wished
