"""Builders: each takes a batch size and returns a module (that returns its loss) and its inputs.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cotenant.profiles.zoo import others, plain, residual, sequence

__all__ = [
    "Classified",
    "a3c",
    "alexnet",
    "bert_large",
    "bert_squad",
    "cyclegan",
    "dcgan",
    "deepspeech2",
    "dlrm",
    "efficientnet_small",
    "googlenet",
    "gpt2",
    "gpt2_medium",
    "inception3",
    "lm_ptb_large",
    "lm_ptb_medium",
    "lm_ptb_small",
    "lm_wikitext",
    "mobilenet2",
    "mobilenet2_small",
    "mobilenet3",
    "neumf",
    "nmt",
    "overfeat",
    "pointnet",
    "ppo",
    "recoder",
    "resnet18",
    "resnet18_small",
    "resnet50",
    "resnet101",
    "resnet152",
    "srcnn",
    "td3",
    "transformer",
    "vae",
    "vgg11",
    "vgg16",
    "vgg19",
    "vgg_small",
    "vit",
]

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Classified(nn.Module):
    """A network with cross entropy on top."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.body(x), labels)


def _images(body: nn.Module, batch: int, side: int) -> Made:
    return Classified(body), (torch.randn(batch, 3, side, side), _words(2, batch))


def _words(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(vocabulary, shape)


def resnet18(batch: int) -> Made:
    return _images(residual.ResNet(18), batch, 224)


def resnet18_small(batch: int) -> Made:
    return _images(residual.ResNet(18, 10, small_images=True), batch, 32)


def resnet50(batch: int) -> Made:
    return _images(residual.ResNet(50), batch, 224)


def resnet101(batch: int) -> Made:
    return _images(residual.ResNet(101), batch, 224)


def resnet152(batch: int) -> Made:
    return _images(residual.ResNet(152), batch, 224)


def vgg11(batch: int) -> Made:
    return _images(plain.VGG(11), batch, 224)


def vgg16(batch: int) -> Made:
    return _images(plain.VGG(16), batch, 224)


def vgg19(batch: int) -> Made:
    return _images(plain.VGG(19), batch, 224)


def vgg_small(batch: int) -> Made:
    return _images(plain.VGG(11, 10, small_images=True), batch, 32)


def alexnet(batch: int) -> Made:
    return _images(plain.AlexNet(), batch, 224)


def overfeat(batch: int) -> Made:
    return _images(plain.OverFeat(), batch, 231)


def googlenet(batch: int) -> Made:
    return _images(plain.GoogLeNet(), batch, 224)


def inception3(batch: int) -> Made:
    return _images(plain.InceptionV3(), batch, 299)


def mobilenet2(batch: int) -> Made:
    return _images(residual.MobileNetV2(), batch, 224)


def mobilenet2_small(batch: int) -> Made:
    return _images(residual.MobileNetV2(10, small_images=True), batch, 32)


def mobilenet3(batch: int) -> Made:
    return _images(residual.MobileNetV3Small(), batch, 224)


def efficientnet_small(batch: int) -> Made:
    return _images(residual.EfficientNetB0(10, small_images=True), batch, 32)


class _Mapped(nn.Module):
    """A network whose output shall equal an aim."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, aim: Tensor) -> Tensor:
        return functional.mse_loss(self.body(x), aim)


def srcnn(batch: int) -> Made:
    return _Mapped(plain.SRCNN()), (torch.randn(batch, 1, 33, 33), torch.randn(batch, 1, 33, 33))


def pointnet(batch: int) -> Made:
    return Classified(plain.PointNet()), (torch.randn(batch, 3, 2500), _words(16, batch))


def _language(vocabulary: int, width: int, steps: int, batch: int, dropout: float) -> Made:
    model = sequence.LstmLanguageModel(vocabulary, width, 2, dropout)
    return model, (_words(vocabulary, steps, batch), _words(vocabulary, steps, batch))


def lm_wikitext(batch: int) -> Made:
    return _language(33278, 200, 35, batch, 0.2)


def lm_ptb_small(batch: int) -> Made:
    return _language(10000, 200, 20, batch, 0.0)


def lm_ptb_medium(batch: int) -> Made:
    return _language(10000, 650, 35, batch, 0.5)


def lm_ptb_large(batch: int) -> Made:
    return _language(10000, 1500, 35, batch, 0.65)


def nmt(batch: int) -> Made:
    steps = 30
    inputs = (_words(7709, steps, batch), _words(17191, steps, batch), _words(17191, steps, batch))
    return sequence.LstmTranslator(7709, 17191), inputs


def transformer(batch: int) -> Made:
    words = tuple(_words(9521, batch, 30) for _ in range(3))
    return sequence.Translator(9521), words


def _encoder(batch: int, length: int, width: int, layers: int, *, answers: int) -> Made:
    model = sequence.Encoder(
        30522, 512, width, layers=layers, heads=width // 64, hidden=4 * width, answers=answers, fused=False
    )
    return model, (_words(30522, batch, length), _words(2, batch, length))


def bert_squad(batch: int) -> Made:
    return _encoder(batch, 384, 768, 12, answers=2)


def bert_large(batch: int) -> Made:
    return _encoder(batch, 512, 1024, 24, answers=0)


def _decoder(batch: int, width: int, layers: int) -> Made:
    model = sequence.Decoder(50257, 1024, width, layers=layers, heads=width // 64, fused=False)
    return model, (_words(50257, batch, 1024), _words(50257, batch, 1024))


def gpt2(batch: int) -> Made:
    return _decoder(batch, 768, 12)


def gpt2_medium(batch: int) -> Made:
    return _decoder(batch, 1024, 24)


class _Patches(nn.Module):
    """ViT-B/16 (Dosovitskiy and others 2021)."""

    def __init__(self, side: int = 224, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (side // 16) ** 2 + 1, width))
        self.layers = nn.ModuleList(sequence.vision_layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(patches), -1, -1), patches], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 0]))


def vit(batch: int) -> Made:
    return _images(_Patches(), batch, 224)


def recoder(batch: int) -> Made:
    return others.Recoder(), (torch.rand(batch, 20108),)


def neumf(batch: int) -> Made:
    return others.NeuMF(), (_words(6040, batch), _words(3706, batch), torch.rand(batch))


def dlrm(batch: int) -> Made:
    rows = 100_000
    return others.DLRM([rows] * 26), (torch.randn(batch, 13), _words(rows, batch, 26), torch.rand(batch))


def cyclegan(batch: int) -> Made:
    return others.CycleGAN(), (torch.randn(batch, 3, 256, 256), torch.randn(batch, 3, 256, 256))


def dcgan(batch: int) -> Made:
    return others.DCGAN(), (torch.randn(batch, 3, 64, 64), torch.randn(batch, 100, 1, 1))


def vae(batch: int) -> Made:
    return others.VAE(), (torch.rand(batch, 784),)


def a3c(batch: int) -> Made:
    return others.A3C(), (torch.randn(20, batch, 1, 80, 80),)


def ppo(batch: int) -> Made:
    return others.PPO(), (torch.randn(batch, 8), torch.randn(batch), torch.randn(batch))


def td3(batch: int) -> Made:
    return others.TD3(), (torch.randn(batch, 24), torch.randn(batch, 4), torch.randn(batch))


def deepspeech2(batch: int) -> Made:
    # 8 s in windows of 10 ms, 161 frequencies; 100 letters.
    lengths: Any = torch.full((batch,), 100)
    return sequence.DeepSpeech2(), (torch.randn(batch, 1, 161, 800), _words(28, batch, 100) + 1, lengths)
