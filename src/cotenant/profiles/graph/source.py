"""Where a model's graph comes from, as people write it."""

from __future__ import annotations

import difflib
from pathlib import Path

from cotenant.errors import ConfigError
from cotenant.profiles.graph.ir import Graph, Options
from cotenant.profiles.zoo.recipes import RECIPES, builder_of
from cotenant.registry import load_object

__all__ = ["read_graph"]


def read_graph(
    source: str, options: Options, *, hugging_face: bool = False, length: int | None = None
) -> Graph:
    """Read the graph of one training step.

    Parameters
    ----------
    source : str
        ``my.module:build`` or ``my/file.py:build``, a function of the batch size that returns
        ``(module, inputs)`` or ``(module, inputs, loss)`` (its code is run); a file ``*.onnx``; a
        network of the zoo, ``ResNet-50@ImageNet``; or, with ``hugging_face``, a
        configuration file or its folder.
    options : Options
    hugging_face : bool
    length : int, optional
        Tokens in a sequence, where the source leaves it open.

    Raises
    ------
    ConfigError
        If there is no such thing, or it cannot be read.
    MissingExtraError
        If what reads it is not installed.
    """
    if options.batch < 1:
        raise ConfigError(f"a batch has at least one sample, not {options.batch}")
    if hugging_face:
        from cotenant.profiles.graph.hfreader import read_config

        return read_config(source, options, length=length)
    if source.casefold().endswith(".onnx"):
        from cotenant.profiles.graph.onnxreader import read_onnx

        return read_onnx(Path(source), options, length=length or 128)
    from cotenant.profiles.graph.torchreader import read_builder

    if source in RECIPES:
        return read_builder(builder_of(RECIPES[source]), options, name=source)
    if ":" in source:
        return read_builder(load_object(source), options, name=source)
    raise ConfigError(
        f"cannot tell what {source!r} is{_nearest(source)} write my.module:build, my/file.py:build, model.onnx, "
        f"--hf config.json, or a network of the zoo: {', '.join(RECIPES)}"
    )


def _nearest(source: str) -> str:
    """A guess at the network that was meant; its data set may be missing."""
    whole = {name.casefold(): name for name in RECIPES}
    models: dict[str, str] = {}
    for name, found in whole.items():
        models.setdefault(name.partition("@")[0], found)
    known = whole if "@" in source else models
    near = difflib.get_close_matches(source.casefold(), known, n=1)
    return f'; did you mean "{known[near[0]]}"?' if near else ":"
