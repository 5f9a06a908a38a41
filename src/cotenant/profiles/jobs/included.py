"""The included jobs: what they are, and how to find one by name. Needs no torch to import.

Beside the small ones listed here, ``zoo:ResNet-50@ImageNet`` trains any network of ``profiles.zoo``:
those of the published tables, under the names that they have there.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import msgspec

from cotenant.errors import ConfigError, MissingExtraError, UnknownNameError

__all__ = ["INCLUDED", "ZOO", "IncludedJob", "JobOptions", "build_step", "find_included", "need_torch"]


class IncludedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One included job.

    Parameters
    ----------
    name : str
    family : str
        Jobs of one architecture share it.
    dataset : str
        What its made-up data look like.
    summary : str
    batch : int
        Batch size if none is asked for.
    home : str
        ``module:function`` that builds its step.
    """

    name: str
    family: str
    dataset: str
    summary: str
    batch: int
    home: str


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run an included job.

    Parameters
    ----------
    batch : int
    scale : int
        Multiplies the widths of layers (tables' rows, for the embeddings), so that one job
        suits a CPU core and a GPU.
    device : str
        PyTorch's name: ``cpu`` or ``cuda``.
    amp : bool
        Mixed precision (bfloat16).
    seed : int
    wait_ms : float
        Input-bound job only: how long its store takes to answer, on top of reading and decoding.
    network : str
        Of a job of the zoo: which.
    """

    batch: int
    scale: int = 1
    device: str = "cpu"
    amp: bool = False
    seed: int = 0
    wait_ms: float = 0.0
    network: str = ""


ZOO = "zoo:"
_NETWORKS = "cotenant.profiles.jobs.networks"
_INPUT = "cotenant.profiles.jobs.inputbound"

INCLUDED: dict[str, IncludedJob] = {
    job.name: job
    for job in (
        IncludedJob(
            name="convolution",
            family="residual",
            dataset="images 3x32x32",
            summary="residual network of 3x3 convolutions, SGD with momentum; arithmetic-bound",
            batch=16,
            home=f"{_NETWORKS}:convolution",
        ),
        IncludedJob(
            name="separable",
            family="separable",
            dataset="images 3x32x32",
            summary="depthwise-separable convolutions, SGD with momentum; many small kernels",
            batch=16,
            home=f"{_NETWORKS}:separable",
        ),
        IncludedJob(
            name="attention",
            family="transformer",
            dataset="tokens 64",
            summary="transformer encoder with masked prediction, AdamW; matrix products",
            batch=8,
            home=f"{_NETWORKS}:attention",
        ),
        IncludedJob(
            name="recurrent",
            family="lstm",
            dataset="tokens 32",
            summary="LSTM language model, SGD; a chain of small dependent products",
            batch=16,
            home=f"{_NETWORKS}:recurrent",
        ),
        IncludedJob(
            name="embedding",
            family="recommender",
            dataset="click log",
            summary="embedding tables with sparse gradients and a small head; random memory access",
            batch=256,
            home=f"{_NETWORKS}:embedding",
        ),
        IncludedJob(
            name="memory",
            family="wide",
            dataset="vectors 1024",
            summary="wide layers at a tiny batch under Adam; streams weights and states through memory",
            batch=2,
            home=f"{_NETWORKS}:memory",
        ),
        IncludedJob(
            name="input",
            family="input",
            dataset="compressed records",
            summary="reads, decompresses and augments each batch before a small network; input-bound",
            batch=16,
            home=f"{_INPUT}:input_bound",
        ),
    )
}


def find_included(name: str) -> IncludedJob:
    """Look an included job up.

    Raises
    ------
    UnknownNameError
    """
    if name.startswith(ZOO):
        from cotenant.profiles.zoo.recipes import find_recipe

        recipe = find_recipe(name.removeprefix(ZOO))
        return IncludedJob(
            name=recipe.model,
            family=recipe.family,
            dataset=recipe.dataset,
            summary=f"network of the zoo, optimiser {recipe.optimiser}",
            batch=recipe.usual_batch,
            home="cotenant.profiles.jobs.zoojob:zoo_step",
        )
    if name not in INCLUDED:
        advice = f"or {ZOO}MODEL@DATASET for a network of the zoo"
        raise UnknownNameError("included job", name, INCLUDED, advice=advice)
    return INCLUDED[name]


def build_step(name: str, options: JobOptions) -> Callable[[], float]:
    """Build the network, its data and its optimiser.

    Returns
    -------
    callable
        Trains one step and returns its loss. On a GPU it returns when the device has finished.

    Raises
    ------
    ConfigError
        If a number is below 1, or the device is not there.
    MissingExtraError
        Without torch.
    """
    job = find_included(name)
    for word, value in (("batch", options.batch), ("scale", options.scale)):
        if value < 1:
            raise ConfigError(f"{word} {value}: it must be at least 1")
    need_torch(options.device)
    module, _, function = job.home.partition(":")
    if name.startswith(ZOO):
        if options.scale != 1:
            raise ConfigError(f"{name}: networks of the zoo have one size; leave scale out")
        options = msgspec.structs.replace(options, network=name.removeprefix(ZOO))
    step: Callable[[], float] = getattr(import_module(module), function)(options)
    return step


def need_torch(device: str = "cpu") -> None:
    """Refuse in words where torch, or the device asked of it, is missing.

    Raises
    ------
    MissingExtraError, ConfigError
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError("running an included job", "torch") from None
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r}: the included jobs run on cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device cuda: this build of PyTorch ({torch.__version__}) sees no CUDA device")
