"""The input-bound job: most of a step goes into fetching, decompressing and augmenting a batch."""

from __future__ import annotations

import tempfile
import time
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cotenant.profiles.jobs.included import JobOptions
from cotenant.profiles.jobs.networks import Batch, TrainingStep

__all__ = ["input_bound"]

_SIDE = 48
_CROP = 32
_RECORDS = 256
_CLASSES = 10


class _Store:
    """Compressed images in a file of their own, which vanishes with the process."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._places: list[tuple[int, int]] = []
        start = 0
        for _ in range(_RECORDS):
            # Few distinct values, as in a photograph's smooth parts, so that they do compress.
            image = random.integers(0, 12, (3, _SIDE, _SIDE), dtype=np.uint8) * 20
            packed = zlib.compress(image.tobytes(), 6)
            self._file.write(packed)
            self._places.append((start, len(packed)))
            start += len(packed)
        self._file.flush()

    def read(self, number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        """One image, decompressed."""
        start, size = self._places[number % _RECORDS]
        self._file.seek(start)
        data = zlib.decompress(self._file.read(size))
        return np.frombuffer(data, dtype=np.uint8).reshape(3, _SIDE, _SIDE)


class _Batches:
    """Drawn, read and augmented one by one; the place is that of the random numbers."""

    def __init__(self, options: JobOptions) -> None:
        self._options, self._store = options, _Store(options.seed + 1)
        self._random = np.random.default_rng(options.seed + 2)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        options, random = self._options, self._random
        if options.wait_ms:
            time.sleep(options.wait_ms / 1000.0)  # a remote store answers late, whoever runs meanwhile
        images = np.empty((options.batch, 3, _CROP, _CROP), dtype=np.float32)
        for i, number in enumerate(random.integers(_RECORDS, size=options.batch)):
            top, left = random.integers(_SIDE - _CROP, size=2)
            image = self._store.read(int(number))[:, top : top + _CROP, left : left + _CROP]
            images[i] = image[:, :, ::-1] if random.random() < 0.5 else image
        images -= images.mean()
        images /= images.std() + 1e-6
        return torch.from_numpy(images), torch.from_numpy(random.integers(_CLASSES, size=options.batch))

    def state_dict(self) -> dict[str, Any]:
        """State of the generator: numbers and text."""
        return dict(self._random.bit_generator.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._random.bit_generator.state = state


def input_bound(options: JobOptions) -> TrainingStep:
    """A small network behind a costly input pipeline."""
    torch.manual_seed(options.seed)
    width = 8 * options.scale
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, _CLASSES),
    ).to(options.device)  # fmt: skip
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_of(pixels: Tensor, classes: Tensor) -> Tensor:
        return functional.cross_entropy(model(pixels), classes)

    return TrainingStep(options, model, _Batches(options), loss_of, [optimiser])
