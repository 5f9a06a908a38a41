"""Options of ``simulate`` as they were typed: what may stand together, and what they mean."""

from __future__ import annotations

from typing import Any

import typer

from cotenant.errors import ConfigError

__all__ = ["BESIDE_RUN", "alone", "given_of", "needed", "one_of", "rules"]


def rules(items: list[str], sample: str | None) -> dict[str, Any]:
    """What ``--set`` and ``--sample`` say."""
    from cotenant.app.durations import duration_of
    from cotenant.runs.config import parse_settings

    found = parse_settings(items)
    if sample is not None:
        if "sample_s" in found:
            raise ConfigError(f"--sample {sample} and --set sample_s say the same; give one of them")
        found["sample_s"] = duration_of("--sample", sample, zero=True)
    return found


BESIDE_RUN = {"run_file", "workers", "output", "force", "as_json", "quiet"}
"""Options that do not say what is simulated, so a run file does not hold them."""


def given_of(context: typer.Context, beside: set[str]) -> list[str]:
    """What was typed, besides those parameters, as people know it."""
    return [
        max(parameter.opts, key=len) if parameter.param_type_name == "option" else "the trace"
        for parameter in context.command.params
        if parameter.name not in beside
        and (source := context.get_parameter_source(parameter.name or "")) is not None
        and source.name not in {"DEFAULT", "DEFAULT_MAP", "ENVIRONMENT"}
    ]


def alone(context: typer.Context) -> None:
    """Refuse everything that was typed beside ``--run`` and would be ignored."""
    if given := given_of(context, BESIDE_RUN):
        raise ConfigError(f"--run FILE says it all; leave out {', '.join(given)}, or write it into the file")


def needed(value: str | None, what: str) -> str:
    """A value that must be there."""
    if value is None:
        raise ConfigError(f"give {what}, for example: cotenant simulate jobs.csv --gpus 64 --policy fifo,las")
    return value


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> Any:
    """One of a few words."""
    if value not in allowed:
        raise ConfigError(f"{option} is {' or '.join(allowed)}, found {value!r}")
    return value
