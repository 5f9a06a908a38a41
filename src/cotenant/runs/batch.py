"""A whole command: check, claim the folder, run all, keep the manifest true at every moment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant.runs.config import RunConfig
from cotenant.runs.folders import claim
from cotenant.runs.manifest import Manifest, RunEntry, new_manifest, write_manifest
from cotenant.runs.many import Task, Watcher, run_tasks
from cotenant.runs.prepare import Prepared, input_files, prepare
from cotenant.runs.single import Outcome
from cotenant.runs.spec import PolicySpec, build_policy, folder_names, params_of, parse_policies
from cotenant.runs.unmet import unmet
from cotenant.runs.world import build_world, doubts_of, kind_of

__all__ = ["Batch", "run_batch"]


class Batch(msgspec.Struct, kw_only=True):
    """What came out.

    Parameters
    ----------
    outcomes : list of Outcome
        Policy by policy, seed by seed.
    replaced : str
        Which earlier runs the folder held, in words; empty if none.
    """

    manifest: Manifest
    folder: Path
    outcomes: list[Outcome]
    interrupted: bool
    replaced: str = ""

    def of_policy(self, policy: str) -> list[Outcome]:
        """Outcomes of one policy, by seed."""
        return [outcome for outcome in self.outcomes if outcome.policy == policy]


def run_batch(
    config: RunConfig,
    folder: Path,
    *,
    workers: int,
    watcher: Watcher | None = None,
    force: bool = False,
    claimed: bool = False,
    argv: Sequence[str] = (),
    prepared: Prepared | None = None,
) -> Batch:
    """Run every policy with every seed into ``folder`` (``claimed`` already, or claimed here).

    Raises
    ------
    CotenantError
        For bad input, before anything is written. A run that fails later raises nothing:
        its outcome says so.
    """
    config.check()
    specs = parse_policies(config.policies)
    policies = [build_policy(spec) for spec in specs]
    prepared = prepared or prepare(config)
    manifest = _manifest(config, prepared, specs, policies, argv)
    replaced = "" if claimed else claim(folder, force=force)
    write_manifest(folder, manifest)
    entries = {(run.policy, run.seed): run for run in manifest.runs}
    tasks = [Task(policy=r.policy, seed=r.seed, folder=str(folder / r.folder)) for r in manifest.runs]
    recorder = _Recorder(watcher or Watcher(), manifest, entries, folder)
    outcomes, interrupted = run_tasks(config, prepared, tasks, workers, recorder)
    return Batch(
        manifest=manifest, folder=folder, outcomes=outcomes, interrupted=interrupted, replaced=replaced
    )


def _manifest(
    config: RunConfig,
    prepared: Prepared,
    specs: Sequence[PolicySpec],
    policies: Sequence[Any],
    argv: Sequence[str],
) -> Manifest:
    folders = folder_names(spec.text for spec in specs)
    seeds = config.seed_list()
    world = build_world(prepared, seeds[0], several_seeds=len(seeds) > 1)
    report = prepared.workload.report
    named = [(spec.text, policy) for spec, policy in zip(specs, policies, strict=True)]
    return new_manifest(
        command=["cotenant", *argv],
        config=config,
        policies=[spec.text for spec in specs],
        params={name: params_of(policy) for name, policy in named},
        seeds=seeds,
        seeds_vary=world.seeds_vary,
        settings=msgspec.to_builtins(prepared.settings),
        inputs=input_files(config, [s.plugin_file for s in specs if s.plugin_file is not None]),
        cluster=msgspec.to_builtins(prepared.cluster),
        workload={"name": world.workload.name, "jobs": len(world.workload)},
        data_report=report.to_dict() if report is not None else None,
        forecast=kind_of(world.forecast),
        runtime=kind_of(world.runtime),
        assumptions=[*prepared.assumptions, *world.workload.assumptions],
        warnings=[
            *doubts_of(world.forecast, prepared.cluster),
            *unmet(named, world.workload, prepared.cluster),
        ],
        runs=[
            RunEntry(policy=spec.text, seed=seed, folder=f"runs/{name}/seed-{seed}")
            for spec, name in zip(specs, folders, strict=True)
            for seed in seeds
        ],
    )


class _Recorder(Watcher):
    """Writes each outcome into the manifest as soon as it is known."""

    def __init__(
        self,
        inner: Watcher,
        manifest: Manifest,
        entries: dict[tuple[str, int], RunEntry],
        folder: Path,
    ) -> None:
        self._inner, self._manifest, self._entries, self._folder = inner, manifest, entries, folder

    def jobs_ended(self, total: int) -> None:
        self._inner.jobs_ended(total)

    def stopping(self) -> None:
        self._inner.stopping()

    def run_ended(self, task: Task, outcome: Outcome) -> None:
        entry = self._entries[(task.policy, task.seed)]
        entry.status, entry.error = outcome.status, outcome.error
        entry.log_sha256, entry.log_bytes = outcome.log_sha256, outcome.log_bytes
        write_manifest(self._folder, self._manifest)
        self._inner.run_ended(task, outcome)
