"""Commands that list what there is: policies, trace formats, device types."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from cotenant.app.console import print_json, print_table

__all__ = ["add_to"]

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel="What there is")(policies)
    app.command(rich_help_panel="What there is")(traces)
    app.command(rich_help_panel="What there is")(devices)


def policies(
    name: Annotated[
        str | None, typer.Argument(help="One policy: registered name or mine.py:MyPolicy.")
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
    name: Annotated[str | None, typer.Argument(help="One type: name or alias.")] = None,
    own: Annotated[
        str | None,
        typer.Option("--devices", envvar="COTENANT_DEVICES", help="File of device types of one's own."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List device types with what their datasheets say, or show one."""
    import msgspec

    from cotenant.profiles import catalogue

    if own is not None:
        catalogue.use_devices(own)
    sheets = [catalogue.datasheet(one) for one in ([name] if name else catalogue.known())]
    if as_json:
        told = [msgspec.to_builtins(s) | {"relative_speed": s.relative_speed} for s in sheets]
        print_json({"devices": told})
    elif name:
        _print_sheet(sheets[0])
    else:
        heads = ("type", "memory MiB", "GB/s", "fp32", "fp16", "units", "link", "W", "speed")
        rows = [
            (
                s.name,
                f"{s.memory_mib:,}",
                f"{s.bandwidth_gbs:,g}",
                f"{s.peak_tflops('fp32'):g}",
                f"{s.peak_tflops('fp16'):g}",
                str(s.units or "n/a"),
                s.link or "n/a",
                f"{s.power_w:g}" if s.power_w else "n/a",
                f"{s.relative_speed:g}{'' if s.speed is not None else ' ~'}",
            )
            for s in sheets
        ]
        title = "rates in TFLOP/s; speed relative to a V100, ~ approximated from the rates"
        print_table(
            heads, rows, title=title, right=("memory MiB", "GB/s", "fp32", "fp16", "units", "W", "speed")
        )


def _print_sheet(sheet: Any) -> None:
    how = "measured" if sheet.speed is not None else "approximated from the rates"
    rows = [
        ("memory", f"{sheet.memory_mib:,} MiB, as the driver reports it"),
        ("memory bandwidth", f"{sheet.bandwidth_gbs:,g} GB/s"),
        ("peak rates", ", ".join(f"{k} {v:g}" for k, v in sheet.tflops.items()) + " TFLOP/s"),
        ("units", str(sheet.units or "n/a")),
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
