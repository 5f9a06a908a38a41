"""Make a module on fake CPU tensors run the kernels that matter elsewhere, or run its blocks twice.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["checkpointed", "gpu_kernels", "repeated_blocks"]


@contextmanager
def gpu_kernels() -> Iterator[None]:
    """Dropout and attention as on a GPU.

    On a CPU, dropout keeps a mask of floats and attention with dropout keeps all its scores; on a
    GPU, dropout keeps a byte an element and fused attention keeps no scores. Only two names of
    ``torch.nn.functional`` are replaced, and put back on leaving, whatever happens.
    """
    dropout, attention = functional.dropout, functional.scaled_dot_product_attention

    def fused_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        if not training or p in {0.0, 1.0}:
            return dropout(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]

    def fused_attention(*args: Any, **named: Any) -> Any:
        # With the default of no dropout the CPU takes its fused kernel, which keeps the same
        # tensors as the GPU's: queries, keys, values, output and a sum for each row.
        named |= dict(
            zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)
        )
        return attention(**(named | {"dropout_p": 0.0}))

    functional.dropout, functional.scaled_dot_product_attention = fused_dropout, fused_attention
    try:
        yield
    finally:
        functional.dropout, functional.scaled_dot_product_attention = dropout, attention


def repeated_blocks(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Blocks worth checkpointing: the outermost runs of two or more children of one class.

    Children without parameters of their own are no blocks.
    """
    found: list[torch.nn.Module] = []
    for child in module.children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
            inside = list(child.children())
            classes = [type(block) for block in inside]
            blocks = [b for b in inside if classes.count(type(b)) > 1 and list(b.children())]
            if blocks:
                found += blocks
                continue
        found += repeated_blocks(child)
    return found


@contextmanager
def checkpointed(module: torch.nn.Module, notes: list[str]) -> Iterator[None]:
    """Run the repeated blocks under activation checkpointing; forward methods are put back."""
    blocks = repeated_blocks(module)
    notes.append(
        f"activation checkpointing of {len(blocks)} repeated blocks"
        if blocks
        else "activation checkpointing asked for, but the module has no repeated blocks: nothing changes"
    )
    try:
        for block in blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
        yield
    finally:
        for block in blocks:
            vars(block).pop("forward", None)
