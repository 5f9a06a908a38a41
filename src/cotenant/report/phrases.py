"""Small pieces of sentences about jobs, shared by what explains them."""

from __future__ import annotations

import math
from typing import Any

from cotenant.model.plan import Why
from cotenant.report.rulewords import RULE_WORDS
from cotenant.report.tables import show

__all__ = ["at", "device_range", "facts_in_words", "plural", "rule"]

_MOMENTS = ("_from_s", "_until_s", "_at_s")
"""Ends of the names of facts that are points in time, not durations."""


def at(t: float) -> str:
    """Time since the start of the run, as [days-]hours:minutes:seconds.

    >>> at(90061.5)
    '1-01:01:01'
    """
    days, rest = divmod(int(t), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def facts_in_words(facts: dict[str, Any]) -> str:
    """Names and numbers behind a decision, without its underscores.

    >>> facts_in_words({"price_gpu_s": 5.0, "gpus": 2})
    'price gpu s 5, gpus 2'
    >>> facts_in_words({"reserved_from_s": 90061.5})
    'reserved from 1-01:01:01'
    """
    parts = []
    for key, value in facts.items():
        if isinstance(value, int | float) and key.endswith(_MOMENTS) and math.isfinite(value):
            parts.append(f"{key.removesuffix('_s').replace('_', ' ')} {at(value)}")
            continue
        shown = f"{value:.4g}" if isinstance(value, float) else show(str(value))
        parts.append(f"{key.replace('_', ' ')} {shown}")
    return ", ".join(parts)


def rule(why: Why) -> str:
    """The rule that a policy names for a decision; empty if it names none."""
    numbers = f" ({facts_in_words(why.facts)})" if why.facts else ""
    words = f": {RULE_WORDS[why.rule]}" if why.rule in RULE_WORDS else ""
    return f" Rule: {show(why.rule)}{numbers}{words}." if why.rule else ""


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
