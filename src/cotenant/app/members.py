"""Commands that list what there is: policies, trace formats, device types."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, print_table
from cotenant.app.steps import OwnTypes, use_own_types
from cotenant.errors import ConfigError

if TYPE_CHECKING:
    from cotenant.profiles.catalogue import Datasheet

__all__ = ["add_to"]

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel="What there is")(policies)
    app.command(rich_help_panel="What there is")(traces)
    app.command(rich_help_panel="What there is")(devices)


def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One policy: registered name or mine.py:MyPolicy.", autocompletion=completing.one_policy
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List policies, or show one with its parameters."""
    from cotenant import registry

    found = [_describe(name)] if name else [_listed(one) for one in registry.names("policy")]
    if as_json:
        print_json({"policies": found})
    elif name:
        _print_one(found[0])
    else:
        rows = [(f["name"], f["summary"], f["card"]) for f in found]
        print_table(("policy", "what it does", "card"), rows)


def _listed(name: str) -> dict[str, Any]:
    """As ``_describe``; a plug-in that cannot be loaded says so and hides no other."""
    try:
        return _describe(name)
    except (ImportError, AttributeError) as error:
        return {"name": name, "summary": f"cannot be loaded: {error}", "card": "", "parameters": []}


def _describe(name: str) -> dict[str, Any]:
    from cotenant.model.params import parameters_of
    from cotenant.runs.spec import build_policy, parse_policy, policy_class

    cls = policy_class(name)
    if not any(p.required for p in parameters_of(cls)):
        build_policy(parse_policy(name))  # refuses a class that does not store its parameters
    return {
        "name": name,
        "summary": _first_line(cls),
        "card": "" if ":" in name else f"docs/policies/{name}.md",
        "parameters": [
            {
                "name": p.name,
                "type": p.kind,
                "default": None if p.required else p.default,
                "required": p.required,
            }
            for p in parameters_of(cls)
        ],
    }


def _print_one(found: dict[str, Any]) -> None:
    from cotenant.app.console import say

    say(f"{found['name']}: {found['summary']}")
    if found["card"]:
        say(f"card: {found['card']}")
    if not found["parameters"]:
        say("no parameters")
        return
    rows = [
        (p["name"], p["type"], "needed" if p["required"] else str(p["default"])) for p in found["parameters"]
    ]
    print_table(("parameter", "type", "default"), rows)


def traces(as_json: Json = False) -> None:
    """List trace formats."""
    from cotenant import registry

    found = []
    for name in registry.names("trace format"):
        reader = registry.load("trace format", name)
        found.append({"format": name, "title": str(getattr(reader, "title", "")) or _first_line(reader)})
    if as_json:
        print_json({"formats": found})
    else:
        print_table(("format", "what it is"), [(f["format"], f["title"]) for f in found])


def devices(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One type: name or alias; cpu:0-1 for cores of this machine.",
            autocompletion=completing.device_types,
        ),
    ] = None,
    own: OwnTypes = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="This machine's CPU core sets: one core, and all of them; measured."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Measure core sets again; else earlier measurements are shown.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List device types with what their datasheets say, or show one; CPU core sets of this machine with --here."""
    import msgspec

    if here and name:
        raise ConfigError(
            f"--here lists this machine's core sets; for one type leave it out: cotenant devices {name}"
        )
    use_own_types(own)
    sheets = _sheets(name, here=here, again=again)
    if as_json:
        told = [msgspec.to_builtins(s) | {"relative_speed": s.relative_speed} for s in sheets]
        print_json({"devices": told})
    elif name:
        _print_sheet(sheets[0])
    else:
        heads = ("type", "memory MiB", "GB/s", "fp32", "fp16", "units", "link", "W", "speed")
        title = "rates in TFLOP/s; speed relative to a V100, ~ approximated from the rates"
        print_table(heads, map(_row, sheets), title=title, right=("memory MiB", *heads[2:6], "W", "speed"))
    for sheet in sheets if here and not as_json else []:
        note(f"{sheet.name}: {sheet.source}; {sheet.note}")


def _sheets(name: str | None, *, here: bool, again: bool) -> list[Datasheet]:
    from cotenant.profiles import catalogue
    from cotenant.profiles.corerates import core_set_of, core_sets, core_sheet

    if here:
        return [core_sheet(cores, again=again) for cores in core_sets()]
    if name and catalogue.canonical_type(name) is None and (cores := core_set_of(name)) is not None:
        return [core_sheet(cores, again=again)]
    return [catalogue.datasheet(one) for one in ([name] if name else catalogue.known())]


def _row(s: Datasheet) -> tuple[str, ...]:
    return (
        s.name,
        f"{s.memory_mib:,}",
        f"{s.bandwidth_gbs:,g}",
        f"{s.peak_tflops('fp32'):g}",
        f"{s.peak_tflops('fp16'):g}" if not s.host else "n/a",
        str(s.units or "n/a"),
        s.link or "n/a",
        f"{s.power_w:g}" if s.power_w else "n/a",
        f"{s.relative_speed:g}{'' if s.speed is not None else ' ~'}",
    )


def _print_sheet(sheet: Any) -> None:
    how = "measured" if sheet.speed is not None else "approximated from the rates"
    rows = [
        ("memory", f"{sheet.memory_mib:,} MiB, as the {'system' if sheet.host else 'driver'} reports it"),
        ("memory bandwidth", f"{sheet.bandwidth_gbs:,g} GB/s"),
        ("peak rates", ", ".join(f"{k} {v:g}" for k, v in sheet.tflops.items()) + " TFLOP/s"),
        ("cores" if sheet.host else "units", str(sheet.units or "n/a")),
        ("last-level cache", f"{sheet.cache_mib:g} MiB" if sheet.cache_mib else "n/a"),
        ("link to the host", f"{sheet.link}, {sheet.link_gbs:g} GB/s" if sheet.link else "n/a"),
        ("between devices", f"{sheet.peer_gbs:g} GB/s" if sheet.peer_gbs else "n/a"),
        ("power", f"{sheet.power_w:g} W" if sheet.power_w else "n/a"),
        ("speed", f"{sheet.relative_speed:g} of a V100, {how}"),
        ("other names", ", ".join(sheet.aliases) or "none"),
        ("note", sheet.note or "none"),
        ("source", sheet.source),
    ]
    print_table((sheet.name, ""), rows)


def _first_line(cls: type) -> str:
    text = inspect.getdoc(cls) or ""
    return text.split("\n\n", maxsplit=1)[0].replace("\n", " ").replace("``", "")
