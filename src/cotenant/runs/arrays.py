"""One job that stands for many: arrays and sweeps, made into single jobs before they are sent."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from cotenant.errors import ConfigError

__all__ = ["MOST_JOBS", "expand"]

MOST_JOBS = 10_000
"""Jobs that one file or command may stand for."""


def expand(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The single jobs of a job file's fields, in order: the last name of a sweep varies fastest.

    Parameters
    ----------
    body : mapping
        Fields of a job file, checked; ``array`` and ``sweep`` are taken out.

    Raises
    ------
    ConfigError
        If they are too many, or a list of values is empty.

    Examples
    --------
    >>> [job["command"] for job in expand({"name": "a", "command": ["t.py"], "sweep": {"lr": [1, 2]}})]
    [['t.py', '--lr', '1'], ['t.py', '--lr', '2']]
    >>> [(job["name"], job["env"]["COTENANT_ARRAY_INDEX"]) for job in expand({"name": "a", "array": 2})]
    [('a[0]', '0'), ('a[1]', '1')]
    """
    plain = {key: value for key, value in body.items() if key not in ("array", "sweep")}
    sweep: Mapping[str, Any] = body.get("sweep") or {}
    size = int(body.get("array") or 0)
    for name, values in sweep.items():
        if not values:
            raise ConfigError(f"sweep: no values for {name}")
    count = max(size, 1)
    for values in sweep.values():
        count *= len(values)
    if count > MOST_JOBS:
        raise ConfigError(f"{count:,} jobs at once; at most {MOST_JOBS:,}")
    found = [dict(plain)]
    if sweep:
        choices = itertools.product(*([str(v) for v in values] for values in sweep.values()))
        found = [_swept(plain, dict(zip(sweep, chosen, strict=True))) for chosen in choices]
    if size:
        found = [_numbered(job, index, size) for job in found for index in range(size)]
    return found


def _swept(body: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
    command = [str(word) for word in body.get("command", ())]
    name, env = str(body["name"]), dict(body.get("env", {}))
    told = []
    for key, value in chosen.items():
        mark = "{" + key + "}"
        if any(mark in word for word in command):
            command = [word.replace(mark, value) for word in command]
        elif not any(mark in text for text in env.values()):
            command += [f"--{key}", value]
        env = {k: text.replace(mark, value) for k, text in env.items()}
        if mark in name:
            name = name.replace(mark, value)
        else:
            told.append(f"{key}={value}")
    return {**body, "name": " ".join((name, *told)), "command": command, **({"env": env} if env else {})}


def _numbered(body: Mapping[str, Any], index: int, size: int) -> dict[str, Any]:
    env = {
        **body.get("env", {}),
        "COTENANT_ARRAY_INDEX": str(index),
        "COTENANT_ARRAY_SIZE": str(size),
    }
    return {**body, "name": f"{body['name']}[{index}]", "env": env}
