"""Features of the measured tables' networks, as the package ships them; no torch is needed."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib import resources

import msgspec

__all__ = ["ZooRow", "features_for", "zoo_rows"]

_TEXT = ("model", "dataset", "family", "precision", "optimiser", "assumed")


class ZooRow(msgspec.Struct, frozen=True, kw_only=True):
    """Features of a network of the tables at one batch size and precision.

    Parameters
    ----------
    model, dataset, family : str
    batch : int
    usual : bool
        The batch size that stands for rows of tables that have not recorded theirs.
    precision : str
        ``fp32`` or ``amp``.
    optimiser : str
    assumed : str
        What is not certain about the network; empty if nothing.
    numbers : dict of str to float
        As ``GraphFeatures.row``, and ``reserved_bytes`` of PyTorch's CUDA allocator.
    """

    model: str
    dataset: str
    family: str
    batch: int
    usual: bool
    precision: str
    optimiser: str
    assumed: str
    numbers: dict[str, float]


@lru_cache(maxsize=1)
def zoo_rows() -> tuple[ZooRow, ...]:
    """All rows of ``data/graph_features.csv``."""
    text = (resources.files("cotenant") / "data" / "graph_features.csv").read_text(encoding="utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        words = {name: row.pop(name) for name in _TEXT}
        batch, usual = int(row.pop("batch")), row.pop("usual") == "1"
        numbers = {name: float(value) for name, value in row.items()}
        found.append(ZooRow(batch=batch, usual=usual, numbers=numbers, **words))
    return tuple(found)


def features_for(
    model: str, dataset: str = "", batch: int | None = None, precision: str = "fp32"
) -> ZooRow | None:
    """The row of a job of the tables, or None if its network is not in the zoo.

    Parameters
    ----------
    model, dataset : str
        As the tables name them; a data set that the zoo does not know is ignored if the model
        occurs with one data set only.
    batch : int, optional
        The nearest one that was computed is taken (by ratio); without it the usual one.
    precision : str

    Examples
    --------
    >>> row = features_for("ResNet-50", "ImageNet", 64)
    >>> row.batch, int(row.numbers["parameters"]), int(row.numbers["depth"])
    (64, 25557032, 50)
    >>> features_for("a network that nobody wrote") is None
    True
    """
    named = [row for row in zoo_rows() if row.model == model and row.precision == precision]
    exact = [row for row in named if row.dataset == dataset]
    rows = exact or (named if len({row.dataset for row in named}) == 1 else [])
    if not rows:
        return None
    if batch is None:
        return next((row for row in rows if row.usual), rows[0])
    return min(rows, key=lambda row: (max(row.batch / batch, batch / row.batch), row.batch))
