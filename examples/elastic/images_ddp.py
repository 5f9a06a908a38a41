"""Crosses and rings told apart by a small convolutional network, on several processes.

``torchrun --nproc-per-node 2 images_ddp.py``; ``images_elastic.py`` is the same training after it was moved over.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


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

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    train, test = Shapes(args.samples, 1), Shapes(128, 2)
    sampler = DistributedSampler(train, seed=7)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * world_size, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        scheduler.step()
        dist.all_reduce(total)
        if rank == 0:
            mean = total.item() / len(loader) / world_size
            print(f"epoch {epoch}: loss {mean:.6f}, accuracy {evaluate(model.module, test):.3f}")
            torch.save(model.module.state_dict(), os.environ.get("WEIGHTS", "shapes.pt"))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
