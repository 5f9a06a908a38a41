"""What holds for a whole script: whether it is moved over, has processes of its own, seeds, uses CUDA."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from cotenant.elastic.checks.source import Source

__all__ = ["Scope", "look"]

SEEDING = ("manual_seed", "manual_seed_all", "seed_everything", "set_seed", "seed_all", "fix_seed")


class Scope(NamedTuple):
    """Of all files together.

    Attributes
    ----------
    moved, distributed, sharded, seeded, cuda, trains : bool
        It makes an ``elastic.Run``; it has processes of its own; it uses ``fully_shard``; it seeds PyTorch;
        it says something of CUDA; it calls ``backward()``.
    """

    moved: bool
    distributed: bool
    sharded: bool
    seeded: bool
    cuda: bool
    trains: bool


def look(sources: Sequence[Source]) -> Scope:
    """Read it from the files."""
    names = {name for source in sources for name in source.imported}
    calls = {source.name(call.func) for source in sources for call in source.calls}
    last = {name.rpartition(".")[2] for name in calls}
    attributes = {
        node.func.attr for source in sources for node in source.calls if isinstance(node.func, ast.Attribute)
    }
    return Scope(
        moved=any(name == "cotenant.elastic" or name.startswith("cotenant.elastic.") for name in names),
        distributed=any(name.startswith(("torch.distributed", "horovod")) for name in names | calls),
        sharded="fully_shard" in last,
        seeded=bool(last & set(SEEDING)) or any(name == "torch.random.manual_seed" for name in calls),
        cuda=any(source.cuda for source in sources),
        trains="backward" in attributes,
    )
