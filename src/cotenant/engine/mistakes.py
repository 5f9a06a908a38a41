"""What policies get wrong in the form of their answers, in words for their authors."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.errors import PolicyError
from cotenant.model.plan import Plan, Reason

__all__ = ["endless", "in_vain", "wrong_decision", "wrong_plan", "wrong_reason"]


def wrong_plan(policy: object, plan: object) -> PolicyError:
    """``decide`` gave something else than a plan with a tuple of decisions."""
    name = type(policy).__name__
    if isinstance(plan, Plan):
        found = type(plan.decisions).__name__
        return PolicyError(
            f"{name}.decide() gave a Plan whose decisions are a {found}, not a tuple; write Plan((one,))"
        )
    return PolicyError(f"{name}.decide() must return a Plan, found {type(plan).__name__}")


def wrong_decision(policy: object, decision: object, known: Iterable[type]) -> PolicyError:
    """A plan holds something that is no decision, or one whose devices are no tuple."""
    name = type(policy).__name__
    if type(decision) in known:
        return PolicyError(f"{name} decided {decision}: devices must be a tuple of device numbers")
    kinds = ", ".join(kind.__name__ for kind in known)
    return PolicyError(f"{name} decided {decision!r}, which is none of: {kinds}")


def wrong_reason(policy: object, reason: object) -> PolicyError:
    """A hold or a rejection gives a reason that the log does not know."""
    known = ", ".join(f"Reason.{r.name}" for r in Reason)
    return PolicyError(f"{type(policy).__name__} gave the reason {reason!r}; a Reason is needed: {known}")


def endless(policy: object, now: float) -> PolicyError:
    """The policy asks for ever more calls at one instant."""
    return PolicyError(
        f"{type(policy).__name__} kept deciding at t={now:g} without coming to an end:"
        " again=True asks for another call, so each plan must bring the end nearer"
    )


def in_vain(policy: object, wakes: int, waiting: int) -> PolicyError:
    """The policy has itself woken for ever although it decides nothing that lets a job run."""
    return PolicyError(
        f"{type(policy).__name__} was woken {wakes:,} times in a row and decided nothing that lets a job run"
        f" or end (memos, reasons to wait, reservations and refused decisions do not), with {waiting:,}"
        " jobs waiting and nothing else to come; set wake_at_s only where waiting may help"
    )
