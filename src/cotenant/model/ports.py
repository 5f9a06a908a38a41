"""The interfaces that plug-ins implement. One file and one entry-point line add a member."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec

from cotenant.model.events import Event
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.plan import Plan
from cotenant.model.workload import Workload

if TYPE_CHECKING:
    from cotenant.model.view import View

__all__ = [
    "UNKNOWN_SHARES",
    "Executor",
    "Forecast",
    "Interval",
    "LearnsSpeeds",
    "Policy",
    "RuntimeForecast",
    "TellsUsage",
    "TraceReader",
    "Truth",
    "shares_of",
]


class Interval(msgspec.Struct, frozen=True, gc=False):
    """An estimate and the range that should hold the truth nine times in ten."""

    mean: float
    low: float
    high: float


@runtime_checkable
class TraceReader(Protocol):
    """Reads one public format."""

    format: ClassVar[str]
    title: ClassVar[str]

    def sniff(self, path: Path, head: bytes) -> float:
        """How sure the reader is that the file is its own, 0 to 1, from name and first bytes."""

    def read(self, path: Path, **options: Any) -> Workload:
        """Jobs in submission order, and the cluster if the format has one."""


@runtime_checkable
class Truth(Protocol):
    """How fast things really are, in the simulated world. Never shown to a policy."""

    def solo_speed(self, model: str, device_type: str) -> float:
        """Speed of a job alone on this type, relative to its reference device."""

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> float:
        """Speed beside these jobs (sorted), divided by its speed alone; in [0.02, 1]."""

    def source(self, model: str, beside: tuple[str, ...], device_type: str) -> str:
        """Where that number comes from: ``measured``, ``composed`` or ``modelled``."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log: kind, data, seed."""


@runtime_checkable
class RuntimeForecast(Protocol):
    """Predicts how long a job will run alone on its reference device."""

    def predict_s(self, job: Job) -> Interval:
        """Expected seconds of work; called once, at submission."""

    def observe(self, job: Job, work_s: float) -> None:
        """Learn from a job that finished with this much work."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""


@runtime_checkable
class Forecast(Protocol):
    """What a policy may know about speeds. Fitted on other measurements than the truth."""

    @property
    def version(self) -> int:
        """Changes when predictions change."""

    def solo_speed(self, model: str, device_type: str) -> float:
        """Predicted speed alone on this type, relative to the reference device."""

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """Predicted speed beside these jobs (sorted), divided by speed alone."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""


@runtime_checkable
class LearnsSpeeds(Protocol):
    """What a forecast may offer besides: it learns from speeds that light samples measured."""

    def learn(self, model: str, beside: tuple[str, ...], device_type: str, speed: float) -> None:
        """A speed beside these jobs (sorted), divided by that alone, was measured.

        ``version`` changes once predictions do, which may be later: to learn in batches is cheaper.
        """


@runtime_checkable
class TellsUsage(Protocol):
    """What a forecast may offer besides: how much of a device a job uses when it runs alone there."""

    def usage(self, model: str, device_type: str) -> tuple[float, float, float]:
        """Predicted shares of compute, memory bandwidth and host, each in [0, 1]."""


UNKNOWN_SHARES = (1.0, 1.0, 1.0)
"""What is taken of a job whose use nobody forecasts: that it keeps its device busy."""


def shares_of(forecast: Forecast | None, model: str, device_type: str) -> tuple[float, float, float]:
    """Predicted shares of compute, memory bandwidth and host that a job uses alone on this type.

    ``UNKNOWN_SHARES`` without a forecast, or with one that does not tell (``TellsUsage``). A
    forecast that tells answers for models it does not know, too, as it sees fit: those here give
    the shares of a typical model.
    """
    # As isinstance(forecast, TellsUsage), which takes microseconds on every call.
    usage = getattr(forecast, "usage", None)
    found: tuple[float, float, float] = usage(model, device_type) if usage else UNKNOWN_SHARES
    return found


@runtime_checkable
class Policy(Protocol):
    """Decides. Pure: no I/O, no clock, no globals; memory travels in ``Plan.memo``.

    Class attributes may promise what saves work: ``idle_without_queue = True``, that it decides
    nothing while no job waits (it is then not even asked); ``uses_predictions = False``, that it
    reads no predicted running time; ``uses_service = False``, that it does not read
    ``view.service``. ``made_for`` (``elastic-jobs``, ``fractions`` or ``tenants``) lets runs warn
    where there are none.
    """

    def decide(self, view: View) -> Plan:
        """What to do now."""


class Executor(Protocol):
    """Acts, and reports what happened.

    The loop logs an action before it calls the executor; the executor never touches the
    state, it answers by events.
    """

    def now(self) -> float:
        """Seconds since the start of the run."""

    def start(self, job: Job, place: Placement, attempt: int, resumed: bool) -> bool:
        """Begin an attempt, or go on with a suspended one; idempotent for each attempt.

        True if there are events of this instant to ``drain``.
        """

    def stop(self, job_id: int, suspend: bool) -> None:
        """Take a job off its devices, saving its state first if ``suspend``.

        Answered by ``Suspended``, or by ``Ended`` with outcome ``preempted``.
        """

    def cancel(self, job_id: int) -> None:
        """End a running job for good; answered by ``Ended`` with outcome ``cancelled``."""

    def forget(self, job_id: int) -> None:
        """A waiting job was rejected or cancelled: it will never start."""

    def move(self, job_id: int, place: Placement) -> None:
        """Migrate a running job; answered by ``Released`` once the old devices are free."""

    def resize(self, job_id: int, place: Placement) -> None:
        """Change a running job's devices or share."""

    def drain(self) -> list[Event]:
        """Events of this very instant that the calls above caused."""

    def wait(self, until: float) -> list[Event]:
        """What happened next, all of one instant.

        Empty once ``until`` is reached, or, if ``until`` is infinite, when nothing is to come.
        """

    def idle(self) -> bool:
        """True if nothing is to come by itself: no job to arrive, nothing that runs or is due."""

    def running(self) -> Mapping[int, Placement]:
        """What really runs; asked after a restart."""
