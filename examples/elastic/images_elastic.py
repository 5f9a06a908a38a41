"""Crosses and rings told apart by a small convolutional network: as many processes as there are at the moment.

``cotenant run --elastic 1:2 -- python images_elastic.py``; ``images_ddp.py`` is the same training before it was moved.
"""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from cotenant import elastic


class Shapes(Dataset):
    """Pictures of 16 x 16 pixels with a cross or a ring, somewhere, under noise; mirrored by chance."""

    def __init__(self, size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(2, (size,), generator=generator)
        self.centres = torch.randint(5, 11, (size, 2), generator=generator)
        self.noise = torch.randn(size, 16, 16, generator=generator) * 0.3

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        down, right = rows - self.centres[index][0], columns - self.centres[index][1]
        if self.labels[index]:
            shape = (down.abs() == right.abs()) & (down.abs() < 5)
        else:
            shape = (down**2 + right**2 - 16).abs() < 5
        picture = shape.float() + self.noise[index]
        if torch.rand(1) < 0.5:
            picture = picture.flip(1)
        return picture[None], self.labels[index]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 2),
    )


def evaluate(model: nn.Module, data: Dataset) -> float:
    model.eval()
    with torch.no_grad():
        hits = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(data, batch_size=64))
    model.train()
    return hits / len(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    run = elastic.Run(workers=2, seed=0)
    train, test = Shapes(args.samples, 1), Shapes(128, 2)
    sampler = DistributedSampler(train, run.workers, 0, seed=7)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * run.workers, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    for step in run.steps(run.adopt(model, loader, optimizer, scheduler), epochs=args.epochs):
        optimizer.zero_grad()
        for x, y in step:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            step.note(loss=loss.item())
        optimizer.step()
        if step.last:
            scheduler.step()
        if step.last and run.first:
            print(f"epoch {step.epoch}: loss {step.mean('loss'):.6f}, accuracy {evaluate(model, test):.3f}")
    if run.first:  # after the loop: if the first process dies in it, another one is the first here
        torch.save(model.state_dict(), os.environ.get("WEIGHTS", "shapes.pt"))


if __name__ == "__main__":
    main()
