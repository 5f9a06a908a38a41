"""One seed's world: what is true in it, and what policies may know of it."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.model.cluster import Cluster
from cotenant.model.workload import Workload
from cotenant.profiles.catalogue import filed_as, measured_as
from cotenant.runs.prepare import Prepared

__all__ = ["World", "build_world", "doubts_of", "kind_of"]


class World(msgspec.Struct, kw_only=True):
    """The workload with its models drawn, the truth, and the forecasts.

    Parameters
    ----------
    seeds_vary : list of str
        What another seed would change.
    """

    workload: Workload
    truth: Any = None
    forecast: Any = None
    runtime: Any = None
    seeds_vary: list[str] = []


def build_world(
    prepared: Prepared, seed: int, *, several_seeds: bool = False, speeds: tuple[Any, Any] | None = None
) -> World:
    """Build it; equal arguments give equal worlds.

    ``several_seeds`` changes only the words: that what was drawn differs from run to run. ``speeds`` are
    truth and forecast where they were built before, for this seed and cluster.

    Raises
    ------
    CotenantError
        For a forecast, truth or table that does not exist or cannot be used.
    """
    from cotenant.predictors.forecast import build_runtime, build_speeds
    from cotenant.profiles.kinds import draw_models

    sizes = [kind.memory_bytes for kind in prepared.cluster.types if kind.memory_bytes]
    smallest = min(sizes, default=0)
    workload = draw_models(prepared.workload, seed, device_memory=smallest, several_seeds=several_seeds)
    named = prepared.forecast if isinstance(prepared.forecast, str) else "contention"
    truth, forecast = speeds or build_speeds(
        seed,
        profiles=prepared.profiles,
        forecast=named,
        truth=prepared.truth,
        cluster=prepared.cluster,
    )
    runtime: Any = prepared.runtime
    if isinstance(runtime, str):
        runtime = build_runtime(runtime, workload, seed)
    return World(
        workload=workload,
        truth=truth,
        forecast=forecast if isinstance(prepared.forecast, str) else prepared.forecast,
        runtime=runtime,
        seeds_vary=_varying(prepared, workload),
    )


def _varying(prepared: Prepared, workload: Workload) -> list[str]:
    found = []
    before = prepared.workload.frame
    if "model" not in before.columns or not before["model"].equals(workload.frame["model"]):
        found.append("the models drawn for jobs without one")
    if prepared.profiles is None or prepared.truth == "modelled":
        found.append("the noise of modelled speeds and their forecast")
    else:
        found.append("which measured pairs are truth and which forecast, and the noise of unmeasured sets")
    if prepared.runtime == "noisy":
        found.append("the noise of predicted running times")
    return found


def kind_of(knowledge: Any) -> str:
    """What a forecast is, in a word: one that reads the truth is called an upper bound."""
    if knowledge is None:
        return "none"
    described = knowledge.describe()
    kind = str(described.get("kind", type(knowledge).__name__))
    return f"{kind} (upper bound)" if described.get("oracle") else kind


def doubts_of(knowledge: Any, cluster: Cluster) -> list[str]:
    """What makes the results of a run with this forecast doubtful: types of the cluster that nobody measured."""
    described = {} if knowledge is None else knowledge.describe()
    table = described.get("table")
    if isinstance(table, dict) and "device_types" in table:
        return _doubts_of_table(described, cluster)
    types = described.get("unmeasured_types") or []
    if not types:
        return []
    where = f" ({described['source']})" if described.get("source") else ""
    return [
        f"forecast {described.get('kind')}{where}: no co-run was measured on {', '.join(map(str, types))}; what "
        "policies know of sharing there is carried over from other types, with wider intervals"
    ]


def _doubts_of_table(described: dict[str, Any], cluster: Cluster) -> list[str]:
    """Of a table of pairs: types of the cluster that none of them was measured on."""
    table = described["table"]
    measured = {filed_as(name) for name in table["device_types"]}
    types = sorted({name for node in cluster.nodes for name, _ in node.gpus})
    missing = [name for name in types if not measured & {filed_as(name), measured_as(name)}]
    if not missing:
        return []
    known = ", ".join(table["device_types"]) or "none"
    return [
        f"forecast {described.get('kind')} ({table['table']}): no pair was measured on {', '.join(missing)} (known: "
        f"{known}); what policies know of sharing there is the contention model's"
    ]
