"""Failures of nodes, drawn: when each goes down, and how long it is away."""

from __future__ import annotations

import numpy as np

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster

__all__ = ["node_failures"]


def node_failures(
    cluster: Cluster, span_s: float, seed: int, *, every_s: float, away_s: float
) -> tuple[ev.Event, ...]:
    """Independent failures of every node, both times exponential, up to ``span_s``.

    Parameters
    ----------
    every_s : float
        Mean time from a node's return to its next failure.
    away_s : float
        Mean time until it is back.

    Examples
    --------
    >>> from cotenant.model.cluster import Cluster
    >>> found = node_failures(Cluster.uniform(16), 1e6, 1, every_s=4e5, away_s=3600.0)
    >>> all(a.t <= b.t for a, b in zip(found, found[1:]))
    True
    """
    found: list[ev.Event] = []
    for node in range(len(cluster.nodes)):
        # One generator for each node: another node more or less changes none of the others.
        rng = np.random.default_rng((seed, node))
        now = float(rng.exponential(every_s))
        while now < span_s:
            back = now + float(rng.exponential(away_s))
            found += [ev.NodeDown(now, node, "drawn failure"), ev.NodeUp(back, node)]
            now = back + float(rng.exponential(every_s))
    return tuple(sorted(found, key=lambda event: event.t))
