"""Commands about interference: ``fit``, ``predict interference``, ``predict evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, print_table, say, warn
from cotenant.app.jobnames import check_names, find_job, set_measured
from cotenant.app.predicting import predict
from cotenant.app.steps import OwnTypes, use_own_types
from cotenant.errors import ConfigError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from cotenant.predictors.interference.evaluate import Report
    from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor, SidePrediction
    from cotenant.profiles.runs import CoRun, SoloRun

__all__ = ["add_to"]

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Solo = Annotated[
    Path | None, typer.Option("--solo", help="Solo profiles; by default solo_profiles.csv beside the table.")
]
Zoo = Annotated[str, typer.Option("--zoo", help="small, quick or all, or members with commas between.")]

_HEADS = (
    "where",
    "sides",
    "MAE",
    "MAPE",
    "p90",
    "RMSLE",
    "Spearman",
    "in 90%",
    "width",
    "no-fit prec.",
    "recall",
)
_KINDS = {"-1": "both together", "0": "both, apart", "1": "one elsewhere only", "2": "one never"}
_NOVELTY = ("other sets here", "sets elsewhere", "alone only", "nothing")
"""What was measured of a job, by novelty, where the set that was asked for was not."""


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("fit", rich_help_panel="Predict")(fit)
    predict.command("interference")(interference)
    predict.command("evaluate")(evaluate)


def fit(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Tables of co-runs, or folders with pairs.csv; without any, campaigns that come with the package.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the fitted predictor goes.")] = Path(
        "fit.json"
    ),
    solo: Solo = None,
    zoo: Zoo = "quick",
    as_json: Json = False,
) -> None:
    """Fit the interference predictor on measured co-runs, and write it with its model card."""
    from cotenant.predictors.interference.modelfile import save_predictor
    from cotenant.profiles.wholefile import check_place

    check_place(output)
    predictor, files, seconds = _fitted(tables or [], solo, zoo)
    card = save_predictor(predictor, output, files=files)
    if as_json:
        print_json(card)
        return
    rows = [
        (world, _KINDS[novelty], f"{found['mae_unseen']:.3f}", str(found["groups"]), _members(found))
        for world, by_novelty in card["errors"].items()
        for novelty, found in by_novelty.items()
    ]
    print_table(("campaign|device type", "measured before", "MAE", "groups", "members"), rows, right=("MAE",))
    say(f"wrote {output}: fitted on {len(predictor.runs):,} co-runs and {len(predictor.solos):,} solo runs")
    note(f"select, fit and validate took {seconds:.1f} s of CPU time")


def _members(found: dict[str, Any]) -> str:
    best = sorted(found["members"].items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {weight:.0%}" for name, weight in best[:3])


def _table(path: Path) -> Path:
    """The table that is meant: a file, a folder with one, or a campaign that comes with the package."""
    from cotenant.profiles.shipped import shipped_campaigns

    if not path.exists():
        path = shipped_campaigns().get(str(path), path)
    return path / "pairs.csv" if path.is_dir() else path


def _tables(paths: list[Path], solo: Path | None) -> tuple[list[CoRun], list[SoloRun], list[Path]]:
    from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

    runs: list[CoRun] = []
    files: list[Path] = []
    for path in paths:
        file = _table(path)
        runs.extend(read_co_runs(file))
        files.append(file)
    beside = solo or files[0].parent / "solo_profiles.csv"
    if solo is None and not beside.is_file():
        note(f"{beside}: no solo profiles there; only names and batch sizes tell jobs apart (--solo)")
        return runs, [], files
    return runs, read_solo_runs(beside), [*files, beside]


def _shipped(solo: Path | None, device: str) -> tuple[list[CoRun], list[SoloRun], list[Path]]:
    """Campaigns that come with the package: those on one device type, or all if none is named."""
    from cotenant.profiles.shipped import read_campaign, shipped_campaigns

    if solo is not None:
        raise UsageError("--solo goes with a table of co-runs; no table was given")
    runs: list[CoRun] = []
    solos: list[SoloRun] = []
    files: list[Path] = []
    known: list[str] = []
    for name, folder in shipped_campaigns().items():
        its_runs, its_solos = read_campaign(folder)
        types = sorted({run.device_type for run in its_runs})
        known.append(f"{name}, measured on {', '.join(types)}")
        if device and device.casefold() not in map(str.casefold, types):
            continue
        runs += its_runs
        solos += its_solos
        files += [folder / "pairs.csv", folder / "solo_profiles.csv"]
        note(f"learnt from the package's campaign {known[-1]}; its manifest: {folder / 'manifest.json'}")
    if not runs:
        asked = f" on {device}" if device else ""
        raise UsageError(
            f"no measurements{asked} come with the package (known: {'; '.join(known) or 'none'}); give a table of "
            "co-runs (cotenant measure) or a fitted predictor (cotenant fit), for example --fit pairs.csv"
        )
    return runs, solos, files


def _fitted(
    paths: list[Path], solo: Path | None, zoo: str, device: str = ""
) -> tuple[AdaptiveInterferencePredictor, list[Path], float]:
    import time

    from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
    from cotenant.predictors.interference.rows import IMPLAUSIBLE

    runs, solos, files = _tables(paths, solo) if paths else _shipped(solo, device)
    start = time.process_time()
    predictor = AdaptiveInterferencePredictor(zoo=zoo).fit(runs, solos)
    if predictor.implausible:
        note(
            f"speeds above {IMPLAUSIBLE:g} times alone are implausible; not learnt from: {predictor.implausible:,}"
        )
    return predictor, files, time.process_time() - start


def interference(  # noqa: PLR0917
    jobs: Annotated[list[str], typer.Argument(help="Two or more jobs, as model/bBATCH: ResNet-50/b64.")],
    device: Annotated[
        str, typer.Option("--device", help="Device type, e.g. V100.", autocompletion=completing.device_types)
    ],
    fitted: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            help="Fitted predictor, or a table to fit on; "
            "by default the campaign on this device type that comes with the package.",
        ),
    ] = None,
    source: Annotated[str, typer.Option("--source", help="Campaign whose scale is used.")] = "",
    solo: Solo = None,
    devices: OwnTypes = None,
    as_json: Json = False,
) -> None:
    """How much jobs would slow each other down on one device, and whether they fit."""
    use_own_types(devices)
    if len(jobs) < 2:
        raise ConfigError(f"give two or more jobs that are to share a device, found {len(jobs)}")
    if not device.strip():
        raise UsageError("--device is empty; name the device type, for example --device V100")
    if device.startswith("cpu:"):
        device = _core_type(device)
    check_names(jobs)
    predictor = _predictor(fitted, solo, device)
    world = _world(predictor, device, source)
    configs = [find_job(predictor, world, name) for name in jobs]
    found = predictor.predict_set(world, configs)
    whole = set_measured(predictor, world, configs)
    if as_json:
        import msgspec

        sides = [{"job": job, **msgspec.to_builtins(said)} for job, said in zip(jobs, found, strict=True)]
        head = {"source": world[0], "device_type": world[1], "fits": found[0].fits}
        print_json(head | {"set_measured": whole, "jobs": sides})
        return
    rows = [
        (
            name,
            f"{s.mean:.3f}",
            f"{s.low:.3f} to {s.high:.3f}",
            f"x{1 / s.mean:.2f}",
            "this set" if whole else _NOVELTY[s.novelty],
        )
        for name, s in zip(jobs, found, strict=True)
    ]
    print_table(("job", "speed beside the others", "90% interval", "slowdown", "measured before"), rows)
    say(_memory_line(jobs, found, world))


def _core_type(device: str) -> str:
    """The type under which ``measure`` files cores of this machine, such as ``cpu:0``."""
    from cotenant.profiles.corerates import core_set_of, core_type

    cores = core_set_of(device)
    return device if cores is None else core_type(cores)


def _memory_line(jobs: list[str], found: list[SidePrediction], world: tuple[str, str]) -> str:
    fits = found[0].fits
    if fits is None:
        unknown = (job for job, side in zip(jobs, found, strict=True) if not side.memory_known)
        return (
            f"memory: not known for {', '.join(dict.fromkeys(unknown))}; whether the set fits cannot be told"
        )
    return f"memory: the set {'fits' if fits else 'does not fit'} ({world[0]}, {world[1]})"


def _predictor(path: Path | None, solo: Path | None, device: str) -> AdaptiveInterferencePredictor:
    if path is None:
        return _fitted([], solo, "quick", device)[0]
    if path.suffix == ".json":
        from cotenant.predictors.interference.modelfile import load_predictor

        return load_predictor(path)
    return _fitted([path], solo, "quick")[0]


def _world(predictor: AdaptiveInterferencePredictor, device: str, source: str) -> tuple[str, str]:
    from cotenant.profiles.catalogue import canonical_type

    alike = [w for w in predictor.worlds if w[1].casefold() == device.casefold()]
    if not alike and canonical_type(device) is None:
        # A misspelt name, since nothing at all is known of it.
        raise UnknownNameError("measured device type", device, sorted({w[1] for w in predictor.worlds}))
    if source:
        if all(w[0] != source for w in predictor.worlds):
            raise UnknownNameError("campaign", source, sorted({w[0] for w in predictor.worlds}))
        alike = [w for w in alike if w[0] == source]
    if not alike:
        known = ", ".join(sorted({w[1] for w in predictor.worlds if source in ("", w[0])}))
        note(f"{device}: nothing was measured there (known: {known}); intervals are wider")
        return source or predictor.worlds[0][0], device
    counts = {w: sum((r.source, r.device_type) == w for r in predictor.runs) for w in alike}
    return max(alike, key=lambda w: counts[w])


def evaluate(  # noqa: PLR0917
    fitted: Annotated[Path, typer.Option("--fit", help="Table of co-runs to fit on.")],
    asked: Annotated[Path, typer.Option("--on", help="Table of co-runs to predict.")],
    solo: Solo = None,
    by: Annotated[
        str, typer.Option("--by", help="Fields to report by: source,gpu_type.")
    ] = "source,gpu_type",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="CSV of predictions.")] = None,
    zoo: Zoo = "quick",
    as_json: Json = False,
) -> None:
    """Fit on one table of co-runs, predict another, and say how wrong it was."""
    import time

    from cotenant.predictors.interference.evaluate import judge_by, write_predictions
    from cotenant.predictors.interference.rows import IMPLAUSIBLE, plausible
    from cotenant.profiles.runsfile import read_co_runs
    from cotenant.profiles.wholefile import check_place

    fields = [field for field in by.split(",") if field]
    for field in fields:
        if field not in ("source", "gpu_type"):
            raise UnknownNameError("field", field, ("source", "gpu_type"))
    if output is not None:
        check_place(output)
    runs, wrong = plausible(read_co_runs(_table(asked)))
    if not runs:
        raise ConfigError(f"{asked}: holds no co-runs; --on takes a table of co-runs to predict")
    if wrong:
        note(f"{asked}: speeds above {IMPLAUSIBLE:g} times alone are implausible; not judged by: {wrong:,}")
    predictor, _, seconds = _fitted([fitted], solo, zoo)
    _tell_seen(predictor, runs, asked)
    start = time.process_time()
    predictions = predictor.predict(runs)
    took = time.process_time() - start
    if output is not None:
        write_predictions(output, runs, predictions)
    reports = judge_by(runs, predictions, fields)
    _show(reports, predictions, as_json, seconds, took)
    if output is not None and not as_json:
        say(f"wrote {output}: {sum(map(len, predictions)):,} predictions")


def _tell_seen(predictor: AdaptiveInterferencePredictor, runs: list[CoRun], asked: Path) -> None:
    """Rows that were learnt from are no test: errors on them look smaller than they are."""

    def row(run: CoRun) -> tuple[Any, ...]:
        return run.source, run.device_type, tuple((side.job, side.speed) for side in run.sides)

    learnt = set(map(row, predictor.runs))
    seen = sum(row(run) in learnt for run in runs)
    if seen:
        warn(
            f"{asked}: {seen:,} of {len(runs):,} co-runs are in the table of --fit, too; errors on them are those of "
            "what was learnt, not of a forecast"
        )


def _show(
    reports: list[Report],
    predictions: list[list[SidePrediction]],
    as_json: bool,
    seconds: float,
    took: float,
) -> None:
    if as_json:
        import msgspec

        print_json(
            {
                "reports": [msgspec.to_builtins(report) for report in reports],
                "fit_cpu_s": round(seconds, 3),
                "predict_cpu_s": round(took, 3),
            }
        )
        return
    rows = [_cells(report) for report in reports]
    print_table(_HEADS, rows, right=_HEADS[1:])
    say(
        f"select, fit and validate: {seconds:.1f} s; {len(predictions):,} sets predicted in {took:.2f} s of CPU time"
    )


def _cells(r: Report) -> tuple[str, ...]:
    errors = (f"{value:.3f}" for value in (r.mae, r.mape, r.p90, r.rmsle))
    rest = (
        _or_dash(r.spearman),
        f"{r.coverage:.1%}",
        f"{r.width:.3f}",
        _or_dash(r.precision),
        _or_dash(r.recall),
    )
    return (r.name, f"{r.sides:,}", *errors, *rest)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
