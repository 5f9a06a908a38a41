"""The first event of a turn in which two runs differ, and the module that it speaks of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cotenant.elastic.calls import GRADIENT, INPUT, KINDS, OUTPUT, RANDOM, SCRIPT

__all__ = ["Found", "first", "places"]

_WORDS = {INPUT: "input", OUTPUT: "output", GRADIENT: "gradient of the output", RANDOM: "random numbers"}


class Found(NamedTuple):
    """An event in which two turns differ.

    Attributes
    ----------
    module : str, optional
        None: outside of the model.
    what : str
    evidence : str
    random : bool
        Random numbers were drawn in one run, and not, or others, in the other.
    """

    module: str | None
    what: str
    evidence: str
    random: bool = False


class _Event(NamedTuple):
    module: str
    kind: int
    digest: int

    def __str__(self) -> str:
        return f"{_WORDS[self.kind]} of {_title(self.module)}"


def _title(name: str) -> str:
    return {"": "the model", SCRIPT: "the script"}.get(name, name)


def _read(modules: Sequence[str], events: Sequence[int]) -> Iterator[_Event]:
    for code, digest in zip(events[::2], events[1::2], strict=True):
        number, kind = divmod(code, KINDS)
        yield _Event(modules[number] if number < len(modules) else f"module {number}", kind, digest)


def places(modules: Sequence[str], events: Sequence[int]) -> dict[str, int]:
    """When modules were called, by name: 0 the first."""
    found: dict[str, int] = {}
    for event in _read(modules, events):
        if event.kind == INPUT:
            found.setdefault(event.module, len(found))
    return found


def first(
    names_a: Sequence[str],
    events_a: Sequence[int],
    names_b: Sequence[str],
    events_b: Sequence[int],
    *,
    outputs: bool = False,
) -> Found | None:
    """The first difference in the order of time; None if there is none.

    Parameters
    ----------
    names_a, names_b : sequence of str
        Of modules, in the numbering of events.
    events_a, events_b : sequence of int
    outputs : bool
        Look at nothing but outputs of modules.
    """
    one, other = list(_read(names_a, events_a)), list(_read(names_b, events_b))
    if outputs:
        one, other = ([e for e in events if e.kind == OUTPUT] for events in (one, other))
    behind: _Event | None = None
    for left, right in itertools.zip_longest(one, other):
        if left != right:
            return _found(left, right, behind)
        behind = left if left is not None and left.kind == GRADIENT else behind
    return None


def _found(left: _Event | None, right: _Event | None, behind: _Event | None) -> Found:
    """What a difference means; ``behind`` is the last gradient before it, of a module called later."""
    event = left or right
    if event is None:  # pragma: no cover - they differ, so one of them is there
        raise ValueError("two events that are not there")
    if left is None or right is None or left[:2] != right[:2]:
        drawn = next((e for e in (left, right) if e is not None and e.kind == RANDOM), None)
        if drawn is not None:
            title = _title(drawn.module)
            why = f"one run drew some in {title}'s own code, and the other did not"
            return Found(_owner(drawn), f"random numbers of {title}", why, True)
        texts = ["nothing" if e is None else f"the {e}" for e in (left, right)]
        return Found(
            _owner(event), str(event), f"the runs took different ways: next came {texts[0]} and {texts[1]}"
        )
    if event.kind == RANDOM:
        title = _title(event.module)
        return Found(
            _owner(event), str(event), f"the generator differs after what {title}'s own code drew", True
        )
    if event.kind == INPUT:
        # All that came before is the same: whoever called the module computed its input.
        caller = None if event.module == "" else event.module.rpartition(".")[0]
        by = "the script" if caller is None else f"{_title(caller)}'s own code"
        return Found(
            None if caller is None else _title(caller),
            str(event),
            f"first the {event} differs, which {by} computes",
        )
    if event.kind == GRADIENT:
        owner = None if behind is None else _owner(behind)
        by = (
            "the loss, or what the script does with it" if behind is None else f"the backward pass of {owner}"
        )
        return Found(
            owner, str(event), f"all outputs are the same; first the {event} differs, which comes from {by}"
        )
    return Found(_owner(event), str(event), f"first the {event} differs, its input is the same")


def _owner(event: _Event) -> str | None:
    return None if event.module == SCRIPT else _title(event.module)
