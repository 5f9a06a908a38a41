"""The live log for the tools of the simulator: as a run folder to report on, as a workload to simulate from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cotenant.errors import InputError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.events import decode_event, encode_event
from cotenant.model.jobs import Job
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.runs.folders import claim
from cotenant.runs.manifest import RunEntry, new_manifest, write_manifest

__all__ = ["FromLive", "events_of", "export_run", "workload_of", "write_inputs"]

_POLICY_FOLDER = "live"


class FromLive(msgspec.Struct, frozen=True, kw_only=True):
    """What another policy is to do with what happened.

    Parameters
    ----------
    workload : Workload
        Jobs that have ended, with the work that they did.
    cluster : Cluster
    settings : dict
        Of the live scheduler, where they differ from the defaults.
    policy : str
        Who decided live.
    left_out : dict of str to int
        Jobs that say nothing of their length, by reason.
    """

    workload: Workload
    cluster: Cluster
    settings: dict[str, Any]
    policy: str
    left_out: dict[str, int]


def events_of(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """Events from the lines of a live log.

    Raises
    ------
    InputError
        For a line that is no event of this version.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield decode_event(line)
            except msgspec.MsgspecError as error:
                raise InputError(
                    f"line {number} of the live log is no event of this version: {error}"
                ) from None


def export_run(events: Iterable[ev.Event], folder: Path, *, command: list[str], force: bool = False) -> Path:
    """Write the live log as the folder of one run, which report, compare and explain read.

    Jobs of the same name get their number in it, since a run's names are unique. The log is closed
    at its last event, with what waits and runs then.

    Parameters
    ----------
    command : list of str
        What was typed; for the manifest.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If the log is empty.
    ConfigError
        If the folder holds something else.
    """
    claim(folder, force=force)
    place = folder / "runs" / _POLICY_FOLDER / "seed-0"
    place.mkdir(parents=True)
    digest, size, count = hashlib.sha256(), 0, 0
    names = _Names()
    tally = _Tally()
    with (place / "events.jsonl").open("wb") as file:
        for event in events:
            line = encode_event(names.unique(event)) + b"\n"
            tally.see(event)
            file.write(line)
            digest.update(line)
            size, count = size + len(line), count + 1
        if tally.opened is None:
            raise InputError("the live log is empty: nothing was submitted yet")
        line = encode_event(tally.closing(count + 1)) + b"\n"
        file.write(line)
        digest.update(line)
        size += len(line)
    entry = RunEntry(
        policy=tally.policy,
        seed=0,
        folder=place.relative_to(folder).as_posix(),
        status="complete",
        log_sha256=digest.hexdigest(),
        log_bytes=size,
    )
    write_manifest(folder, _manifest(tally, command, entry))
    return folder


def _manifest(tally: _Tally, command: list[str], entry: RunEntry) -> Any:
    opened = tally.opened
    assert opened is not None  # noqa: S101 - an empty log was refused
    cluster = opened.cluster
    return new_manifest(
        command=command,
        policies=[tally.policy],
        params={tally.policy: tally.params},
        seeds=[0],
        settings=opened.settings,
        cluster={"name": cluster.name, "gpus": cluster.gpu_count, "nodes": len(cluster.nodes)},
        workload={"name": "live log", "jobs": tally.submitted},
        forecast=str(opened.forecast.get("kind", "none")),
        runtime=str(opened.forecast.get("runtime", {}).get("kind", "none")),
        assumptions=_assumptions(tally.own),
        runs=[entry],
    )


def _assumptions(own: int) -> list[str]:
    """What the figures rest on; ``own``: how often a job left with nothing saved but what it keeps itself."""
    told = ["These are real runs on one machine, not a simulation: nothing in them was modelled."]
    if own:
        times = "Once" if own == 1 else f"{own:,} times"
        told.append(
            f'{times} a job left its devices whose checkpoints are its own affair (suspend = "restart"). Its work '
            "counts as kept where it was made to leave, and as lost where it failed or its device did; what it "
            "really went on from nobody knows but the job."
        )
    return told


def workload_of(events: Iterable[ev.Event], *, since_s: float = 0.0) -> FromLive:
    """Jobs of the live log as a workload: what would another policy have done with them?

    A job's length is the useful work that it did, in seconds alone on a device like that it had. Jobs
    that have not ended, and those that never ran, say nothing of it and are left out, counted.

    Parameters
    ----------
    since_s : float
        Only jobs submitted at this time of the log or later.

    Raises
    ------
    InputError
        If no job is left.
    """
    tally, jobs = _Tally(), _Lengths()
    for event in events:
        tally.see(event)
        jobs.see(event)
    if tally.opened is None:
        raise InputError("the live log is empty: nothing was submitted yet")
    rows, left_out = jobs.rows(since_s)
    if not rows:
        told = ", ".join(f"{n} {why}" for why, n in left_out.items()) or "none was submitted"
        raise InputError(f"the live log holds no ended job to simulate from ({told})")
    frame = pl.DataFrame(rows, schema={name: JOB_SCHEMA[name] for name in rows[0]}, orient="row")
    workload = Workload(frame, name="live log", cluster=tally.opened.cluster)
    return FromLive(
        workload=workload,
        cluster=tally.opened.cluster,
        settings=tally.opened.settings,
        policy=tally.policy,
        left_out=left_out,
    )


def write_inputs(found: FromLive, folder: Path) -> tuple[Path, Path]:
    """Write workload and cluster as files that ``cotenant simulate`` reads.

    Returns
    -------
    Path, Path
        ``workload.parquet`` and ``cluster.toml``.
    """
    from cotenant.traces.clusterfile import to_toml
    from cotenant.traces.nativewrite import write_workload

    folder.mkdir(parents=True, exist_ok=True)
    trace, cluster = folder / "workload.parquet", folder / "cluster.toml"
    write_workload(found.workload, trace)
    cluster.write_text(to_toml(found.cluster), encoding="utf-8")
    return trace, cluster


class _Names:
    """A second job of a name gets its number behind it."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def unique(self, event: ev.Event) -> ev.Event:
        if not isinstance(event, ev.Submitted):
            return event
        name = self.of(event.job)
        if name == event.job.name:
            return event
        return msgspec.structs.replace(event, job=msgspec.structs.replace(event.job, name=name))

    def of(self, job: Job) -> str:
        name = job.name if job.name not in self._seen else f"{job.name}#{job.id}"
        self._seen.add(name)
        return name


class _Tally:
    """Who decided, and what is open at the end."""

    def __init__(self) -> None:
        self.opened: ev.Opened | None = None
        self.policy, self.params = "", dict[str, Any]()
        self.submitted = self.finished = 0
        self._running: set[int] = set()
        self._last = 0.0
        self.own = 0

    def see(self, event: ev.Event) -> None:
        self._last = event.t
        if isinstance(event, ev.Opened):
            self.opened, self.policy, self.params = event, event.policy, event.params
        elif isinstance(event, ev.TenantsChanged) and self.opened is not None:
            cluster = msgspec.structs.replace(self.opened.cluster, tenants=event.tenants)
            self.opened = msgspec.structs.replace(self.opened, cluster=cluster)
        elif isinstance(event, ev.Restarted):
            self.policy, self.params = event.policy, event.params
        elif isinstance(event, ev.Submitted):
            self.submitted += 1
        elif isinstance(event, ev.Started):
            self._running.add(event.id)
        elif isinstance(event, (ev.Ended, ev.Suspended)):
            self._running.discard(event.id)
            self.own += event.own and not (isinstance(event, ev.Ended) and event.final)
        if isinstance(event, ev.Rejected) or (isinstance(event, ev.Ended) and event.final):
            self.finished += 1

    def closing(self, events: int) -> ev.Closed:
        running = len(self._running)
        waiting = self.submitted - self.finished - running
        return ev.Closed(self._last, events, self.submitted, self.finished, waiting, running)


class _Lengths:
    """The useful work of each job, by attempts."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._failed: dict[int, list[float]] = {}
        self._ended: dict[int, ev.Ended] = {}
        self._never: set[int] = set()

    def see(self, event: ev.Event) -> None:
        if isinstance(event, ev.Submitted):
            self._jobs[event.job.id] = event.job
        elif isinstance(event, ev.Rejected):
            self._never.add(event.id)
        elif isinstance(event, ev.Ended):
            if event.final:
                self._ended[event.id] = event
            elif event.outcome == "failed":
                self._failed.setdefault(event.id, []).append(event.work_s)

    def rows(self, since_s: float) -> tuple[list[dict[str, Any]], dict[str, int]]:
        rows, left_out, names = [], dict[str, int](), _Names()
        for job_id, job in self._jobs.items():
            if job.submit_s < since_s:
                continue
            end = self._ended.get(job_id)
            if end is None or end.outcome not in ("done", "failed", "cancelled"):
                why = "lost" if end is not None else "never ran" if job_id in self._never else "not ended"
                left_out[why] = left_out.get(why, 0) + 1
                continue
            rows.append(self._row(job, names.of(job), end))
        return rows, left_out

    def _row(self, job: Job, name: str, end: ev.Ended) -> dict[str, Any]:
        row = {field: getattr(job, field) for field in JOB_SCHEMA if hasattr(job, field)}
        return {
            **row,
            "name": name,
            "device_types": list(job.device_types),
            "duration_s": max(end.work_s, 1e-3),
            "outcome": end.outcome,
            "failed_after_s": self._failed.get(job.id, []),
        }
