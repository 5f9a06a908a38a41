"""``cotenant predict resources``: what a job would use alone on each device type, before it runs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, print_table, say, warn
from cotenant.app.durations import duration_of
from cotenant.app.predicting import predict
from cotenant.app.steps import (
    SOURCE_HELP,
    Batch,
    HuggingFace,
    Length,
    Optimiser,
    OwnTypes,
    Precision,
    is_host,
    known_types,
    step_options,
    tell_notes,
    use_own_types,
)
from cotenant.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from cotenant.model.ports import Interval
    from cotenant.predictors.resources.observations import Observation, RunKey
    from cotenant.predictors.resources.predictor import ResourceForecast, ResourcePredictor
    from cotenant.predictors.resources.work import StepWork
    from cotenant.profiles.graph.ir import Graph, Options

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    predict.command("resources")(resources)


def resources(  # noqa: PLR0917
    source: Annotated[
        str | None,
        typer.Argument(help=SOURCE_HELP),
    ] = None,
    batch: Batch = 1,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="Device types with commas between; cpu:0-1 for cores of this machine. Without it the catalogue.",
            autocompletion=completing.device_types,
        ),
    ] = "",
    precision: Precision = "fp32",
    optimiser: Optimiser = "sgd",
    hf: HuggingFace = False,
    length: Length = None,
    iteration: Annotated[
        str, typer.Option("--iteration", help="Measured time of one step, e.g. 230ms: from a light sample.")
    ] = "",
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            help="Table of solo runs to learn from, a campaign that comes with the package (such as cpu), or what "
            "--save wrote; by default those campaigns that were measured on types of the catalogue.",
        ),
    ] = None,
    works: Annotated[
        Path | None, typer.Option("--works", help="Steps of the table's own models, one JSON object a line.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="With --fit TABLE: where the fitted predictor goes.")
    ] = None,
    add_work: Annotated[
        Path | None, typer.Option("--add-work", help="Append this model's step to a file for --works.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Its name there, as in the table: model@dataset.")] = "",
    devices: OwnTypes = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Utilisation, bandwidth, time of a step and memory of a job alone, by device type."""
    use_own_types(devices)
    measured_s = duration_of("--iteration", iteration) if iteration else None
    predictor, rows = _predictor(fit, works, save)
    if source is None:
        if fit is None:
            raise UsageError(
                "give a model, for example: cotenant predict resources my.module:build --batch 32"
            )
        _print_fits(predictor, rows, as_json)
        return
    types = _types(device, predictor.device_types_, fit)
    found: list[ResourceForecast] = []
    verdicts: dict[str, str] = {}
    # A step reads other tensors and holds other memory on a CPU, so it is read for each kind of device.
    for cpu in (False, True):
        some = [name for name in types if is_host(name) == cpu]
        if some or (add_work is not None and not cpu):
            graph, work = _work(source, step_options(batch, precision, optimiser, cpu=cpu), hf, length, name)
            found += _forecasts(predictor, work, some, measured_s)
            verdicts |= _verdicts(graph, some)
        if add_work is not None and not cpu:
            _append(add_work, work)
    if as_json:
        print_json(_as_json(work, found, verdicts, predictor))
        return
    _print_found(work, found, verdicts, predictor)


def _work(source: str, options: Options, hf: bool, length: int | None, name: str) -> tuple[Graph, StepWork]:
    import msgspec

    from cotenant.predictors.resources.work import work_of
    from cotenant.profiles.graph.source import read_graph

    graph = read_graph(source, options, hugging_face=hf, length=length)
    tell_notes(graph.notes)
    work = work_of(graph)
    return graph, msgspec.structs.replace(work, name=name) if name else work


def _append(path: Path, work: StepWork) -> None:
    from cotenant.predictors.resources.observations import works_key
    from cotenant.predictors.resources.work import read_works, write_works

    before = read_works(path) if path.is_file() else ()
    kept = [one for one in before if works_key(one) != works_key(work)]
    write_works(path, [*kept, work])
    note(f"{path}: {len(kept) + 1} steps, the last one is {work.name} at batch {work.batch}")


def _types(device: str, fitted: tuple[str, ...], fit: Path | None) -> list[str]:
    """Types of the catalogue, or others that the predictor was fitted on; by default those of the fit."""
    from cotenant.profiles.catalogue import known

    asked = known_types(device, fitted)
    if not asked and fitted and fit is not None:
        note(f"shown for the types that {fit} was fitted on; --device names others")
        return list(fitted)
    return asked or list(known())


def _forecasts(
    predictor: ResourcePredictor, work: StepWork, types: list[str], measured_s: float | None
) -> list[ResourceForecast]:
    """What the fit says of types that it is about, and what comes with the package of others."""
    from cotenant.predictors.resources.roofline import rates_of

    rates = [rates_of(one) for one in types]
    fitted = predictor.device_types_
    # Factors of a CPU core say nothing of a GPU, and those of a GPU nothing of a core.
    kinds = {(one.known, one.host) for one in map(rates_of, fitted)}
    foreign = [one.name for one in rates if (kinds or one.host) and (one.known, one.host) not in kinds]
    wide = [one.name for one in rates if fitted and one.name not in (*fitted, *foreign)]
    if foreign and fitted:
        note(f"the fit knows {', '.join(fitted)} only; from rates alone: {', '.join(foreign)}")
    if wide:
        note(f"not measured, so with wider intervals: {', '.join(wide)}")
    known = None if measured_s is None else [measured_s]
    return [
        (_usual(one.host) if one.name in foreign else predictor).predict([work], [one], iteration_s=known)[0]
        for one in rates
    ]


def _usual(host: bool) -> ResourcePredictor:
    """What comes with the package for CPU cores, or for all else."""
    from cotenant.predictors.resources.predictor import ResourcePredictor
    from cotenant.predictors.resources.roofline import HOST

    return ResourcePredictor(learners=("roofline",), prior=HOST) if host else _shipped()[0]


def _predictor(
    fit: Path | None, works: Path | None, save: Path | None
) -> tuple[ResourcePredictor, list[Observation]]:
    if fit is None:
        if works is not None or save is not None:
            raise UsageError("--works and --save belong to --fit TABLE")
        return _shipped()
    if fit.suffix == ".json":
        from cotenant.predictors.resources.modelfile import load_predictor

        predictor, notes = load_predictor(fit)
        for line in notes:
            warn(line)
        return predictor, []
    return _fitted(fit, works, save)


def _shipped() -> tuple[ResourcePredictor, list[Observation]]:
    """The roofline, with factors from what we measured ourselves on types of the catalogue."""
    from cotenant.predictors.resources.observations import observed
    from cotenant.predictors.resources.predictor import ResourcePredictor
    from cotenant.predictors.resources.work import zoo_works
    from cotenant.profiles.catalogue import canonical_type
    from cotenant.profiles.shipped import shipped_campaign, shipped_campaigns

    runs = [
        run
        for name in shipped_campaigns()
        for run in shipped_campaign(name)[1]
        if canonical_type(run.device_type) is not None
    ]
    predictor = ResourcePredictor(learners=("roofline",))
    if not runs:
        return predictor, []
    rows, _ = observed(runs, zoo_works())
    return predictor.fit(rows), rows


def _place(fit: Path) -> Path:
    """The table that is meant: a path, or the name of a campaign that comes with the package.

    Raises
    ------
    ConfigError
        If it is neither; the names are listed.
    """
    from cotenant.profiles.shipped import shipped_campaigns

    if fit.exists():
        return fit
    known = shipped_campaigns()
    if (found := known.get(str(fit).removeprefix("measured_"))) is not None:
        return found
    raise ConfigError(
        f"--fit {fit}: no such file; give a table of solo runs, a folder with solo_profiles.csv, "
        f"or a campaign that comes with the package: {', '.join(known)}"
    )


def _fitted(fit: Path, works: Path | None, save: Path | None) -> tuple[ResourcePredictor, list[Observation]]:
    from cotenant.predictors.resources.modelfile import save_predictor
    from cotenant.predictors.resources.observations import observed
    from cotenant.predictors.resources.predictor import ResourcePredictor
    from cotenant.predictors.resources.work import read_works, zoo_works
    from cotenant.profiles.runsfile import read_solo_runs
    from cotenant.profiles.wholefile import check_place

    if save is not None:
        check_place(save)
    fit = _place(fit)
    own = read_works(works) if works is not None else ()
    slow = _too_slow(fit)
    rows, unknown = observed(read_solo_runs(fit), (*zoo_works(), *own), doubted=slow)
    if unknown:
        some = ", ".join(job for _, job in unknown[:5]) + (" ..." if len(unknown) > 5 else "")
        note(f"{len(unknown)} jobs of {fit} have no known graph and are not learnt from: {some}")
    if not rows:
        raise ConfigError(
            f"{fit}: no job there has a known graph; write the steps of its models with --add-work FILE "
            "--name model@dataset, and give them with --works FILE"
        )
    restricted = sorted({row.licence for row in rows if "commercial" in row.licence.casefold()})
    if restricted:
        warn(f"{fit}: rows under {', '.join(restricted)}; what is fitted on them must not be passed on")
    predictor = ResourcePredictor().fit(rows)
    _tell_few(predictor, rows)
    if save is not None:
        file = fit / "solo_profiles.csv" if fit.is_dir() else fit
        save_predictor(predictor, save, rows=rows, files=[file])
        note(f"wrote {save}")
    return predictor, rows


def _too_slow(fit: Path) -> Collection[RunKey]:
    """Runs alone that the table of co-runs beside this table shows to have been too slow."""
    from cotenant.predictors.resources.observations import doubted
    from cotenant.profiles.runsfile import read_co_runs

    pairs = (fit if fit.is_dir() else fit.parent) / "pairs.csv"
    if not pairs.is_file():
        return ()
    found = doubted(read_co_runs(pairs))
    if found:
        note(
            f"{pairs}: jobs that ran too slowly alone: {len(found)}; of their runs alone memory is learnt, nothing else"
        )
    return found


def _tell_few(predictor: ResourcePredictor, rows: list[Observation]) -> None:
    from cotenant.predictors.resources.predictor import FEWEST_FAMILIES

    few = [name for name, fit in predictor.fits_.items() if fit.families < FEWEST_FAMILIES]
    if few:
        note(
            f"{', '.join(few)}: the roofline's factors alone were fitted; to learn its errors needs at least "
            f"{FEWEST_FAMILIES} families of models, found {len({row.family for row in rows})}"
        )


def _verdicts(graph: Graph, types: list[str]) -> dict[str, str]:
    from cotenant.profiles.catalogue import canonical_type
    from cotenant.profiles.graph.memory import fit_on

    sized = [name for name in types if canonical_type(name) is not None]
    unsized = dict.fromkeys(types, "memory of this type not known")
    return unsized | {name: str(fit.verdict) for name, _, fit in fit_on(graph, sized)}


def _range(interval: Interval, digits: int = 0, unit: str = "") -> str:
    if interval.low == interval.high:
        return f"{interval.mean:.{digits}f}{unit}"
    return f"{interval.mean:.{digits}f}{unit} ({interval.low:.{digits}f} to {interval.high:.{digits}f})"


def _time(interval: Interval) -> str:
    unit, factor = ("s", 1.0) if interval.mean >= 1 else ("ms", 1e3)
    middle, low, high = (
        f"{factor * seconds:#.3g}".rstrip(".") if factor * seconds < 1000 else f"{factor * seconds:.0f}"
        for seconds in (interval.mean, interval.low, interval.high)
    )
    return f"{middle} {unit}" if low == high else f"{middle} {unit} ({low} to {high})"


def _basis(predictor: ResourcePredictor, *, hosts: bool) -> str:
    if not predictor.fits_:
        rates = "from rates of cores that were measured here" if hosts else "from datasheets alone"
        return f"{rates} (roofline); --fit TABLE learns from measured runs"
    used = ", ".join(f"{name} by {fit.learner}" for name, fit in predictor.fits_.items())
    return f"fitted: {used}"


def _print_found(
    work: StepWork, found: list[ResourceForecast], verdicts: dict[str, str], predictor: ResourcePredictor
) -> None:
    basis = _basis(predictor, hosts=all(is_host(one.device_type) for one in found))
    say(f"{work.name}: batch {work.batch}, {work.precision}, {work.optimiser}, alone; {basis}")
    rows = [
        (
            one.device_type,
            _range(one.gpu_util),
            _range(one.mem_util),
            _time(one.iteration_s),
            _range(one.mem_mib),
            verdicts[one.device_type],
        )
        for one in found
    ]
    print_table(("device type", "busy, %", "memory busy, %", "one step", "memory, MiB", "verdict"), rows)
    if any(one.iteration_known for one in found):
        say("in brackets: nine times in ten within; the time of one step is the one that was given")
        return
    say(
        "in brackets: nine times in ten within; a job that waits for its input takes longer and is less busy:"
    )
    say("give the time of one step as measured (--iteration), and utilisation is surer")


def _as_json(
    work: StepWork, found: list[ResourceForecast], verdicts: dict[str, str], predictor: ResourcePredictor
) -> dict[str, Any]:
    import msgspec

    devices = [msgspec.to_builtins(one) | {"verdict": verdicts[one.device_type]} for one in found]
    head = {"name": work.name, "batch": work.batch, "precision": work.precision, "optimiser": work.optimiser}
    fits = {name: msgspec.to_builtins(fit) for name, fit in predictor.fits_.items()}
    return {
        **head,
        "fits": fits,
        "efficiency": msgspec.to_builtins(predictor.efficiency_),
        "devices": devices,
    }


def _print_fits(predictor: ResourcePredictor, rows: list[Observation], as_json: bool) -> None:
    import msgspec

    if as_json:
        fits = {name: msgspec.to_builtins(fit) for name, fit in predictor.fits_.items()}
        print_json({"fits": fits, "efficiency": msgspec.to_builtins(predictor.efficiency_)})
        return
    table = [
        (
            name,
            fit.learner,
            f"{fit.errors[fit.learner]:.3f}",
            f"{fit.doubt:.3f}",
            str(fit.rows),
            str(fit.families),
        )
        for name, fit in predictor.fits_.items()
    ]
    heads = ("target", "learner", "error on unseen families", "half width", "rows", "families")
    print_table(heads, table, right=heads[2:])
    say("errors and widths are of natural logarithms: of times and sizes, of 1 + per cent for utilisations")
