"""Where two logs of digests part, and what that speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cotenant.elastic import events
from cotenant.elastic.logs import Key, Log
from cotenant.errors import InputError

__all__ = ["ADVICE", "Difference", "compare", "incomparable", "missing"]

ADVICE = {
    "state": "find what changed it outside of a step: a resume, code between steps, or how the model was made",
    "loader": "compare data set, its order, shuffle, seed, and what a sample draws",
    "rng": "look for manual_seed, a generator of your own, or more or fewer draws in that module",
    "kernel": "compare threads, versions, devices, deterministic kernels and precision, and that module's code",
    "reduction": "compare order=, max_processes, and what changes .grad between backward and the end of the loop",
    "optimiser": "compare learning rate, schedule, clipping, scaler, and the optimiser's options",
}
"""What to look at, by cause."""
_SAME = ("logical workers", "samples", "batch size of a worker")
"""Runs that differ in one of these have no step in common."""
_TOLD = 8
"""So many settings are told with their values."""


class Difference(NamedTuple):
    """Where two runs part.

    Attributes
    ----------
    step : int
    worker : int, optional
        None where it is none's: the sum, the update.
    cause : {"state", "loader", "rng", "kernel", "reduction", "optimiser"}
    module : str, optional
        Where it shows first, in the order of execution; ``the model`` for code of its outermost module.
    tensors : list of str
        What differs first, and what else of its kind.
    evidence : str
    """

    step: int
    worker: int | None
    cause: str
    module: str | None
    tensors: list[str]
    evidence: str


def incomparable(a: Log, b: Log) -> list[str]:
    """Why nothing can be learnt from comparing these; empty if something can."""
    found = [
        f"{name}: {a.identity.get(name, 'none')} and {b.identity.get(name, 'none')}"
        for name in _SAME
        if a.identity.get(name) != b.identity.get(name)
    ]
    one, other = (dict(zip(log.parameters, log.types, strict=True)) for log in (a, b))
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    if names:
        first = f"{names[0]}: {one.get(names[0], 'not there')} and {other.get(names[0], 'not there')}"
        found.append(f"parameters: {len(names)} are not the same, {first}")
    if not found and not set(a.steps) & set(b.steps):
        found.append(f"no step in common: {_span(a)} and {_span(b)}")
    return found


def missing(a: Log, b: Log) -> list[str]:
    """What only one of two logs has of the steps that both know."""
    found = []
    for step in sorted(set(a.steps) & set(b.steps)):
        there, here = ({key for key in log.records if key[0] == step} for log in (a, b))
        lost = [
            (name, key) for name, keys in (("first", here - there), ("second", there - here)) for key in keys
        ]
        for name, key in sorted(lost):
            what = f"of logical worker {key[3]}" if key[1] == "turn" else f"of kind {key[1]!r}"
            # A step that begins where the log of another life begins has a state before it.
            if key[1] != "before":
                found.append(f"step {step}: the {name} run has no record {what}")
    return found


def compare(a: Log, b: Log) -> Difference | None:
    """The first difference; None if everything that both know is the same.

    Raises
    ------
    InputError
        If they cannot be compared.
    """
    reasons = incomparable(a, b)
    if reasons:
        raise InputError(f"these runs cannot be compared: {'; '.join(reasons)}")
    steps = sorted(set(a.steps) & set(b.steps))
    for step in steps:
        found = _state(step, a, b, begin=step == steps[0])
        for part in sorted({*a.parts(step), *b.parts(step)}):
            found = found or _turns(step, part, a, b) or _sum(step, part, a, b) or _updates(step, part, a, b)
        found = found or _after(step, a, b)
        if found is not None:
            return found
    return None


def _span(log: Log) -> str:
    return f"steps {log.steps[0]} to {log.steps[-1]}"


def _differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [name for name in {**a, **b} if a.get(name) != b.get(name)]


def _of(names: list[str]) -> str | None:
    """The module of the first tensor."""
    return (names[0].rpartition(" of ")[2].rpartition(".")[0] or "the model") if names else None


class _Pair(NamedTuple):
    """The same record of both runs."""

    a: Log
    one: Mapping[str, Any]
    b: Log
    other: Mapping[str, Any]

    @classmethod
    def of(cls, a: Log, b: Log, key: Key) -> _Pair | None:
        """None if one of them is not there."""
        return cls(a, a.records[key], b, b.records[key]) if key in a.records and key in b.records else None

    def plain(self, field: str) -> list[str]:
        """Names of what differs in a mapping."""
        return _differ(self.one[field], self.other[field])

    def listed(self, field: str) -> list[str]:
        """The same of a list of digests."""
        return _differ(self.a.named(self.one, field), self.b.named(self.other, field))

    def optimizers(self) -> list[str]:
        """The same of the state of all optimisers."""
        found = []
        one, other = self.one["optimizer"], self.other["optimizer"]
        for name in {**one, **other}:
            if name in one and name in other:
                found += _differ(self.a.optimizer(one[name]), self.b.optimizer(other[name]))
            else:
                found.append(f"optimiser {name!r}")
        return found

    def settings(self) -> dict[str, str]:
        """What optimisers, schedules and scalers are set to otherwise, by ``lr of optimizer group 0``, with both values."""
        one, other = self.one["settings"], self.other["settings"]
        found = {}
        for label in {**one, **other}:
            there, here = one.get(label), other.get(label)
            if there is None or here is None:
                found[label] = f"{label}: only in the {'second' if there is None else 'first'} run"
                continue
            for name in _differ(there, here):
                values = f"{there.get(name, 'none')} and {here.get(name, 'none')}"
                found[f"{name} of {label}"] = f"{name} of {label} {values}"
        return found

    def event(self, *, outputs: bool = False) -> events.Found | None:
        """The first event of a turn that differs."""
        given = (self.a.modules, self.one["events"], self.b.modules, self.other["events"])
        return events.first(*given, outputs=outputs)


def _state(step: int, a: Log, b: Log, *, begin: bool) -> Difference | None:
    one, other = a.before(step), b.before(step)
    if one is None or other is None:
        return None
    pair = _Pair(a, one, b, other)
    why = "differ before the step, and nothing was seen to differ earlier"
    for field in ("parameters", "buffers"):
        names = pair.listed(field)
        if names:
            return Difference(step, None, "state", _of(names), names, f"{field} {why}")
    names = pair.optimizers()
    if names:
        return Difference(step, None, "state", _of(names), names, f"the optimiser's state: it {why}")
    names = pair.plain("rest")
    if not names or one["step"] != other["step"] or one["when"] != other["when"]:
        return None
    settings = pair.settings()
    if begin and all(name.startswith(("scheduler", "scaler")) for name in names):
        told = f"parameters and buffers are the same before the step{_set(settings)}"
        return Difference(step, None, "optimiser", None, list(settings) or names, told)
    why = "what is kept beside model and optimiser: it differs before the step, and nothing was seen to differ earlier"
    return Difference(step, None, "state", None, names, why + _set(settings))


def _set(settings: Mapping[str, str]) -> str:
    texts = list(settings.values())
    more = f", and {len(texts) - _TOLD} more" if len(texts) > _TOLD else ""
    return f"; settings differ: {', '.join(texts[:_TOLD])}{more}" if texts else ""


def _turns(step: int, part: int, a: Log, b: Log) -> Difference | None:
    for worker in sorted(a.workers(step, part) & b.workers(step, part)):
        pair = _Pair.of(a, b, (step, "turn", part, worker))
        found = None if pair is None else _given(step, worker, pair) or _done(step, worker, pair)
        if found is not None:
            return found
    return None


def _given(step: int, worker: int, pair: _Pair) -> Difference | None:
    """What the worker was given."""
    one, other = pair.one, pair.other
    names = pair.plain("batch")
    if names:
        if one["samples"] != other["samples"]:
            why = f"other samples were read: {_few(one['samples'])} and {_few(other['samples'])}"
        else:
            why = f"the same samples were read ({_few(one['samples'])}), and their content differs"
        return Difference(step, worker, "loader", None, names, f"parameters are the same; {why}")
    names = pair.plain("before")
    if names:
        shown = pair.event(outputs=True)
        why = f"batches are the same, the random generator {names[0]} differs before the turn"
        if shown is not None:
            why += f"; it shows first in {shown.what}"
        tensors = [shown.what] if shown is not None else names
        return Difference(step, worker, "rng", None if shown is None else shown.module, tensors, why)
    names = pair.listed("buffers")
    if names:
        return Difference(
            step, worker, "state", _of(names), names, "the worker's buffers differ before its turn"
        )
    return None


def _done(step: int, worker: int, pair: _Pair) -> Difference | None:
    """What came of it."""
    drawn, found = pair.plain("after"), pair.event()
    if found is not None and (found.random or (drawn and drawn != ["torch"])):
        # Drawn by the script itself, it shows in some module; else it is that of the module that drew.
        shown = (pair.event(outputs=True) if found.module is None else None) or found
        why = "the same before the turn; within it other random numbers were drawn"
        if drawn and drawn != ["torch"]:
            why += f" ({', '.join(drawn)})"
        return Difference(step, worker, "rng", shown.module, [shown.what], f"{why}: {found.evidence}")
    if found is not None:
        why = "batch, parameters, buffers and random numbers are the same"
        return Difference(step, worker, "kernel", found.module, [found.what], f"{why}; {found.evidence}")
    if drawn:
        why = (
            "all modules did the same; after the turn the random generators differ: more or fewer were drawn"
        )
        return Difference(step, worker, "rng", None, drawn, why)
    for names, what in (
        (pair.listed("left"), "buffers"),
        (_backward(pair), "gradients"),
        (pair.plain("notes"), "noted numbers"),
    ):
        if names:
            module = None if what == "noted numbers" else _of(names)
            why = f"what goes into and comes out of all modules is the same, {what} differ"
            return Difference(step, worker, "kernel", module, names, why)
    return None


def _backward(pair: _Pair) -> list[str]:
    """Gradients that differ, in the order of the backward pass: it begins with what forward ended with."""
    since = pair.one["since"]
    if since is None or since != pair.other["since"]:
        return []  # sums over other workers
    order = events.places(pair.a.modules, pair.one["events"])
    place = {name: order.get(name.rpartition(".")[0], len(order)) for name in pair.a.parameters}
    return sorted(pair.listed("gradients"), key=lambda name: -place.get(name, 0))


def _few(samples: Any) -> str:
    if samples is None:
        return "not known which"
    return ", ".join(str(one) for one in samples[:6]) + (", ..." if len(samples) > 6 else "")


def _sum(step: int, part: int, a: Log, b: Log) -> Difference | None:
    pair = _Pair.of(a, b, (step, "sum", part, 0))
    names = [] if pair is None else pair.listed("gradients")
    if not names:
        return None
    there, here = a.workers(step, part), b.workers(step, part)
    why = "each worker's turn is the same, the mean of their gradients differs"
    if there != here:
        why += f" (only one of the two runs has a record of logical workers {sorted(there ^ here)})"
    return Difference(step, None, "reduction", _of(names), names, why)


def _updates(step: int, part: int, a: Log, b: Log) -> Difference | None:
    keys = [key for key in sorted({**a.records, **b.records}) if key[:3] == (step, "update", part)]
    for key in keys:
        pair = _Pair.of(a, b, key)
        if pair is None:
            which = "first" if key in a.records else "second"
            if (step, "after", 0, 0) in a.records and (step, "after", 0, 0) in b.records:
                why = f"the mean gradient is the same, and only the {which} run made a step with it"
                return Difference(step, None, "optimiser", None, ["optimizer.step()"], why)
            continue
        found = _update(step, pair)
        if found is not None:
            return found
    return None


def _update(step: int, pair: _Pair) -> Difference | None:
    settings = "; ".join(
        f"group {number}: {name} {left.get(name, 'none')} and {right.get(name, 'none')}"
        for number, (left, right) in enumerate(
            zip(pair.one["settings"], pair.other["settings"], strict=False)
        )
        for name in _differ(left, right)
    )
    settings = settings and f"; settings differ: {settings}"
    names = pair.listed("gradients")
    if names:
        why = "the mean gradient is the same; what optimizer.step() was given is not: clipping, scaling, or the script"
        return Difference(step, None, "optimiser", _of(names), names, why + settings)
    state = _differ(pair.a.optimizer(pair.one["state"]), pair.b.optimizer(pair.other["state"]))
    names = pair.listed("parameters") + state
    if names:
        why = "the gradient that optimizer.step() was given is the same, what it made of it is not"
        return Difference(step, None, "optimiser", _of(names), names, why + settings)
    return None


def _after(step: int, a: Log, b: Log) -> Difference | None:
    pair = _Pair.of(a, b, (step, "after", 0, 0))
    if pair is None:
        return None
    seen = any(k[:2] == (step, "update") for k in a.records)
    for field in ("parameters", "buffers"):
        names = pair.listed(field)
        if names and seen:
            why = f"{field} were the same after optimizer.step(), and differ at the end of the step: the script changed"
            return Difference(step, None, "state", _of(names), names, f"{why} them")
        if names:
            why = f"the mean gradient is the same, {field} at the end of the step are not"
            return Difference(step, None, "optimiser", _of(names), names, why)
    names = pair.optimizers() + pair.plain("rest")
    if names:
        why = "parameters are the same at the end of the step; state of the optimiser, schedule or scaler is not"
        return Difference(step, None, "optimiser", None, names, why + _set(pair.settings()))
    return None
