"""Feed-forward convolutional networks: AlexNet, OverFeat, VGG, GoogLeNet, Inception v3, SRCNN, PointNet.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["SRCNN", "VGG", "AlexNet", "GoogLeNet", "InceptionV3", "OverFeat", "PointNet"]

_VGG = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """VGG-11, 16 or 19 (Simonyan and Zisserman 2015).

    Parameters
    ----------
    layers : int
    classes : int
    small_images : bool
        For CIFAR: batch normalisation and a single linear layer.
    """

    def __init__(self, layers: int, classes: int = 1000, *, small_images: bool = False) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        inside = 3
        for stage, count in enumerate(_VGG[layers]):
            out = min(64 << stage, 512)
            for _ in range(count):
                parts.append(nn.Conv2d(inside, out, 3, padding=1))
                if small_images:
                    parts.append(nn.BatchNorm2d(out))
                parts.append(nn.ReLU(inplace=True))
                inside = out
            parts.append(nn.MaxPool2d(2))
        self.body = nn.Sequential(*parts)
        self.head: nn.Module = nn.Linear(512, classes)
        if not small_images:
            wide = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()]
            self.head = nn.Sequential(
                *wide, nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, classes)
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.body(x), 1))


def _classifier(inside: int, hidden: tuple[int, int], classes: int) -> list[nn.Module]:
    a, b = hidden
    return [
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(inside, a),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(a, b),
        nn.ReLU(inplace=True),
        nn.Linear(b, classes),
    ]


class AlexNet(nn.Sequential):
    """AlexNet in one column (Krizhevsky 2014), on images of 224."""

    def __init__(self, classes: int = 1000) -> None:
        relu = nn.ReLU(inplace=True)
        super().__init__(
            *(nn.Conv2d(3, 64, 11, 4, 2), relu, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), relu, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), relu, nn.Conv2d(384, 256, 3, padding=1), relu),
            *(nn.Conv2d(256, 256, 3, padding=1), relu, nn.MaxPool2d(3, 2)),
            *_classifier(256 * 36, (4096, 4096), classes),
        )


class OverFeat(nn.Sequential):
    """OverFeat, the fast model (Sermanet and others 2014, table 1), on images of 231."""

    def __init__(self, classes: int = 1000) -> None:
        relu = nn.ReLU(inplace=True)
        super().__init__(
            *(nn.Conv2d(3, 96, 11, 4), relu, nn.MaxPool2d(2), nn.Conv2d(96, 256, 5), relu, nn.MaxPool2d(2)),
            *(nn.Conv2d(256, 512, 3, padding=1), relu, nn.Conv2d(512, 1024, 3, padding=1), relu),
            *(nn.Conv2d(1024, 1024, 3, padding=1), relu, nn.MaxPool2d(2)),
            *_classifier(1024 * 36, (3072, 4096), classes),
        )


class SRCNN(nn.Sequential):
    """Super-resolution of one channel, kernels 9-1-5 (Dong and others 2014)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 64, 9, padding=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 32, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 1, 5, padding=2),
        )


def _unit(
    a: int, b: int, kernel: int | tuple[int, int] = 1, stride: int = 1, pad: int | tuple[int, int] = 0
) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(a, b, kernel, stride, pad, bias=False), nn.BatchNorm2d(b, eps=0.001), nn.ReLU(inplace=True)
    )


class _Branches(nn.Module):
    """Branches over the same input, joined by channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(nn.Module):
    """GoogLeNet with batch normalisation, no auxiliary heads (Szegedy and others 2015, table 1)."""

    # in, 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, pooled
    _TABLE = (
        (192, 64, 96, 128, 16, 32, 32),
        (256, 128, 128, 192, 32, 96, 64),
        (480, 192, 96, 208, 16, 48, 64),
        (512, 160, 112, 224, 24, 64, 64),
        (512, 128, 128, 256, 24, 64, 64),
        (512, 112, 144, 288, 32, 64, 64),
        (528, 256, 160, 320, 32, 128, 128),
        (832, 256, 160, 320, 32, 128, 128),
        (832, 384, 192, 384, 48, 128, 128),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        parts: list[nn.Module] = [_unit(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, ceil_mode=True), _unit(64, 64)]
        parts += [_unit(64, 192, 3, 1, 1), nn.MaxPool2d(3, 2, ceil_mode=True)]
        for number, (inside, one, three_in, three, five_in, five, pooled) in enumerate(self._TABLE):
            parts.append(
                _Branches(
                    _unit(inside, one),
                    nn.Sequential(_unit(inside, three_in), _unit(three_in, three, 3, 1, 1)),
                    nn.Sequential(_unit(inside, five_in), _unit(five_in, five, 5, 1, 2)),
                    nn.Sequential(nn.MaxPool2d(3, 1, 1), _unit(inside, pooled)),
                )
            )
            if number in {1, 6}:
                parts.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        self.body = nn.Sequential(*parts)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def _inception_a(inside: int, pooled: int) -> nn.Module:
    return _Branches(
        _unit(inside, 64),
        nn.Sequential(_unit(inside, 48), _unit(48, 64, 5, 1, 2)),
        nn.Sequential(_unit(inside, 64), _unit(64, 96, 3, 1, 1), _unit(96, 96, 3, 1, 1)),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(inside, pooled)),
    )


def _inception_c(w: int) -> nn.Module:
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return _Branches(
        _unit(768, 192),
        nn.Sequential(_unit(768, w), _unit(w, w, *row), _unit(w, 192, *column)),
        nn.Sequential(
            _unit(768, w), _unit(w, w, *column), _unit(w, w, *row), _unit(w, w, *column), _unit(w, 192, *row)
        ),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(768, 192)),
    )


def _inception_e(inside: int) -> nn.Module:
    def split() -> nn.Module:
        return _Branches(_unit(384, 384, (1, 3), 1, (0, 1)), _unit(384, 384, (3, 1), 1, (1, 0)))

    return _Branches(
        _unit(inside, 320),
        nn.Sequential(_unit(inside, 384), split()),
        nn.Sequential(_unit(inside, 448), _unit(448, 384, 3, 1, 1), split()),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(inside, 192)),
    )


class InceptionV3(nn.Module):
    """Inception v3 on images of 299, no auxiliary head (Szegedy and others 2016)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        self.body = nn.Sequential(
            *(_unit(3, 32, 3, 2), _unit(32, 32, 3), _unit(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2)),
            *(_unit(64, 80), _unit(80, 192, 3), nn.MaxPool2d(3, 2)),
            *(_inception_a(192, 32), _inception_a(256, 64), _inception_a(288, 64)),
            _Branches(
                _unit(288, 384, 3, 2),
                nn.Sequential(_unit(288, 64), _unit(64, 96, 3, 1, 1), _unit(96, 96, 3, 2)),
                nn.MaxPool2d(3, 2),
            ),
            *(_inception_c(128), _inception_c(160), _inception_c(160), _inception_c(192)),
            _Branches(
                nn.Sequential(_unit(768, 192), _unit(192, 320, 3, 2)),
                nn.Sequential(
                    _unit(768, 192), _unit(192, 192, *row), _unit(192, 192, *column), _unit(192, 192, 3, 2)
                ),
                nn.MaxPool2d(3, 2),
            ),
            *(_inception_e(1280), _inception_e(2048)),
        )
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class _Align(nn.Module):
    """PointNet's small network that predicts a matrix to turn its input by."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.body = _points(k, (64, 128, 1024))
        self.head = nn.Sequential(
            nn.Linear(1024, 512),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
        )
        self.last = nn.Linear(256, k * k)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.head(self.body(x).amax(2)))
        return found.view(-1, self.k, self.k) + torch.eye(self.k, device=found.device)


def _points(inside: int, widths: tuple[int, ...]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for width in widths:
        parts += [nn.Conv1d(inside, width, 1), nn.BatchNorm1d(width), nn.ReLU()]
        inside = width
    return nn.Sequential(*parts)


class PointNet(nn.Module):
    """PointNet's classifier with input transform (Qi and others 2017).

    Parameters
    ----------
    classes : int
    """

    def __init__(self, classes: int = 16) -> None:
        super().__init__()
        self.align = _Align(3)
        self.first, self.rest = _points(3, (64,)), _points(64, (128, 1024))
        self.head = nn.Sequential(
            *(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 256), nn.Dropout(0.3)),
            *(nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, classes)),
        )

    def forward(self, points: Tensor) -> Tensor:
        turned = torch.bmm(self.align(points), points)
        return self.head(self.rest(self.first(turned)).amax(2))
