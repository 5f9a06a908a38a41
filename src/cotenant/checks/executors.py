"""The contract of executors: what the loop relies on, whoever acts."""

from __future__ import annotations

import math
from collections.abc import Callable

from cotenant.checks.policies import ContractError
from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.ports import Executor

__all__ = ["check_executor"]


def check_executor(factory: Callable[[], Executor]) -> None:
    """Drive an executor through one job's life and hold it to the contract.

    Parameters
    ----------
    factory : callable returning an Executor
        Its world must submit one job, with id 0, that can run on device 0 and does not end
        within one second of running.

    Raises
    ------
    ContractError
    """
    executor = factory()
    job = _first_job(executor)
    executor.start(job, Placement((0,)), 1, False)
    _only_about(executor.drain(), job.id)
    if executor.running() != {job.id: Placement((0,))}:
        raise ContractError(f"one job was started, but running() says {dict(executor.running())}")
    now = executor.now()
    if executor.wait(now) or executor.now() < now:
        raise ContractError("wait(now) must return nothing and must not turn back the clock")
    executor.stop(job.id, suspend=True)
    _expect(executor, ev.Suspended, job.id)
    if executor.running():
        raise ContractError("a suspended job still runs")
    executor.start(job, Placement((0,)), 1, True)
    ended = _expect(executor, ev.Ended, job.id)
    if executor.running() or not ended.final:
        raise ContractError(f"after {ended}, running() says {dict(executor.running())}")


def _first_job(executor: Executor) -> Job:
    for event in executor.wait(math.inf):
        if isinstance(event, ev.Submitted):
            return event.job
    raise ContractError("the first events hold no submission")


def _only_about(events: list[ev.Event], job_id: int) -> None:
    for event in events:
        if getattr(event, "id", job_id) != job_id:
            raise ContractError(f"starting job {job_id} caused {event}")


def _expect(executor: Executor, kind: type, job_id: int) -> ev.Ended:
    pending = executor.drain()
    for _ in range(1000):
        for event in pending:
            if isinstance(event, kind) and getattr(event, "id", None) == job_id:
                return event  # type: ignore[return-value]
        pending = executor.wait(math.inf)
        if not pending:
            break
    raise ContractError(f"no {kind.__name__} for job {job_id} was reported")
