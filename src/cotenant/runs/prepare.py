"""From a configuration to values in memory: workload, cluster, settings, incidents."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster
from cotenant.model.events import Event
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload
from cotenant.profiles.catalogue import use_devices
from cotenant.runs.config import RunConfig
from cotenant.runs.devices import cluster_of, unknown_memory
from cotenant.runs.manifest import InputFile

__all__ = ["Prepared", "input_files", "prepare"]


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What every run of one command shares.

    Parameters
    ----------
    forecast, runtime, profiles
        As in ``RunConfig``; from Python, ``forecast`` and ``runtime`` may be objects.
    assumptions : tuple of str
        What had to be assumed about the cluster.
    """

    workload: Workload
    cluster: Cluster
    settings: Settings
    incidents: tuple[Event, ...] = ()
    forecast: object = "lookup"
    runtime: object = "history"
    truth: str = "auto"
    profiles: str | None = None
    assumptions: tuple[str, ...] = ()


def prepare(config: RunConfig) -> Prepared:
    """Read all inputs.

    Raises
    ------
    CotenantError
        For any input that cannot be used, naming it.
    """
    from cotenant.runs.incidents import read_incidents
    from cotenant.traces.load import read_trace

    if config.devices is not None:
        use_devices(config.devices)
    settings = config.effective_settings()
    options = dict(config.options)
    if config.cpu_jobs != "keep":
        options["cpu_jobs"] = config.cpu_jobs
    workload = read_trace(config.trace, config.format, config.strict, **options)
    cluster, assumed = _cluster(config, workload)
    incidents: tuple[Event, ...] = ()
    if config.incidents is not None:
        incidents = read_incidents(Path(config.incidents), cluster, workload)
    return Prepared(
        workload=workload,
        cluster=cluster,
        settings=settings,
        incidents=incidents,
        forecast=config.forecast,
        runtime=config.runtime,
        truth=config.truth,
        profiles=config.profiles,
        assumptions=(*assumed, *unknown_memory(cluster)),
    )


def _cluster(config: RunConfig, workload: Workload) -> tuple[Cluster, tuple[str, ...]]:
    from cotenant.traces.clusterfile import read_cluster

    if config.cluster is not None:
        return read_cluster(config.cluster), ()
    if config.gpus is not None:
        return cluster_of(config.gpus, config.gpus_per_node, config.gpu_type, workload)
    if workload.cluster is not None:
        return workload.cluster, ()
    raise ConfigError(
        f"{config.trace} does not say on what cluster it ran; give --gpus N (with --gpus-per-node and --gpu-type) "
        "or --cluster FILE"
    )


def input_files(config: RunConfig, plugin_files: list[str]) -> list[InputFile]:
    """Every file that the runs read, by hash; folders are listed file by file."""
    from cotenant.predictors.forecast import file_named

    named = [("trace", config.trace), ("cluster", config.cluster), ("profiles", config.profiles)]
    named += [("incidents", config.incidents), ("devices", config.devices)]
    named += [("forecast", file_named(config.forecast)), ("runtime", file_named(config.runtime))]
    named += [("policy", path) for path in plugin_files]
    found: list[InputFile] = []
    for role, path in named:
        if path is None:
            continue
        place = Path(path)
        if place.is_dir():
            files = sorted(p for p in place.rglob("*") if p.is_file())
            found += [InputFile.of(role, p.as_posix()) for p in files]
        elif place.is_file():
            found.append(InputFile.of(role, path))
    return found
