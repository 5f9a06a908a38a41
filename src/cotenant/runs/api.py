"""The command line's words, in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cotenant.errors import ConfigError, CotenantError, PolicyError
from cotenant.model.cluster import Cluster
from cotenant.model.settings import Settings
from cotenant.runs.blame import asks_in_vain, is_inside
from cotenant.runs.config import settings_of
from cotenant.runs.control import Control, on_interrupt
from cotenant.runs.devices import cluster_of, unknown_memory
from cotenant.runs.folders import claim
from cotenant.runs.manifest import RunEntry, new_manifest, write_manifest
from cotenant.runs.prepare import Prepared
from cotenant.runs.result import Result
from cotenant.runs.single import Outcome, run_one
from cotenant.runs.spec import build_policy, folder_names, params_of, parse_policy, policy_object
from cotenant.runs.unmet import unmet
from cotenant.runs.world import build_world, doubts_of, kind_of

if TYPE_CHECKING:
    from cotenant.model.events import Event
    from cotenant.model.ports import Forecast, Policy, RuntimeForecast
    from cotenant.model.workload import Workload

__all__ = ["generate", "load", "load_cluster", "simulate"]


def load(path: str | Path, format: str | None = None, **options: Any) -> Workload:  # noqa: A002
    """Read a workload: a trace in any known format, or a native file.

    Parameters
    ----------
    path : path
    format : str, optional
        Recognised if not given; ``cotenant traces`` lists them.
    **options
        ``strict``, ``cpu_jobs``, ``window`` and others, see ``traces.options.ReadOptions``.

    Raises
    ------
    TraceError
        Naming file, line and column.
    """
    from cotenant.traces.load import read_trace

    return read_trace(path, format, **options)


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster from TOML, YAML, or a trace's node list.

    Raises
    ------
    ConfigError
        Naming file, line and key.
    """
    from cotenant.traces.clusterfile import read_cluster

    return read_cluster(path)


def generate(
    source: str | Path, *, jobs: int | None = None, seed: int | None = None, **changes: Any
) -> Workload:
    """Draw a synthetic workload.

    Parameters
    ----------
    source : str or path
        Name of a preset, or a ``.toml`` or ``.yaml`` file that describes a workload.
    jobs, seed : int, optional
        In place of those of the preset or file.
    **changes
        Other keys of a preset.

    Raises
    ------
    ConfigError, UnknownNameError
        Naming the key, what was found and what is allowed.
    """
    from cotenant.traces import synthetic

    given = {name: value for name, value in (("jobs", jobs), ("seed", seed)) if value is not None}
    if str(source).lower().endswith((".toml", ".yaml", ".yml")):
        if changes:
            raise ConfigError(f"{source}: change the file itself, or start from a preset")
        return synthetic.SyntheticReader().read(Path(source), **given)
    return synthetic.generate(str(source), **given, **changes)


def simulate(
    workload: Workload | str | Path,
    cluster: Cluster | str | Path | int | None = None,
    policy: str | Policy | type = "fifo",
    *,
    seed: int = 0,
    settings: Settings | Mapping[str, Any] | None = None,
    forecast: str | Forecast | None = "lookup",
    runtime: str | RuntimeForecast | None = "history",
    profiles: str | Path | None = None,
    truth: str = "auto",
    incidents: Sequence[Event] = (),
    out: str | Path | None = None,
    force: bool = False,
    gpus_per_node: int = 8,
    gpu_type: str | None = None,
) -> Result:
    """Run one policy on a workload.

    Parameters
    ----------
    workload : Workload or path
    cluster : Cluster, path, int, optional
        A number is that many devices in equal nodes; left out, the trace's own cluster.
    policy : str or Policy
        As on the command line (``"las:factor=2"``, ``"mine.py:MyPolicy"``), or an object, or
        a class that needs no parameter.
    seed : int
        Zero or more.
    settings : Settings or mapping, optional
        A mapping holds those that differ from their defaults.
    forecast, runtime : str or object, optional
        What the policy may know of speeds and running times; None is nothing.
    profiles : path, optional
        Table of measured pairs; without one speeds are modelled.
    truth : {"auto", "measured", "campaign", "modelled"}
        How fast jobs really are beside each other.
    incidents : sequence of Event
        Failures, drains, cancellations.
    out : path, optional
        Run folder to write; a temporary one, kept as long as the result, if not given.
    force : bool
        Replace runs of other policies or seeds in ``out``, and write beside what is not ours
        there. The same policy and seed are replaced in any case.
    gpus_per_node, gpu_type : int, str
        Beside a number of devices; without a type they are V100s, which
        ``Result.assumptions`` says.

    Returns
    -------
    Result

    Raises
    ------
    CotenantError
        For bad input; ``PolicyError`` if the policy raised an error, which is its ``__cause__``.
    KeyboardInterrupt
        If it was interrupted; what ``out`` holds then is valid.

    Examples
    --------
    >>> import cotenant
    >>> result = cotenant.simulate(cotenant.generate("steady", jobs=20, seed=3), 8)
    >>> result.summary["jobs_finished"]
    20
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seed must be a whole number, 0 or more, found {seed!r:.60}")
    prepared = _prepare(
        workload,
        cluster,
        gpus_per_node=gpus_per_node,
        gpu_type=gpu_type,
        settings=settings,
        incidents=incidents,
    )
    prepared = msgspec.structs.replace(
        prepared,
        forecast=forecast,
        runtime=runtime,
        truth=truth,
        profiles=None if profiles is None else str(profiles),
    )
    spec = parse_policy(policy) if isinstance(policy, str) else None
    chosen = build_policy(spec) if spec is not None else policy_object(policy)
    label = spec.text if spec is not None else type(chosen).__name__
    folder = Path(tempfile.mkdtemp(prefix="cotenant-")) if out is None else Path(out)
    result = Result(
        folder / _place(label, seed), policy=label, seed=seed, temporary=folder if out is None else None
    )
    caught: list[Exception] = []
    outcome = _run(prepared, chosen, label=label, seed=seed, folder=folder, force=force, caught=caught)
    if outcome.status == "failed":
        kind = PolicyError if _is_policys(chosen, caught[0]) else CotenantError
        raise kind(outcome.error) from caught[0]
    if outcome.status == "interrupted":
        raise KeyboardInterrupt
    return result


def _is_policys(policy: Any, problem: Exception) -> bool:
    return isinstance(problem, PolicyError) or asks_in_vain(problem) or is_inside(policy, problem)


def _prepare(
    workload: Workload | str | Path,
    cluster: Cluster | str | Path | int | None,
    *,
    gpus_per_node: int,
    gpu_type: str | None,
    settings: Settings | Mapping[str, Any] | None,
    incidents: Sequence[Event],
) -> Prepared:
    if gpu_type is not None and not isinstance(cluster, int):
        raise ConfigError("gpu_type goes with a number of devices: simulate(jobs, 64, gpu_type=...)")
    jobs = load(workload) if isinstance(workload, (str, Path)) else workload
    assumed: tuple[str, ...] = ()
    if isinstance(cluster, (str, Path)):
        place = load_cluster(cluster)
    elif isinstance(cluster, int):
        place, assumed = cluster_of(cluster, gpus_per_node, gpu_type, jobs)
    else:
        found = cluster if cluster is not None else jobs.cluster
        if found is None:
            raise ConfigError("the workload does not say on what cluster it ran; give a cluster")
        place = found
    chosen = settings if isinstance(settings, Settings) else _settings(settings)
    return Prepared(
        workload=jobs,
        cluster=place.check(),
        settings=chosen.check(),
        incidents=tuple(incidents),
        assumptions=(*assumed, *unknown_memory(place)),
    )


def _settings(given: Mapping[str, Any] | None) -> Settings:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"settings are a Settings or a mapping of names to values, found {given!r:.60}")
    return settings_of(given or {})


def _place(label: str, seed: int) -> str:
    return f"runs/{folder_names([label])[0]}/seed-{seed}"


def _run(
    prepared: Prepared,
    policy: Any,
    *,
    label: str,
    seed: int,
    folder: Path,
    force: bool,
    caught: list[Exception],
) -> Outcome:
    claim(folder, force=force, only=(label, seed))
    world = build_world(prepared, seed)
    entry = RunEntry(policy=label, seed=seed, folder=_place(label, seed))
    report = prepared.workload.report
    manifest = new_manifest(
        policies=[label],
        params={label: params_of(policy)},
        seeds=[seed],
        seeds_vary=world.seeds_vary,
        settings=msgspec.to_builtins(prepared.settings),
        cluster=msgspec.to_builtins(prepared.cluster),
        workload={"name": world.workload.name, "jobs": len(world.workload)},
        data_report=report.to_dict() if report is not None else None,
        forecast=kind_of(world.forecast),
        runtime=kind_of(world.runtime),
        assumptions=[*prepared.assumptions, *world.workload.assumptions],
        warnings=[
            *doubts_of(world.forecast, prepared.cluster),
            *unmet([(label, policy)], world.workload, prepared.cluster),
        ],
        runs=[entry],
    )
    control = Control()
    with on_interrupt(control.stop):
        outcome = run_one(
            prepared,
            policy,
            label=label,
            seed=seed,
            folder=folder / entry.folder,
            control=control,
            caught=caught,
        )
    entry.status, entry.error = outcome.status, outcome.error
    entry.log_sha256, entry.log_bytes = outcome.log_sha256, outcome.log_bytes
    write_manifest(folder, manifest)
    return outcome
