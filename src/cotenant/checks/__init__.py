"""Contract checks for every kind of plug-in, and the invariants of the books.

Public, so that a plug-in of your own can be held to the same contract:

>>> from cotenant.checks import check_policy
>>> from cotenant.policies.fifo import Fifo
>>> check_policy(Fifo, scenarios=2)
"""

from cotenant.checks.executors import check_executor
from cotenant.checks.invariants import InvariantError, check_invariants
from cotenant.checks.policies import ContractError, check_policy
from cotenant.checks.readers import check_reader
from cotenant.checks.speeds import check_forecast, check_runtime, check_truth

__all__ = [
    "ContractError",
    "InvariantError",
    "check_executor",
    "check_forecast",
    "check_invariants",
    "check_policy",
    "check_reader",
    "check_runtime",
    "check_truth",
]
