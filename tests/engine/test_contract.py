"""Every registered policy keeps the contract on random clusters, workloads and failures."""

import pytest

from cotenant import registry
from cotenant.checks import ContractError, check_policy
from cotenant.model.plan import EMPTY, Plan, Start
from cotenant.model.view import View


@pytest.mark.parametrize("policy", registry.names("policy"))
@pytest.mark.parametrize("first", [0, 15, 30, 45])
def test_registered_policies_keep_the_contract(policy: str, first: int) -> None:
    check_policy(registry.load("policy", policy), first=first, scenarios=15)


class _Idle:
    def decide(self, view: View) -> Plan:
        return EMPTY


class _Meddler:
    """Marks the record: a policy that changes what it is shown."""

    def decide(self, view: View) -> Plan:
        head = view.head()
        if head is None:
            return EMPTY
        head.priority += 1
        return EMPTY


class _Forgetful:
    """Counts its own calls: state kept in the policy."""

    def __init__(self) -> None:
        self.calls = 0

    def decide(self, view: View) -> Plan:
        self.calls += 1
        return EMPTY


class _Greedy:
    """Starts the head on device 0 whether or not it is free."""

    def decide(self, view: View) -> Plan:
        head = view.head()
        return EMPTY if head is None else Plan((Start(head.id, (0,)),))


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (_Idle, "wait for ever"),
        (_Meddler, "changed the state or itself"),
        (_Forgetful, "changed the state or itself"),
        (_Greedy, "the rules refused"),
    ],
)
def test_the_checks_find_policies_that_break_it(policy: type, complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_policy(policy, scenarios=20)
