"""Small networks that load a device in different ways, each with its data and optimiser.

The data are drawn from the seed, once, and cycled through: what a step costs does not depend
on what the numbers mean, and two runs do the same arithmetic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cotenant.profiles.jobs.included import JobOptions

__all__ = [
    "Cycle",
    "TrainingStep",
    "attention",
    "convolution",
    "embedding",
    "memory",
    "recurrent",
    "separable",
]

Batch = tuple[Tensor, ...]
_BATCHES = 4
"""Batches kept and cycled through."""
_CLASSES = 10


class TrainingStep:
    """Takes the next batch, and does one forward, backward and update; called, it returns the loss.

    Parameters
    ----------
    options : JobOptions
    model : torch.nn.Module
    batches : iterator of tuples of tensors
        With ``state_dict`` and ``load_state_dict``, if it has a place to go on from.
    loss_of : callable
        Loss of the parts of a batch.
    optimisers : sequence of optimisers
    """

    def __init__(
        self,
        options: JobOptions,
        model: nn.Module,
        batches: Iterator[Batch],
        loss_of: Callable[..., Tensor],
        optimisers: Sequence[Any],
    ) -> None:
        self.model, self.batches, self.optimisers = model, batches, list(optimisers)
        self.loss_of, self._options = loss_of, options
        self._device = torch.device(options.device)
        self._wait = torch.cuda.synchronize if self._device.type == "cuda" else _nothing

    def __call__(self) -> float:
        batch = next(self.batches)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        with _precision(self._options):
            loss = self.loss_of(*(part.to(self._device, non_blocking=True) for part in batch))
        loss.backward()
        for optimiser in self.optimisers:
            optimiser.step()
        value = float(loss.detach())
        self._wait()
        return value


class Cycle:
    """Batches that are kept and handed out in turn, for ever; knows whose turn it is."""

    def __init__(self, kept: Sequence[Batch]) -> None:
        self._kept, self._turn = kept, 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._kept[self._turn]
        self._turn = (self._turn + 1) % len(self._kept)
        return batch

    def state_dict(self) -> dict[str, int]:
        """Whose turn it is."""
        return {"turn": self._turn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self._turn = state["turn"]


def _nothing() -> None:
    return None


def _precision(options: JobOptions) -> contextlib.AbstractContextManager[Any]:
    if not options.amp:
        return contextlib.nullcontext()
    reduced: contextlib.AbstractContextManager[Any] = torch.autocast(options.device, dtype=torch.bfloat16)
    return reduced


def _cycled(options: JobOptions, draw: Callable[[torch.Generator], Batch]) -> Cycle:
    """Batches on the job's device, for ever."""
    generator = torch.Generator().manual_seed(options.seed + 1)
    return Cycle([tuple(part.to(options.device) for part in draw(generator)) for _ in range(_BATCHES)])


def _images(options: JobOptions) -> Cycle:
    def draw(generator: torch.Generator) -> Batch:
        pixels = torch.randn(options.batch, 3, 32, 32, generator=generator)
        return pixels, torch.randint(_CLASSES, (options.batch,), generator=generator)

    return _cycled(options, draw)


def _tokens(options: JobOptions, length: int, words: int) -> Cycle:
    def draw(generator: torch.Generator) -> Batch:
        text = torch.randint(words, (options.batch, length + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    return _cycled(options, draw)


class _Residual(nn.Module):  # type: ignore[misc]
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norm_one(self.one(x)))
        return functional.relu(self.norm_two(self.two(inner)) + self.short(x))


def _classifier(body: Sequence[nn.Module], channels: int) -> nn.Module:
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, _CLASSES))


def _train_images(options: JobOptions, model: nn.Module) -> TrainingStep:
    model.to(options.device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss_of(pixels: Tensor, classes: Tensor) -> Tensor:
        return functional.cross_entropy(model(pixels), classes)

    return TrainingStep(options, model, _images(options), loss_of, [optimiser])


def convolution(options: JobOptions) -> TrainingStep:
    """Residual network over 32x32 images."""
    torch.manual_seed(options.seed)
    width = 16 * options.scale
    body = [
        nn.Conv2d(3, width, 3, 1, 1),
        _Residual(width, width, 1),
        _Residual(width, 2 * width, 2),
        _Residual(2 * width, 4 * width, 2),
    ]
    return _train_images(options, _classifier(body, 4 * width))


def separable(options: JobOptions) -> TrainingStep:
    """Depthwise and pointwise convolutions in turn, as MobileNet has them."""
    torch.manual_seed(options.seed)
    width = 32 * options.scale
    body: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for inside, outside, stride in ((1, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2)):
        channels = inside * width
        body += [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)]
        body += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, outside * width, 1, bias=False)]
        body += [nn.BatchNorm2d(outside * width), nn.ReLU()]
    return _train_images(options, _classifier(body, 8 * width))


def attention(options: JobOptions) -> TrainingStep:
    """Transformer encoder over 64 tokens."""
    torch.manual_seed(options.seed)
    words, length, width = 1000, 64, 128 * options.scale
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.ModuleList([nn.Embedding(words, width), body, nn.Linear(width, words)]).to(options.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss_of(text: Tensor, following: Tensor) -> Tensor:
        hidden = text
        for part in model:
            hidden = part(hidden)
        return functional.cross_entropy(hidden.flatten(0, 1), following.flatten())

    return TrainingStep(options, model, _tokens(options, length, words), loss_of, [optimiser])


def recurrent(options: JobOptions) -> TrainingStep:
    """Two LSTM layers over 32 tokens."""
    torch.manual_seed(options.seed)
    words, length, width = 1000, 32, 128 * options.scale
    table, chain = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
    head = nn.Linear(width, words)
    model = nn.ModuleList([table, chain, head]).to(options.device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(text: Tensor, following: Tensor) -> Tensor:
        hidden, _ = chain(table(text))
        return functional.cross_entropy(head(hidden).flatten(0, 1), following.flatten())

    return TrainingStep(options, model, _tokens(options, length, words), loss_of, [optimiser])


def embedding(options: JobOptions) -> TrainingStep:
    """Embedding tables with sparse gradients under a small head, as recommenders have them."""
    torch.manual_seed(options.seed)
    tables, rows, width, bag = 8, 100_000 * options.scale, 32, 8
    store = nn.ModuleList(
        nn.EmbeddingBag(rows, width, mode="sum", sparse=True, include_last_offset=False)
        for _ in range(tables)
    ).to(options.device)
    head = nn.Sequential(nn.Linear(tables * width, 64), nn.ReLU(), nn.Linear(64, 1)).to(options.device)
    optimisers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in (store, head)]

    def draw(generator: torch.Generator) -> Batch:
        picked = torch.randint(rows, (tables, options.batch, bag), generator=generator)
        return picked, torch.randint(2, (options.batch,), generator=generator).float()

    def loss_of(picked: Tensor, clicked: Tensor) -> Tensor:
        found = [table(indices) for table, indices in zip(store, picked, strict=True)]
        score = head(torch.cat(found, 1)).squeeze(1)
        return functional.binary_cross_entropy_with_logits(score, clicked)

    whole = nn.ModuleList([store, head])
    return TrainingStep(options, whole, _cycled(options, draw), loss_of, optimisers)


def memory(options: JobOptions) -> TrainingStep:
    """Wide layers at a tiny batch: each step reads and writes every weight and Adam state."""
    torch.manual_seed(options.seed)
    width = 1024 * options.scale
    model = nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
    ).to(options.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def draw(generator: torch.Generator) -> Batch:
        values = torch.randn(options.batch, width, generator=generator)
        return values, torch.randn(options.batch, width, generator=generator)

    def loss_of(values: Tensor, targets: Tensor) -> Tensor:
        return functional.mse_loss(model(values), targets)

    return TrainingStep(options, model, _cycled(options, draw), loss_of, [optimiser])
