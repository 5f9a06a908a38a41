"""At a new generation: whoever is behind gets what it lacks from one that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cotenant.elastic.exchange import Group
from cotenant.elastic.parcels import deliver
from cotenant.elastic.parts import Given, handed, position

if TYPE_CHECKING:
    from cotenant.elastic.process import Process

__all__ = ["catch_up"]

_KEPT, _GIVEN = 1, 2


def catch_up(process: Process, group: Group) -> None:
    """Bring all processes of a group to the same step.

    Each tells how many steps it has applied, and inner loops of the next. A newcomer gets the whole
    state of one that is ahead. A process that was in the exchange of a loop when another died, while
    a third had all of it, gets the third's sums and contexts, and applies them itself (``process.given``).
    Nobody can be two loops behind: one is exchanged only by processes that have all applied that before.

    Raises
    ------
    Broken
    """
    import torch

    table = torch.zeros(group.size, 2, dtype=torch.int64)
    table[group.rank, 0] = position(process) + 1 if process.joined else 0
    if process.given is not None:
        # Between steps, a step that was kept has been applied meanwhile; within one it will be.
        table[group.rank, 1] = _GIVEN if process.in_turns else _KEPT
    group.largest(table)
    told = [(int(applied), int(has)) for applied, has in table]
    ahead = max(applied for applied, _ in told)
    if ahead == 0:
        process.replay = []  # of some who are all gone
        if group.rank == 0:
            process.load()
    sources = [rank for rank, (applied, _) in enumerate(told) if applied == ahead]
    new = [rank for rank, (applied, _) in enumerate(told) if applied == 0 and rank != sources[0]]
    behind = [rank for rank, (applied, has) in enumerate(told) if 0 < applied < ahead and has != _GIVEN]
    if new:
        # At the very first step nobody is ahead, but one has looked into the folder.
        givers = _dealt(new, sources if ahead else sources[:1])
        content = deliver(group, givers, lambda: handed(process))
        if content is not None:
            process.put(content, "state of the running processes")
            process.replay = [Given.unpacked(kept) for kept in content["loops"]]
    if behind:
        keepers = [rank for rank in sources if told[rank][1] == _KEPT]
        content = deliver(group, _dealt(behind, keepers), lambda: _kept(process))
        if content is not None:
            process.given = Given.unpacked(content)
    # Nothing is dropped before all have what they lack.
    group.largest(torch.zeros(1, dtype=torch.int64))
    if not process.in_turns or told[group.rank][0] == ahead:
        process.given = None
    process.joined = True


def _kept(process: Process) -> dict[str, Any]:
    given = process.given
    if given is None:  # pragma: no cover - the table says otherwise
        return {}
    return given.packed()


def _dealt(targets: list[int], sources: list[int]) -> dict[int, int]:
    """Who is sent something by whom: those that have it share the work."""
    return {target: sources[number % len(sources)] for number, target in enumerate(targets)}
