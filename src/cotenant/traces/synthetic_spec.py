"""What a synthetic workload is made of: the description.

``docs/workloads.md`` explains each key. Units are in the names; weights need not sum to 1.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cotenant.model.jobs import Sharing

__all__ = [
    "MAX_JOBS",
    "Arrivals",
    "Cycle",
    "Estimate",
    "Fixed",
    "HyperExponential",
    "Law",
    "Lognormal",
    "Mix",
    "ModelShare",
    "Outcomes",
    "Pareto",
    "Part",
    "Quantiles",
    "Size",
    "SyntheticSpec",
    "TenantShare",
]

MAX_JOBS = 20_000_000


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Fixed(_Strict, frozen=True, tag_field="kind", tag="fixed"):
    """Every job runs ``value_s``."""

    value_s: float


class Lognormal(_Strict, frozen=True, tag_field="kind", tag="lognormal"):
    """exp(N(ln ``median_s``, ``sigma``)): skewed, all moments finite."""

    median_s: float
    sigma: float


class HyperExponential(_Strict, frozen=True, tag_field="kind", tag="hyper-exponential"):
    """An exponential whose mean is drawn from ``means_s`` with ``weights``."""

    means_s: tuple[float, ...]
    weights: tuple[float, ...]


class Pareto(_Strict, frozen=True, tag_field="kind", tag="pareto"):
    """P(X > x) = (``min_s`` / x) ** ``alpha``; for ``alpha`` up to 1 the mean is infinite unless clipped."""

    min_s: float
    alpha: float


class Quantiles(_Strict, frozen=True, tag_field="kind", tag="quantiles"):
    """A measured distribution: ``values_s`` at probabilities ``p``, log-linear between them."""

    p: tuple[float, ...]
    values_s: tuple[float, ...]


class Part(_Strict, frozen=True):
    """One part of a mix."""

    weight: float
    law: Fixed | Lognormal | HyperExponential | Pareto | Quantiles


class Mix(_Strict, frozen=True, tag_field="kind", tag="mix"):
    """Each job draws its law from ``parts``: a body and a heavy tail, for example."""

    parts: tuple[Part, ...]


Law = Fixed | Lognormal | HyperExponential | Pareto | Quantiles | Mix


class Cycle(_Strict, frozen=True):
    """Relative arrival rates by hour of day (24) and day of week (7); time 0 is a Monday, 00:00."""

    hours: tuple[float, ...] = (1.0,) * 24
    days: tuple[float, ...] = (1.0,) * 7


class Arrivals(_Strict, frozen=True):
    """When jobs are submitted.

    Parameters
    ----------
    kind : {"poisson", "fixed", "gamma", "bursty", "at-once"}
        Exponential gaps; equal gaps; gamma gaps of coefficient of variation ``cv``; a
        Markov-modulated Poisson process; all at time 0.
    mean_gap_s : float
        Mean time between submissions.
    load, gpus : float, int
        Instead of ``mean_gap_s``: the GPU-seconds drawn, divided by ``load`` x ``gpus``, is the span.
    cv : float
        Of the gaps, for ``gamma``; above 1 is burstier than Poisson.
    burst_factor, burst_s, calm_s : float
        For ``bursty``: how much faster jobs come in a burst, and mean lengths of both states.
    cycle : Cycle, optional
        Daily and weekly rhythm on top of any kind but ``at-once``.
    """

    kind: Literal["poisson", "fixed", "gamma", "bursty", "at-once"] = "poisson"
    mean_gap_s: float | None = None
    load: float | None = None
    gpus: int | None = None
    cv: float | None = None
    burst_factor: float | None = None
    burst_s: float | None = None
    calm_s: float | None = None
    cycle: Cycle | None = None


class Size(_Strict, frozen=True):
    """A gang size, how common it is, and its own run-time law if it has one."""

    gpus: int
    weight: float = 1.0
    duration: Law | None = None


class ModelShare(_Strict, frozen=True):
    """A model, how common it is, and its peak memory on each device (``"6GiB"``)."""

    name: str
    weight: float = 1.0
    memory: str = "0B"
    compute_milli: int = 1000


class TenantShare(_Strict, frozen=True):
    """A tenant, how many jobs it submits, and how many users it has."""

    name: str
    weight: float = 1.0
    users: int = 1


class Outcomes(_Strict, frozen=True):
    """How jobs end, and failed attempts before that.

    ``retry`` is the chance of one more failed attempt before the last one, up to
    ``max_retries``; such an attempt lasts a uniform fraction, up to ``retry_fraction``, of the run time.
    """

    failed: float = 0.0
    cancelled: float = 0.0
    retry: float = 0.0
    retry_failed: float = 0.0
    max_retries: int = 3
    retry_fraction: float = 1.0


class Estimate(_Strict, frozen=True):
    """What owners say about run times: true time x exp(N(ln ``factor``, ``sigma``)), for a ``share`` of jobs.

    ``limit`` makes it a limit: never below the true time. Rounded up to ``round_s``.
    """

    share: float = 1.0
    factor: float = 1.0
    sigma: float = 0.0
    limit: bool = False
    round_s: float = 1.0


class SyntheticSpec(_Strict, frozen=True):
    """A synthetic workload.

    Parameters
    ----------
    jobs : int
    seed : int
        Of PCG64; each ingredient has its own stream, so changing one leaves the others alone.
    name : str
    arrivals, sizes, duration, models, tenants, outcomes, estimate
        The ingredients, above.
    min_s, max_s : float
        Clip run times.
    whole_seconds : bool
        Cut times to whole seconds.
    sharing : mapping
        Weights of sharing modes.
    opportunistic, elastic, deadline : float
        Shares of jobs that give way first; that may use half to twice their devices; that
        have a deadline at submission + run time x (1 + U(``deadline_slack``)).
    assumptions : tuple of str
        Sentences to print with every report.
    """

    jobs: int = 1000
    seed: int = 0
    name: str = "synthetic"
    arrivals: Arrivals = Arrivals(mean_gap_s=60.0)
    sizes: tuple[Size, ...] = (Size(gpus=1),)
    duration: Law = Lognormal(median_s=1800.0, sigma=1.5)
    min_s: float = 1.0
    max_s: float = 30 * 86400.0
    whole_seconds: bool = False
    models: tuple[ModelShare, ...] = ()
    tenants: tuple[TenantShare, ...] = ()
    outcomes: Outcomes = Outcomes()
    estimate: Estimate | None = None
    sharing: dict[Sharing, float] = {}
    opportunistic: float = 0.0
    elastic: float = 0.0
    deadline: float = 0.0
    deadline_slack: tuple[float, float] = (0.5, 2.0)
    assumptions: tuple[str, ...] = ()
