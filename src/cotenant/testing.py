"""A cluster in one line, jobs in one line each, and the log to ask: for tests of policies.

Examples
--------
>>> from cotenant.policies.fifo import Fifo
>>> h = Harness("1x2", Fifo())
>>> h.submit("a", gpus=2, runs_s=100.0)
>>> h.submit("b", gpus=1, at_s=10.0, runs_s=5.0)
>>> run = h.run()
>>> run.start_s("b"), run.end_s("b")
(100.0, 105.0)
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cotenant.engine.log import LogWriter
from cotenant.engine.loop import Loop
from cotenant.engine.state import State
from cotenant.errors import StaleViewError
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.plan import Plan, Reason
from cotenant.model.ports import UNKNOWN_SHARES, Forecast, Interval, Policy, RuntimeForecast, Truth
from cotenant.model.settings import Settings
from cotenant.model.view import Draft, View
from cotenant.model.workload import JOB_SCHEMA, Workload

__all__ = ["FixedForecast", "FixedTruth", "Harness", "HarnessRun", "StrictView", "TrueRuntime"]


class StrictView(View):
    """A view that can be read during one decision only.

    Indexes are built from the lasting view beneath, and may keep it; a policy, or a draft, that
    keeps this one and reads it later gets a ``StaleViewError``.

    Parameters
    ----------
    inner : View
        The lasting view of the loop.
    """

    def __init__(self, inner: View) -> None:
        self._inner = inner
        self._open = True

    def __getattribute__(self, name: str) -> Any:
        if name in ("_inner", "_open") or name.startswith("__"):
            return object.__getattribute__(self, name)
        if not self._open:
            raise StaleViewError(f"view.{name} was read after the decision the view was made for")
        # The names below are this class's own; all else is answered by the view beneath.
        return object.__getattribute__(self, name) if name == "draft" else getattr(self._inner, name)

    def draft(self) -> Draft:
        """A draft over this view, so that it goes stale together with it."""
        return Draft(self)


class _Strict:
    """Gives a policy a new ``StrictView`` for each decision."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.usage_half_life_s = getattr(policy, "usage_half_life_s", None)
        self.uses_predictions = getattr(policy, "uses_predictions", True)

    def decide(self, view: View) -> Plan:
        """Decide, then close the view."""
        shown = StrictView(view)
        try:
            return self._policy.decide(shown)
        finally:
            shown._open = False


class FixedTruth:
    """Speeds from a table written in the test.

    Parameters
    ----------
    co : dict of (model, beside) to float
        Speed of a model beside a sorted tuple of models; absent sets run at ``default``.
    solo : dict of (model, device type) to float
    """

    def __init__(
        self,
        co: dict[tuple[str, tuple[str, ...]], float] | None = None,
        *,
        solo: dict[tuple[str, str], float] | None = None,
        default: float = 1.0,
    ) -> None:
        self.co, self.solo, self.default = co or {}, solo or {}, default
        self.version = 0

    def solo_speed(self, model: str, device_type: str) -> float:
        """Speed alone."""
        return self.solo.get((model, device_type), 1.0)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> float:
        """Speed beside others."""
        return self.co.get((model, beside), self.default)

    def source(self, model: str, beside: tuple[str, ...], device_type: str) -> str:
        """Always from the table."""
        return "measured"

    def describe(self) -> dict[str, Any]:
        """For the log."""
        return {"kind": "fixed"}


class FixedForecast(FixedTruth):
    """A forecast from a table; intervals have no width unless ``spread`` is given.

    ``shares`` are those of compute, bandwidth and host by model, the same on every device type;
    a model that is not among them is taken to use all of a device.
    """

    def __init__(
        self,
        *args: Any,
        spread: float = 0.0,
        shares: dict[str, tuple[float, float, float]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.spread = spread
        self.shares = shares or {}

    def usage(self, model: str, device_type: str) -> tuple[float, float, float]:
        """Shares of a device that a model uses alone."""
        return self.shares.get(model, UNKNOWN_SHARES)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:  # type: ignore[override]
        """Speed beside others, with its interval."""
        mean = self.co.get((model, beside), self.default)
        return Interval(mean, mean - self.spread, mean + self.spread)


class TrueRuntime:
    """Predicts each job's true length, from a table by name; a labelled oracle for tests."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    def predict_s(self, job: Any) -> Interval:
        """The true length."""
        value = self.seconds[job.name]
        return Interval(value, value, value)

    def observe(self, job: Any, work_s: float) -> None:
        """Nothing to learn."""

    def describe(self) -> dict[str, Any]:
        """For the log."""
        return {"kind": "oracle"}


class Harness:
    """A scripted day.

    Parameters
    ----------
    cluster : Cluster or str
        ``"4x8"`` is four nodes of eight devices; device memory by ``memory_bytes``.
    policy : Policy
    settings, truth, forecast, runtime, seed
        As for ``Loop`` and ``SimulatedExecutor``. Without ``runtime`` the true lengths are
        predicted exactly.
    memory_bytes : int
        Memory of each device in the short form of ``cluster``.
    drop_indexes : bool
        See ``Loop``.
    strict : bool
        Show the policy views that go stale with the decision (``StrictView``).
    """

    def __init__(
        self,
        cluster: Cluster | str,
        policy: Policy,
        *,
        settings: Settings | None = None,
        truth: Truth | None = None,
        forecast: Forecast | None = None,
        runtime: RuntimeForecast | None = None,
        seed: int = 0,
        memory_bytes: int = 0,
        drop_indexes: bool = False,
        strict: bool = False,
    ) -> None:
        if isinstance(cluster, str):
            nodes, size = (int(part) for part in cluster.split("x"))
            kind = DeviceType(name="gpu", memory_bytes=memory_bytes)
            cluster = Cluster.uniform(nodes * size, gpus_per_node=size, gpu_type=kind)
        self.cluster, self.policy = cluster, policy
        self.settings, self.truth, self.forecast = settings or Settings(), truth, forecast
        self.runtime, self.seed, self.drop_indexes, self.strict = runtime, seed, drop_indexes, strict
        self.rows: list[dict[str, Any]] = []
        self.incidents: list[ev.Event] = []

    def submit(self, name: str, *, at_s: float = 0.0, runs_s: float = 1.0, **fields: Any) -> None:
        """Submit a job at a time; it truly runs ``runs_s`` alone on the reference device."""
        self.rows.append({"name": name, "submit_s": at_s, "duration_s": runs_s, **fields})

    def happen(self, event: ev.Event) -> None:
        """Script an incident: a failure, a drain, a cancellation. Job ids are in submission order."""
        self.incidents.append(event)

    def workload(self) -> Workload:
        """The jobs so far."""
        defaults: dict[str, Any] = {
            "gpus": 1,
            "memory_bytes": 0,
            "compute_milli": 1000,
            "sharing": "any",
            "job_class": "guaranteed",
            "determinism": "none",
            "suspendable": True,
            "outcome": "done",
            "device_types": [],
            "failed_after_s": [],
        }
        columns = sorted({c for row in self.rows for c in row} | {"name", "submit_s", "duration_s"})
        data = {}
        for column in columns:
            kind = JOB_SCHEMA[column]
            default = defaults.get(column, "" if kind == pl.String else 0)
            data[column] = pl.Series(column, [r.get(column, default) for r in self.rows], dtype=kind)
        return Workload(pl.DataFrame(data), name="harness")

    def run(self, *, invariants: bool = True) -> HarnessRun:
        """Run to the end, checking every invariant after every event."""
        # Imported here, as the checks build their scenarios with this module.
        from cotenant.checks.invariants import check_invariants

        workload = self.workload()
        runtime = self.runtime or TrueRuntime({r["name"]: r["runs_s"] for r in self._named(workload)})
        seen: list[ev.Event] = []

        class _Keep:
            def see(self, events: list[ev.Event]) -> None:
                seen.extend(events)

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "events.jsonl"
            log = LogWriter(path)
            loop = Loop(
                cluster=self.cluster,
                policy=_Strict(self.policy) if self.strict else self.policy,
                executor=SimulatedExecutor(
                    workload,
                    self.cluster,
                    truth=self.truth,
                    settings=self.settings,
                    incidents=self.incidents,
                    seed=self.seed,
                ),
                forecast=self.forecast,
                runtime=runtime,
                settings=self.settings,
                seed=self.seed,
                log=log,
                observers=[_Keep()],
                header={"policy": type(self.policy).__name__},
                drop_indexes=self.drop_indexes,
                on_event=check_invariants if invariants else None,
            )
            try:
                state = loop.run()
            finally:
                log.close()
            return HarnessRun(seen, state, path.read_bytes())

    @staticmethod
    def _named(workload: Workload) -> list[dict[str, Any]]:
        frame = workload.frame.select("name", pl.col("duration_s").alias("runs_s"))
        return frame.to_dicts()


class HarnessRun:
    """What happened, to be asked by job name.

    Attributes
    ----------
    events : list of Event
    state : State
    log : bytes
        The log as written.
    """

    def __init__(self, events: Sequence[ev.Event], state: State, log: bytes) -> None:
        self.events, self.state, self.log = list(events), state, log
        self.ids = {e.job.name: e.job.id for e in events if isinstance(e, ev.Submitted)}

    def of(self, name: str, kind: type) -> list[Any]:
        """Events of one kind about a job.

        Raises
        ------
        KeyError
            If no job of this name was submitted; it lists those that were.
        """
        if name not in self.ids:
            raise KeyError(f"no job {name!r} was submitted; there are: {', '.join(self.ids) or 'none'}")
        return [e for e in self.events if isinstance(e, kind) and getattr(e, "id", None) == self.ids[name]]

    def start_s(self, name: str) -> float | None:
        """When it first got devices; None if never."""
        found = self.of(name, ev.Started)
        return found[0].t if found else None

    def starts(self, name: str) -> list[float]:
        """All times at which it got devices."""
        return [e.t for e in self.of(name, ev.Started)]

    def end_s(self, name: str) -> float | None:
        """When it ended for good; None if it did not."""
        found = [e for e in self.of(name, ev.Ended) if e.final]
        return found[-1].t if found else None

    def devices(self, name: str) -> tuple[int, ...]:
        """Devices of its first start."""
        found: tuple[int, ...] = self.of(name, ev.Started)[0].devices
        return found

    def reasons(self, name: str) -> list[Reason]:
        """Why it waited, in order."""
        return [e.reason for e in self.of(name, ev.Held)]

    def refusals(self) -> list[ev.Refused]:
        """Decisions that the rules refused."""
        return [e for e in self.events if isinstance(e, ev.Refused)]
