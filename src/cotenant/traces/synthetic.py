"""Synthetic workloads: any mix of arrival, size and run-time laws, seeded and vectorised.

The preset ``philly-like`` follows what is published about Microsoft's Philly cluster:

- gang sizes, quantiles of running times by gang size, jobs by virtual cluster and weekday, and how
  much submissions an hour vary: measured by us on the 39,536 jobs up to 2017-10-20 of the published
  job list (msr-fiddle/philly-traces, CC-BY-4.0, as reduced in pkusys/ElasticFlow);
- how jobs end: 69.3% passed, 13.5% killed, 17.2% unsuccessful, of 96,260 jobs
  (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
  USENIX ATC 2019, the table of final states).

Chances of retries, users, models and memory are assumptions, and outcomes are drawn independently of size
and run time (in the paper killed jobs use more than their share of GPU time). Reports print these sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from cotenant.errors import ConfigError, InputError
from cotenant.model.quantities import parse_bytes
from cotenant.model.workload import Workload
from cotenant.profiles.kinds import find_kind
from cotenant.traces.base import DataReport
from cotenant.traces.documents import read_document
from cotenant.traces.files import plain_name
from cotenant.traces.finish import finish
from cotenant.traces.options import take_options
from cotenant.traces.synthetic_check import parse_spec
from cotenant.traces.synthetic_draw import Floats, draw_arrivals, draw_choice, draw_law
from cotenant.traces.synthetic_spec import SyntheticSpec
from cotenant.traces.table import LINE, Rows

__all__ = ["SyntheticReader", "generate"]

_STREAMS = ("sizes", "durations", "arrivals", "models", "tenants", "outcomes", "estimates", "extras")


def generate(spec: SyntheticSpec | Mapping[str, Any] | str | None = None, /, **changes: Any) -> Workload:
    """Draw a synthetic workload.

    Parameters
    ----------
    spec : SyntheticSpec, mapping or str, optional
        The description; a text is the name of a preset (``steady``, ``bursty``, ``common-like``,
        ``philly-like``).
    **changes
        Keys of ``SyntheticSpec`` that replace those of ``spec``; tables are merged.

    Returns
    -------
    Workload
        Equal for equal descriptions; ``report.assumptions`` says what was assumed.

    Raises
    ------
    ConfigError, UnknownNameError
        Naming the key, what was found and what is allowed.

    Examples
    --------
    >>> jobs = generate("steady", jobs=3, seed=7)
    >>> jobs.frame["name"].to_list(), jobs.frame["gpus"].to_list()
    (['j0', 'j1', 'j2'], [2, 1, 1])
    """
    if isinstance(spec, SyntheticSpec):
        if changes:
            raise InputError("give changes with a mapping or a preset, or change the SyntheticSpec itself")
        return _draw(spec)
    data = {"preset": spec} if isinstance(spec, str) else dict(spec or {})
    return _draw(parse_spec({**data, **changes}))


class SyntheticReader:
    """Reads the description from a ``.toml`` or ``.yaml`` file with a ``[synthetic]`` table."""

    format: ClassVar[str] = "synthetic"
    title: ClassVar[str] = "Synthetic workload described in TOML or YAML"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if a TOML or YAML file has the table."""
        if not plain_name(path).endswith((".toml", ".yaml", ".yml")):
            return 0.0
        lines = [line.strip() for line in head.decode("utf-8", errors="replace").splitlines()]
        named = any(line.startswith(("[synthetic", "synthetic:", "[[synthetic")) for line in lines)
        return 1.0 if named else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Generate the workload that the file describes.

        Parameters
        ----------
        **options
            ``jobs`` and ``seed`` replace those of the file; ``window`` and ``cpu_jobs`` as for all formats.

        Raises
        ------
        ConfigError
            If the file or a key in it is wrong.
        """
        document = read_document(path)
        table = document.data.get("synthetic")
        others = sorted(set(document.data) - {"synthetic"})
        if not isinstance(table, dict) or others:
            found = ", ".join(document.data) or "nothing"
            raise document.error(f"expected one table [synthetic], found {found}")
        common, own = take_options(self.format, options, {"jobs": "", "seed": ""})
        changed = {key: _whole(key, value) for key, value in own.items() if value != ""}
        spec = parse_spec({**table, **changed}, document, ("synthetic",))
        work = _draw(spec, path=str(path), strict=common.strict)
        if common.window is None and common.cpu_jobs == "keep":
            return work
        numbered = work.frame.with_columns(pl.int_range(1, pl.len() + 1).alias(LINE))
        rows = Rows(numbered, work.report, frozenset(work.frame.columns))
        keep = [c for c in work.frame.columns if c not in {"name", "submit_s", "duration_s"}]
        return finish(rows, common, keep=keep, zero="trace", clock="trace")


def _whole(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InputError(f"option {key} must be a whole number, found {value!r}") from None


def _draw(spec: SyntheticSpec, *, path: str = "", strict: bool = False) -> Workload:
    rngs = {
        name: np.random.Generator(np.random.PCG64(np.random.SeedSequence(spec.seed, spawn_key=(index,))))
        for index, name in enumerate(_STREAMS)
    }
    n = spec.jobs
    size = draw_choice(rngs["sizes"], [entry.weight for entry in spec.sizes], n)
    gpus = np.asarray([entry.gpus for entry in spec.sizes], dtype=np.int64)[size]
    duration = _durations(rngs["durations"], spec, size)
    submit = _submissions(rngs["arrivals"], spec, gpus, duration)
    columns: dict[str, Any] = {
        "name": pl.select(pl.format("j{}", pl.int_range(n))).to_series(),
        "submit_s": submit,
        "duration_s": duration,
        "gpus": gpus,
    }
    columns |= _models(rngs["models"], spec, gpus)
    columns |= _tenants(rngs["tenants"], spec)
    columns |= _outcomes(rngs["outcomes"], spec, duration)
    columns |= _estimates(rngs["estimates"], spec, duration)
    columns |= _extras(rngs["extras"], spec, submit, duration, gpus)
    said = _said(spec)
    report = DataReport(
        format="synthetic",
        path=path or spec.name,
        rows_read=n,
        rows_kept=n,
        time_zone="none",
        strict=strict,
        assumptions=list(said),
    )
    return Workload(pl.DataFrame(columns), name=spec.name, report=report.check(), assumptions=said)


def _said(spec: SyntheticSpec) -> tuple[str, ...]:
    said = (
        f"Synthetic jobs, not observed ones: {spec.jobs} drawn with seed {spec.seed} (numpy PCG64).",
        *spec.assumptions,
    )
    if spec.models:
        said += (f"Each job draws its model, with its memory, from a stated mix of {len(spec.models)}.",)
    return said


def _durations(rng: np.random.Generator, spec: SyntheticSpec, size: Any) -> Floats:
    out = np.empty(size.size)
    for index, entry in enumerate(spec.sizes):
        mine = size == index
        out[mine] = draw_law(rng, entry.duration or spec.duration, int(mine.sum()))
    out = np.clip(out, spec.min_s, spec.max_s)
    return np.floor(out) if spec.whole_seconds else out


def _submissions(rng: np.random.Generator, spec: SyntheticSpec, gpus: Any, duration: Floats) -> Floats:
    arrivals, n = spec.arrivals, spec.jobs
    gap = arrivals.mean_gap_s or 0.0
    if arrivals.load is not None and arrivals.gpus is not None and n:
        gap = float((gpus * duration).sum()) / n / (arrivals.load * arrivals.gpus)
        if not gap > 0:
            raise ConfigError(
                "the jobs drawn need no GPU time, so load cannot set their arrivals; give mean_gap_s"
            )
    submit = draw_arrivals(rng, arrivals, gap, n)
    return np.floor(submit) if spec.whole_seconds else submit


def _models(rng: np.random.Generator, spec: SyntheticSpec, gpus: Any) -> dict[str, Any]:
    if not spec.models:
        return {}
    weights = np.asarray([m.weight for m in spec.models])
    alone = [kind is not None and not kind.multi_gpu for kind in (find_kind(m.name) for m in spec.models)]
    gang = np.where(alone, 0.0, weights)
    # Gangs get models that run on several devices, if the mix has any.
    single = draw_choice(rng, weights, spec.jobs)
    several = draw_choice(rng, gang if gang.sum() > 0 else weights, spec.jobs)
    drawn = pl.Series(np.where(gpus > 1, several, single))
    out: dict[str, Any] = {
        "model": pl.Series([m.name for m in spec.models]).gather(drawn),
        "memory_bytes": pl.Series([parse_bytes(m.memory) for m in spec.models]).gather(drawn),
    }
    if any(m.compute_milli != 1000 for m in spec.models):
        out["compute_milli"] = pl.Series([m.compute_milli for m in spec.models]).gather(drawn)
    return out


def _tenants(rng: np.random.Generator, spec: SyntheticSpec) -> dict[str, Any]:
    if not spec.tenants:
        return {}
    drawn = draw_choice(rng, [t.weight for t in spec.tenants], spec.jobs)
    users = np.asarray([t.users for t in spec.tenants])[drawn]
    number = np.floor(rng.random(spec.jobs) * users).astype(np.int64)
    tenant = pl.Series([t.name for t in spec.tenants]).gather(pl.Series(drawn))
    frame = pl.DataFrame({"tenant": tenant, "number": number})
    user = frame.select(pl.format("{}-u{}", "tenant", "number").alias("user"))["user"]
    return {"tenant": tenant, "user": user}


def _outcomes(rng: np.random.Generator, spec: SyntheticSpec, duration: Floats) -> dict[str, Any]:
    what, n = spec.outcomes, spec.jobs
    draw = rng.random(n)
    code = np.where(draw < what.failed, 1, np.where(draw < what.failed + what.cancelled, 2, 0))
    out: dict[str, Any] = {}
    if what.failed or what.cancelled:
        out["outcome"] = pl.Series(["done", "failed", "cancelled"]).gather(pl.Series(code))
    if not (what.retry or what.retry_failed) or not what.max_retries:
        return out
    again = np.where(code == 1, what.retry_failed, what.retry)
    # Tries before the last one: consecutive successes of the coin "once more".
    coins = rng.random((what.max_retries, n)) < again
    count = np.cumprod(coins, axis=0).sum(axis=0)
    job = np.repeat(np.arange(n), count)
    lost = duration[job] * rng.random(job.size) * what.retry_fraction
    grouped = pl.DataFrame({"job": job, "lost": lost}).group_by("job", maintain_order=True).agg("lost")
    every = pl.DataFrame({"job": np.arange(n)}).join(grouped, on="job", how="left", maintain_order="left")
    empty = pl.lit([], dtype=pl.List(pl.Float64))
    out["failed_after_s"] = every.select(pl.col("lost").fill_null(empty))["lost"]
    return out


def _estimates(rng: np.random.Generator, spec: SyntheticSpec, duration: Floats) -> dict[str, Any]:
    what, n = spec.estimate, spec.jobs
    if what is None:
        return {}
    noisy = duration * what.factor * np.exp(what.sigma * rng.standard_normal(n))
    if what.limit:
        noisy = np.maximum(noisy, duration)
    rounded = np.ceil(np.minimum(noisy, 1e12) / what.round_s) * what.round_s
    return {"estimate_s": np.where(rng.random(n) < what.share, rounded, 0.0)}


def _extras(
    rng: np.random.Generator, spec: SyntheticSpec, submit: Floats, duration: Floats, gpus: Any
) -> dict[str, Any]:
    n = spec.jobs
    sharing, way, elastic, due, slack = (rng.random(n) for _ in range(5))
    out: dict[str, Any] = {}
    if spec.sharing:
        edges = np.cumsum(list(spec.sharing.values()))
        index = np.minimum(np.searchsorted(edges, sharing * edges[-1], side="right"), edges.size - 1)
        out["sharing"] = pl.Series(list(spec.sharing)).gather(pl.Series(index))
    if spec.opportunistic:
        index = (way < spec.opportunistic).astype(np.int64)
        out["job_class"] = pl.Series(["guaranteed", "opportunistic"]).gather(pl.Series(index))
    if spec.elastic:
        chosen = (elastic < spec.elastic) & (gpus > 0)
        out["min_gpus"] = np.where(chosen, np.maximum(1, gpus // 2), 0)
        out["max_gpus"] = np.where(chosen, gpus * 2, 0)
    if spec.deadline:
        low, high = spec.deadline_slack
        end = submit + duration * (1 + low + (high - low) * slack)
        out["deadline_s"] = np.where(due < spec.deadline, end, 0.0)
    return out
