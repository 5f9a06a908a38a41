"""A small character model of text, in one file: accumulation, half precision, a warmed-up cosine schedule.

``python characters_accumulate.py``, or by ``torchrun``; ``characters_elastic.py`` is the same training after it
was moved over.
"""

import math
import os
import random

import torch
from torch import nn
from torch.nn import functional

steps, batch_size, block, accumulation_steps = int(os.environ.get("STEPS", "30")), 4, 16, 4
width, heads, layers, dropout = 32, 2, 2, 0.1
peak, floor, warmup_steps = 3e-3, 3e-4, 5

ddp = int(os.environ.get("RANK", "-1")) != -1
rank, world_size = 0, 1
if ddp:
    torch.distributed.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    accumulation_steps //= world_size
torch.manual_seed(1 + rank)

# A text: sentences of a small grammar.
words = random.Random(5)
names, verbs = ["ada", "ben", "cleo", "dan"], ["sees", "asks", "helps"]
sentences = (f"{words.choice(names)} {words.choice(verbs)} {words.choice(names)}." for _ in range(400))
text = " ".join(sentences)
characters = list(set(text))
codes = {character: number for number, character in enumerate(characters)}
data = torch.tensor([codes[character] for character in text])


def get_batch():
    starts = torch.randint(len(data) - block - 1, (batch_size,))
    x = torch.stack([data[start : start + block] for start in starts])
    y = torch.stack([data[start + 1 : start + block + 1] for start in starts])
    return x, y


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
raw_model = model
if ddp:
    model = nn.parallel.DistributedDataParallel(model)

for number in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(number)
    mean = 0.0
    for _ in range(accumulation_steps):
        x, y = get_batch()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(x, y) / accumulation_steps
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if number % 10 == 9 and rank == 0:
        print(f"step {number}: loss {mean:.6f}")
