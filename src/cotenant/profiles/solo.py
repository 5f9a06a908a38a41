"""Solo throughputs of the built-in job kinds, measured twice, by two campaigns.

Steps per second on one device, from stanford-futuredata/gavel (MIT): the campaign of August
2019 (``scheduler/oracle_throughputs.json`` at 48eceb7) and that of 2020
(``scheduler/simulation_throughputs.json``). The simulated world takes the later one, a
forecast only the earlier one, so that a policy never knows the world's own figures.
Recommendation is left out: its 2020 solo speeds were disputed by upstream itself.
"""

from __future__ import annotations

from typing import Literal

from cotenant.model.cluster import Cluster
from cotenant.profiles.catalogue import REFERENCE_TYPE, canonical_type, measured_as, relative_speed
from cotenant.profiles.kinds import canonical_model

__all__ = ["Campaign", "SoloSpeeds", "solo_ratio"]

Campaign = Literal["gavel-2019-08", "gavel-2020"]

_COLUMN = {"K80": 0, "P100": 1, "V100": 2}

# kind: (K80, P100, V100) of gavel-2019-08, the same of gavel-2020
_STEPS_PER_S: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "A3C": ((3.829, 4.755, 8.233), (3.439, 5.681, 7.176)),
    "CycleGAN": ((0.5292, 2.447, 4.918), (0.5048, 2.403, 4.426)),
    "LM/b5": ((31.82, 122.0, 167.1), (25.49, 90.78, 109.2)),
    "LM/b10": ((29.67, 103.6, 143.4), (23.79, 77.08, 81.65)),
    "LM/b20": ((21.76, 77.57, 108.0), (17.14, 58.17, 64.74)),
    "LM/b40": ((13.81, 42.75, 71.72), (11.5, 35.77, 45.24)),
    "LM/b80": ((7.847, 26.36, 43.9), (6.054, 21.16, 28.24)),
    "ResNet-18/b16": ((17.92, 46.04, 77.32), (4.795, 35.87, 32.35)),
    "ResNet-18/b32": ((13.42, 39.99, 65.81), (7.176, 35.83, 29.95)),
    "ResNet-18/b64": ((7.749, 30.85, 48.88), (7.052, 22.3, 24.09)),
    "ResNet-18/b128": ((4.66, 17.44, 30.29), (1.807, 11.68, 17.99)),
    "ResNet-18/b256": ((2.51, 9.942, 16.99), (0.8856, 7.723, 10.3)),
    "ResNet-50/b16": ((2.702, 8.108, 17.37), (2.301, 9.053, 11.4)),
    "ResNet-50/b32": ((1.47, 4.439, 9.921), (1.237, 4.888, 7.787)),
    "ResNet-50/b64": ((0.7733, 2.038, 5.458), (0.619, 2.619, 4.395)),
    "ResNet-50/b128": ((0.2964, 1.082, 2.846), (0.3472, 1.584, 2.497)),
    "Transformer/b16": ((6.081, 5.512, 12.85), (5.467, 9.537, 11.06)),
    "Transformer/b32": ((3.844, 5.39, 12.48), (3.507, 7.869, 10.62)),
    "Transformer/b64": ((2.022, 5.072, 9.568), (1.752, 5.092, 8.618)),
    "Transformer/b128": ((1.038, 3.03, 5.771), (0.9816, 3.074, 5.446)),
    "Transformer/b256": ((0.5148, 1.707, 1.602), (0.4583, 1.678, 1.595)),
}


def solo_ratio(kind: str, device_type: str, reference: str, campaign: Campaign) -> float | None:
    """Measured speed of a kind alone on one device type, divided by that on another.

    Parameters
    ----------
    kind : str
        Canonical name of a built-in kind.
    device_type, reference : str
        Canonical names of the device types.
    campaign : {"gavel-2019-08", "gavel-2020"}

    Returns
    -------
    float or None
        None where either side was not measured.

    Examples
    --------
    >>> round(solo_ratio("ResNet-50/b64", "K80", "V100", "gavel-2020"), 3)
    0.141
    """
    rows = _STEPS_PER_S.get(kind)
    column, base = _COLUMN.get(device_type), _COLUMN.get(reference)
    if rows is None or column is None or base is None:
        return None
    speeds = rows[campaign == "gavel-2020"]
    return speeds[column] / speeds[base]


class SoloSpeeds:
    """Speed of a job alone on a device type, relative to the type its work is measured on.

    That reference is the first type of the cluster whose declared speed is 1.0, or a V100 if
    there is none: durations of a cluster with one type of speed 1.0 are durations there.
    Measured ratios go before declared speeds, declared speeds before the catalogue.

    Parameters
    ----------
    cluster : Cluster or None
    campaign : {"gavel-2019-08", "gavel-2020"}
    """

    def __init__(self, cluster: Cluster | None, campaign: Campaign) -> None:
        types = cluster.types if cluster is not None else ()
        self.campaign = campaign
        self.declared = {t.name: t.speed for t in types}
        self.reference = next((t.name for t in types if t.speed == 1.0), REFERENCE_TYPE)
        self._memo: dict[tuple[str, str], float] = {}

    def __call__(self, model: str, device_type: str) -> float:
        """Relative speed; positive."""
        key = (model, device_type)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._speed(model, device_type)
        return found

    def _speed(self, model: str, device_type: str) -> float:
        if device_type == self.reference:
            return 1.0
        # A stand-in says nothing of a type's speed, so only types of the catalogue are looked up.
        if canonical_type(device_type) and canonical_type(self.reference):
            here, there = measured_as(device_type), measured_as(self.reference)
            ratio = solo_ratio(canonical_model(model), here, there, self.campaign)
            if ratio is not None and here != there:
                return ratio
        return self.declared.get(device_type) or relative_speed(device_type)
