"""Playing: one world (scenario and seed), every policy that has no result in it yet."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import msgspec

from cotenant.experiments.failures import node_failures
from cotenant.experiments.simulate import metrics_of
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload
from cotenant.predictors.runtime import NoisyRuntime
from cotenant.profiles.wholefile import write_whole
from cotenant.report.metrics import RunMetrics
from cotenant.runs.prepare import Prepared
from cotenant.runs.spec import folder_names
from cotenant.tournament.scenarios import Game, Scenario, cluster_of, knowledge
from cotenant.tournament.workloads import window

__all__ = ["METRICS", "Played", "Round", "load_played", "play", "result_path"]

METRICS = ("jct_s_mean", "wait_s_p99", "makespan_s", "queued_s_p99", "slowdown_max")
"""What is judged, all of it better when lower."""

_FAILS_EVERY_S = 3 * 86400.0
_AWAY_S = 3600.0
_SIGMA_BAD = 2.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A world to play, and the policies to play in it; ``plugins`` has the hash of the file of one's own."""

    scenario: Scenario
    seed: int
    policies: tuple[str, ...]
    plugins: dict[str, str] = {}
    game: Game
    folder: str


class Played(msgspec.Struct, kw_only=True):
    """How one policy fared in one world.

    Parameters
    ----------
    values : dict
        By name in ``METRICS``, and further numbers of the run.
    error : str
        What the policy raised; then there are no values.
    note : str
        What must be said of the workload.
    plugin : str
        Hash of the file of a policy of one's own.
    """

    policy: str
    workload: str
    load: float
    condition: str
    seed: int
    values: dict[str, float | None]
    error: str = ""
    note: str = ""
    plugin: str = ""
    game: Game


def result_path(folder: Path, scenario: Scenario, seed: int, policy: str) -> Path:
    """Where a result is kept."""
    return folder / "cells" / scenario.label / f"seed-{seed}" / f"{folder_names([policy])[0]}.json"


def load_played(path: Path, game: Game, policy: str, plugin: str = "") -> Played | None:
    """A result of an earlier run; None if there is none, or if it is of another game, code or file."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Played)
    except (OSError, msgspec.MsgspecError):
        return None
    same = (found.game, found.policy, found.plugin) == (game, policy, plugin)
    return found if same else None


def play(this: Round) -> list[Played]:
    """Play a round; each result is kept as soon as it is there."""
    scenario, game = this.scenario, this.game
    prepared, note = _prepared(this)
    out = []
    for policy in this.policies:
        values, error = _values(prepared, policy, this.seed, scenario.condition, game.gpus)
        played = Played(
            policy=policy,
            workload=scenario.workload,
            load=scenario.load,
            condition=scenario.condition,
            seed=this.seed,
            values=values,
            error=error,
            note=note,
            plugin=this.plugins.get(policy, ""),
            game=game,
        )
        path = result_path(Path(this.folder), scenario, this.seed, policy)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(played))
        out.append(played)
    return out


def _prepared(this: Round) -> tuple[Prepared, str]:
    """The world of a round, and what must be said of its workload."""
    scenario, game, seed = this.scenario, this.game, this.seed
    cluster = cluster_of(scenario.condition, game.gpus)
    workload, note = window(
        scenario.workload, seed, jobs=game.jobs, load=scenario.load, cluster=cluster, data=game.data
    )
    failing = scenario.condition == "failures"
    span_s = 10.0 * float(workload.frame["submit_s"][-1]) + 30 * 86400.0
    failures = node_failures(cluster, span_s, seed, every_s=_FAILS_EVERY_S, away_s=_AWAY_S) if failing else ()
    profiles = _profiles(game.data)
    forecast, runtime = knowledge(scenario.condition, profiles is not None)
    prepared = Prepared(
        workload=workload,
        cluster=cluster,
        settings=Settings(checkpoint_s=3600.0 if failing else 0.0),
        incidents=failures,
        forecast=forecast,
        runtime=_wrong(workload, seed) if runtime == "bad" else runtime,
        profiles=profiles,
    )
    return prepared, note


def _wrong(workload: Workload, seed: int) -> NoisyRuntime:
    """True running times, nine in ten of them within a factor of 27."""
    frame = workload.frame
    return NoisyRuntime(frame["duration_s"].to_list(), frame["name"].to_list(), sigma=_SIGMA_BAD, seed=seed)


def _profiles(data: str | None) -> str | None:
    place = Path(data or "") / "interference"
    return str(place) if data and place.is_dir() else None


def _values(
    prepared: Prepared, policy: str, seed: int, condition: str, gpus: int
) -> tuple[dict[str, float | None], str]:
    speeds = _speeds(seed, prepared.profiles, str(prepared.forecast), condition == "heterogeneous", gpus)
    try:
        return _summary(metrics_of(prepared, policy, seed, speeds=pickle.loads(speeds))), ""  # noqa: S301
    except Exception as problem:
        # A policy is anybody's code; what it raises is its result, and must not take the others along.
        return {}, f"{type(problem).__name__}: {problem}"


@functools.lru_cache(maxsize=8)
def _speeds(seed: int, profiles: str | None, forecast: str, mixed: bool, gpus: int) -> bytes:
    """Truth and forecast, as bytes: each run gets its own copy, since a forecast may learn."""
    from cotenant.predictors.forecast import build_speeds
    from cotenant.profiles.kinds import kind_names

    cluster = cluster_of("heterogeneous" if mixed else "base", gpus)
    built = build_speeds(seed, profiles=profiles, forecast=forecast, cluster=cluster)
    # A forecast prepares what it knows of a model when it is first asked: once here, not in every run.
    for kind in cluster.types:
        for name in kind_names():
            built[1].co_speed(name, (name,), kind.name)
    return pickle.dumps(built)


def _summary(run: RunMetrics) -> dict[str, float | None]:
    summary: dict[str, Any] = run.summary
    slowdowns = run.jobs["corun_slowdown"].drop_nulls().drop_nans()
    worst = slowdowns.max()
    unfinished = summary["jobs_waiting"] + summary["jobs_running"]
    keys = (
        "jct_s_mean",
        "wait_s_p99",
        "queued_s_p99",
        "makespan_s",
        "wait_s_mean",
        "jct_s_p95",
        "goodput_share",
        "longest_wait_s",
    )
    counts = ("jobs_submitted", "jobs_finished", "jobs_rejected", "preemptions", "moves", "refused")
    return {
        **{key: summary[key] for key in keys},
        "slowdown_max": float(worst) if isinstance(worst, (int, float)) else None,
        **{key: float(summary[key]) for key in counts},
        "jobs_unfinished": float(unfinished),
    }
