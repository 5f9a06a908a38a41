"""Job kinds with what they use of a device, and models for traces that name none.

Names are ``model/bBATCH`` (``ResNet-50/b32``). The first 26 are the job types of
stanford-futuredata/gavel (MIT); the rest are models of Rivendile/Muri (Apache-2.0) and
boringlee24/socc22-miso (MIT). Utilisations are shares of a V100.

Where the numbers come from, by letter in the table:

- ``m`` memory: smallest change of a smooth guess that agrees with which pairs ran and which
  died on 11,441 MiB (K80), 16,160 MiB (V100) and 16,280 MiB (P100) in the two Gavel campaigns.
  ``M``: socc22-miso ``mps/configs/memory.json``. ``S``: SymbioticLab/Salus
  ``tests/workloads.csv`` (Apache-2.0), interpolated, with 500 MiB of context added.
  ``A``: our assumption.
- ``c`` compute and bandwidth: rounded hardware counters (time-weighted SM efficiency; DRAM
  reads and writes over 900 GB/s) of the same model under TensorFlow, alone on a V100, from
  Gavel's logs at 643cfc9. ``u``: GPU time over iteration time of Muri's trace files for
  compute, bandwidth assumed. ``a``: our assumption, in proportion to a similar model's.
- host is the share of a node's input and CPU work for one device: from Muri's input times
  over iteration times where the letter is ``u``, else assumed.

Nothing here is a measurement of *sharing*: those live in tables (``profiles.table``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.quantities import MIB
from cotenant.model.workload import Workload
from cotenant.profiles.draws import uniform, uniforms

__all__ = [
    "KINDS",
    "MIXES",
    "Kind",
    "canonical_model",
    "draw_models",
    "find_kind",
    "kind_names",
    "usage_of",
]


class Kind(msgspec.Struct, frozen=True, gc=False):
    """A model with a batch size, alone on a V100.

    Parameters
    ----------
    name : str
        ``model/bBATCH``.
    memory_bytes : int
        Peak memory on each device.
    sm, bandwidth, host : float
        Shares in [0, 1]: of the device's compute, of its memory bandwidth, of the host's
        input and CPU work.
    multi_gpu : bool
        Whether runs on several devices are plausible.
    source : str
        Letters of the module's docstring.
    """

    name: str
    memory_bytes: int
    sm: float
    bandwidth: float
    host: float
    multi_gpu: bool
    source: str


# name: memory in MiB, compute, bandwidth, host, multi-GPU, source letters (memory, compute)
_TABLE: tuple[tuple[str, int, float, float, float, bool, str], ...] = (
    ("ResNet-18/b16", 1000, 0.45, 0.20, 0.25, True, "Aa"),
    ("ResNet-18/b32", 1100, 0.55, 0.22, 0.25, True, "Aa"),
    ("ResNet-18/b64", 1200, 0.65, 0.25, 0.25, True, "Aa"),
    ("ResNet-18/b128", 1500, 0.72, 0.28, 0.25, True, "Aa"),
    ("ResNet-18/b256", 2200, 0.78, 0.30, 0.25, True, "Aa"),
    ("ResNet-50/b16", 3100, 0.76, 0.34, 0.25, True, "mc"),
    ("ResNet-50/b32", 3600, 0.82, 0.36, 0.30, True, "mc"),
    ("ResNet-50/b64", 7800, 0.87, 0.40, 0.30, True, "mc"),
    ("ResNet-50/b128", 12900, 0.90, 0.42, 0.30, True, "ma"),
    ("Transformer/b16", 1700, 0.45, 0.20, 0.05, True, "ma"),
    ("Transformer/b32", 2400, 0.52, 0.23, 0.05, True, "ma"),
    ("Transformer/b64", 3100, 0.62, 0.26, 0.05, True, "ma"),
    ("Transformer/b128", 5700, 0.74, 0.30, 0.05, True, "ma"),
    ("Transformer/b256", 8400, 0.82, 0.33, 0.05, True, "ma"),
    ("LM/b5", 1300, 0.55, 0.25, 0.05, True, "ma"),
    ("LM/b10", 1500, 0.60, 0.28, 0.05, True, "ma"),
    ("LM/b20", 1800, 0.66, 0.30, 0.05, True, "mc"),
    ("LM/b40", 3200, 0.68, 0.38, 0.05, True, "ma"),
    ("LM/b80", 3600, 0.70, 0.45, 0.05, True, "ma"),
    ("Recommendation/b512", 2600, 0.35, 0.20, 0.20, False, "ma"),
    ("Recommendation/b1024", 3100, 0.42, 0.25, 0.20, False, "ma"),
    ("Recommendation/b2048", 3200, 0.50, 0.30, 0.25, False, "ma"),
    ("Recommendation/b4096", 5700, 0.58, 0.35, 0.25, False, "ma"),
    ("Recommendation/b8192", 6800, 0.65, 0.40, 0.30, False, "ma"),
    ("CycleGAN/b1", 5700, 0.92, 0.38, 0.10, False, "ma"),
    ("A3C/b4", 900, 0.10, 0.04, 0.90, False, "Aa"),
    ("BERT-base/b4", 10436, 0.90, 0.40, 0.02, True, "Mu"),
    ("BERT-base/b8", 18628, 0.94, 0.42, 0.02, True, "Ma"),
    ("GPT-2/b4", 14000, 0.96, 0.42, 0.02, True, "Au"),
    ("VGG-16/b16", 4100, 0.64, 0.34, 0.75, True, "Su"),
    ("VGG-19/b16", 4200, 0.73, 0.35, 0.75, True, "Su"),
    ("MobileNet/b128", 5614, 0.75, 0.42, 0.40, True, "Ma"),
    ("ShuffleNet-v2/b128", 3000, 0.07, 0.03, 0.88, True, "Au"),
    ("DeepSpeech2/b8", 5732, 0.70, 0.35, 0.20, True, "Ma"),
    ("GNN/b256", 3280, 0.60, 0.35, 0.20, False, "Ma"),
    ("DQN/b128", 1000, 0.02, 0.01, 0.90, False, "Au"),
)
KINDS: Mapping[str, Kind] = {row[0]: Kind(row[0], row[1] * MIB, *row[2:]) for row in _TABLE}
"""The built-in kinds by name."""

_GAVEL = tuple(row[0] for row in _TABLE[:26])
MIXES: Mapping[str, Mapping[str, float]] = {
    "gavel": dict.fromkeys(_GAVEL, 1.0),
    "wide": dict.fromkeys(KINDS, 1.0),
}
"""Named mixes: ``gavel``, its 26 job types equally often; ``wide``, all built-in kinds."""

_WORD = re.compile(r"[^a-z0-9]")
_BATCH = re.compile(r"^(?P<base>.*?)\s*(?:/b(?P<a>\d+)|\(batch size (?P<b>\d+)\))\s*$", re.IGNORECASE)
_OTHER_NAMES = {
    "lmlstm": "LM",
    "languagemodel": "LM",
    "recoderae": "Recommendation",
    "ncf": "Recommendation",
    "a2c": "A3C",
    "bert": "BERT-base",
    "gpt2": "GPT-2",
    "shufflenetv2x10": "ShuffleNet-v2",
    "mobilenetv2": "MobileNet",
    "cifar10": "ResNet-18",
    "imagenet": "ResNet-50",
}
_BASES: dict[str, list[tuple[int, str]]] = {}
for _name in KINDS:
    _BASES.setdefault(_name.rpartition("/b")[0], []).append((int(_name.rpartition("/b")[2]), _name))
_BY_WORD = {_WORD.sub("", base.casefold()): base for base in _BASES} | _OTHER_NAMES
_TYPICAL = "Transformer/b64"


def kind_names() -> tuple[str, ...]:
    """Names of the built-in kinds."""
    return tuple(KINDS)


@lru_cache(maxsize=65536)
def canonical_model(name: str) -> str:
    """One spelling for a model's name; names that nobody knows stay as they are.

    >>> canonical_model("ResNet-50 (batch size 64)"), canonical_model("LM-LSTM/b5"), canonical_model("vgg16")
    ('ResNet-50/b64', 'LM/b5', 'VGG-16/b16')
    """
    found = _BATCH.match(name)
    base, batch = (found["base"], found["a"] or found["b"]) if found else (name, None)
    known = _BY_WORD.get(_WORD.sub("", base.casefold()))
    if known is None:
        return f"{base.strip()}/b{batch}" if batch else name
    if batch:
        return f"{known}/b{batch}"
    rows = _BASES[known]
    return rows[len(rows) // 2][1]


@lru_cache(maxsize=65536)
def find_kind(name: str) -> Kind | None:
    """The kind of this name: exact, or the same model at the nearest batch size; else None."""
    canonical = canonical_model(name)
    exact = KINDS.get(canonical)
    if exact is not None:
        return exact
    base, _, batch = canonical.rpartition("/b")
    if base not in _BASES or not batch.isdigit():
        return None
    wanted = math.log(max(int(batch), 1))
    return KINDS[min(_BASES[base], key=lambda row: (abs(math.log(row[0]) - wanted), row[0]))[1]]


def usage_of(name: str, seed: int | None = None) -> tuple[float, float, float]:
    """Compute, bandwidth and host shares of any model on a V100.

    A model that is in no catalogue gets those of a typical one; with a seed, scaled by up to a
    factor of two either way, which belongs to its name and the seed. The simulated world asks
    with its seed, forecasts without.
    """
    kind = find_kind(name)
    if kind is not None:
        return kind.sm, kind.bandwidth, kind.host
    typical = KINDS[_TYPICAL]
    scale = 1.0 if seed is None else 2.0 ** (2.0 * uniform(seed, "unknown model", name) - 1.0)
    return min(typical.sm * scale, 1.0), min(typical.bandwidth * scale, 1.0), typical.host


def draw_models(
    workload: Workload,
    seed: int,
    *,
    mix: str | Mapping[str, float] = "gavel",
    device_memory: int = 0,
    several_seeds: bool = False,
) -> Workload:
    """Give jobs without a model one, and jobs without a memory size that of their model.

    The draw belongs to the job's name and the seed: dropping a job, or another order of
    lines, changes no other job. Jobs on several devices draw only from kinds that run on
    several; kinds larger than a device are never drawn.

    Parameters
    ----------
    workload : Workload
    seed : int
    mix : str or mapping
        A name in ``MIXES``, or kind to weight.
    device_memory : int
        Memory in bytes of the smallest device that jobs may meet; 0 lifts the bound.
    several_seeds : bool
        Whether what was assumed is told for runs with different seeds together.

    Returns
    -------
    Workload
        With further assumptions where anything was drawn.

    Raises
    ------
    UnknownNameError
        For an unknown mix or kind.
    ConfigError
        If a weight is not positive, or no kind of the mix fits the device.
    """
    weights = _weights(mix)
    frame = workload.frame
    n = frame.height
    label = mix if isinstance(mix, str) else "given"
    model = frame["model"] if "model" in frame.columns else pl.Series("model", [""] * n, pl.String)
    gpus = frame["gpus"].to_numpy() if "gpus" in frame.columns else np.ones(n, np.int64)
    empty = (model == "").to_numpy() & (gpus > 0)
    said: list[str] = []
    if empty.any():
        names = model.to_numpy().astype(object)
        for gang in (False, True):
            chosen = np.flatnonzero(empty & ((gpus > 1) == gang))
            if len(chosen):
                pool, edges = _pool(weights, gang, device_memory, label)
                at = uniforms(seed, "model", frame["name"].gather(chosen).to_list())
                names[chosen] = pool[np.minimum(np.searchsorted(edges, at, side="right"), len(pool) - 1)]
        model = pl.Series("model", names.tolist(), pl.String)
        by = "by each run's own seed and the job name" if several_seeds else f"seed {seed}, by job name"
        said.append(
            f"models of {int(empty.sum())} of {n} jobs are drawn, not observed: mix "
            f'"{label}" of {len(weights)} kinds, {by}'
        )
    memory, filled = _memory(frame, model)
    if filled:
        said.append(f"memory of {filled} of {n} jobs is that of their model in the catalogue, not observed")
    return workload.with_frame(frame.with_columns(model.alias("model"), memory.alias("memory_bytes")), *said)


def _weights(mix: str | Mapping[str, float]) -> Mapping[str, float]:
    if isinstance(mix, str):
        if mix not in MIXES:
            raise UnknownNameError("mix of models", mix, MIXES)
        return MIXES[mix]
    if not mix:
        raise ConfigError("a mix of models needs at least one kind, found none")
    for name, weight in mix.items():
        if name not in KINDS:
            raise UnknownNameError("job kind", name, KINDS)
        if not 0 < weight < math.inf:
            raise ConfigError(
                f'mix of models: weight of "{name}" must be positive and finite, found {weight}'
            )
    return mix


def _pool(
    weights: Mapping[str, float], gang: bool, device_memory: int, label: str
) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
    fits = [
        name
        for name in sorted(weights)
        if (KINDS[name].multi_gpu or not gang)
        and (not device_memory or KINDS[name].memory_bytes <= device_memory)
    ]
    if not fits:
        what = "kind that runs on several devices" if gang else "kind"
        raise ConfigError(
            f'mix of models "{label}": no {what} fits {device_memory / MIB:,.0f} MiB; give another mix'
        )
    share = np.array([weights[name] for name in fits], dtype=np.float64)
    return np.array(fits, dtype=object), np.cumsum(share / share.sum())


def _memory(frame: pl.DataFrame, model: pl.Series) -> tuple[pl.Series, int]:
    n = frame.height
    memory = frame["memory_bytes"] if "memory_bytes" in frame.columns else pl.Series([0] * n, dtype=pl.Int64)
    sizes = {name: kind.memory_bytes for name in model.unique() if (kind := find_kind(name)) is not None}
    if not sizes:
        return memory, 0
    known = model.replace_strict(sizes, default=0, return_dtype=pl.Int64)
    fill = (memory == 0) & (known > 0)
    return known.zip_with(fill, memory), int(fill.sum())
