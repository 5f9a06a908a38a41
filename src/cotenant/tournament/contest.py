"""A whole tournament: what is there is kept, what is missing is played, and all of it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cotenant import __version__, registry
from cotenant.errors import CotenantError
from cotenant.experiments.cells import run_cells
from cotenant.experiments.reproduce import check_folder
from cotenant.profiles.hashes import sha256_of
from cotenant.runs.spec import build_policy, parse_policies
from cotenant.tournament.play import METRICS, Played, Round, load_played, play, result_path
from cotenant.tournament.ranking import Row, grid_of, rank
from cotenant.tournament.scenarios import CONDITIONS, Game, Scenario, cluster_of, fingerprint, scenarios
from cotenant.tournament.workloads import SOURCES, window

__all__ = [
    "KIND",
    "Contest",
    "Plan",
    "contest_json",
    "default_policies",
    "hold",
    "ranking_frame",
    "results_frame",
]

KIND = "cotenant-tournament"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be played.

    Parameters
    ----------
    policies : tuple of str
        Specifications, commas allowed; all registered ones if empty.
    workloads, conditions : tuple of str
    loads : tuple of float
    seeds, jobs, gpus : int
    data : str or None
        The folder of measured tables and traces.
    """

    policies: tuple[str, ...] = ()
    workloads: tuple[str, ...] = tuple(SOURCES)
    conditions: tuple[str, ...] = CONDITIONS
    loads: tuple[float, ...] = (0.5, 1.0, 2.0)
    seeds: int = 3
    jobs: int = 600
    gpus: int = 64
    data: str | None = None


class Contest(msgspec.Struct, kw_only=True):
    """What came out.

    Parameters
    ----------
    results : list of Played
        In the order of the grid, whatever order they were played in.
    kept : int
        How many of them were there already.
    """

    plan: Plan
    policies: list[str]
    results: list[Played]
    grid: Any
    rows: list[Row]
    notes: dict[str, str]
    kept: int = 0


def default_policies() -> list[str]:
    """All registered policies."""
    return registry.names("policy")


def hold(
    plan: Plan,
    folder: Path,
    *,
    workers: int = 1,
    force: bool = False,
    ended: Callable[[int, int], None] | None = None,
) -> Contest:
    """Play what is missing in ``folder``, and rank everything.

    Parameters
    ----------
    ended : callable, optional
        Told how many runs are there, of how many.

    Raises
    ------
    CotenantError
        For bad input, before anything is played; and if no policy gave a result anywhere. What a policy
        raises is its result otherwise, and no error.
    """
    specs = parse_policies(plan.policies or tuple(default_policies()))
    for spec in specs:
        build_policy(spec)
    policies = [spec.text for spec in specs]
    plugins = {s.text: sha256_of(Path(s.plugin_file)) for s in specs if s.plugin_file is not None}
    game = Game(jobs=plan.jobs, gpus=plan.gpus, data=plan.data, code=fingerprint())
    grid = scenarios(plan.workloads, plan.loads, plan.conditions)
    for name in plan.workloads:  # an unknown name is refused before anything is written
        window(name, 0, jobs=10, load=1.0, cluster=cluster_of("base", plan.gpus), data=plan.data)
    check_folder(folder, "game.json", KIND, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "game.json").write_bytes(msgspec.json.encode({"kind": KIND}))
    found = _kept(folder, grid, {p: plugins.get(p, "") for p in policies}, plan.seeds, game)
    kept = len(found)
    rounds = [
        Round(scenario=scenario, seed=seed, policies=those, plugins=plugins, game=game, folder=str(folder))
        for scenario, seed, those in _rounds(grid, policies, plan.seeds, found)
    ]
    total = len(grid) * plan.seeds * len(policies)

    def keep(this: Round, results: list[Played]) -> None:
        found.update({(this.scenario.label, this.seed, r.policy): r for r in results})
        if ended is not None:
            ended(len(found), total)

    run_cells(play, rounds, workers, keep)
    results = [found[(s.label, k, p)] for s in grid for k in range(plan.seeds) for p in policies]
    if not any(r.values for r in results):
        raise CotenantError(f"every policy raised an error in every world; the first: {results[0].error}")
    arranged = grid_of(results, policies)
    return Contest(
        plan=plan,
        policies=policies,
        results=results,
        grid=arranged,
        rows=rank(arranged),
        notes={r.workload: r.note for r in results if r.note},
        kept=kept,
    )


def _kept(
    folder: Path, grid: Sequence[Scenario], policies: dict[str, str], seeds: int, game: Game
) -> dict[tuple[str, int, str], Played]:
    found = {}
    for scenario in grid:
        for seed in range(seeds):
            for policy, plugin in policies.items():
                played = load_played(result_path(folder, scenario, seed, policy), game, policy, plugin)
                if played is not None:
                    found[(scenario.label, seed, policy)] = played
    return found


def _rounds(
    grid: Sequence[Scenario], policies: Sequence[str], seeds: int, found: dict[tuple[str, int, str], Played]
) -> list[tuple[Scenario, int, tuple[str, ...]]]:
    """World by world, the policies that have no result there."""
    missing = []
    for seed in range(seeds):
        # Worlds of one seed and cluster in a row: they share what a forecast has prepared.
        for scenario in sorted(grid, key=lambda s: CONDITIONS.index(s.condition)):
            those = tuple(p for p in policies if (scenario.label, seed, p) not in found)
            if those:
                missing.append((scenario, seed, those))
    return missing


def results_frame(contest: Contest) -> pl.DataFrame:
    """One row for each run."""
    keys = list(dict.fromkeys(key for r in contest.results for key in (*METRICS, *r.values)))
    rows = [
        {
            "workload": r.workload,
            "load": r.load,
            "condition": r.condition,
            "seed": r.seed,
            "policy": r.policy,
            **{key: r.values.get(key) for key in keys},
            "error": r.error,
        }
        for r in contest.results
    ]
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(keys, pl.Float64), infer_schema_length=None)


def ranking_frame(contest: Contest) -> pl.DataFrame:
    """One row for each policy, from first to last."""
    rows = []
    for place, row in enumerate(contest.rows, 1):
        flat: dict[str, Any] = {"place": place, "policy": row.policy}
        for metric, score in row.scores.items():
            flat |= {
                f"{metric}_ratio": score.mean,
                f"{metric}_low_95": score.low,
                f"{metric}_high_95": score.high,
            }
        flat |= {"wins": row.wins, "losses": row.losses, "p_value": row.p_value, "firsts": row.firsts}
        rows.append(flat | {"failed": row.failed, "best_in": row.best_in, "worst_in": row.worst_in})
    return pl.DataFrame(rows, schema_overrides={"p_value": pl.Float64}, infer_schema_length=None)


def contest_json(contest: Contest, command: str) -> dict[str, Any]:
    """The ranking and its setting, as plain values."""
    plan = msgspec.to_builtins(contest.plan)
    plan.pop("data")
    return {
        "kind": KIND,
        "version": __version__,
        "command": command,
        "plan": plan | {"measured_data": contest.plan.data is not None},
        "policies": contest.policies,
        "notes": contest.notes,
        "ranking": [msgspec.to_builtins(row) for row in contest.rows],
    }
