"""Commands that run simulations: simulate, replay, demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import error, note, print_json, print_table, say, warn
from cotenant.app.livebase import State
from cotenant.app.livefrom import inputs_from_live
from cotenant.app.runoptions import alone, needed, one_of, rules

if TYPE_CHECKING:
    from cotenant.runs.batch import Batch
    from cotenant.runs.config import RunConfig

__all__ = ["add_to"]

PANEL = "Simulate"
DEFAULT_POLICY = "cotenant"
DEMO_POLICIES = "fifo,backfill,srtf,las,colocate"

Out = Annotated[Path, typer.Option("-o", "--output", help="Folder for logs, tables and the manifest.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at once; default: all cores.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that holds other things.")]

FromLive = Annotated[
    bool, typer.Option("--from-live", help="In place of a trace: the jobs that ended under cotenant up.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="With --from-live: only jobs of the last so long (7d).")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel=PANEL)(simulate)
    app.command(rich_help_panel=PANEL)(replay)
    app.command(rich_help_panel=PANEL)(demo)


def simulate(
    context: typer.Context,
    trace: Annotated[
        str | None, typer.Argument(help="Workload: a trace in any known format, or a native file.")
    ] = None,
    *,
    run_file: Annotated[
        Path | None,
        typer.Option("--run", help="TOML or YAML file with all of this, in place of the options."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME[:PARAM=VALUE],...",
            help="Policies; also mine.py:MyPolicy. Left out: cotenant.",
            autocompletion=completing.policies,
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Cluster file (TOML, YAML or node list).")
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="Number of devices, in equal nodes.")] = None,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", help="Devices in each node.")] = 8,
    gpu_type: Annotated[
        str | None,
        typer.Option(
            "--gpu-type",
            help="Device type; V100 (16 GB) assumed if not given.",
            autocompletion=completing.device_types,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Trace format; recognised if not given.",
            autocompletion=completing.trace_formats,
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the trace format.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what would be repaired or dropped.")
    ] = False,
    cpu_jobs: Annotated[str, typer.Option("--cpu-jobs", help="keep or drop jobs without GPUs.")] = "keep",
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds in a row.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="The first seed.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting; see docs/settings.md.",
            autocompletion=completing.settings,
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", metavar="TIME", help="Sample each run for this long: a light sample, kept as work."
        ),
    ] = None,
    forecast: Annotated[
        str,
        typer.Option(
            "--forecast",
            help="What policies know of speeds: lookup, adaptive, ..., see docs/interference.md.",
            autocompletion=completing.forecasts,
        ),
    ] = "lookup",
    runtime: Annotated[
        str,
        typer.Option(
            "--runtime",
            help="... of running times: history, recent, declared, noisy, perfect.",
            autocompletion=completing.runtimes,
        ),
    ] = "history",
    truth: Annotated[
        str,
        typer.Option(
            "--truth",
            help="What is true of speeds: auto, measured, campaign, modelled.",
            autocompletion=completing.truths,
        ),
    ] = "auto",
    profiles: Annotated[
        str | None, typer.Option("--profiles", help="Measured tables: file or folder.")
    ] = None,
    incidents: Annotated[
        str | None, typer.Option("--incidents", help="File of failures, drains, cancellations.")
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option("--devices", envvar="COTENANT_DEVICES", help="File of device types of one's own."),
    ] = None,
    from_live: FromLive = False,
    since: Since = None,
    state: State = None,
    workers: Workers = None,
    output: Out = Path("out"),
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run policies on a trace, and compare what they give."""
    from cotenant.app.inputs import split_options
    from cotenant.runs.config import RunConfig

    if run_file is not None:
        config = _of_file(context, run_file, devices)
    else:
        given: dict[str, Any] = rules(setting or [], sample)
        if from_live or since is not None:
            trace, cluster, live = inputs_from_live(
                context, state, since, output, wanted=from_live, quiet=quiet
            )
            given = {**live, **given}
        config = RunConfig(
            trace=needed(trace, "a trace"),
            policies=tuple(policy or (DEFAULT_POLICY,)),
            format=form,
            options=split_options(option),
            strict=strict,
            cluster=cluster,
            gpus=gpus,
            gpus_per_node=gpus_per_node,
            gpu_type=gpu_type,
            seed=seed,
            seeds=seeds,
            settings=given,
            forecast=forecast,
            runtime=runtime,
            truth=one_of("--truth", truth, ("auto", "measured", "campaign", "modelled")),
            profiles=profiles,
            cpu_jobs=one_of("--cpu-jobs", cpu_jobs, ("keep", "drop")),
            incidents=incidents,
            devices=devices,
        )
    batch = _run(config, output, workers=workers, force=force, quiet=quiet)
    _show(batch, as_json=as_json, quiet=quiet)
    _leave(batch)


def _of_file(context: typer.Context, run_file: Path, devices: str | None) -> RunConfig:
    from msgspec.structs import replace

    from cotenant.runs.runfile import read_run_file

    alone(context)
    config = read_run_file(run_file)
    return replace(config, devices=devices) if devices and not config.devices else config


def _run(
    config: RunConfig, output: Path, *, workers: int | None, force: bool, quiet: bool, claimed: bool = False
) -> Batch:
    from cotenant.app.progress import Progress
    from cotenant.runs.batch import run_batch
    from cotenant.runs.many import default_workers
    from cotenant.runs.prepare import prepare
    from cotenant.runs.spec import build_policy, parse_policies

    config.check()
    specs = parse_policies(config.policies)
    for spec in specs:
        build_policy(spec)
    prepared = prepare(config)
    with Progress(len(prepared.workload), len(specs) * config.seeds, quiet=quiet) as progress:
        return run_batch(
            config,
            output,
            workers=workers or default_workers(),
            watcher=progress,
            force=force,
            claimed=claimed,
            argv=sys.argv[1:],
            prepared=prepared,
        )


def _show(batch: Batch, *, as_json: bool, quiet: bool) -> None:
    from cotenant.app.datareport import report_lines
    from cotenant.app.summary import COLUMNS, batch_json, batch_rows, closing_lines
    from cotenant.traces.base import DataReport

    for line in batch.manifest.warnings:
        warn(line)
    if as_json:
        print_json(batch_json(batch))
        return
    if not quiet and batch.manifest.data_report is not None:
        import msgspec

        for line in report_lines(
            msgspec.convert(batch.manifest.data_report, DataReport), batch.manifest.workload["jobs"]
        ):
            say(line)
        say("")
    print_table(COLUMNS, batch_rows(batch), right=COLUMNS[1:])
    for line in [] if quiet else closing_lines(batch):
        say(line)
    if not quiet and batch.replaced:
        note(f"replaced: the earlier runs in {batch.folder} ({batch.replaced})")
    if not quiet:
        note(
            f"written: {batch.folder} (cotenant compare {batch.folder}: who waits; cotenant report {batch.folder}: a page)"
        )


def _leave(batch: Batch) -> None:
    for outcome in batch.outcomes:
        if outcome.status == "failed":
            error(f"run {outcome.policy} seed {outcome.seed} failed: {outcome.error}")
    if batch.interrupted:
        done = sum(o.status == "complete" for o in batch.outcomes)
        partial = [f"{o.policy} seed {o.seed}" for o in batch.outcomes if o.status == "interrupted"]
        never = [f"{o.policy} seed {o.seed}" for o in batch.outcomes if o.status == "pending"]
        note(f"interrupted: {done} of {len(batch.outcomes)} runs complete")
        if partial:
            note(f"cut short, with valid logs up to that instant: {', '.join(partial)}")
        if never:
            note(f"never begun: {', '.join(never)}")
        raise typer.Exit(130)
    if any(outcome.status == "failed" for outcome in batch.outcomes):
        raise typer.Exit(1)
    _leave_if_infeasible(batch)


def _leave_if_infeasible(batch: Batch) -> None:
    jobs = batch.manifest.workload["jobs"]
    report = batch.manifest.data_report or {}
    if not jobs and report.get("rows_read"):
        found = [*report.get("dropped", []), *report.get("not_simulated", [])]
        why = "; ".join(f"{f['rows']:,}: {f['reason']}" for f in found) or "no reason found"
        error(f"none of the {report['rows_read']:,} rows of the trace can be simulated ({why})")
        raise typer.Exit(3)
    if jobs and all(o.summary.get("jobs_rejected") == jobs for o in batch.outcomes):
        error(
            f"none of the {jobs:,} jobs can ever run on this cluster; see the reasons with cotenant explain"
        )
        raise typer.Exit(3)


def replay(
    manifest: Annotated[Path, typer.Argument(help="A run folder or its manifest.json.")],
    workers: Workers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run again what a manifest says, and compare the logs byte for byte."""
    from cotenant.app.progress import Progress
    from cotenant.runs.many import default_workers
    from cotenant.runs.replay import not_replayed
    from cotenant.runs.replay import replay as again

    with Progress(0, 0, quiet=quiet or as_json) as progress:
        results = again(manifest, workers=workers or default_workers(), watcher=progress)
    left_out = not_replayed(manifest)
    for line in left_out:
        warn(line)
    same = all(result.identical for result in results)
    if as_json:
        import msgspec

        print_json({"identical": same, "runs": msgspec.to_builtins(results), "left_out": left_out})
    else:
        for result in results:
            say(
                f"{result.policy} seed {result.seed}: {'identical' if result.identical else result.difference}"
            )
    if not same:
        raise typer.Exit(1)


def demo(
    output: Out = Path("demo"),
    *,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many jobs to generate.")] = 2000,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = 3,
    live: Annotated[
        bool, typer.Option("--live", help="Then run small training jobs for real, on this machine's cores.")
    ] = False,
    workers: Workers = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare five policies on a generated, Philly-like workload; writes a report that opens in a browser."""
    from cotenant.errors import UsageError
    from cotenant.runs.api import generate
    from cotenant.runs.config import RunConfig
    from cotenant.runs.folders import claim
    from cotenant.traces.native import write_workload

    if live and as_json:
        raise UsageError(
            "--live shows tables; leave it or --json out (cotenant twin --light --json gives numbers)"
        )
    claim(output, force=force)
    (output / "inputs").mkdir()
    trace = output / "inputs" / "jobs.csv"
    write_workload(generate("philly-like", jobs=jobs, seed=1), trace)
    config = RunConfig(
        trace=str(trace),
        policies=(DEMO_POLICIES,),
        gpus=128,
        gpus_per_node=8,
        gpu_type="V100",
        seeds=seeds,
    )
    batch = _run(config, output, workers=workers, force=force, quiet=quiet, claimed=True)
    _show(batch, as_json=as_json, quiet=True)
    _leave(batch)
    page = _write_report(output)
    if not quiet:
        note(f"report: {page}")
    if live:
        from cotenant.app.demoelastic import show_elastic
        from cotenant.app.demolive import show_live

        show_live(output / "live", quiet=quiet)
        show_elastic(quiet=quiet)


def _write_report(folder: Path) -> Path:
    from cotenant.report.html import build_report

    return Path(build_report(folder))
