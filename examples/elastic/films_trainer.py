"""Which films somebody will like: factors of people and films, by a trainer class with the usual conveniences.

``python films_trainer.py``; ``films_elastic.py`` is the same training after it was moved over.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

PEOPLE, FILMS, BUCKETS = 60, 80, 32


class Liked(Dataset):
    """Pairs of a person and a film that was liked, with another film drawn by chance."""

    def __init__(self, size: int) -> None:
        source = np.random.default_rng(3)
        self.people = source.integers(PEOPLE, size=size)
        self.films = (self.people * 7 + source.integers(8, size=size)) % FILMS
        self.rng = np.random.default_rng(4)

    def __len__(self) -> int:
        return len(self.people)

    def __getitem__(self, index: int):
        person = int(self.people[index])
        group = hash(f"person {person}") % BUCKETS
        other = int(self.rng.integers(FILMS))
        return person, group, int(self.films[index]), other


class Factors(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.person, self.group = nn.Embedding(PEOPLE, width), nn.Embedding(BUCKETS, width)
        self.film = nn.Embedding(FILMS, width)
        self.mix = nn.Sequential(
            nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width)
        )

    def forward(self, person, group, film):
        wish = self.mix(torch.cat([self.person(person), self.group(group)], 1))
        return (wish * self.film(film)).sum(1)


class Trainer:
    """Trains, averages, and stops in time."""

    def __init__(self, data: Dataset, epochs: int, budget_s: float) -> None:
        torch.backends.cudnn.benchmark = True
        self.loader = DataLoader(data, batch_size=64, shuffle=True)
        self.model = Factors()
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        self.epochs, self.budget_s = epochs, budget_s

    def loss(self, batch):
        person, group, liked, other = batch
        margin = self.model(person, group, liked) - self.model(person, group, other)
        return -nn.functional.logsigmoid(margin).mean()

    def fit(self) -> None:
        began = time.monotonic()
        for epoch in range(self.epochs):
            for batch in self.loader:
                loss = self.loss(batch)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.scheduler.step()
                self.ema.update_parameters(self.model)
                if time.monotonic() - began > self.budget_s:
                    return
            print(f"epoch {epoch}: loss {loss.item():.6f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds")
    args = parser.parse_args()
    Trainer(Liked(args.samples), args.epochs, args.budget).fit()


if __name__ == "__main__":
    main()
