"""The contract of policies, on random scenarios: run it on your own class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.checks.scenarios import scenario
from cotenant.errors import ConfigError, CotenantError
from cotenant.model import events as ev
from cotenant.model.plan import Plan
from cotenant.model.ports import Policy
from cotenant.model.view import View
from cotenant.runs.spec import policy_object
from cotenant.testing import Harness, HarnessRun

__all__ = ["ContractError", "check_policy"]


class ContractError(CotenantError):
    """A plug-in breaks its contract."""


def check_policy(
    factory: Callable[[], Policy], *, scenarios: int = 30, first: int = 0, refusals: bool = False
) -> None:
    """Hold a policy to its contract on random clusters, workloads and failures.

    On each scenario: every invariant after every event; the same run twice gives the same
    bytes; dropping every index before each call gives the same bytes; deciding changes
    neither the state nor the policy; renaming jobs changes nothing; every job that can run
    ends; the rules refuse nothing. On every third scenario light samples of the running jobs
    are taken, too.

    Parameters
    ----------
    factory : callable returning a Policy
        Usually the class itself.
    scenarios, first : int
        How many scenarios, from which number on.
    refusals : bool
        Allow decisions that the rules refuse.

    Raises
    ------
    ContractError
        Naming the scenario (repeat it with ``first=N, scenarios=1``) and what is wrong.
    ConfigError
        If the factory does not make a policy, or one that does not store its parameters.
    """
    if not callable(factory):
        raise ConfigError(
            f"check_policy takes a class, or a function that makes a policy, found {factory!r:.60}"
        )
    policy_object(factory())
    for number in range(first, first + scenarios):
        try:
            _check_one(factory, number, refusals)
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(f"scenario {number}: {type(error).__name__}: {error}") from error


def _check_one(factory: Callable[[], Policy], number: int, refusals: bool) -> None:
    sampled = number % 3 == 2  # what is known of jobs then changes while they run
    run = scenario(number, lambda: _Watched(factory(), number), samples=sampled).run()
    again = scenario(number, factory, samples=sampled).run()
    # The header names the class, and one of the two is wrapped.
    if _body(run.log) != _body(again.log):
        _differ(number, "the same run twice", run, again)
    dropped = scenario(number, factory, drop_indexes=True, samples=sampled).run()
    if _body(again.log) != _body(dropped.log):
        _differ(number, "with every index dropped before each call", again, dropped)
    renamed = _renamed(scenario(number, factory, samples=sampled)).run()
    if _without_names(again) != _without_names(renamed):
        _differ(number, "with jobs renamed", again, renamed)
    _check_ends(number, again, refusals)


def _body(log: bytes) -> bytes:
    return log.split(b"\n", 1)[1]


def _renamed(harness: Harness) -> Harness:
    """Other names in the same order of names (ties of submission time go by name)."""
    for row in harness.rows:
        row["name"] = "x" + row["name"] + "y"
    return harness


def _without_names(run: HarnessRun) -> list[Any]:
    return [(e.t, e.job.id) if isinstance(e, ev.Submitted) else e for e in run.events[1:]]


def _differ(number: int, what: str, one: HarnessRun, two: HarnessRun) -> None:
    for a, b in zip(one.events[1:], two.events[1:], strict=False):
        if a != b:
            raise ContractError(f"scenario {number}: {what}, another log; first difference: {a} / {b}")
    raise ContractError(
        f"scenario {number}: {what}, another log: {len(one.events)} / {len(two.events)} events"
    )


def _check_ends(number: int, run: HarnessRun, refusals: bool) -> None:
    refused = run.refusals()
    if refused and not refusals:
        raise ContractError(f"scenario {number}: the rules refused {refused[0]}")
    waiting = [r.job.name for r in run.state.records.values()]
    if waiting and not _may_wait(run):
        raise ContractError(f"scenario {number}: jobs {waiting[:5]} wait for ever")


def _may_wait(run: HarnessRun) -> bool:
    """At the end, is everything that still waits kept from running by the cluster itself?"""
    ledger = run.state.ledger
    if not all(ledger.usable) or any(ledger.draining):
        return True
    limits = run.state.books.limits
    return all(limits.get(r.job.tenant, 1 << 30) < r.job.gpus for r in run.state.records.values())


class _Watched:
    """A policy under watch: deciding must change neither the state nor the policy."""

    def __init__(self, policy: Policy, number: int) -> None:
        self._policy = policy
        self._number = number
        # What the loop asks of a policy beside its decisions.
        self.usage_half_life_s = getattr(policy, "usage_half_life_s", None)
        self.uses_predictions = getattr(policy, "uses_predictions", True)

    def decide(self, view: View) -> Plan:
        """Decide, and compare before and after."""
        before = (_picture(view), _attributes(self._policy))
        plan = self._policy.decide(view)
        after = (_picture(view), _attributes(self._policy))
        if before != after:
            raise ContractError(
                f"scenario {self._number}: decide() at t={view.now} changed the state or itself"
            )
        return plan


def _attributes(policy: Policy) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(policy).items()}


def _picture(view: View) -> Any:
    ledger = view.ledger
    return (
        [
            (r.id, r.status, r.place, r.priority, r.work_s, r.rate, r.hold, r.reserved)
            for r in view.records.values()
        ],
        list(ledger.free_milli),
        list(ledger.free_memory),
        list(ledger.residents),
        dict(ledger.reserved),
        list(ledger.whole),
        dict(view.books.limits),
        len(view.queue),
    )
