"""``cotenant predict``: the group of commands that foretell, and the one for running times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, print_table, say
from cotenant.app.durations import duration_of
from cotenant.errors import ConfigError

if TYPE_CHECKING:
    from cotenant.predictors.completion import FinishAt
    from cotenant.predictors.sampling import StepSample

__all__ = ["add_to", "predict"]

predict = typer.Typer(
    name="predict",
    no_args_is_help=True,
    help="Foretell running times, and what jobs need and cost each other.",
)

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_HELD = 0.87

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    predict.command("runtime")(runtime)
    app.add_typer(predict, rich_help_panel="Predict")


def runtime(  # noqa: PLR0917
    history: Annotated[
        str | None, typer.Argument(help="Trace of jobs that ended: what is learnt from.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the job; its numbers do not matter.")] = "",
    user: Annotated[str, typer.Option("--user", help="Whose job.")] = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Of which tenant.")] = "",
    gpus: Annotated[int, typer.Option("--gpus", help="Devices it asks for.")] = 1,
    model: Annotated[str, typer.Option("--model", help="Its model, if the history names models.")] = "",
    elapsed: Annotated[str, typer.Option("--elapsed", help="How long it runs already, e.g. 2h.")] = "0s",
    form: Annotated[
        str | None,
        typer.Option("--format", help="Format of the trace.", autocompletion=completing.trace_formats),
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Predict every job of the history before its end; show errors.")
    ] = False,
    steps: Annotated[
        Path | None, typer.Option("--steps", help="Step file of a run (COTENANT_STEPS): a light sample.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", help="With --steps: iterations in all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How long a job will run: from jobs like it that ended, or from the steps of its own run."""
    if steps is not None:
        if history is not None or evaluate:
            raise ConfigError("give a history or --steps, not both")
        _from_steps(steps, iterations, as_json)
        return
    if history is None:
        raise ConfigError(
            "give a trace of jobs that ended, for example: cotenant predict runtime jobs.csv --user ann --gpus 8; "
            "or the step file of a run with --steps FILE --iterations N"
        )
    from cotenant.traces.load import read_trace

    workload = read_trace(history, form)
    if evaluate:
        _errors(workload, as_json)
        return
    from cotenant.model.jobs import Job

    if gpus < 0:
        raise ConfigError(f"--gpus is a number of devices, 0 or more, found {gpus}")
    job = Job(id=len(workload), name=name, submit_s=0.0, gpus=gpus, model=model, tenant=tenant, user=user)
    _from_history(workload, job, duration_of("--elapsed", elapsed, zero=True), as_json)


def _errors(workload: Any, as_json: bool) -> None:
    import msgspec

    from cotenant.predictors.hindsight import FORECASTS, hindsight

    found = {name: hindsight(workload, name) for name in FORECASTS}
    if as_json:
        print_json({"forecasts": {name: msgspec.to_builtins(one) for name, one in found.items()}})
        return
    rows = [
        (
            name,
            f"{h.jobs:,}",
            f"x{h.typical_factor:.2f}",
            f"{h.mae_ln:.3f}",
            f"{h.inside:.1%}",
            f"x{h.width:.3g}",
        )
        for name, h in found.items()
    ]
    heads = ("forecast", "jobs", "typical error", "MAE of ln", "inside 90% range", "range, high/low")
    print_table(heads, rows, right=heads[1:])
    for name, one in found.items():
        if one.inside < _HELD:
            note(
                f"{name}: the range that should hold 90% held {one.inside:.1%}; it learns from its misses, "
                f"and {one.jobs:,} jobs are few for that"
            )


def _from_history(workload: Any, job: Any, elapsed_s: float, as_json: bool) -> None:
    from cotenant.model.quantities import format_duration
    from cotenant.predictors.hindsight import learnt

    forecast = learnt(workload)
    count, what = forecast.alike(job)
    if not count:
        raise ConfigError(
            f"{workload.name}: no job of it ended well ({len(workload):,} jobs in all), so there is nothing to learn from"
        )
    beyond = elapsed_s > forecast.longest_s(job)
    if beyond:
        note("no job of the history that it is compared with ran so long; what follows is a rule of thumb")
    found = {q: forecast.quantile_s(job, q, elapsed_s) for q in _QUANTILES}
    if as_json:
        told = {f"p{round(100 * q)}": seconds for q, seconds in found.items()}
        body = {"runs_s": told, "elapsed_s": elapsed_s, "beyond_history": beyond}
        print_json(body | {"latest_alike": count, "alike_share": list(what)})
        return
    whole = "in all" if elapsed_s else ""
    rows = [(f"{q:.0%} of such jobs", format_duration(seconds), whole) for q, seconds in found.items()]
    print_table(("ended within", "", ""), rows, right=("",))
    if what:
        shared = " and ".join([", ".join(what[:-1]), what[-1]] if len(what) > 1 else what)
        say(
            f"from the latest {count} jobs of the same {shared}, and, the fewer they are, from coarser groups"
        )
    else:
        say(f"no job like it ended; from the latest {count} of all jobs")


def _from_steps(path: Path, iterations: int | None, as_json: bool) -> None:
    import msgspec

    from cotenant.model.quantities import format_duration

    sample, finish, done = _sampled(path, iterations)
    if as_json:
        print_json(
            {
                "sample": msgspec.to_builtins(sample),
                "iterations_done": done,
                "remaining_s": msgspec.to_builtins(finish) if finish else None,
            }
        )
        return
    each = f"{sample.iteration_s * 1e3:.4g} ms ({sample.low_s * 1e3:.4g} to {sample.high_s * 1e3:.4g})"
    say(f"one iteration takes {each}, from {sample.iterations} after warm-up; {done:,} are done")
    if finish is not None:
        at, early, late = (format_duration(s) for s in (finish.at_s, finish.earliest_s, finish.latest_s))
        say(f"will finish {at} after the last step seen, between {early} and {late} if its neighbours stay")


def _sampled(path: Path, iterations: int | None) -> tuple[StepSample, FinishAt | None, int]:
    from cotenant.model.ports import Interval
    from cotenant.predictors.completion import Completion
    from cotenant.predictors.sampling import LightSampler
    from cotenant.profiles.jobs.steps import StepReader

    if not path.is_file():
        raise ConfigError(f"{path}: no such file; a run writes it where COTENANT_STEPS says")
    found = StepReader(path).read()
    if len(found) < 3:
        raise ConfigError(f"{path}: holds {len(found)} steps; a sample takes at least 3, better 26")
    sampler = LightSampler()
    sampler.begin(found[0].end_ns / 1e9)
    for step in found[1:]:
        if sampler.step(step.end_ns / 1e9) is not None:
            break
    sample = sampler.sample or sampler.so_far()
    if iterations is None:
        return sample, None, len(found)
    job = Completion(iterations, Interval(sample.iteration_s, sample.low_s, sample.high_s))
    job.sampled(sample)
    if len(found) > iterations:
        raise ConfigError(f"{path}: holds {len(found)} steps, more than --iterations {iterations}")
    job.progress(len(found))
    return sample, job.finish(0.0), len(found)
