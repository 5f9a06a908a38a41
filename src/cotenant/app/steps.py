"""What the commands that read a model's training step have in common: its options, and their checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.app.console import note, warn
from cotenant.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from cotenant.profiles.graph.ir import Options

__all__ = [
    "SOURCE_HELP",
    "Batch",
    "HuggingFace",
    "Length",
    "Optimiser",
    "OwnTypes",
    "Precision",
    "is_host",
    "known_types",
    "step_options",
    "tell_notes",
    "use_own_types",
]

SOURCE_HELP = (
    "my.module:build, my/file.py:build, model.onnx, a network of the zoo (ResNet-50@ImageNet); "
    "with --hf, a configuration file or its folder. Code that is named is run."
)
Batch = Annotated[int, typer.Option("--batch", "-b", help="Samples in a step on one device.")]
Precision = Annotated[str, typer.Option("--precision", help="fp32, tf32, amp, bf16 or fp16.")]
Optimiser = Annotated[str, typer.Option("--optimiser", help="sgd, momentum, adam, adamw, ...")]
HuggingFace = Annotated[
    bool, typer.Option("--hf", help="The source is a Hugging Face configuration; nothing is downloaded.")
]
Length = Annotated[
    int | None, typer.Option("--length", help="Tokens in a sequence, where the source leaves it open.")
]
OwnTypes = Annotated[
    str | None,
    typer.Option("--devices", envvar="COTENANT_DEVICES", help="File of device types of one's own."),
]


def use_own_types(path: str | None) -> None:
    """Add the device types of the file that ``--devices`` names, if it was given.

    Raises
    ------
    ConfigError
        If there is no such file, or it is not of the form.
    """
    if path is not None:
        from cotenant.profiles.catalogue import use_devices

        use_devices(path)


def known_types(device: str, measured: Collection[str] = ()) -> list[str]:
    """The device types of ``--device``, by the catalogue's names; sets of this machine's cores join it.

    Parameters
    ----------
    device : str
        Names, aliases, or core sets (``cpu:0-1``), with commas between.
    measured : collection of str
        Types that are known from measurements, whether or not the catalogue has them.

    Raises
    ------
    UnknownNameError
        For a type that nobody knows.
    UsageError
        If there are only commas.
    ConfigError
        For cores that are not there.
    """
    from cotenant.profiles.catalogue import add_types, canonical_type, datasheet
    from cotenant.profiles.corerates import core_set_of, core_sheet, core_type

    found = []
    names = [name for name in map(str.strip, _split(device)) if name]
    if device and not names:
        raise UsageError(f"--device {device!r} names no device type; write one such as A100, or A100,T4")
    for name in names:
        cores = None if name in measured or canonical_type(name) is not None else core_set_of(name)
        if cores is None:
            found.append(name if name in measured else datasheet(name).name)
            continue
        found.append(core_type(cores))
        if core_type(cores) not in measured:
            sheet = core_sheet(cores)
            add_types(sheet)
            note(
                f"{sheet.name}: {sheet.bandwidth_gbs:g} GB/s, {sheet.peak_tflops('fp32') * 1e3:g} GFLOP/s "
                f"in 32 bits, {sheet.source}"
            )
    return list(dict.fromkeys(found))


def _split(device: str) -> list[str]:
    """Names between commas; ``cpu:0,2`` is one of them."""
    import re

    return re.split(r",(?!\d+(?:-\d+)?(?:,|$))", device)


def tell_notes(notes: Iterable[str]) -> None:
    """Print what had to be assumed of a step; that a person's loss failed is a warning."""
    from cotenant.profiles.graph.failures import OF_LOSS

    for line in notes:
        (warn if line.startswith(OF_LOSS) else note)(line)


def is_host(device_type: str) -> bool:
    """Whether a type of the catalogue is a set of CPU cores."""
    from cotenant.profiles.catalogue import canonical_type, datasheet

    return canonical_type(device_type) is not None and datasheet(device_type).host


def step_options(
    batch: int,
    precision: str,
    optimiser: str,
    *,
    checkpointing: bool = False,
    inference: bool = False,
    cpu: bool = False,
) -> Options:
    """How a step is to be read.

    Raises
    ------
    UnknownNameError
        For a precision or an optimiser that nobody knows.
    """
    from cotenant.profiles.graph.ir import PRECISION_BYTES, Options
    from cotenant.profiles.graph.optimisers import find_optimiser

    if precision not in PRECISION_BYTES:
        raise UnknownNameError("precision", precision, PRECISION_BYTES)
    find_optimiser(optimiser)
    return Options(
        batch=batch,
        precision=precision,  # type: ignore[arg-type]
        optimiser=optimiser.casefold(),
        checkpointing=checkpointing,
        training=not inference,
        device="cpu" if cpu else "gpu",
    )
