"""Commands that read what runs have written: compare, report, explain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import note, print_json, print_table, say, warn
from cotenant.app.livebase import State
from cotenant.errors import ConfigError, CotenantError, UsageError

if TYPE_CHECKING:
    from cotenant.report.compare import Estimate, Pairing
    from cotenant.report.rundir import Run

__all__ = ["add_to"]

PANEL = "Read results"
SHORT = (
    "jct_s_mean",
    "jct_s_p95",
    "wait_s_mean",
    "queued_s_mean",
    "longest_wait_s",
    "corun_slowdown_mean",
    "corun_slowdown_p95",
    "allocated_share",
    "goodput_share",
    "stranded_share",
    "preemptions",
    "jobs_finished",
)
"""Lines of the short table, by key; ``--all`` prints every one."""
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel=PANEL)(compare)
    app.command(rich_help_panel=PANEL)(report)
    app.command(rich_help_panel=PANEL)(explain)


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run folders; the first policy is the baseline.")],
    everything: Annotated[bool, typer.Option("--all", help="Every metric, not only the main ones.")] = False,
    as_json: Json = False,
) -> None:
    """Compare policies: means over seeds with intervals, and job by job."""
    from cotenant.report.compare import by_policy, estimates, pair
    from cotenant.report.headlines import headline, single
    from cotenant.report.unfinished import outcome_lines, usable

    found = _runs(folders)
    policies = by_policy(usable(found))
    torn = _torn(found)
    doubts = [*_doubts(folders), *torn]
    for line in doubts:
        warn(line)
    values = {name: estimates(runs) for name, runs in policies.items()}
    first, *others = policies
    pairings = [pair(policies[first], policies[name]) for name in others]
    if as_json:
        _print_comparison(policies, values, pairings, doubts)
        return
    heads = _heads(policies, found)
    print_table(("metric", *heads), _rows(values, everything), right=heads)
    for line in torn:
        say(f"* {line}")
    _print_waits(policies, folders, heads)
    said = [headline(p, policies[first], policies[name]) for p, name in zip(pairings, others, strict=True)]
    for lead, detail in said or [single(policies[first])]:
        say(f"{lead} {detail}".rstrip())
    for line, _ in outcome_lines({n: [r.metrics.summary for r in own] for n, own in policies.items()}):
        say(line)
    for name, runs in policies.items():
        if _all_equal(runs):
            say(f"{name}: all {len(runs)} seeds gave the same result, so n = 1 in effect")


def _heads(policies: dict[str, list[Run]], found: Sequence[Run]) -> list[str]:
    """Names of columns; a star for a policy of which a run was cut short, as told below the table."""
    torn = {run.policy for run in found if not run.complete}
    return [f"{name}*" if name in torn else name for name in policies]


def _print_waits(policies: dict[str, list[Run]], folders: Sequence[Path], heads: Sequence[str]) -> None:
    from cotenant.app.waits import longest, size_rows, why_command
    from cotenant.model.quantities import format_duration

    say("")
    print_table(("mean wait by GPUs asked for", "jobs", *heads), size_rows(policies), right=["jobs", *heads])
    lists = {name: longest(runs[0]) for name, runs in policies.items()}
    count = max(map(len, lists.values()), default=0)
    if count:
        say("")
        rows = [
            (
                str(i + 1),
                *(f"{o[i][0]} ({format_duration(o[i][1])})" if i < len(o) else "" for o in lists.values()),
            )
            for i in range(count)
        ]
        print_table(("longest in the queue", *heads), rows)
        name = max(lists, key=lambda n: lists[n][0][1] if lists[n] else 0.0)
        run = policies[name][0]
        folder = next(f for f in folders if run.path.is_relative_to(f))
        policy = name if len(folders) == 1 else name.removeprefix(f"{folder}/")
        say(f"why: {why_command(run, folder, policy, lists[name][0][0])}")
    say("")


def _all_equal(runs: Sequence[Run]) -> bool:
    """True if several seeds gave one result; an interval over them would say nothing."""
    found = [{k: v for k, v in run.metrics.summary.items() if k != "seed"} for run in runs]
    return len(found) > 1 and all(one == found[0] for one in found)


def _runs(folders: Sequence[Path]) -> list[Run]:
    from cotenant.report.rundir import Run, load_runs

    found: list[Run] = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; give one written by cotenant simulate -o")
        for run in load_runs(folder):
            # Two folders may hold the same policy: then each is named with its folder.
            name = run.policy if len(folders) == 1 else f"{folder}/{run.policy}"
            found.append(Run(run.path, name, run.seed, run.metrics))
    return found


def _torn(runs: Sequence[Run]) -> list[str]:
    from cotenant.report.compare import by_policy
    from cotenant.report.unfinished import cut_short

    told = [
        cut_short(name, [(run.seed, run.complete, run.metrics.summary) for run in own])
        for name, own in by_policy(runs).items()
    ]
    return [line for line in told if line]


def _doubts(folders: Sequence[Path]) -> list[str]:
    from cotenant.report.failures import failures
    from cotenant.report.logstate import log_warnings
    from cotenant.report.rundir import load_manifest

    found = []
    for folder in folders:
        manifest = load_manifest(folder)
        found.append((folder, [*failures(folder, manifest), *log_warnings(folder, manifest)]))
    return [line if len(folders) == 1 else f"{folder}: {line}" for folder, own in found for line in own]


def _rows(values: dict[str, dict[str, Estimate]], everything: bool) -> list[tuple[str, ...]]:
    from cotenant.report.names import METRICS

    chosen = [metric for metric in METRICS if everything or metric.key in SHORT]
    return [(m.label, *(_shown(own[m.key], m.key) for own in values.values())) for m in chosen]


def _shown(value: Estimate, key: str) -> str:
    from cotenant.report.tables import cell

    if value.mean is not None and key.startswith(("jobs_", "preemptions", "moves", "refused")):
        return f"{value.mean:,.0f}"
    text = cell(value.mean, key)
    if value.low is None or value.low == value.high:
        return text
    return f"{text} [{cell(value.low, key)}, {cell(value.high, key)}]"


def _print_comparison(
    policies: dict[str, list[Run]],
    values: dict[str, dict[str, Estimate]],
    pairings: Sequence[Pairing],
    doubts: Sequence[str],
) -> None:
    import msgspec

    from cotenant.app.waits import by_size, longest

    found: dict[str, Any] = {
        "policies": {name: msgspec.to_builtins(own) for name, own in values.items()},
        "comparisons": msgspec.to_builtins(list(pairings)),
        "warnings": list(doubts),
        "one_in_effect": sorted(name for name, runs in policies.items() if _all_equal(runs)),
        "wait_by_size": by_size(policies),
        "longest_in_queue": {
            name: [{"job": job, "queued_s": seconds} for job, seconds in longest(runs[0])]
            for name, runs in policies.items()
        },
    }
    print_json(found)


def report(
    folder: Annotated[
        Path | None, typer.Argument(help="A run folder; with --from-live where it is made (default: live).")
    ] = None,
    from_live: Annotated[
        bool,
        typer.Option("--from-live", help="Of what ran under cotenant up, written as a run folder first."),
    ] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Write report.html: one file that opens anywhere, offline, and loads nothing."""
    from cotenant.report.html import build_report

    if from_live:
        from cotenant.app.livefrom import run_from_live

        folder = run_from_live(state, folder or Path("live"), force=False)
    if folder is None:
        raise UsageError("name a run folder, or give --from-live for what ran under cotenant up")
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; give one written by cotenant simulate -o")
    page = build_report(folder)
    for line in _doubts([folder]):
        warn(line)
    if as_json:
        print_json({"report": str(page), "size_bytes": page.stat().st_size})
    else:
        note(f"written: {page}")


def explain(  # noqa: PLR0917 - one parameter for each option
    run: Annotated[
        str,
        typer.Argument(
            help="A run folder, the folder of one run, or its log; left out: what runs now.", metavar="[RUN]"
        ),
    ],
    job: Annotated[
        str | None, typer.Argument(help="Name of the job, or its number as #N.", metavar="JOB")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Which policy, where the folder holds several.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Which seed; default: the first.")] = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Say what happened to a job, and why: each wait, start, move and end with its reason.

    One word is a job of the scheduler that runs now; two are a run and a job of it.
    """
    if job is None:
        from cotenant.app.liveexplain import explain_live

        explain_live(run, state, as_json=as_json, only_runs=policy is not None or seed is not None)
        return
    _explain_run(Path(run), job, policy, seed, as_json=as_json)


def _explain_run(run: Path, job: str, policy: str | None, seed: int | None, *, as_json: bool) -> None:
    from cotenant.app.waits import find_log, why_failed
    from cotenant.report.explain import explain as tell

    log = find_log(run, policy, seed)
    failed = why_failed(log)
    try:
        found = tell(log, job)
    except CotenantError:
        if failed is None:
            raise
        raise ConfigError(f"{failed}; its log ends before it tells of job {job}") from None
    if failed is not None:
        warn(failed)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
    else:
        say(found.text)
