"""What was trained in the measured tables: network, input shapes, batch sizes, optimiser.

A recipe is named as in the tables, by model and data set. Shapes come from the data sets and
from the code that the tables name (``upstream_name`` of the solo profiles); where that code is
not public, the network's paper was followed, and ``assumed`` says so. Nothing here needs torch
until a recipe is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.errors import UnknownNameError

__all__ = ["RECIPES", "Recipe", "builder_of", "find_recipe"]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the tables.

    Parameters
    ----------
    model, dataset, family : str
        As in the tables; the data set is empty where they have none.
    maker : str
        Name of the function of ``zoo.makers`` that builds it for a batch size.
    batches : tuple of int
        Those measured, per device.
    optimiser : str
    usual_batch : int
        Used where a table has not recorded it.
    assumed : str
        What is not certain about it; empty if nothing.
    """

    model: str
    dataset: str
    family: str
    maker: str
    batches: tuple[int, ...]
    optimiser: str
    usual_batch: int
    assumed: str = ""

    @property
    def name(self) -> str:
        """``model@dataset``, or the model alone."""
        return f"{self.model}@{self.dataset}" if self.dataset else self.model


_SALUS_BATCHES = (25, 50, 75, 100)
_LUCID = (32, 64, 128)

# model, data set, family, maker, batches, optimiser, usual batch, what is assumed
_ROWS: tuple[tuple[str, str, str, str, tuple[int, ...], str, int, str], ...] = (
    ("ResNet-18", "CIFAR-10", "ResNet-18", "resnet18_small", (16, 32, 64, 128, 256), "momentum", 128, ""),
    ("ResNet-50", "ImageNet", "ResNet-50", "resnet50", (16, 32, 64, 128, 256), "momentum", 64, ""),
    ("VGG", "CIFAR-10", "VGG", "vgg_small", _LUCID, "momentum", 64, ""),
    ("VGG-16", "ImageNet", "VGG", "vgg16", (8, 16, 32, 64), "momentum", 32, ""),
    ("VGG-19", "ImageNet", "VGG", "vgg19", (16, 32, 64), "momentum", 32, ""),
    ("AlexNet", "ImageNet", "AlexNet", "alexnet", (16, 32, 64, 128, 256), "momentum", 64, ""),
    (
        "Inception-v3",
        "ImageNet",
        "Inception-v3",
        "inception3",
        (16, 32, 64),
        "momentum",
        32,
        "no auxiliary head",
    ),
    ("MobileNetV2", "CIFAR-10", "MobileNetV2", "mobilenet2_small", _LUCID, "momentum", 64, ""),
    ("MobileNetV3", "ImageNet", "MobileNetV3", "mobilenet3", _LUCID, "sgd", 64, ""),
    ("EfficientNet", "CIFAR-10", "EfficientNet", "efficientnet_small", _LUCID, "momentum", 64, "B0"),
    ("SRCNN", "srcnn_data", "SRCNN", "srcnn", (16, 128), "sgd", 128, "patches of 33"),
    ("PointNet", "ShapeNet", "PointNet", "pointnet", _LUCID, "adam", 64, "2,500 points"),
    (
        "LM-LSTM",
        "Wikitext-2",
        "LM",
        "lm_wikitext",
        (5, 10, 20, 32, 40, 64, 80, 128),
        "sgd",
        20,
        "width 200, 35 steps",
    ),
    ("LM-PTB-small", "PTB", "LM", "lm_ptb_small", (20,), "sgd", 20, ""),
    ("LM-PTB-medium", "PTB", "LM", "lm_ptb_medium", (20,), "sgd", 20, ""),
    ("LM-PTB-large", "PTB", "LM", "lm_ptb_large", (20,), "sgd", 20, ""),
    ("NMT", "IWSLT15-vi-en", "NMT", "nmt", (16, 32, 64, 128), "sgd", 128, "sentences of 30"),
    (
        "Transformer",
        "Multi30k",
        "Transformer",
        "transformer",
        (16, 32, 64, 128, 256),
        "adam",
        64,
        "sentences of 30",
    ),
    ("BERT", "SQuAD", "BERT", "bert_squad", (4, 8, 16, 32), "adamw", 8, "384 tokens"),
    ("BERT-large", "WikiText", "BERT-large", "bert_large", (4, 8), "adam", 4, "512 tokens"),
    ("GPT2-medium", "WikiText", "GPT2-medium", "gpt2_medium", (2, 4, 8), "adam", 4, "1,024 tokens"),
    (
        "Recoder-AE",
        "ML-20M",
        "Recoder-AE",
        "recoder",
        (512, 1024, 2048, 4096, 8192),
        "adam",
        2048,
        "dense input",
    ),
    ("NeuMF", "MovieLens", "NeuMF", "neumf", (64, 128), "adam", 128, "MovieLens 1M, width 32"),
    (
        "CycleGAN",
        "monet2photo",
        "CycleGAN",
        "cyclegan",
        (1, 2, 3, 4),
        "adam",
        1,
        "one backward pass for all losses",
    ),
    ("DCGAN", "LSUN", "DCGAN", "dcgan", _LUCID, "adam", 64, "one backward pass for both losses"),
    ("VAE", "MNIST", "VAE", "vae", (64, 128), "adam", 128, ""),
    ("A3C", "PongDeterministic-v4", "A3C", "a3c", (1, 4), "adam", 4, "20 steps unrolled"),
    ("PPO", "LunarLander", "PPO", "ppo", _LUCID, "adam", 64, "two layers of 64"),
    ("TD3", "BipedalWalker", "TD3", "td3", _LUCID, "adam", 64, "two layers of 256"),
    ("alexnet", "", "AlexNet", "alexnet", _SALUS_BATCHES, "sgd", 50, ""),
    ("googlenet", "", "googlenet", "googlenet", _SALUS_BATCHES, "sgd", 50, ""),
    ("inception3", "", "Inception-v3", "inception3", _SALUS_BATCHES, "sgd", 50, "no auxiliary head"),
    ("overfeat", "", "overfeat", "overfeat", _SALUS_BATCHES, "sgd", 50, ""),
    ("resnet50", "", "ResNet-50", "resnet50", (25, 50, 75), "sgd", 50, ""),
    ("resnet101", "", "resnet101", "resnet101", (25, 50, 75), "sgd", 50, ""),
    ("resnet152", "", "resnet152", "resnet152", (25, 50, 75), "sgd", 50, ""),
    ("vgg11", "", "VGG", "vgg11", _SALUS_BATCHES, "sgd", 50, ""),
    ("vgg16", "", "VGG", "vgg16", _SALUS_BATCHES, "sgd", 50, ""),
    ("vgg19", "", "VGG", "vgg19", _SALUS_BATCHES, "sgd", 50, ""),
    ("bert", "", "BERT", "bert_squad", (2, 4, 6, 8), "adam", 4, "base, 384 tokens"),
    ("cyclegan", "", "CycleGAN", "cyclegan", (1, 2, 3, 4), "adam", 1, "one backward pass for all losses"),
    (
        "deepspeech2",
        "",
        "deepspeech2",
        "deepspeech2",
        (2, 4, 8, 16),
        "momentum",
        8,
        "8 s of sound, LSTM layers of 1,024",
    ),
    ("mobilenet", "", "MobileNetV2", "mobilenet2", (64, 128, 256, 512), "momentum", 64, "V2, images of 224"),
    ("resnet", "", "ResNet-50", "resnet50", (64, 128, 256, 512), "momentum", 64, "50 layers, images of 224"),
    ("transformer", "", "Transformer", "transformer", (16, 32, 64, 128), "adam", 64, "as on Multi30k"),
    # Not in the tables: for examples and checks.
    ("ResNet-18", "ImageNet", "ResNet-18", "resnet18", (16, 32, 64), "momentum", 64, ""),
    ("MobileNetV2", "ImageNet", "MobileNetV2", "mobilenet2", (32, 64, 128), "momentum", 64, ""),
    ("GPT-2", "WikiText", "GPT-2", "gpt2", (2, 4, 8), "adamw", 4, "1,024 tokens"),
    ("ViT-B/16", "ImageNet", "ViT", "vit", (16, 32, 64), "adamw", 32, ""),
    ("DLRM", "Criteo", "DLRM", "dlrm", (256, 1024, 4096), "sgd", 1024, "26 tables of 100,000 rows"),
)
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            model=model,
            dataset=dataset,
            family=family,
            maker=maker,
            batches=batches,
            optimiser=optimiser,
            usual_batch=usual,
            assumed=assumed,
        )
        for model, dataset, family, maker, batches, optimiser, usual, assumed in _ROWS
    )
}
"""By name, ``model@dataset``."""


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises
    ------
    UnknownNameError
        With the nearest name and the full list.

    Examples
    --------
    >>> find_recipe("ResNet-50@ImageNet").optimiser
    'momentum'
    """
    found = RECIPES.get(name)
    if found is None:
        raise UnknownNameError("network", name, RECIPES)
    return found


def builder_of(recipe: Recipe) -> Callable[[int], Any]:
    """A function of the batch size that returns ``(module, inputs)`` (``graph.torchreader``).

    Raises
    ------
    MissingExtraError
        Without torch.
    """
    from cotenant.errors import MissingExtraError

    try:
        from cotenant.profiles.zoo import makers
    except ImportError:
        raise MissingExtraError("building networks", "torch") from None
    build: Callable[[int], Any] = getattr(makers, recipe.maker)
    return build
