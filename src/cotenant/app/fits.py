"""Whether jobs can ever run on a cluster, by the same rules as a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from cotenant.errors import InfeasibleError
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job

__all__ = ["check_jobs"]


def check_jobs(jobs: Iterable[Job], cluster: Cluster, where: Path) -> None:
    """Check that each job could run on the empty cluster, within its tenant's ceiling.

    Raises
    ------
    InfeasibleError
        How many cannot, for which reasons, and the first of each with its numbers.
    """
    from cotenant.model.layout import Layout
    from cotenant.model.settings import Settings
    from cotenant.model.shape import ShapeTable
    from cotenant.report.phrases import facts_in_words
    from cotenant.report.tables import show

    shapes = ShapeTable(Layout(cluster), Settings())
    limits = {tenant.name: tenant.limit_gpus for tenant in cluster.tenants}
    counts: Counter[str] = Counter()
    firsts: dict[str, str] = {}
    total = 0
    for job in jobs:
        total += 1
        limit = limits.get(job.tenant)
        found = shapes.of(job).never
        if found is not None:
            reason, facts = str(found[0]), facts_in_words(found[1])
        elif limit is not None and job.gpus > limit:
            reason, facts = "tenant-limit", f"asks {job.gpus}, limit {limit}"
        else:
            continue
        counts[reason] += 1
        firsts.setdefault(reason, f"first {show(job.name)!r}: {facts}")
    if counts:
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        told = "; ".join(f"{count:,} {reason} ({firsts[reason]})" for reason, count in order)
        raise InfeasibleError(
            f"{counts.total():,} of {total:,} jobs can never run on the cluster of {where}: {told}"
        )
