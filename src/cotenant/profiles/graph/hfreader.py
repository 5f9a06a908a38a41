"""Read a Hugging Face configuration: the model is built without weights and never downloaded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cotenant.errors import ConfigError, MissingExtraError
from cotenant.profiles.graph.ir import Graph, Options
from cotenant.profiles.graph.torchreader import read_builder

__all__ = ["read_config"]

_LENGTH = 512
"""Tokens of a sequence where nobody says how many, if the model takes that many."""


def read_config(
    config: str | Path | dict[str, Any], options: Options, *, length: int | None = None, attention: str = ""
) -> Graph:
    """The graph of one training step of the model that a configuration describes.

    Parameters
    ----------
    config : path or dict
        ``config.json`` or the folder that holds it, or its contents. The first entry of
        ``architectures`` is built; without one, the model without a head.
    options : Options
    length : int, optional
        Tokens in a sequence; by default as many as the model takes, at most 512.
    attention : str
        ``eager`` or ``sdpa``; by default what transformers chooses.

    Raises
    ------
    ConfigError
        If the file cannot be read, or transformers knows no such model.
    MissingExtraError
        Without transformers.
    """
    # First, since a file that is missing is missing whatever is installed.
    fields, label = _fields(config)
    # Everything is built from the configuration; nothing may be asked of a network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("reading Hugging Face configurations", "huggingface") from None
    made = _config(transformers, fields, label)
    if attention:
        made._attn_implementation = attention
    names = fields.get("architectures") or []
    cls = getattr(transformers, names[0], None) if names else None
    if names and cls is None:
        raise ConfigError(f"{label}: transformers {transformers.__version__} has no model {names[0]!r}")

    def build(batch: int) -> tuple[Any, dict[str, Any]]:
        module = cls(made) if cls is not None else transformers.AutoModel.from_config(made)
        return module, _inputs(module, made, batch, length)

    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        return read_builder(build, options, name=names[0] if names else str(made.model_type))
    finally:
        transformers.logging.set_verbosity(level)


def _fields(config: str | Path | dict[str, Any]) -> tuple[dict[str, Any], str]:
    if isinstance(config, dict):
        return config, "configuration"
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; give a config.json or the folder that holds it"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise ConfigError(f"{path} names no model_type: it is no Hugging Face configuration")
    return fields, str(path)


def _config(transformers: Any, fields: dict[str, Any], label: str) -> Any:
    kind = fields["model_type"]
    if kind not in transformers.CONFIG_MAPPING:
        raise ConfigError(f"{label}: transformers {transformers.__version__} knows no model_type {kind!r}")
    rest = {key: value for key, value in fields.items() if key != "model_type"}
    return transformers.CONFIG_MAPPING[kind](**rest)


def _inputs(module: Any, config: Any, batch: int, length: int | None) -> dict[str, Any]:
    import torch

    main = getattr(module, "main_input_name", "input_ids")
    head = type(module).__name__
    if main == "pixel_values":
        side = getattr(config, "image_size", None) or 224
        sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
        found = {main: torch.randn(batch, getattr(config, "num_channels", 3), *sides)}
    elif main == "input_ids":
        most = getattr(config, "max_position_embeddings", None) or _LENGTH
        words = getattr(config, "vocab_size", 2)
        found = {main: torch.randint(words, (batch, length or min(most, _LENGTH)))}
    else:
        raise ConfigError(
            f"{head} takes {main}: only input_ids and pixel_values are made here; use a builder"
        )
    if "Classification" in head and "Token" not in head:
        found["labels"] = torch.randint(getattr(config, "num_labels", 2), (batch,))
    elif head.endswith(("LM", "LMHeadModel", "ConditionalGeneration", "TokenClassification")):
        found["labels"] = torch.zeros_like(found[main])
    elif "QuestionAnswering" in head:
        found |= {key: torch.zeros(batch, dtype=torch.long) for key in ("start_positions", "end_positions")}
    return found
