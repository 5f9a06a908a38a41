"""Commands about files that people have: import, generate, validate, schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, say
from cotenant.errors import ConfigError

if TYPE_CHECKING:
    from cotenant.model.workload import Workload

__all__ = ["add_to", "split_options"]

PANEL = "Files"
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Write over an existing file.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Option of the trace format; may be repeated."),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("import", rich_help_panel=PANEL)(import_trace)
    app.command(rich_help_panel=PANEL)(generate)
    app.command(rich_help_panel=PANEL)(validate)
    app.command(rich_help_panel=PANEL)(schema)


def split_options(items: list[str] | None) -> dict[str, Any]:
    """``name=value`` items as a dict.

    Raises
    ------
    ConfigError
        If an item has no ``=``, or a name is given twice.
    """
    found: dict[str, Any] = {}
    for item in items or []:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--option {item}: write name=value")
        if name.strip() in found:
            raise ConfigError(f"--option {name.strip()} is given twice")
        found[name.strip()] = value
    return found


def import_trace(
    trace: Annotated[Path, typer.Argument(help="Trace file, or folder for formats that have several files.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="Native workload file to write.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="Trace format; recognised if not given.", autocompletion=completing.trace_formats
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what would otherwise be repaired or dropped.")
    ] = False,
    cpu_jobs: Annotated[str, typer.Option("--cpu-jobs", help="keep or drop jobs without GPUs.")] = "keep",
    option: Options = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert a trace to the native format, and say what was found in it."""
    from cotenant.traces.load import read_trace

    workload = read_trace(trace, form, strict, cpu_jobs=cpu_jobs, **split_options(option))
    _write(workload, output, force, as_json)


def generate(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|SPEC", help="Preset, or TOML/YAML file describing one.")
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="Native workload file to write.")],
    jobs: Annotated[int | None, typer.Option("--jobs", help="How many jobs.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the generator.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Generate a workload from a preset or a description of your own."""
    from cotenant.runs.api import generate as make

    _write(make(source, jobs=jobs, seed=seed), output, force, as_json)


def _write(workload: Workload, output: Path, force: bool, as_json: bool) -> None:
    from cotenant.app.datareport import report_lines
    from cotenant.traces.native import write_workload

    if output.exists() and not force:
        raise ConfigError(f"{output} exists; give --force to write over it")
    output.parent.mkdir(parents=True, exist_ok=True)
    write_workload(workload, output)
    report = workload.report
    if as_json:
        print_json(
            {
                "jobs": len(workload),
                "file": str(output),
                "assumptions": list(workload.assumptions),
                "data_report": report.to_dict() if report is not None else None,
            }
        )
        return
    for line in report_lines(report, len(workload)):
        say(line)
    note(f"written: {output}")


def validate(
    file: Annotated[
        Path, typer.Argument(help="Job, cluster, incidents, run or workload description; trace; event log.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="job, cluster, incidents, run, spec, trace, log or manifest; recognised if not given.",
        ),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="Cluster on which every job must be able to run.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a file strictly, and say what it holds. Changes nothing."""
    from cotenant.app.validation import check_file

    found = check_file(file, kind, cluster)
    if as_json:
        print_json(found)
    else:
        say(f"{file}: valid {found['kind']}: {found['summary']}")
        for line in found.get("lines", []):
            say(line)


def schema(
    kind: Annotated[str, typer.Argument(help="job, cluster, run, spec, event or manifest.")],
) -> None:
    """Print the JSON schema of a kind of file, for editors."""
    from cotenant.app.validation import schema_of

    print_json(schema_of(kind))
