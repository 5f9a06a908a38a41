"""What users and fate do in a trial of the live scheduler, and what must hold when it is over."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings

if TYPE_CHECKING:
    from cotenant.checks.trials import Trial

__all__ = ["HOSTILE_S", "draw_cluster", "draw_settings", "mend", "verdict", "write_script"]

HOSTILE_S = 300.0
"""So long the world is hostile; then it turns kind."""


def draw_cluster(rng: random.Random, least: int = 1) -> Cluster:
    kind = DeviceType(name="card", memory_bytes=16 * GIB, speed=1.0)
    return Cluster(
        nodes=(Node(name="here", gpus=(("card", max(rng.choice((1, 1, 2, 4)), least)),), cpu_milli=16000),),
        types=(kind,),
    )


def draw_settings(rng: random.Random) -> Settings:
    return Settings(
        min_quantum_s=rng.choice((0.0, 10.0)),
        restore_s=1.0,
        slice_s=10.0,
        retry_lost=1000,
        max_sharers=rng.choice((2, 4)),
        starts_per_event=rng.choice((0, 0, 1)),
    )


def write_script(trial: Trial) -> None:
    """What users and fate will do."""
    rng, world = trial.rng, trial.world
    for _ in range(trial.jobs):
        world.at(rng.uniform(0.0, 0.5 * HOSTILE_S), lambda: _submit(trial))
    for _ in range(rng.randrange(3, 14)):
        world.at(rng.uniform(1.0, HOSTILE_S), lambda: _order(trial))
    for _ in range(rng.randrange(0, 6)):
        world.at(rng.uniform(1.0, HOSTILE_S), lambda: _mishap(trial))
    for _ in range(rng.randrange(20, 60) if trial.elastic else 0):
        world.at(rng.uniform(1.0, HOSTILE_S), lambda: _resize(trial))


def _submit(trial: Trial) -> None:
    rng = trial.rng
    body: dict[str, Any] = {
        "name": f"job-{trial.submitted}",
        "command": ["train"],
        "gpu_memory": rng.choice(("2GiB", "5GiB", "9GiB")),
        "model": rng.choice(("small", "wide")),
        "sharing": rng.choice(("any", "any", "exclusive")),
        "priority": rng.choice((0, 0, 5)),
        "retries": rng.choice((0, 1, 3)),
        "suspend": rng.choice(("runtime", "runtime", "runtime", "restart", "pause", "none")),
    }
    devices = trial.cluster.gpu_count
    if trial.elastic and rng.random() < 0.8:
        body |= {"gpus": rng.randrange(1, devices + 1), "sharing": "exclusive", "retries": 3}
        body |= {"suspend": "runtime", "elastic": {"min_gpus": 1, "max_gpus": devices}}
    elif rng.random() < 0.3:
        body["gpu_compute"] = rng.choice(("20%", "50%"))
    elif devices > 1 and rng.random() < 0.3:
        body["gpus"] = 2
        if rng.random() < 0.5:
            body["elastic"] = {"min_gpus": 1, "max_gpus": devices}
    if trial.submitted and rng.random() < 0.2:
        body["after"] = [rng.randrange(trial.submitted)]
    trial.request("submit", body)


def _order(trial: Trial) -> None:
    rng = trial.rng
    job_id = rng.randrange(max(trial.submitted, 1))
    if trial.state is not None and trial.state.running and rng.random() < 0.7:
        job_id = rng.choice(list(trial.state.running))
    kind = rng.choice(("cancel", "suspend", "suspend", "resume", "priority", "resize", "resize", "drain"))
    if kind == "drain":
        # The whole, or one device after the other.
        which = trial.submitted % (trial.cluster.gpu_count + 1)
        what = {"node": 0} | ({"device": which - 1} if which else {})
        trial.request("drain", what)
        trial.world.at(trial.world.now + 20.0, lambda: trial.request("undrain", what))
        return
    body: dict[str, Any] = {"id": job_id}
    if kind == "priority":
        body["priority"] = rng.choice((-1, 9))
    elif kind == "resize":
        body |= rng.choice(({"compute_milli": 300}, {"gpus": 1}, {"gpus": 2}, {"compute_limit_milli": 600}))
    trial.request(kind, body)


def _resize(trial: Trial) -> None:
    """Somebody wants other devices for an elastic job that runs."""
    running = trial.state.running if trial.state is not None else {}
    jobs = [record.job for record in running.values() if record.job.max_gpus]
    if jobs:
        job = trial.rng.choice(jobs)
        trial.request("resize", {"id": job.id, "gpus": trial.rng.randrange(1, job.max_gpus + 1)})


def _mishap(trial: Trial) -> None:
    rng, world = trial.rng, trial.world
    device = rng.randrange(trial.cluster.gpu_count)
    back = world.now + rng.uniform(5.0, 80.0)
    kind = rng.choice(("restart", "device", "device", "foreign", "full", "zombie"))
    if kind == "restart":
        world.restart()
    elif kind == "device":
        world.device(device, up=False)
        world.at(back, lambda: world.device(device, up=True))
    elif kind == "foreign":
        world.foreign(device, 12 * GIB)
        world.at(back, lambda: world.foreign(device, 0))
    elif kind == "full":
        trial.disk.full = True


def mend(trial: Trial) -> None:
    """The world turns kind: what is away comes back, and nobody is held back any more."""
    world = trial.world
    for device in range(trial.cluster.gpu_count):
        world.device(device, up=True)
        world.foreign(device, 0)
        trial.request("undrain", {"node": 0, "device": device})
    trial.request("undrain", {"node": 0})
    for job_id in range(trial.submitted):
        trial.request("resume", {"id": job_id})


def verdict(trial: Trial) -> list[str]:
    """What must hold when all is over."""
    state, wrong = trial.state, list[str]()
    assert state is not None  # noqa: S101 - somebody lived
    log = [event for _, event in trial.disk.read()]
    trial.events = len(log)
    if state.records or state.held:
        stuck = [(r.id, r.status.name, r.hold) for r in (*state.records.values(), *state.held.values())]
        wrong.append(f"after {trial.world.now:.0f} s jobs have not ended: {stuck}")
    ends: dict[int, int] = {}
    for event in log:
        if isinstance(event, ev.Rejected) or (isinstance(event, ev.Ended) and event.final):
            ends[event.id] = ends.get(event.id, 0) + 1
    wrong += [f"job {job} ended {ends.get(job, 0)} times" for job in trial.asked if ends.get(job, 0) != 1]
    submitted = [event.job.id for event in log if isinstance(event, ev.Submitted)]
    if sorted(submitted) != list(range(trial.submitted)):
        wrong.append(f"submitted: {submitted}, accepted: {trial.submitted} jobs")
    keys = [key for event in log if (key := getattr(event, "request", ""))]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        wrong.append(f"requests applied twice: {twice}")
    if left := [p.launch.id for p in trial.world.alive()]:
        wrong.append(f"jobs still run that no log knows: {left}")
    folded = State(trial.cluster, trial.settings)
    folded.go_live()
    for event in log:
        folded.apply(event)
    if not wrong and picture(folded) != picture(state):
        wrong.append("folding the log does not give the state")
    return wrong
