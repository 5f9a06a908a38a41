"""Residual and inverted-residual networks: ResNet, MobileNetV2 and V3, EfficientNet-B0.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["EfficientNetB0", "MobileNetV2", "MobileNetV3Small", "ResNet"]

_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class _Block(nn.Module):
    """Residual block: two 3x3 convolutions, or a bottleneck of three with expansion 4."""

    def __init__(self, inside: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        out = width * 4 if bottleneck else width
        if bottleneck:
            sizes = [(inside, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        else:
            sizes = [(inside, width, 3, stride), (width, width, 3, 1)]
        parts: list[nn.Module] = []
        for number, (a, b, kernel, step) in enumerate(sizes):
            parts += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b)]
            if number < len(sizes) - 1:
                parts.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*parts)
        self.short: nn.Module | None = None
        if stride != 1 or inside != out:
            self.short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.body(x) + (x if self.short is None else self.short(x))
        return self.relu(added)


class ResNet(nn.Module):
    """ResNet v1.5 (He and others 2016; stride in the 3x3 convolution of a bottleneck).

    Parameters
    ----------
    layers : int
        18, 34, 50, 101 or 152.
    classes : int
    small_images : bool
        The stem for CIFAR: one 3x3 convolution, no pooling.
    """

    def __init__(self, layers: int, classes: int = 1000, *, small_images: bool = False) -> None:
        super().__init__()
        bottleneck = layers >= 50
        if small_images:
            stem: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
        else:
            stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
            stem.append(nn.MaxPool2d(3, 2, 1))
        self.stem = nn.Sequential(*stem)
        inside, stages = 64, []
        for stage, count in enumerate(_DEPTHS[layers]):
            blocks = []
            for number in range(count):
                stride = 2 if stage and not number else 1
                blocks.append(_Block(inside, 64 << stage, stride, bottleneck=bottleneck))
                inside = (64 << stage) * (4 if bottleneck else 1)
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)))


def _conv(
    a: int,
    b: int,
    kernel: int = 1,
    stride: int = 1,
    *,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU6,
) -> list[nn.Module]:
    made: list[nn.Module] = [
        nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(b),
    ]
    if act is not None:
        made.append(act(inplace=True))
    return made


class _Squeeze(nn.Module):
    """Squeeze and excitation: a gate for each channel."""

    def __init__(self, channels: int, squeezed: int, gate: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            act,
            nn.Conv2d(squeezed, channels, 1),
            gate,
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.body(x)


class _Inverted(nn.Module):
    """Inverted residual: expand, depthwise, (squeeze), project; added where shapes allow."""

    def __init__(
        self,
        a: int,
        b: int,
        *,
        hidden: int,
        kernel: int,
        stride: int,
        act: type[nn.Module],
        squeeze: nn.Module | None = None,
    ) -> None:
        super().__init__()
        parts = _conv(a, hidden, act=act) if hidden != a else []
        parts += _conv(hidden, hidden, kernel, stride, groups=hidden, act=act)
        if squeeze is not None:
            parts.append(squeeze)
        parts += _conv(hidden, b, act=None)
        self.body = nn.Sequential(*parts)
        self.added = stride == 1 and a == b

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out if self.added else out


class _Mobile(nn.Module):
    """A stem, blocks, a head: the frame of the three networks below."""

    def __init__(self, body: list[nn.Module], head: list[nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(*head)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.body(x)))


class MobileNetV2(_Mobile):
    """MobileNetV2, width 1 (Sandler and others 2018, table 2).

    Parameters
    ----------
    classes : int
    small_images : bool
        No reduction in the first two stages, for CIFAR.
    """

    _TABLE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))
    _LAST = (6, 320, 1, 1)

    def __init__(self, classes: int = 1000, *, small_images: bool = False) -> None:
        parts = _conv(3, 32, 3, 1 if small_images else 2)
        inside = 32
        for stage, (expand, out, count, stride) in enumerate((*self._TABLE, self._LAST)):
            for number in range(count):
                step = stride if not number and not (small_images and stage < 2) else 1
                parts.append(
                    _Inverted(inside, out, hidden=inside * expand, kernel=3, stride=step, act=nn.ReLU6)
                )
                inside = out
        parts += _conv(320, 1280)
        super().__init__(parts, [nn.Dropout(0.2), nn.Linear(1280, classes)])


class MobileNetV3Small(_Mobile):
    """MobileNetV3-Small, width 1 (Howard and others 2019, table 2)."""

    # kernel, expanded, out, squeezed, hard-swish, stride
    _TABLE = (
        (3, 16, 16, 1, 0, 2),
        (3, 72, 24, 0, 0, 2),
        (3, 88, 24, 0, 0, 1),
        (5, 96, 40, 1, 1, 2),
        (5, 240, 40, 1, 1, 1),
        (5, 240, 40, 1, 1, 1),
        (5, 120, 48, 1, 1, 1),
        (5, 144, 48, 1, 1, 1),
        (5, 288, 96, 1, 1, 2),
        (5, 576, 96, 1, 1, 1),
        (5, 576, 96, 1, 1, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        parts = _conv(3, 16, 3, 2, act=nn.Hardswish)
        inside = 16
        for kernel, hidden, out, squeezed, hard, stride in self._TABLE:
            act: type[nn.Module] = nn.Hardswish if hard else nn.ReLU
            # A quarter of the channels, in whole eights.
            gate = (
                _Squeeze(hidden, _eighths(hidden / 4), nn.Hardsigmoid(), nn.ReLU(inplace=True))
                if squeezed
                else None
            )
            parts.append(
                _Inverted(inside, out, hidden=hidden, kernel=kernel, stride=stride, act=act, squeeze=gate)
            )
            inside = out
        parts += _conv(inside, 576, act=nn.Hardswish)
        head = [nn.Linear(576, 1024), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(1024, classes)]
        super().__init__(parts, head)


def _eighths(channels: float) -> int:
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class EfficientNetB0(_Mobile):
    """EfficientNet-B0 (Tan and Le 2019, table 1), without stochastic depth.

    Parameters
    ----------
    classes : int
    small_images : bool
        No reduction in the stem, for CIFAR.
    """

    # expansion, out, blocks, stride, kernel
    _TABLE = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )

    def __init__(self, classes: int = 1000, *, small_images: bool = False) -> None:
        parts = _conv(3, 32, 3, 1 if small_images else 2, act=nn.SiLU)
        inside = 32
        for expand, out, count, stride, kernel in self._TABLE:
            for number in range(count):
                hidden = inside * expand
                gate = _Squeeze(hidden, max(1, inside // 4), nn.Sigmoid(), nn.SiLU(inplace=True))
                step = 1 if number else stride
                parts.append(
                    _Inverted(
                        inside, out, hidden=hidden, kernel=kernel, stride=step, act=nn.SiLU, squeeze=gate
                    )
                )
                inside = out
        parts += _conv(320, 1280, act=nn.SiLU)
        super().__init__(parts, [nn.Dropout(0.2), nn.Linear(1280, classes)])
