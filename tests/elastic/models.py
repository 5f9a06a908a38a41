"""Eight kinds of models, small, for the matrix of equality: model, data, and the loss of a turn."""

from __future__ import annotations

import contextlib
import runpy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from cotenant import elastic

_TRAINING = runpy.run_path(str(Path(__file__).with_name("training.py")))
Gpt = _TRAINING["Gpt"]


class Vit(nn.Module):
    """Patches of 2 x 2 as words of one encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(2, 16, 2, stride=2)
        self.place = nn.Parameter(torch.randn(9, 16) * 0.1)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(self.patch(x).flatten(2).transpose(1, 2) + self.place).mean(1))


class Lstm(nn.Module):
    """Under fp16 autocast the recurrent layer computes in fp32: oneDNN has no fp16 LSTM on most CPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16
        with torch.autocast("cpu", enabled=False) if half else contextlib.nullcontext():
            last = self.lstm(self.embed(x))[0][:, -1]
        return self.head(last)


class Dlrm(nn.Module):
    """Bags of categories and dense numbers, their products, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(40, 8, mode="sum") for _ in range(3))
        self.dense = nn.Linear(12, 8)
        self.head = nn.Sequential(nn.Linear(6 + 8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        bags = [bag(x[:, 4 * n : 4 * n + 4]) for n, bag in enumerate(self.bags)]
        dense = self.dense(x.float() / 40)
        rows = torch.stack([*bags, dense.to(bags[0].dtype)], 1)
        pairs = torch.triu_indices(4, 4, 1)
        return self.head(torch.cat([(rows @ rows.transpose(1, 2))[:, pairs[0], pairs[1]], dense], 1))


class Gnn(nn.Module):
    """Messages along the edges from each word to the next, summed where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.message, self.update = nn.Linear(16, 8), nn.Linear(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        nodes = self.embed(x).flatten(0, 1)
        source = torch.arange(len(nodes))
        target = torch.cat([(source + 1) % len(nodes), x.flatten() % len(nodes)])
        source = torch.cat([source, source])
        messages = self.message(torch.cat([nodes[source], nodes[target]], 1))
        arrived = torch.zeros_like(messages[: len(nodes)]).index_add(0, target, messages)
        nodes = torch.relu(self.update(torch.cat([nodes.to(arrived.dtype), arrived], 1)))
        return self.head(nodes.view(len(x), -1, 8).mean(1))


class Gan(nn.Module):
    """Generator and judge, an inner loop and an optimiser each; the judge is updated first."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 72))
        self.judge = nn.Sequential(nn.Linear(72, 32), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(32, 1))


class Unet(nn.Module):
    """Predicts the noise in a noisy picture: one level down and up, group norm, a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(1, 8)
        self.first = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x: Any, level: Any) -> Any:
        first = self.first(x)
        low = functional.silu(self.down(first) + self.time(level)[:, :, None, None])
        return self.last(torch.cat([first, self.up(low)], 1))


def build(kind: str) -> tuple[Any, Any]:
    """Model, and 50 samples of pictures or words with a label."""
    generator = torch.Generator().manual_seed(5)
    pictures = torch.randn(50, 2, 6, 6, generator=generator)
    words, labels = torch.randint(40, (50, 12), generator=generator), torch.arange(50) % 4
    if kind == "cnn":
        norm = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3)]
        model: Any = nn.Sequential(*norm, nn.Linear(64, 4))
    else:
        made = {"vit": Vit, "gpt": Gpt, "lstm": Lstm, "dlrm": Dlrm, "gnn": Gnn, "gan": Gan, "diffusion": Unet}
        model = made[kind]()
    x = pictures if kind in ("cnn", "vit", "gan", "diffusion") else words
    return model, torch.utils.data.TensorDataset(x, labels)


def loss_of(kind: str, model: Any, x: Any, y: Any, number: int = 0) -> Any:
    """Loss of a turn in the first, second, ... inner loop of a step."""
    if kind == "gan":
        fake = model.maker(torch.randn(len(x), 6))
        soft = functional.softplus
        if number:
            return soft(-model.judge(fake)).mean()
        return soft(-model.judge(x.flatten(1))).mean() + soft(model.judge(fake.detach())).mean()
    if kind == "diffusion":
        level, noise = torch.rand(len(x), 1), torch.randn_like(x)
        part = level[:, :, None, None]
        return functional.mse_loss(model(x * (1 - part) + noise * part, level).float(), noise)
    return functional.cross_entropy(model(x).float(), y)


def optimizer(kind: str, parameters: Any) -> Any:
    """One of the four."""
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    made = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor}
    return made[kind](parameters, lr=0.01)


def main(options: dict[str, Any]) -> None:
    """Train; the first process writes a line for each step."""
    digest = _TRAINING["digest"]
    kind = options["kind"]
    torch.set_num_threads(1)
    run = elastic.Run(options["workers"], 4, seed=3, order=options.get("order", "blocks"))
    model, data = build(kind)
    model, loader = run.prepare(model, data, 48 // (6 * options["workers"]), last="drop")
    parts = [model.judge, model.maker] if kind == "gan" else [model]
    optimizers = [optimizer(options["optimizer"], part.parameters()) for part in parts]
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options["precision"])
    scaler = torch.amp.GradScaler("cpu", enabled=half is torch.float16, init_scale=2.0**10)
    run.keep(optimizers, scaler=scaler)
    for step in run.steps(loader, epochs=1):
        for number, one in enumerate(optimizers):
            for x, y in step.turn(one) if len(optimizers) > 1 else step:
                with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
                    loss = loss_of(kind, model, x, y, number)
                scaler.scale(loss).backward()
                step.note(**{f"loss{number}": loss.item()})
            scaler.step(one)
            one.zero_grad()
        scaler.update()
        if run.first:
            states = [model.state_dict(), [one.state_dict() for one in optimizers], scaler.state_dict()]
            with Path(options["log"]).open("a") as file:
                text = digest([*states, [step.mean(f"loss{n}") for n in range(len(optimizers))]])
                file.write(f"{step.number} {text} {run.processes}\n")
