"""Commands that run real jobs: profile one, measure many alone and together."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import note, print_json, print_table, say, warn
from cotenant.app.durations import duration_of
from cotenant.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotenant.app.unseen import Unseen
    from cotenant.profiles.measure.campaign import Outcome, Progress
    from cotenant.profiles.measure.jobsfile import MeasureFile
    from cotenant.profiles.measure.profiling import RunProfile

__all__ = ["add_to"]

PANEL = "Measure"
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    words = {"allow_interspersed_args": False}
    app.command(rich_help_panel=PANEL, context_settings=words)(profile)
    app.command(rich_help_panel=PANEL)(measure)


def profile(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The training run to watch.")],
    *,
    device: Annotated[
        str, typer.Option("--device", help="cpu:0-3 or cuda:0; the run is bound to it. Default: everything.")
    ] = "",
    duration: Annotated[str, typer.Option("--for", help="End the run after this time, such as 60s.")] = "",
    every: Annotated[str, typer.Option("--every", help="Time between samples.")] = "0.5s",
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="First steps that do not count.")] = 5,
    dcgm: Annotated[str, typer.Option("--dcgm", help="Address of a DCGM exporter to read as well.")] = "",
    model: Annotated[str, typer.Option("--model", help="Name of the model in the table written.")] = "",
    batch: Annotated[int, typer.Option("--batch", min=0, help="Its batch size.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write: .json, or .csv for a row of solo profiles."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Sample a run: its steps, its use of the devices, their readings."""
    from cotenant.profiles.measure.profiling import open_samplers, profile_run
    from cotenant.profiles.wholefile import check_place

    if output is not None and output.suffix not in (".json", ".csv"):
        raise ConfigError(f"{output}: write to a .json or a .csv file")
    if output is not None and output.suffix == ".csv" and not model:
        raise ConfigError("a row of solo profiles needs a name: give --model (and --batch)")
    if output is not None:
        check_place(output)
    every_s = duration_of("--every", every)
    limit_s = duration_of("--for", duration) if duration else None
    samplers, target = open_samplers(device, dcgm)
    found = profile_run(command, samplers, target=target, every_s=every_s, limit_s=limit_s, warmup=warmup)
    if output is not None:
        _write_profile(output, found, model, batch, target.device_type if target else "")
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
    else:
        _show_profile(found)
    if found.interrupted:
        note("interrupted: what was seen up to then is told" + (f", and in {output}" if output else ""))
        raise typer.Exit(130)
    if found.exit_code:
        raise ConfigError(f"the run ended with exit code {found.exit_code}")


def _write_profile(output: Path, found: RunProfile, model: str, batch: int, device_type: str) -> None:
    import msgspec

    if output.suffix == ".json":
        from cotenant.profiles.wholefile import write_whole

        write_whole(output, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        return
    from cotenant.profiles.measure.profiling import solo_of
    from cotenant.profiles.runs import JobConfig
    from cotenant.profiles.runsfile import write_solo_runs

    job = JobConfig(model=model, batch=batch)
    row = solo_of(found, job, source="profile", device_type=device_type, framework="")
    write_solo_runs(output, [row])


def _show_profile(found: RunProfile) -> None:
    from cotenant.model.quantities import format_duration
    from cotenant.profiles.samplers.readings import METERS

    say(f"ran {format_duration(round(found.seconds, 1))}, {found.samples} samples")
    rows = []
    for source, summaries in found.devices.items():
        for summary in summaries:
            for meter, name in METERS.items():
                own = found.job.get(summary.device)
                mine = None if own is None else own.meters[meter].mean
                if summary.meters[meter].count or mine is not None:
                    cells = (_number(summary.mean(meter)), _number(summary.peak(meter)), _number(mine))
                    rows.append((summary.device, source, f"{name} [{_unit(meter)}]", *cells))
    columns = ("device", "source", "meter", "mean", "peak", "this run")
    if rows:
        print_table(columns, rows, right=("mean", "peak", "this run"))
    else:
        say("no device was read before the run ended; a shorter --every reads sooner")
    if found.steps is None:
        say(
            f"{found.steps_seen} steps reported; for a speed the run has to report them (docs/prediction/measure.md)"
        )
    else:
        s = found.steps
        say(f"{s.per_s:.4g} steps/s over {s.steps} steps (the first {s.warmup} left out)")
        say(f"step {s.median_ms:.3g} ms at the median, {s.p10_ms:.3g} to {s.p90_ms:.3g} ms for 80% of them")
    for reason, count in found.failures.items():
        warn(f"{count} x {reason}")


def _unit(meter: str) -> str:
    return {"pct": "%", "mib": "MiB", "w": "W"}[meter.rpartition("_")[2]]


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.1f}"


def measure(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS.toml", help="File of jobs to measure.")],
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the tables; an earlier session there goes on.")
    ],
    device: Annotated[str, typer.Option("--device", help="cpu:0, cpu:0-3 or cuda:0; as in the file.")] = "",
    budget: Annotated[str, typer.Option("--budget", help="Time for everything; as in the file.")] = "",
    seed: Annotated[int | None, typer.Option("--seed", help="Seed; as in the file.")] = None,
    mps: Annotated[bool, typer.Option("--mps", help="NVIDIA: through MPS, which must be running.")] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="Then fit, and show predictions of pairs that the fit had not seen.")
    ] = False,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="Try jobs again that failed in earlier sessions; those that never ran may have changed in the file.",
        ),
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be measured.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Measure jobs alone, in pairs and in threes on a real device, and write tables of it."""
    from cotenant.profiles.measure.campaign import Campaign
    from cotenant.profiles.measure.jobsfile import override, read_jobs
    from cotenant.profiles.measure.target import parse_target

    if budget:
        duration_of("--budget", budget)
    file = override(read_jobs(jobs), device=device, budget=budget, seed=seed)
    if not file.settings.device:
        raise ConfigError(f"{jobs}: names no device; give --device cpu:0 or cuda:0")
    target = parse_target(file.settings.device, mps=mps)
    if plan:
        _show_plan(file, fit, as_json)
        return
    if any(job.builtin for job in file.jobs):
        from cotenant.profiles.jobs.included import need_torch

        need_torch()
    command = ["cotenant", *sys.argv[1:]]
    tell = None if quiet else _Teller()
    remark = None if tell is None else tell.remark
    campaign = Campaign(
        file, target, output, retry_failed=retry_failed, command=command, tell=tell, remark=remark
    )
    outcome = campaign.run()
    if not (fit and as_json and not outcome.interrupted):
        _show_outcome(outcome, output, as_json)
    if outcome.interrupted:
        note(f"interrupted; the same command goes on in {output}")
        raise typer.Exit(130)
    if fit:
        _fit(outcome, output, file.settings.seed, as_json)


def _show_plan(file: MeasureFile, fit: bool, as_json: bool) -> None:
    from cotenant.app.unseen import LEAST_PAIRS
    from cotenant.model.quantities import format_duration
    from cotenant.profiles.measure.schedule import all_sets

    sets = all_sets(file)
    s = file.settings
    step_s = s.seconds("window") + s.seconds("settle")
    least_s = step_s * len(sets) * s.min_repeats * 1.5
    pairs = sum(1 for jobs in sets if len(jobs) == 2)
    if fit and pairs < LEAST_PAIRS:
        note(_too_few(pairs, "to measure"))
    if as_json:
        jobs = {job.name: job.config.label for job in file.jobs}
        print_json({"jobs": jobs, "sets": [list(jobs) for jobs in sets], "least_s": round(least_s)})
        return
    print_table(("job", "in tables"), [(job.name, job.config.label) for job in file.jobs])
    say(f"{len(file.jobs)} jobs, {pairs} pairs, {len(sets) - pairs} triples")
    say(
        f"about {format_duration(round(least_s))} for {s.min_repeats} repeats of each set and runs alone, "
        f"the start of jobs not counted; the budget is {s.budget}"
    )


class _Teller:
    """Progress: one line, written over on a terminal and now and then elsewhere."""

    def __init__(self) -> None:
        self._told_s = -60.0
        self._live = sys.stderr.isatty()

    def __call__(self, progress: Progress) -> None:
        line = f"{progress.used_s:.0f} of {progress.budget_s:.0f} s, {progress.done} measurements: {progress.reason}"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif progress.used_s - self._told_s >= 30:
            self._told_s = progress.used_s
            note(line)

    def remark(self, text: str) -> None:
        """A line that stays."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
        note(text)


def _show_outcome(outcome: Outcome, output: Path, as_json: bool) -> None:
    tables = outcome.tables
    if as_json:
        import msgspec

        estimates = [msgspec.to_builtins(found) for found in tables.estimates.values()]
        body: dict[str, Any] = {"complete": outcome.complete, "interrupted": outcome.interrupted}
        body["skipped"] = outcome.skipped
        print_json(body | {"used_s": outcome.used_s, "sets": estimates, "folder": str(output)})
        return
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    rows = []
    for run, jobs in zip(tables.co_runs, tables.sets, strict=True):
        found = tables.estimates.get(jobs)
        sides = () if found is None else found.sides
        shown = ", ".join(f"{side.norm:.3f} ±{side.width_pct:.1f}%" for side in sides) or run.status
        rows.append((" + ".join(jobs), shown, str(0 if found is None else found.repeats)))
    print_table(
        ("set", "speed while sharing / alone, in the same order", "repeats"), rows, right=("repeats",)
    )
    wide = [found.width_pct for found in tables.estimates.values() if found.sides]
    if wide:
        middle = sorted(wide)[len(wide) // 2]
        say(f"half-width of the 95% intervals: {middle:.1f}% at the median, {max(wide):.1f}% at most")
    say(f"{outcome.repeats} measurements in {outcome.used_s:.0f} s; {_ending(outcome)}")
    say(f"tables in {output}")


def _ending(outcome: Outcome) -> str:
    if outcome.interrupted:
        return "interrupted"
    if not outcome.complete:
        late = f" for {', '.join(outcome.put_off)}" if outcome.put_off else ""
        return f"the budget ended first{late}; the same command with a larger --budget goes on"
    if not outcome.skipped:
        return "all sets are known as well as asked"
    left_out = "; ".join(f"{name} ({why})" for name, why in outcome.skipped.items())
    return (
        f"all other sets are known as well as asked; left out, with their sets: {left_out}; "
        "when they are mended, the same command with --retry-failed tries them again"
    )


def _fit(outcome: Outcome, output: Path, seed: int, as_json: bool) -> None:
    """Write the fitted predictor, and show what fits without a pair say of it."""
    from cotenant.app.unseen import LEAST_PAIRS, median_error, predict_unseen
    from cotenant.predictors.interference.modelfile import save_predictor
    from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
    from cotenant.profiles.measure.tables import PAIRS, SOLOS

    tables = outcome.tables
    predictor = AdaptiveInterferencePredictor().fit(tables.co_runs, tables.solo_runs)
    save_predictor(predictor, output / "fit.json", files=[output / PAIRS, output / SOLOS])
    ran = sum(1 for run in tables.co_runs if run.status == "ok" and len(run.sides) == 2)
    found = []
    if ran >= LEAST_PAIRS:
        found = predict_unseen(tables.co_runs, tables.solo_runs, seed=seed)
    else:
        note(_too_few(ran, "that ran"))
    pairs = [one for one in found if one.jobs == 2]
    larger = [one for one in found if one.jobs > 2]
    errors = {"pairs": median_error(pairs), "larger": median_error(larger)}
    if as_json:
        import msgspec

        body: dict[str, Any] = {"complete": outcome.complete, "used_s": outcome.used_s, "folder": str(output)}
        body["skipped"] = outcome.skipped
        body |= {"sets": [msgspec.to_builtins(one) for one in tables.estimates.values()]}
        print_json(body | {"unseen": [msgspec.to_builtins(one) for one in found], "median_error": errors})
        return
    if found:
        _show_unseen(outcome, found)
    say(f"fitted predictor: {output / 'fit.json'}")


def _too_few(pairs: int, which: str) -> str:
    from cotenant.app.unseen import LEAST_PAIRS

    return (
        f"pairs {which}: {pairs}; --fit writes fit.json all the same, but the comparison on unseen pairs "
        f"needs {LEAST_PAIRS}"
    )


def _show_unseen(outcome: Outcome, found: Sequence[Unseen]) -> None:
    """Measured against predicted by fits that had not seen the pair."""
    from cotenant.app.unseen import median_error

    pairs = [one for one in found if one.jobs == 2]
    larger = median_error([one for one in found if one.jobs > 2])
    inside = sum(one.low <= one.measured <= one.high for one in pairs)
    beside = {run.row_id: [side.job.label for side in run.sides] for run in outcome.tables.co_runs}
    rows = [
        (" + ".join(beside[u.row_id]), u.job, f"{u.measured:.3f}", f"{u.predicted:.3f}", f"{u.error:.1%}")
        for u in found
    ]
    numbers = ("measured", "predicted", "error")
    print_table(("set, unseen by the fit", "job", *numbers), rows, right=numbers)
    say(
        f"median error on unseen pairs: {median_error(pairs):.1%}; {inside} of {len(pairs)} in the 90% interval"
    )
    if larger is not None:
        say(f"median error on sets of three, predicted from pairs: {larger:.1%}")
