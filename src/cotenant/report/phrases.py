"""Small pieces of sentences about jobs, shared by what explains them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cotenant.model.plan import Why
from cotenant.model.quantities import format_bytes, format_duration
from cotenant.report.rulewords import RULE_WORDS
from cotenant.report.tables import show
from cotenant.report.telling import now_telling

__all__ = ["at", "device_range", "devices_named", "facts_in_words", "leaving", "plural", "rule", "where"]

_MOMENTS = ("_from_s", "_until_s", "_at_s")
"""Ends of the names of facts that are points in time, not durations."""

_UNITS: dict[str, Callable[[float], str]] = {
    "_gpu_s": lambda value: f"{value:.4g} GPU-seconds",
    "_s": format_duration,
    "_bytes": lambda value: format_bytes(int(value)),
    "_percent": lambda value: f"{value:.4g} %",
}
"""How a number reads whose name ends like this; the first that fits."""

_JOBS = ("beside", "with")
"""Facts that are numbers of jobs."""


def at(t: float) -> str:
    """Time since the start of the run, as [days-]hours:minutes:seconds; of what runs now, time of day.

    >>> at(90061.5)
    '1-01:01:01'
    """
    if (telling := now_telling()) is not None:
        return telling.moment(t)
    days, rest = divmod(int(t), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def facts_in_words(facts: dict[str, Any]) -> str:
    """Names and numbers behind a decision, in units that people read.

    >>> facts_in_words({"price_gpu_s": 5.0, "gpus": 2, "waited_s": 848.5})
    'price 5 GPU-seconds, gpus 2, waited 14m 8s'
    >>> facts_in_words({"reserved_from_s": 90061.5, "left_bytes": 1 << 30, "beside": [95, 7]})
    'reserved from 1-01:01:01, left 1,024 MiB, beside jobs 95 and 7'
    >>> facts_in_words({"needs_milli": 500, "limit_milli_before": 305, "needs_cpu_milli": 1500})
    'needs 50 %, limit before 30.5 %, needs cores 1.5'
    """
    return ", ".join(_fact(key, value) for key, value in facts.items())


def _fact(key: str, value: Any) -> str:
    if key in _JOBS and (jobs := _jobs(value)):
        return f"{key} {jobs}"
    if key == "device" and type(value) is int and (telling := now_telling()) is not None:
        return f"device {telling.device(value)}"
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        if "milli" in (parts := key.split("_")):
            return _part(parts, value)
        moment = key.endswith(_MOMENTS)
        for unit, words in _UNITS.items():
            if key.endswith(unit) and key != unit:
                shown = at(value) if moment else words(value)
                return f"{key.removesuffix(unit).replace('_', ' ')} {shown}"
    shown = f"{value:.4g}" if isinstance(value, float) else show(str(value))
    return f"{key.replace('_', ' ')} {shown}"


def _part(words: list[str], milli: float) -> str:
    """Thousandths of a device, or of cores, as people say them."""
    name = " ".join("cores" if word == "cpu" else word for word in words if word != "milli")
    return f"{name} {milli / 1000:g}" if "cpu" in words else f"{name} {milli / 10:g} %"


def _jobs(value: Any) -> str:
    numbers = value if isinstance(value, list | tuple) else [value]
    if not numbers or not all(type(number) is int for number in numbers):
        return ""
    *front, last = map(str, numbers)
    return f"jobs {', '.join(front)} and {last}" if front else f"job {last}"


def rule(why: Why) -> str:
    """The rule that a policy names for a decision; empty if it names none."""
    numbers = f" ({facts_in_words(why.facts)})" if why.facts else ""
    words = f": {RULE_WORDS[why.rule]}" if why.rule in RULE_WORDS else ""
    return f" Rule: {show(why.rule)}{numbers}{words}." if why.rule else ""


def leaving(suspend: bool) -> str:
    """How a job leaves that is told to.

    Of what runs now, some jobs save nothing and begin anew: what was kept is told when it has left.

    >>> leaving(True), leaving(False)
    ('saving its state', 'without saving its state')
    """
    if not suspend:
        return "without saving its state"
    return "saving its state" if now_telling() is None else "to go on later"


def plural(count: int, noun: str) -> str:
    """The count with its noun.

    >>> plural(1, "job"), plural(1200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def device_range(devices: tuple[int, ...]) -> str:
    """Device numbers, a run of more than two as first-last.

    >>> device_range((3, 4, 5)), device_range((0, 2))
    ('3-5', '0, 2')
    """
    if len(devices) > 2 and devices[-1] - devices[0] == len(devices) - 1:
        return f"{devices[0]}-{devices[-1]}"
    return ", ".join(map(str, devices)) or "none"


def devices_named(devices: tuple[int, ...]) -> str:
    """Device numbers with their noun.

    >>> devices_named((3,)), devices_named((3, 4, 5))
    ('device 3', 'devices 3-5')
    """
    if (telling := now_telling()) is not None:
        return telling.devices(devices)
    return f"device{'' if len(devices) == 1 else 's'} {device_range(devices)}"


def where(devices: tuple[int, ...], nodes: int) -> str:
    """Devices, and on how many nodes they are; of this machine, their names.

    >>> where((3, 4, 5), 1)
    'devices 3-5 on 1 node'
    """
    named = devices_named(devices)
    return named if now_telling() is not None else f"{named} on {plural(nodes, 'node')}"
