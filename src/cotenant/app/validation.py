"""What ``validate`` and ``schema`` do for each kind of file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cotenant.app.fits import check_jobs
from cotenant.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from cotenant.model.workload import Workload

__all__ = ["KINDS", "check_file", "schema_of"]


def _job(path: Path, cluster: Path | None) -> dict[str, Any]:
    from cotenant.model.quantities import format_bytes, format_milli
    from cotenant.runs.jobfile import check_fits, read_job
    from cotenant.traces.clusterfile import read_cluster

    job = read_job(path)
    if cluster is not None:
        there = read_cluster(cluster)
        check_fits(job, there)
        check_jobs([job], there, cluster)
    memory = format_bytes(job.memory_bytes) if job.memory_bytes else "unknown (it gets whole devices)"
    text = f'"{job.name}", {job.gpus} GPU, {format_milli(job.compute_milli)} each, memory {memory}'
    return {"summary": text + (", fits the cluster" if cluster else "")}


def _cluster(path: Path, _: Path | None) -> dict[str, Any]:
    from cotenant.traces.clusterfile import read_cluster

    cluster = read_cluster(path)
    types = ", ".join(kind.name for kind in cluster.types) or "none"
    text = f"{len(cluster.nodes):,} nodes, {cluster.gpu_count:,} devices (types: {types})"
    return {"summary": text + (f", {len(cluster.tenants)} tenants" if cluster.tenants else "")}


def _run(path: Path, cluster: Path | None) -> dict[str, Any]:
    from cotenant.runs.runfile import read_run_file
    from cotenant.runs.spec import build_policy, parse_policies
    from cotenant.traces.load import read_trace

    config = read_run_file(path)
    specs = parse_policies(config.policies)
    for spec in specs:
        # A file of one's own is code, and checking a description must not run code.
        if spec.plugin_file is None:
            build_policy(spec)
        elif not Path(spec.plugin_file).is_file():
            raise ConfigError(f"{path}: policy file {spec.plugin_file} is not there")
    if cluster is not None:
        options = {**config.options, **({"cpu_jobs": "drop"} if config.cpu_jobs == "drop" else {})}
        _fit(read_trace(config.trace, config.format, config.strict, **options), cluster)
    return {"summary": f"{len(specs)} policies, {config.seeds} seeds, trace {config.trace}"}


def _spec(path: Path, cluster: Path | None) -> dict[str, Any]:
    from cotenant.traces.synthetic import SyntheticReader

    workload = SyntheticReader().read(path)
    return {"summary": f"it describes {len(workload):,} jobs{_fit(workload, cluster)}"}


def _fit(workload: Workload, cluster: Path | None) -> str:
    """Words for a workload all of whose jobs can run on the cluster; empty without a cluster."""
    from cotenant.traces.clusterfile import read_cluster

    if cluster is None:
        return ""
    check_jobs(workload.jobs(), read_cluster(cluster), cluster)
    return ", each of which can run on the cluster"


def _trace(path: Path, cluster: Path | None) -> dict[str, Any]:
    from cotenant.app.datareport import report_lines
    from cotenant.traces.load import read_trace

    workload = read_trace(path)
    lines = report_lines(workload.report, len(workload))
    return {"summary": f"{len(workload):,} jobs{_fit(workload, cluster)}", "lines": lines}


def _log(path: Path, _: Path | None) -> dict[str, Any]:
    from cotenant.engine.log import read_log
    from cotenant.model.events import Closed

    count, last = 0, None
    for event in read_log(path):
        count, last = count + 1, event
    if not isinstance(last, Closed):
        state = "not closed (the run was killed)"
    else:
        state = "closed early (interrupted)" if last.interrupted else "complete"
    return {"summary": f"{count:,} events, {state}"}


def _manifest(path: Path, _: Path | None) -> dict[str, Any]:
    from cotenant.report.logstate import log_state
    from cotenant.runs.manifest import read_manifest

    manifest, folder = read_manifest(path)
    for run in manifest.runs:
        log = folder / run.folder / "events.jsonl"
        state = log_state(log.parent, run.log_sha256) if run.log_sha256 else "as recorded"
        if state != "as recorded":
            raise ConfigError(f"{log}: is not the log that the manifest names: it is {state}")
    done = sum(run.status == "complete" for run in manifest.runs)
    return {"summary": f"{done} of {len(manifest.runs)} runs complete, logs as recorded"}


def _incidents(path: Path, cluster: Path | None) -> dict[str, Any]:
    from cotenant.runs.incidents import check_incidents
    from cotenant.traces.clusterfile import read_cluster

    count = check_incidents(path, read_cluster(cluster) if cluster else None)
    checked = "names of nodes and tenants checked" if cluster else "give --cluster to check its names"
    return {"summary": f"{count:,} incidents; {checked}"}


KINDS: dict[str, Callable[[Path, Path | None], dict[str, Any]]] = {
    "job": _job,
    "cluster": _cluster,
    "incidents": _incidents,
    "run": _run,
    "spec": _spec,
    "trace": _trace,
    "log": _log,
    "manifest": _manifest,
}


_ON_A_CLUSTER = ("incidents", "job", "run", "spec", "trace")
"""Kinds of file that can be checked against a cluster."""


def check_file(path: Path, kind: str | None, cluster: Path | None) -> dict[str, Any]:
    """Check a file of the kind given or recognised; plain JSON that says what it holds.

    Raises
    ------
    CotenantError
        Naming file, place and what to do; ``InfeasibleError`` if a job can never run on
        the cluster.
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError("kind of file", kind, KINDS)
    if not path.exists():
        raise ConfigError(f"{path}: no such file")
    chosen = kind or _recognise(path)
    if cluster is not None and chosen not in _ON_A_CLUSTER:
        raise ConfigError(f"--cluster goes with {', '.join(_ON_A_CLUSTER)}; {path} is a {chosen}")
    return {"file": str(path), "kind": chosen, **KINDS[chosen](path, cluster)}


def _recognise(path: Path) -> str:
    from cotenant.runs.folders import MANIFEST
    from cotenant.traces.documents import read_document

    if path.name == MANIFEST or (path.is_dir() and (path / MANIFEST).is_file()):
        return "manifest"
    if path.suffix == ".jsonl" and path.is_file():
        with path.open("rb") as stream:
            return "log" if stream.read(16).startswith(b'{"e":"opened"') else "trace"
    if path.suffix.lower() not in {".toml", ".yaml", ".yml"}:
        return "trace"
    keys = read_document(path).data.keys()
    if "incident" in keys:
        return "incidents"
    if "nodes" in keys:
        return "cluster"
    if "trace" in keys or "policies" in keys:
        return "run"
    if "synthetic" in keys:
        return "spec"
    if keys & {"command", "gpus", "gpu_memory", "gpu_compute", "sharing"}:
        return "job"
    raise ConfigError(
        f"{path}: cannot tell what this describes from its keys ({', '.join(sorted(keys)) or 'none'}); "
        f"give --kind {'|'.join(KINDS)}"
    )


def schema_of(kind: str) -> dict[str, Any]:
    """JSON schema of a kind of file.

    Raises
    ------
    UnknownNameError
        For a kind that has none.
    """
    types: dict[str, Callable[[], Any]] = {
        "cluster": _cluster_type,
        "event": _event_type,
        "job": _job_type,
        "manifest": _manifest_type,
        "run": _run_type,
        "spec": _spec_type,
    }
    if kind not in types:
        raise UnknownNameError("schema", kind, types)
    return msgspec.json.schema(types[kind]())


def _cluster_type() -> Any:
    from cotenant.traces import clusterfile

    return clusterfile._File


def _event_type() -> Any:
    from cotenant.model.events import Event

    return Event


def _job_type() -> Any:
    from cotenant.runs.jobfile import JobFile

    return JobFile


def _manifest_type() -> Any:
    from cotenant.runs.manifest import Manifest

    return Manifest


def _run_type() -> Any:
    from cotenant.runs.config import RunConfig

    return RunConfig


def _spec_type() -> Any:
    from cotenant.traces.synthetic_spec import SyntheticSpec

    return SyntheticSpec
