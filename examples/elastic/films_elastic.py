"""Which films somebody will like: factors of people and films, by a trainer class with the usual conveniences.

``cotenant run --elastic 1:4 -- python films_elastic.py``; ``films_trainer.py`` is the same training before it was
moved over.
"""

import argparse
import zlib

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

from cotenant import elastic

PEOPLE, FILMS, BUCKETS = 60, 80, 32


class Liked(Dataset):
    """Pairs of a person and a film that was liked, with another film drawn by chance."""

    def __init__(self, size: int) -> None:
        source = np.random.default_rng(3)
        self.people = source.integers(PEOPLE, size=size)
        self.films = (self.people * 7 + source.integers(8, size=size)) % FILMS

    def __len__(self) -> int:
        return len(self.people)

    def __getitem__(self, index: int):
        person = int(self.people[index])
        group = zlib.crc32(f"person {person}".encode()) % BUCKETS
        other = int(np.random.randint(FILMS))
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
    """Trains and averages; SIGTERM saves, and it goes on later."""

    def __init__(self, data: Dataset, epochs: int, state: str | None) -> None:
        self.run = elastic.Run(workers=4, seed=0, state=state)
        self.model, self.loader = self.run.prepare(Factors(), data, batch_size=16)
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        self.run.keep(self.optimizer, self.scheduler, extra={"ema": self.ema})
        self.epochs = epochs

    def loss(self, batch):
        person, group, liked, other = batch
        margin = self.model(person, group, liked) - self.model(person, group, other)
        return -nn.functional.logsigmoid(margin).mean()

    def fit(self) -> None:
        for step in self.run.steps(self.loader, self.epochs):
            for batch in step:
                loss = self.loss(batch)
                loss.backward()
                step.note(loss=loss.item())
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            self.ema.update_parameters(self.model)
            if step.last and self.run.first:
                print(f"epoch {step.epoch}: loss {step.mean('loss'):.6f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--state", help="folder: a run that was stopped goes on from there")
    args = parser.parse_args()
    Trainer(Liked(args.samples), args.epochs, args.state).fit()


if __name__ == "__main__":
    main()
