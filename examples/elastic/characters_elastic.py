"""A small character model of text, in one file: four logical workers, half precision, a warmed-up cosine schedule.

``cotenant run --elastic 1:4 -- python characters_elastic.py``; ``characters_accumulate.py`` is the same training
before it was moved over.
"""

import math
import os
import random

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from cotenant import elastic

steps, batch_size, block, workers = int(os.environ.get("STEPS", "30")), 4, 16, 4
width, heads, layers, dropout = 32, 2, 2, 0.1
peak, floor, warmup_steps = 3e-3, 3e-4, 5

run = elastic.Run(workers=workers, seed=1)

# A text: sentences of a small grammar.
words = random.Random(5)
names, verbs = ["ada", "ben", "cleo", "dan"], ["sees", "asks", "helps"]
sentences = (f"{words.choice(names)} {words.choice(verbs)} {words.choice(names)}." for _ in range(400))
text = " ".join(sentences)
characters = sorted(set(text))
codes = {character: number for number, character in enumerate(characters)}
data = torch.tensor([codes[character] for character in text])


class Crops(Dataset):
    """As many pieces of the text as the run takes; each begins anywhere."""

    def __len__(self) -> int:
        return steps * workers * batch_size

    def __getitem__(self, index: int):
        start = torch.randint(len(data) - block - 1, ())
        return data[start : start + block], data[start + 1 : start + block + 1]


class Characters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(characters), width)
        self.place = nn.Embedding(block, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(characters), bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(block))

    def forward(self, x, y):
        found = self.body(self.embed(x) + self.place.weight, mask=self.mask)
        return functional.cross_entropy(self.head(found).flatten(0, 1).float(), y.flatten())


def learning_rate(number: int) -> float:
    if number < warmup_steps:
        return peak * (number + 1) / warmup_steps
    done = (number - warmup_steps) / max(1, steps - warmup_steps)
    return floor + 0.5 * (1 + math.cos(math.pi * done)) * (peak - floor)


model = Characters()
optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
model, loader = run.prepare(model, Crops(), batch_size)
run.keep(optimizer=optimizer, scaler=scaler)

for step in run.steps(loader, epochs=1):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step.number)
    for x, y in step:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(x, y)
        scaler.scale(loss).backward()
        step.note(loss=loss.item())
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step.number % 10 == 9 and run.first:
        print(f"step {step.number}: loss {step.mean('loss'):.6f}")
