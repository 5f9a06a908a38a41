"""``cotenant features`` and ``cotenant predict memory``: what a model's graph says before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, print_table, say
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
from cotenant.errors import UsageError

if TYPE_CHECKING:
    from cotenant.profiles.graph.ir import Graph, GraphFeatures
    from cotenant.profiles.graph.memory import MemoryForecast

__all__ = ["add_to"]

Source = Annotated[
    str,
    typer.Argument(
        help=SOURCE_HELP,
        show_default=False,
    ),
]
Checkpointing = Annotated[
    bool, typer.Option("--checkpointing", help="Activations of repeated blocks are computed again.")
]
Inference = Annotated[bool, typer.Option("--inference", help="The forward pass alone.")]
OnCpu = Annotated[bool, typer.Option("--cpu", help="As trained on a CPU, whose kernels keep other things.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel="Predict")(features)
    predict.command("memory")(memory)


def features(  # noqa: PLR0917
    source: Source,
    batch: Batch = 1,
    precision: Precision = "fp32",
    optimiser: Optimiser = "sgd",
    checkpointing: Checkpointing = False,
    hf: HuggingFace = False,
    length: Length = None,
    inference: Inference = False,
    cpu: OnCpu = False,
    as_json: Json = False,
) -> None:
    """What one training step computes, moves and holds, from the model's graph, without running it."""
    from cotenant.profiles.graph.features import features_of

    options = step_options(
        batch, precision, optimiser, checkpointing=checkpointing, inference=inference, cpu=cpu
    )
    found = features_of(_read(source, options, hf, length))
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found) | {"intensity": found.intensity, "row": found.row()})
        return
    _print_features(found)


def memory(  # noqa: PLR0917
    source: Source,
    batch: Batch = 1,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            "--on",
            help="Device types with commas between; cpu:0-1 for cores of this machine. Without it the catalogue.",
            autocompletion=completing.device_types,
        ),
    ] = "",
    precision: Precision = "fp32",
    optimiser: Optimiser = "sgd",
    checkpointing: Checkpointing = False,
    hf: HuggingFace = False,
    length: Length = None,
    inference: Inference = False,
    cpu: OnCpu = False,
    framework: Annotated[
        str,
        typer.Option(
            "--framework", help="Whose runtime is counted: pytorch, pytorch-before-1.13, tensorflow."
        ),
    ] = "pytorch",
    devices: OwnTypes = None,
    as_json: Json = False,
) -> None:
    """How much memory a job needs, part by part, and on which device types it fits."""
    from cotenant.profiles.graph.memory import fit_on, forecast_memory

    use_own_types(devices)
    types = known_types(device)
    hosts = [name for name in types if is_host(name)]
    if (cpu and len(hosts) < len(types)) or (hosts and hosts != types):
        raise UsageError("a process holds other things on a CPU: ask for GPU types and for core sets apart")
    cpu = cpu or bool(hosts)
    options = step_options(
        batch, precision, optimiser, checkpointing=checkpointing, inference=inference, cpu=cpu
    )
    graph = _read(source, options, hf, length)
    rows = fit_on(graph, types or None, framework=framework) if types or not cpu else ()
    shown = rows[0][1] if types and len(rows) == 1 else forecast_memory(graph, framework=framework)
    if as_json:
        print_json(_memory_json(shown, rows))
        return
    _print_memory(shown, graph)
    if rows:
        say("")
        _tell_libraries(shown, [forecast for _, forecast, _ in rows])
        print_table(
            ("device type", "usable", "P50", "P95", "verdict"),
            [(n, _mib(f.free_bytes), _mib(m.p50_bytes), _mib(m.p95_bytes), f.verdict) for n, m, f in rows],
            right=("usable", "P50", "P95"),
        )


def _read(source: str, options: Any, hf: bool, length: int | None) -> Graph:
    from cotenant.profiles.graph.source import read_graph

    return read_graph(source, options, hugging_face=hf, length=length)


def _mib(size: int) -> str:
    from cotenant.model.quantities import format_bytes

    return format_bytes(size)


def _work(count: float) -> str:
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:g} "


def _print_features(found: GraphFeatures) -> None:
    options = found.options
    say(
        f"{found.name}: batch {options.batch}, {options.precision}, {options.optimiser}, read from {found.source}"
    )
    print_table(("feature", "value"), _feature_rows(found))
    say("")
    print_table(
        ("class", "forward", "backward", "FLOPs", "moved", "most frequent inputs"),
        [
            (
                use.kind,
                str(use.forward),
                str(use.backward),
                f"{_work(use.flops)}FLOP",
                _mib(use.moved_bytes),
                shape,
            )
            for use in found.classes
            for shape in [use.shapes[0][0] if use.shapes else ""]
        ],
        right=("forward", "backward", "FLOPs", "moved"),
    )
    if found.unknown:
        listed = ", ".join(f"{name} ({count})" for name, count in found.unknown.items())
        note(f"not known, counted as one operation an element: {listed}")
    tell_notes(found.notes)


def _feature_rows(found: GraphFeatures) -> list[tuple[str, str]]:
    backward = "" if found.options.training else " (inference)"
    moved = (found.moved_forward_bytes, found.moved_backward_bytes, found.moved_step_bytes)
    held = (found.parameter_bytes, found.gradient_bytes, found.optimiser_bytes)
    work = f"{_work(found.flops_forward)}FLOP, {_work(found.flops_backward)}FLOP{backward}"
    return [
        ("parameters", f"{found.parameters:,}"),
        ("FLOPs forward, backward", work),
        ("other arithmetic", f"{_work(found.scalar_ops_forward)}op, {_work(found.scalar_ops_backward)}op"),
        ("moved forward, backward, step", _sizes(*moved)),
        ("arithmetic intensity", f"{found.intensity:.1f} op/byte"),
        ("weights, gradients, optimiser", _sizes(*held)),
        ("saved activations, peak of tensors", _sizes(found.activation_bytes, found.peak_bytes)),
        ("kernels forward, backward", f"{found.kernels_forward:,}, {found.kernels_backward:,}"),
        ("depth", f"{found.depth} with matrix work, {found.chain} in all"),
    ]


def _sizes(*sizes: int) -> str:
    return ", ".join(_mib(size) for size in sizes)


def _print_memory(shown: MemoryForecast, graph: Graph) -> None:
    options = graph.options
    where = shown.device_type or "a GPU"
    say(f"{shown.name}: batch {options.batch}, {options.precision}, {options.optimiser}, on {where}")
    rows = [(part.name, _mib(part.p50_bytes), _mib(part.p95_bytes), part.why) for part in shown.parts]
    rows.append(("total", _mib(shown.p50_bytes), _mib(shown.p95_bytes), ""))
    print_table(("part", "P50", "P95", "what is in it"), rows, right=("P50", "P95"))
    tell_notes(shown.notes)


def _tell_libraries(shown: MemoryForecast, by_type: list[MemoryForecast]) -> None:
    """Why the totals of types differ from the one above, if they do."""
    differ = [
        part.name
        for place, part in enumerate(shown.parts)
        if any(one.parts[place].p50_bytes != part.p50_bytes for one in by_type)
    ]
    if differ:
        say(
            f"the total above is of a GPU of unknown type; below, {' and '.join(differ)} are those of each type's own "
            "libraries:"
        )


def _memory_json(shown: MemoryForecast, rows: Any) -> dict[str, Any]:
    import msgspec

    return {
        "memory": msgspec.to_builtins(shown) | {"p50_bytes": shown.p50_bytes, "p95_bytes": shown.p95_bytes},
        "fits": [
            {
                "device_type": name,
                "verdict": fit.verdict,
                "usable_bytes": fit.free_bytes,
                "p50_bytes": forecast.p50_bytes,
                "p95_bytes": forecast.p95_bytes,
                "reason": fit.reason,
            }
            for name, forecast, fit in rows
        ],
    }
