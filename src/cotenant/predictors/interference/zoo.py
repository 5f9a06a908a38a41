"""The zoo: models of effects in closed form, members fitted by world, low-rank completion.

The variances below are assumptions about how effects are made up: which part belongs to the victim,
which to its neighbour, which to the pair. Their shapes (broad, lean, smooth, staged) came from looking at
leave-one-block-out and leave-one-architecture-out errors of public campaigns; the numbers are round, and
errors hardly depend on them (docs/prediction/interference.md). Which shape serves a table is chosen on that
table. Nothing here tells the speed of any job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.errors import UnknownNameError
from cotenant.predictors.interference.effects import EffectsSpec
from cotenant.predictors.interference.kernels import Kinship

__all__ = ["EFFECTS", "SIMPLICITY", "ZOOS", "member_names"]

_BROAD = {
    "world": 0.3,
    "victim F": 0.1,
    "victim FR": 0.1,
    "victim C": 0.05,
    "victim R": 0.15,
    "other F": 0.1,
    "other FR": 0.1,
    "other C": 0.05,
    "other R": 0.15,
    "difference FR": 0.1,
    "difference C": 0.05,
    "difference R": 0.1,
    "R x R": 0.1,
    "F x R": 0.05,
    "R x F": 0.05,
    "FR x FR": 0.05,
    "C x C": 0.02,
    "shared FR": 0.05,
    "shared R": 0.05,
    "shared C": 0.02,
    "same F": 0.02,
    "same C": 0.03,
    "linear": 0.1,
    "contention": 0.2,
}
_LEAN = {
    **_BROAD,
    "world": 0.03,
    "victim R": 0.015,
    "other C": 0.2,
    "other R": 0.015,
    "difference R": 0.01,
    "R x F": 0.005,
    "shared FR": 0.005,
    "same F": 0.08,
}
_SMOOTH = {
    **_BROAD,
    "world": 0.03,
    "victim F": 0.3,
    "victim R": 0.01,
    "other F": 0.01,
    "other FR": 0.01,
    "other C": 0.01,
    "other R": 0.01,
    "difference FR": 0.01,
    "difference C": 0.01,
    "difference R": 0.01,
    "R x R": 0.5,
    "R x F": 0.01,
    "shared C": 0.1,
}
_STAGED = {
    **_BROAD,
    "world": 0.03,
    "victim F": 0.01,
    "victim FR": 0.01,
    "victim C": 0.01,
    "other F": 0.4,
    "difference FR": 0.4,
    "difference C": 0.01,
    "R x R": 0.01,
    "F x R": 0.2,
    "FR x FR": 0.01,
    "shared FR": 0.01,
    "linear": 0.4,
}

EFFECTS: Mapping[str, EffectsSpec] = {
    spec.name: spec
    for spec in (
        EffectsSpec(
            name="linear-effects",
            variances={
                "world": 0.3,
                "victim F": 0.2,
                "victim C": 0.1,
                "other F": 0.2,
                "other C": 0.1,
                "linear": 0.5,
            },
            noise=0.05,
            kinship=Kinship(0.3, 0.4, 0.2),
        ),
        EffectsSpec(name="effects-broad", variances=_BROAD, softness=0.15, kinship=Kinship()),
        EffectsSpec(name="effects-lean", variances=_LEAN, softness=0.15, kinship=Kinship()),
        EffectsSpec(name="effects-lean-raw", variances=_LEAN, kinship=Kinship()),
        EffectsSpec(name="effects-smooth", variances=_SMOOTH, softness=0.15, kinship=Kinship()),
        EffectsSpec(name="effects-staged", variances=_STAGED, softness=0.15, kinship=Kinship()),
    )
}
"""Models of effects by name."""

ZOOS: Mapping[str, tuple[str, ...]] = {
    "small": ("constant", "utilisation-sum", "additive", "effects-lean"),
    "quick": (
        "constant",
        "utilisation-sum",
        "contention",
        "additive",
        "effects-lean",
        "effects-smooth",
        "effects-staged",
        "extra-trees",
    ),
    "all": (
        "constant",
        "utilisation-sum",
        "contention",
        "additive",
        "ridge",
        "knn",
        "svr",
        "extra-trees",
        "forest",
        "boosting",
        "set-net",
        "low-rank",
        *EFFECTS,
    ),
}
"""Sets of members by name."""

SIMPLICITY = (
    "constant",
    "utilisation-sum",
    "contention",
    "additive",
    "linear-effects",
    "ridge",
    "low-rank",
    "knn",
    "svr",
    "effects-lean",
    "effects-lean-raw",
    "effects-broad",
    "effects-smooth",
    "effects-staged",
    "extra-trees",
    "forest",
    "boosting",
    "set-net",
)
"""Names, the simplest first: of equals the first one is taken."""


def member_names(zoo: str | Sequence[str]) -> tuple[str, ...]:
    """Members of a zoo, of a list with commas, or of a sequence.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.

    Examples
    --------
    >>> member_names("additive,svr")
    ('additive', 'svr')
    """
    if isinstance(zoo, str) and zoo in ZOOS:
        return ZOOS[zoo]
    names = tuple(zoo.split(",")) if isinstance(zoo, str) else tuple(zoo)
    for name in names:
        if name not in SIMPLICITY:
            raise UnknownNameError("zoo or member", name, (*ZOOS, *SIMPLICITY))
    return names
