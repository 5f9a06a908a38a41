"""What a learner leans on: permutation importance on families that it had not seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.predictors.resources.calibration import calibrate
from cotenant.predictors.resources.features import FEATURES, GRAPH_COLUMNS
from cotenant.predictors.resources.folds import balanced, family_folds
from cotenant.predictors.resources.learners import Candidate
from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.predictor import training_sets
from cotenant.predictors.resources.roofline import DEFAULT, Efficiency

__all__ = ["importance"]


def importance(
    rows: Sequence[Observation],
    target: str,
    learner: str,
    *,
    seed: int = 0,
    repeats: int = 10,
    folds: int = 10,
    prior: Efficiency = DEFAULT,
) -> list[tuple[str, float]]:
    """How much worse unseen families are predicted with one feature scrambled.

    The feature's values are drawn anew from those of all rows, since within a family it hardly
    varies. Features that say the same share their importance between them.

    Parameters
    ----------
    rows : sequence of Observation
    target : str
        A name of ``targets.TARGETS``.
    learner : str
        A name of ``learners.CANDIDATES``; of ``roofline`` alone nothing is scrambled.
    seed, repeats, folds : int
    prior : Efficiency

    Returns
    -------
    list of (feature, growth of the root mean square error), largest growth first
    """
    random = np.random.default_rng(seed)
    columns = range(len(FEATURES) if learner.startswith("roofline") else GRAPH_COLUMNS)
    plain: list[float] = []
    scrambled: dict[int, list[float]] = {column: [] for column in columns}
    for seen, held in family_folds([row.family for row in rows], folds):
        efficiency = calibrate([rows[int(i)] for i in seen], prior)
        data = training_sets(rows, efficiency).get(target)
        if data is None:
            continue
        outside = np.isin(data.where, held)
        families = [f for f, out in zip(data.families, outside, strict=True) if not out]
        if not families or not outside.any():
            continue
        inside = ~outside
        model = Candidate(learner, seed=seed)
        model.fit(data.x[inside], data.base[inside], data.y[inside], balanced(families))
        x, base, y = data.x[outside], data.base[outside], data.y[outside]
        plain.extend((model.predict(x, base) - y) ** 2)
        for column in columns:
            for _ in range(repeats):
                other = x.copy()
                other[:, column] = random.choice(data.x[:, column], len(x))
                scrambled[column].extend((model.predict(other, base) - y) ** 2)
    if not plain:
        return []
    before = float(np.sqrt(np.mean(plain)))
    growth = [(FEATURES[c], float(np.sqrt(np.mean(off))) - before) for c, off in scrambled.items()]
    return sorted(growth, key=lambda item: (-item[1], item[0]))
