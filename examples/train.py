"""A small training job that cotenant may suspend: two lines of the runtime, the rest is plain PyTorch.

    cotenant submit --name train --suspend runtime -- python train.py --steps 6000

It prints its last loss with all digits, so that two runs can be compared bit for bit.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cotenant import runtime


def data(seed: int) -> TensorDataset:
    """Points whose class a hidden linear map says."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(2000, 64, generator=draw)
    return TensorDataset(x, (x @ torch.randn(64, 10, generator=draw)).argmax(1))


def network() -> nn.Sequential:
    """What is trained."""
    hidden = [nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(512, 10))


def main() -> None:
    """Train, and say how it went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", default="", help="where the model goes at the end")
    asked = parser.parse_args()

    torch.manual_seed(asked.seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=asked.lr, momentum=0.9)
    loader = DataLoader(data(asked.seed), batch_size=32, shuffle=True)

    run = runtime.attach(model, optimizer, data=loader, total_steps=asked.steps)
    loss = torch.zeros(())
    for step, (x, y) in run.steps():
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 1000 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    if asked.save:
        torch.save(model.state_dict(), asked.save)
    print(f"{run.done} steps, loss {loss.item()!r}")


if __name__ == "__main__":
    main()
