"""Recommenders, generative networks and the networks of reinforcement learning.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["A3C", "DCGAN", "DLRM", "PPO", "TD3", "VAE", "CycleGAN", "NeuMF", "Recoder", "dense"]


def dense(sizes: Sequence[int], act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), act()]
    return nn.Sequential(*parts[:-1])


class DLRM(nn.Module):
    """DLRM (Naumov and others 2019): embeddings, pairwise dot products, two towers.

    Parameters
    ----------
    tables : sequence of int
        Rows of each embedding.
    width : int
    bottom, top : sequence of int
        Hidden sizes of the towers; the bottom one takes 13 numbers.
    """

    def __init__(
        self,
        tables: Sequence[int],
        width: int = 64,
        *,
        bottom: Sequence[int] = (512, 256),
        top: Sequence[int] = (512, 256),
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in tables)
        self.bottom = dense([13, *bottom, width])
        count = len(tables) + 1
        self.top = dense([width + count * (count - 1) // 2, *top, 1])
        pairs = torch.tril_indices(count, count, -1, device="cpu")
        self.register_buffer("pairs", pairs)

    def forward(self, numbers: Tensor, rows: Tensor, clicks: Tensor) -> Tensor:
        first = self.bottom(numbers)
        found = [table(row.unsqueeze(1)) for table, row in zip(self.tables, rows.unbind(1), strict=True)]
        together = torch.stack([first, *found], 1)
        products = torch.bmm(together, together.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        out = self.top(torch.cat([first, products], 1)).squeeze(1)
        return functional.binary_cross_entropy_with_logits(out, clicks)


class NeuMF(nn.Module):
    """Neural matrix factorisation (He and others 2017) on MovieLens.

    Parameters
    ----------
    users, items, width : int
    """

    def __init__(self, users: int = 6040, items: int = 3706, width: int = 32) -> None:
        super().__init__()
        deep = width * 4
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.deep_users, self.deep_items = nn.Embedding(users, deep), nn.Embedding(items, deep)
        self.tower = dense([2 * deep, deep, deep // 2, width])
        self.out = nn.Linear(2 * width, 1)

    def forward(self, user: Tensor, item: Tensor, liked: Tensor) -> Tensor:
        flat = self.users(user) * self.items(item)
        deep = self.tower(torch.cat([self.deep_users(user), self.deep_items(item)], -1)).relu()
        out = self.out(torch.cat([flat, deep], -1)).squeeze(-1)
        return functional.binary_cross_entropy_with_logits(out, liked)


class Recoder(nn.Module):
    """Autoencoder over what users rated (Recoder on MovieLens 20M): one hidden layer.

    Parameters
    ----------
    items, width : int
    """

    def __init__(self, items: int = 20108, width: int = 200) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(items, width), nn.Linear(width, items)

    def forward(self, ratings: Tensor) -> Tensor:
        found = self.decode(torch.tanh(self.encode(functional.dropout(ratings, 0.5, self.training))))
        return functional.binary_cross_entropy_with_logits(found, ratings, reduction="sum")


class VAE(nn.Module):
    """Variational autoencoder on digits: 784-400-20 and back."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.mean, self.spread = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.decoder = dense([20, 400, 784])

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x).relu()
        mean, spread = self.mean(hidden), self.spread(hidden)
        drawn = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        error = functional.binary_cross_entropy_with_logits(self.decoder(drawn), x, reduction="sum")
        return error - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()


def _fake_or_real(scores: Tensor, real: bool) -> Tensor:
    aim = torch.ones_like(scores) if real else torch.zeros_like(scores)
    return functional.mse_loss(scores, aim)


class DCGAN(nn.Module):
    """DCGAN on images of 64 (Radford and others 2016), one step of both networks.

    Parameters
    ----------
    width : int
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        sizes = [width * 8, width * 4, width * 2, width]
        up: list[nn.Module] = [nn.ConvTranspose2d(100, sizes[0], 4, 1, 0, bias=False)]
        down: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        for a, b in pairwise(sizes):
            up += [nn.BatchNorm2d(a), nn.ReLU(inplace=True), nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False)]
        for a, b in pairwise(sizes[::-1]):
            down += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, inplace=True)]
        up += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
        self.generator = nn.Sequential(*up)
        self.judge = nn.Sequential(*down, nn.Conv2d(sizes[0], 1, 4, bias=False), nn.Flatten(0))

    def forward(self, images: Tensor, noise: Tensor) -> Tensor:
        made = self.generator(noise)
        judged = _fake_or_real(self.judge(images), True) + _fake_or_real(self.judge(made.detach()), False)
        return judged + _fake_or_real(self.judge(made), True)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(
                nn.ReflectionPad2d(1),
                nn.Conv2d(width, width, 3),
                nn.InstanceNorm2d(width),
                nn.ReLU(inplace=True),
            ),
            *(nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def _painter(width: int = 64, blocks: int = 9) -> nn.Sequential:
    parts: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7)]
    for _ in range(2):
        parts += [nn.InstanceNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, 2 * width, 3, 2, 1)]
        width *= 2
    parts += [nn.InstanceNorm2d(width), nn.ReLU(inplace=True), *(_Residual(width) for _ in range(blocks))]
    for _ in range(2):
        parts += [
            nn.ConvTranspose2d(width, width // 2, 3, 2, 1, 1),
            nn.InstanceNorm2d(width // 2),
            nn.ReLU(inplace=True),
        ]
        width //= 2
    return nn.Sequential(*parts, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def _judge() -> nn.Sequential:
    parts: list[nn.Module] = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
    for a, b, stride in ((64, 128, 2), (128, 256, 2), (256, 512, 1)):
        parts += [nn.Conv2d(a, b, 4, stride, 1), nn.InstanceNorm2d(b), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*parts, nn.Conv2d(512, 1, 4, 1, 1))


class CycleGAN(nn.Module):
    """CycleGAN on images of 256 (Zhu and others 2017): two painters, two judges, one step of all.

    All losses are summed before one backward pass; the published loop does the judges' after
    the painters', so its peak is that of the painters' part alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.to_b, self.to_a = _painter(), _painter()
        self.judge_a, self.judge_b = _judge(), _judge()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        made_b, made_a = self.to_b(a), self.to_a(b)
        cycled = functional.l1_loss(self.to_a(made_b), a) + functional.l1_loss(self.to_b(made_a), b)
        same = functional.l1_loss(self.to_a(a), a) + functional.l1_loss(self.to_b(b), b)
        fooled = _fake_or_real(self.judge_a(made_a), True) + _fake_or_real(self.judge_b(made_b), True)
        judged = sum(
            _fake_or_real(judge(real), True) + _fake_or_real(judge(made.detach()), False)
            for judge, real, made in ((self.judge_a, a, made_a), (self.judge_b, b, made_b))
        )
        return 10 * cycled + 5 * same + fooled + judged


class A3C(nn.Module):
    """Actor-critic on frames of Pong: four convolutions, an LSTM cell, two heads; 20 steps unrolled.

    Parameters
    ----------
    actions : int
    """

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for inside in (1, 32, 32, 32):
            parts += [nn.Conv2d(inside, 32, 3, 2, 1), nn.ELU()]
        self.body = nn.Sequential(*parts, nn.Flatten())
        self.cell = nn.LSTMCell(32 * 5 * 5, 256)
        self.value, self.policy = nn.Linear(256, 1), nn.Linear(256, actions)

    def forward(self, frames: Tensor) -> Tensor:
        hidden = cell = frames.new_zeros(frames.shape[1], 256)
        total = frames.new_zeros(())
        for frame in frames.unbind(0):
            hidden, cell = self.cell(self.body(frame), (hidden, cell))
            total = total + self.value(hidden).mean() + self.policy(hidden).log_softmax(-1).mean()
        return total


class PPO(nn.Module):
    """Proximal policy optimisation on LunarLander: two small towers."""

    def __init__(self, states: int = 8, actions: int = 4, width: int = 64) -> None:
        super().__init__()
        self.actor = dense([states, width, width, actions], nn.Tanh)
        self.critic = dense([states, width, width, 1], nn.Tanh)

    def forward(self, states: Tensor, old: Tensor, gain: Tensor) -> Tensor:
        chance = self.actor(states).log_softmax(-1).amax(-1)
        ratio = (chance - old).exp()
        kept = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        return functional.mse_loss(self.critic(states).squeeze(-1), gain) - kept.mean()


class TD3(nn.Module):
    """Twin delayed policy gradients on BipedalWalker: an actor and two critics."""

    def __init__(self, states: int = 24, actions: int = 4, width: int = 256) -> None:
        super().__init__()
        self.actor = dense([states, width, width, actions])
        self.critics = nn.ModuleList(dense([states + actions, width, width, 1]) for _ in range(2))

    def forward(self, states: Tensor, actions: Tensor, aims: Tensor) -> Tensor:
        asked = torch.cat([states, actions], 1)
        error = sum(functional.mse_loss(critic(asked).squeeze(1), aims) for critic in self.critics)
        return error - self.critics[0](torch.cat([states, self.actor(states).tanh()], 1)).mean()
