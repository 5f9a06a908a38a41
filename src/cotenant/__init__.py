"""Let deep-learning jobs share GPUs without hurting each other.

The public names below are loaded when first used, so that importing the package is quick.

>>> import cotenant
>>> jobs = cotenant.generate("steady", jobs=5, seed=1)
>>> len(jobs)
5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cotenant.errors import CotenantError
    from cotenant.model.cluster import Cluster, DeviceType
    from cotenant.model.jobs import Job
    from cotenant.model.params import Params
    from cotenant.model.plan import Plan
    from cotenant.model.settings import Settings
    from cotenant.model.workload import Workload
    from cotenant.runs.api import generate, load, load_cluster, simulate
    from cotenant.runs.result import Result

__all__ = [
    "Cluster",
    "CotenantError",
    "DeviceType",
    "Job",
    "Params",
    "Plan",
    "Result",
    "Settings",
    "Workload",
    "__version__",
    "generate",
    "load",
    "load_cluster",
    "simulate",
]

_HOMES = {
    "Cluster": "cotenant.model.cluster",
    "CotenantError": "cotenant.errors",
    "DeviceType": "cotenant.model.cluster",
    "Job": "cotenant.model.jobs",
    "Params": "cotenant.model.params",
    "Plan": "cotenant.model.plan",
    "Result": "cotenant.runs.result",
    "Settings": "cotenant.model.settings",
    "Workload": "cotenant.model.workload",
    "generate": "cotenant.runs.api",
    "load": "cotenant.runs.api",
    "load_cluster": "cotenant.runs.api",
    "simulate": "cotenant.runs.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cotenant' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
