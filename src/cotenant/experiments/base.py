"""The contract of an experiment that re-creates a published one.

One module for each experiment, one line in ``catalogue.EXPERIMENTS``. A class with

- ``name``, ``title``: what ``cotenant reproduce NAME`` and the page call it;
- ``paper``: what the publication did and says, in sentences; ``source``: where that can be read;
- ``reconstruction``: what the publication leaves open and we had to choose, in sentences;
- ``claims``: every number compared, see ``Claim``; a claim that cannot be measured here is listed,
  too, with ``unmeasured`` saying why;
- ``policies``: label to policy specification (``"fifo"``, ``"horus:variant=fair"``), where it simulates;
- ``measure(seed, place) -> Measured``: everything measured with one seed. Equal arguments give
  equal values, timings (``Claim.volatile``) aside; seeds are independent and run in processes of
  their own, so nothing is kept on ``self``.

``place.pick(full, quick, tiny)`` scales the work: *full* is what is reported (minutes for all seeds
together, on two cores), *quick* shows the same in a fraction, *tiny* is for tests (a second or two)
and only has to work. ``place.data`` is the folder of measured tables and traces, or None; an experiment
that cannot do without raises ``place.need("interference")``, which says so.

An experiment that simulates policies side by side subclasses ``Comparison`` (see ``harmony``): it
says ``prepared(seed, place)`` and ``values(runs)``, and gets the table of policies for nothing.

Honesty: parameters are those of the paper or of common sense, never tuned until the paper's number
comes out; ``Claim.differs`` says why ours differs where it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from cotenant.errors import MissingDataError
from cotenant.experiments.simulate import metrics_of
from cotenant.report.metrics import RunMetrics
from cotenant.runs.prepare import Prepared

__all__ = ["Claim", "Comparison", "Curve", "Experiment", "Measured", "Place", "Table", "change", "ratio"]

_T = TypeVar("_T")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One published number, and how ours stands beside it.

    Parameters
    ----------
    key : str
        Of ``Measured.values``.
    what : str
        The quantity, in words.
    paper : str
        As published, with its unit: ``"-23.7 to -30.7 %"``.
    low, high : float or None
        The same as a range, in ``unit``; one of them None where it is open, both None where the
        publication gives no number to compare with.
    unit : str
        Unit of ours and of the range: ``"%"``, ``"s"``, ``"x"``, or empty.
    source : str
        Where the publication says so (and how far the text in hand can be trusted, if second-hand).
    how : str
        How ours is computed.
    differs : str
        The reason to print where ours lies outside of the range.
    better : {"high", "low", ""}
        Which way ours exceeds the paper's; empty where neither way is better.
    tolerance : float
        Share of the bounds by which ours may miss and still count as reproduced.
    volatile : bool
        A timing, which differs from run to run.
    unmeasured : str
        Why it cannot be measured here; empty where it is.
    """

    key: str
    what: str
    paper: str
    source: str
    how: str
    differs: str
    low: float | None = None
    high: float | None = None
    unit: str = ""
    better: Literal["high", "low", ""] = ""
    tolerance: float = 0.0
    volatile: bool = False
    unmeasured: str = ""


class Table(msgspec.Struct, kw_only=True):
    """Rows measured with one seed; over seeds, rows whose text is the same are averaged.

    Column names carry units (``jct_s_mean``, ``busy_share``), which say how they are shown; all rows have
    the same columns. ``volatile`` names columns of timings.
    """

    title: str
    rows: list[dict[str, Any]]
    volatile: tuple[str, ...] = ()


class Curve(msgspec.Struct, kw_only=True):
    """Lines over a common axis; the first seed's are drawn."""

    title: str
    text: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    log_x: bool = False


class Measured(msgspec.Struct, kw_only=True):
    """What one seed gave.

    Parameters
    ----------
    values : dict
        Number for each claim's ``key`` (and any other worth keeping); None where it does not apply.
    tables, curves
        For the page.
    notes : list of str
        What must be said beside the numbers.
    """

    values: dict[str, float | None]
    tables: list[Table] = []
    curves: list[Curve] = []
    notes: list[str] = []


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How much to do, and which data there is."""

    size: Literal["full", "quick", "tiny"] = "full"
    data: str | None = None

    def pick(self, full: _T, quick: _T, tiny: _T) -> _T:
        """The one of three that fits the size."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.size]

    def has(self, name: str) -> bool:
        """Whether the data folder holds this file or folder."""
        return self.data is not None and (Path(self.data) / name).exists()

    def need(self, name: str) -> Path:
        """A file or folder of the data.

        Raises
        ------
        MissingDataError
            Saying what is missing and how to name it.
        """
        if not self.has(name):
            raise MissingDataError(
                f"this experiment reads {name} of the data folder, "
                f"and {self.data or 'no folder'} does not have it; set COTENANT_DATA to the folder that does"
            )
        return Path(self.data or "") / name


class Experiment:
    """Base of all experiments; see the module's contract."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    source: ClassVar[str]
    reconstruction: ClassVar[tuple[str, ...]] = ()
    claims: ClassVar[tuple[Claim, ...]]
    policies: ClassVar[dict[str, str]] = {}
    seeds: ClassVar[int] = 3
    folders: ClassVar[tuple[str, ...]] = ()
    """Environment variables that name a folder with more to run; told in the command that made a page."""

    def measure(self, seed: int, place: Place) -> Measured:
        """Run everything with one seed."""
        raise NotImplementedError


class Comparison(Experiment):
    """Policies side by side on one workload: subclasses give ``prepared`` and ``values``."""

    metrics: ClassVar[tuple[str, ...]] = (
        "busy_share",
        "goodput_share",
        "makespan_s",
        "jct_s_mean",
        "jct_s_median",
        "wait_s_mean",
        "wait_s_p99",
        "corun_slowdown_mean",
        "jobs_finished",
    )
    """Summary keys (``docs/metrics.md``) in the table of policies."""

    def prepared(self, seed: int, place: Place) -> Prepared:
        """Workload (drawn with ``seed``), cluster, settings and what policies may know."""
        raise NotImplementedError

    def values(self, runs: Mapping[str, RunMetrics]) -> dict[str, float | None]:
        """The claims' values, from the runs by label of ``policies``."""
        raise NotImplementedError

    def measure(self, seed: int, place: Place) -> Measured:
        """Simulate every policy on the same world."""
        prepared = self.prepared(seed, place)
        runs = {label: metrics_of(prepared, spec, seed) for label, spec in self.policies.items()}
        rows = [
            {"policy": label, **{key: run.summary.get(key) for key in self.metrics}}
            for label, run in runs.items()
        ]
        return Measured(values=self.values(runs), tables=[Table(title="Policies", rows=rows)])


def change(ours: float | None, base: float | None) -> float | None:
    """Change against a base, in per cent; None where it does not apply.

    >>> change(75.0, 100.0), change(1.0, 0.0)
    (-25.0, None)
    """
    if ours is None or not base:
        return None
    return 100.0 * (ours - base) / base


def ratio(part: float | None, whole: float | None) -> float | None:
    """Quotient; None where it does not apply.

    >>> ratio(8.0, 2.0), ratio(None, 2.0)
    (4.0, None)
    """
    return None if part is None or not whole else part / whole
