"""Models of the elastic benchmarks, with their data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu
from torch.utils.data import TensorDataset

__all__ = ["MODELS", "Training"]

_WORDS, _LENGTH = 4096, 128


class Block(nn.Module):  # type: ignore[misc]
    """Two 3 x 3 convolutions with BatchNorm and a shortcut, as in He et al., CVPR 2016."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)])
        self.short: nn.Module = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Any) -> Any:
        inside = relu(self.norms[0](self.first(x)))
        return relu(self.norms[1](self.second(inside)) + self.short(x))


def resnet() -> Any:
    """ResNet-18 for pictures of 32 x 32: 11 M parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inner, outer, stride), Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Gpt(nn.Module):  # type: ignore[misc]
    """Six layers, embeddings tied: 5.8 M parameters if 256 wide, 47 M if 768 wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, width), nn.Embedding(_LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.register_buffer("mask", torch.triu(torch.full((_LENGTH, _LENGTH), float("-inf")), 1))

    def forward(self, x: Any) -> Any:
        inside = self.layers(self.words(x) + self.places.weight, mask=self.mask)
        return (inside @ self.words.weight.T).flatten(0, 1)


def conv() -> Any:
    """Three convolutions with BatchNorm and dropout, 0.4 M parameters."""
    layers: list[Any] = []
    for inner, outer in ((3, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(inner, outer, 3, 2, 1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 10))


def wide() -> Any:
    """Two wide layers, 15 M parameters: gradients outweigh activations."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 5000), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5000, 10))


def _pictures(size: int) -> Any:
    return TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(10, (size,)))


def _texts(size: int) -> Any:
    words = torch.randint(_WORDS, (size, _LENGTH + 1))
    return TensorDataset(words[:, :-1].contiguous(), words[:, 1:].contiguous())


class Training(NamedTuple):
    """A model, so many samples of its data, and samples of one worker by default."""

    model: Callable[[], Any]
    data: Callable[[int], Any]
    batch: int

    @staticmethod
    def loss(output: Any, wanted: Any) -> Any:
        """Cross-entropy over all that is foretold."""
        return cross_entropy(output, wanted.flatten())


MODELS = {
    "resnet": Training(resnet, _pictures, 8),
    "gpt": Training(partial(Gpt, 256), _texts, 2),
    "large": Training(partial(Gpt, 768), _texts, 1),
    "conv": Training(conv, _pictures, 32),
    "wide": Training(wide, _pictures, 32),
}
