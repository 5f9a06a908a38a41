"""The part of the report that says where its numbers come from and how to repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from cotenant.report.page import Html, el, join, tabular
from cotenant.report.rundir import Run
from cotenant.report.tables import cell

__all__ = ["provenance"]


def provenance(manifest: dict[str, Any], policies: dict[str, list[Run]]) -> Html:
    """Command, versions, inputs with hashes, assumptions, data report, settings."""
    command = manifest.get("command")
    text = shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")
    parts: list[Html] = []
    if text:
        parts += [el("p", "Repeat it with:", class_="note"), el("pre", text)]
    else:
        parts.append(el("p", "The directory has no manifest with the command that made it.", class_="note"))
    assumptions = [str(a) for a in manifest.get("assumptions") or []]
    parts.append(_assumptions(assumptions))
    parts.append(_evidence(policies))
    reports = manifest.get("data_report") or []
    for report in reports if isinstance(reports, list) else [reports]:
        parts.append(_data(report))
    parts.append(_block("Versions and inputs", _versions(manifest, policies)))
    parts.append(_settings(manifest))
    return join(parts)


def _block(title: str, *inside: Html, is_open: bool = False) -> Html:
    extra = {"open": ""} if is_open else {}
    return el("details", el("summary", title), *inside, **extra)


def _assumptions(assumptions: Sequence[str]) -> Html:
    if not assumptions:
        return _block("Assumptions", el("p", "None recorded.", class_="note"))
    return _block("Assumptions", el("ul", *(el("li", a) for a in assumptions), class_="plain"), is_open=True)


def _evidence(policies: dict[str, list[Run]]) -> Html:
    runs = [(f"{name}, seed {run.seed}", run) for name, own in policies.items() for run in own]
    known = [(label, run.metrics.summary.get("speeds_by_source")) for label, run in runs]
    sources = sorted({source for _, shares in known for source in shares or {}})
    rows = [
        (label, *(cell(shares.get(s, 0.0), "x_share") for s in sources)) for label, shares in known if shares
    ]
    if not rows:
        return _block(
            "Measured or modelled interference", el("p", "n/a: the runs did not record it.", class_="note")
        )
    heads = ("Run", *(f"{s} (share of GPU-hours run)" for s in sources))
    return _block("Measured or modelled interference", tabular("Sources of co-run speeds", heads, rows))


def _data(report: Any) -> Html:
    if not isinstance(report, dict):
        return Html("")
    facts = [
        ("Format", report.get("format")),
        ("File", report.get("path")),
        ("Rows read", report.get("rows_read")),
        ("Rows kept", report.get("rows_kept")),
        ("Time zone", report.get("time_zone")),
        ("Units", report.get("units")),
        *((f"Demand: {k}", v) for k, v in (report.get("oversubscription") or {}).items()),
    ]
    rows = []
    for kind in ("dropped", "repaired", "flagged", "not_simulated"):
        for finding in report.get(kind) or []:
            line = finding.get("example_line")
            example = f"line {line}" if line is not None else ""
            rows.append(
                (kind.replace("_", " "), str(finding.get("reason", "")), cell(finding.get("rows")), example)
            )
    inner = [_facts(facts)]
    if rows:
        heads = ("What", "Why", "Rows", "For example")
        inner.append(tabular("Rows that were not used as they were", heads, rows, text_columns=2))
    notes = [str(a) for a in report.get("assumptions") or []]
    if notes:
        inner.append(el("ul", *(el("li", a) for a in notes), class_="plain"))
    title = f"Data report: {cell(report.get('rows_read'))} rows read, {cell(report.get('rows_kept'))} kept"
    return _block(title, *inner, is_open=True)


def _facts(pairs: Sequence[tuple[str, Any]]) -> Html:
    shown = [(name, value) for name, value in pairs if value is not None and value != ""]
    return el(
        "dl", *(el(tag, text) for name, value in shown for tag, text in (("dt", name), ("dd", cell(value))))
    )


def _versions(manifest: dict[str, Any], policies: dict[str, list[Run]]) -> Html:
    versions = manifest.get("versions") or {}
    own = manifest.get("version") or next(iter(policies.values()))[0].metrics.summary.get("version")
    pairs: list[tuple[str, Any]] = [("cotenant", own), *versions.items()]
    for entry in _inputs(manifest.get("inputs")):
        pairs.append((str(entry.get("path", "input")), f"sha256 {entry.get('sha256', 'n/a')}"))
    for name, runs in policies.items():
        seeds = ", ".join(str(r.seed) for r in runs)
        pairs.append((f"Seeds of {name}", seeds))
    for run in manifest.get("runs") or []:
        if isinstance(run, dict) and run.get("log_sha256"):
            pairs.append(
                (f"Log of {run.get('policy')}, seed {run.get('seed')}", f"sha256 {run['log_sha256']}")
            )
    return _facts(pairs)


def _inputs(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, dict):
        return [{"path": k, **(v if isinstance(v, dict) else {"sha256": v})} for k, v in found.items()]
    return [e for e in found or [] if isinstance(e, dict)]


def _settings(manifest: dict[str, Any]) -> Html:
    pairs = list(_flat("", manifest.get("settings") or {}))
    for policy, values in (manifest.get("params") or {}).items():
        pairs += [(f"{policy}: {k}", v) for k, v in _flat("", values if isinstance(values, dict) else {})]
    if not pairs:
        return _block("Settings", el("p", "None recorded.", class_="note"))
    return _block(
        "Settings", tabular("Settings", ("Setting", "Value"), [(k, str(v)) for k, v in pairs], text_columns=2)
    )


def _flat(prefix: str, values: dict[str, Any]) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            out += _flat(f"{prefix}{key}.", value)
        else:
            out.append((prefix + key, value))
    return out
