"""What the commands that read a model's training step have in common: its options, and their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.errors import UnknownNameError

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
    "step_options",
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
