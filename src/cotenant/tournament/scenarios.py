"""What is played: workload, load and condition; and each run's place among the results."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

import cotenant
from cotenant.errors import UsageError
from cotenant.model.cluster import Cluster, Node
from cotenant.profiles.catalogue import device_type

__all__ = [
    "CONDITIONS",
    "Condition",
    "Game",
    "Scenario",
    "cluster_of",
    "fingerprint",
    "knowledge",
    "scenarios",
]

Condition = Literal["base", "heterogeneous", "failures", "bad-forecast", "perfect-forecast"]
CONDITIONS: tuple[str, ...] = get_args(Condition)
"""``base``: one device type, no failures, a good forecast. Every other changes one of these."""

_ROOMS = (
    "model",
    "engine",
    "executors",
    "policies",
    "predictors",
    "profiles",
    "traces",
    "report",
    "tournament",
)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the grid."""

    workload: str
    load: float
    condition: Condition

    @property
    def label(self) -> str:
        """For people and file names.

        >>> Scenario(workload="philly", load=0.5, condition="base").label
        'philly-0.5-base'
        """
        return f"{self.workload}-{self.load:g}-{self.condition}"


class Game(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of one tournament share.

    Parameters
    ----------
    jobs, gpus : int
        Jobs of each workload, and devices of each cluster.
    data : str or None
        The folder of measured tables and traces.
    code : str
        ``fingerprint`` of what computes the results.
    """

    jobs: int
    gpus: int
    data: str | None = None
    code: str = ""


def scenarios(workloads: Sequence[str], loads: Sequence[float], conditions: Sequence[str]) -> list[Scenario]:
    """The grid: the base at every load; every other condition at the load nearest to 1.

    Raises
    ------
    UsageError
        For a load that is not positive, or a condition that there is not.
    """
    for load in loads:
        if not 0 < load <= 10:
            raise UsageError(f"a load lies in (0, 10], found {load:g}")
    for condition in conditions:
        if condition not in CONDITIONS:
            raise UsageError(f'no condition "{condition}"; known: {", ".join(CONDITIONS)}')
    middle = min(loads, key=lambda load: (abs(load - 1.0), load))
    found = []
    for workload in workloads:
        for condition in conditions:
            for load in loads if condition == "base" else (middle,):
                found.append(Scenario(workload=workload, load=load, condition=condition))  # type: ignore[arg-type]
    return found


def cluster_of(condition: str, gpus: int) -> Cluster:
    """Nodes of eight: V100 with 32 GB; or half of them that, a quarter P100, a quarter K80."""
    names = ["V100-32GB"] * (gpus // 8)
    if condition == "heterogeneous":
        quarter = max(len(names) // 4, 1)
        names[-2 * quarter :] = ["P100"] * quarter + ["K80"] * quarter
    nodes = tuple(Node(name=f"n{i}", gpus=((name, 8),)) for i, name in enumerate(names))
    return Cluster(nodes=nodes, types=tuple(device_type(name) for name in dict.fromkeys(names)))


def knowledge(condition: str, data: bool) -> tuple[str, str]:
    """What policies know: forecast of speeds, and of running times.

    Those of a bad forecast are not registered: true running times with an error (``play``).
    """
    if condition == "bad-forecast":
        return "utilisation-sum", "bad"
    if condition == "perfect-forecast":
        return "perfect", "perfect"
    return ("adaptive" if data else "lookup"), "history"


def fingerprint() -> str:
    """Hash of everything of ours that computes results."""
    root = Path(cotenant.__file__).parent
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
