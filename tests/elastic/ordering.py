"""Small trainings without random numbers, under DistributedDataParallel itself and under ``order="ddp"``."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from cotenant import elastic
from cotenant.elastic.supervisor import Supervisor

LIMIT_S = 300.0  # eight processes of a test on a busy machine with two cores


class Gpt(nn.Module):
    """Attention without dropout, input and output embeddings tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(32, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        y = self.embed(x)
        for layer in self.layers:
            y = layer(y)
        return self.head(y).mean(1)


class Lstm(nn.Module):
    """Words, two layers, the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(40, 24), nn.LSTM(24, 48, 2, batch_first=True)
        self.head = nn.Linear(48, 40)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(self.embed(x))[0][:, -1])


class Dlrm(nn.Module):
    """Tables of embeddings, their products with each other, two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, 16) for _ in range(12))
        self.top = nn.Sequential(nn.Linear(12 * 12, 64), nn.ReLU(), nn.Linear(64, 40))

    def forward(self, x: Any) -> Any:
        found = torch.stack([table(x[:, n]) for n, table in enumerate(self.tables)], 1)
        return self.top(torch.bmm(found, found.transpose(1, 2)).flatten(1))


class Centred(nn.Module):
    """Subtracts a running mean of its own, a buffer that the output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))
        self.body = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 40))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.body(x - self.mean)


def _cnn() -> Any:
    body = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32)]
    net = nn.Sequential(*body, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 40))
    return net.to(memory_format=torch.channels_last)


def _mlp(width: int) -> Any:
    return nn.Sequential(
        nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 40)
    )


MODELS: dict[str, Callable[[], Any]] = {
    "cnn": _cnn,
    "gpt": Gpt,
    "lstm": Lstm,
    "dlrm": Dlrm,
    "centred": Centred,
    "mlp": lambda: _mlp(1500),  # 9 MB: two buckets, the second with more segments than two for each process
    "wide": lambda: _mlp(2900),  # 34 MB
    "double": lambda: _mlp(300).double(),
}
PICTURES, NUMBERS = ("cnn",), ("mlp", "wide", "centred", "double")
BATCH, WORKING_STEPS = 3, 4


def made(kind: str, workers: int, steps: int = WORKING_STEPS) -> tuple[Any, Any]:
    """A model and its data, the same in every process."""
    torch.manual_seed(11)
    model, size = MODELS[kind](), workers * BATCH * steps
    y = torch.randint(40, (size,))
    if kind in PICTURES:
        return model, TensorDataset(torch.randn(size, 3, 9, 9), y)
    if kind in NUMBERS:
        x = torch.randn(size, 12)
        return model, TensorDataset(x.double() if kind == "double" else x, y)
    return model, TensorDataset(torch.randint(40, (size, 12)), y)


def optimizer(kind: str, model: Any) -> Any:
    if kind in ("lstm", "gpt"):
        return torch.optim.AdamW(model.parameters(), lr=0.003)
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def digest(model: Any) -> str:
    """Of parameters and buffers."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(name.encode())
        hashed.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:16]


def plain(rank: int, folder: Path, kind: str, workers: int, epochs: int) -> None:
    """As people write it for torchrun; process 0 writes a digest after each step."""
    join(rank, workers, folder)
    model, data = made(kind, workers)
    sampler: Any = DistributedSampler(data, workers, rank, shuffle=True, seed=7)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    ddp = DistributedDataParallel(model)
    opt = optimizer(kind, ddp)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            cross_entropy(ddp(x), y).backward()
            opt.step()
            if rank == 0:
                write(folder / "ddp", digest(model))
    leave(rank, workers, folder)


def leave(rank: int, size: int, folder: Path) -> None:
    """End when all have come here: taking a gloo group apart hangs now and then while others still use it."""
    (folder / f"end{rank}").touch()
    while not all((folder / f"end{other}").exists() for other in range(size)):
        time.sleep(0.005)
    os._exit(0)


def ours(folder: Path, kind: str, workers: int, epochs: int) -> None:
    """The same on any number of processes; the first writes."""
    run = elastic.Run(workers, order="ddp", threads=1)
    model, data = made(kind, workers)
    sampler: Any = DistributedSampler(data, workers, 0, shuffle=True, seed=7)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    opt = optimizer(kind, model)
    for step in run.steps(run.adopt(model, loader, opt), epochs=epochs):
        opt.zero_grad()
        for x, y in step:
            cross_entropy(model(x), y).backward()
        opt.step()
        if run.first:
            write(folder / "ours", digest(model))


def adversaries(workers: int) -> tuple[Any, Any, Any]:
    """A judge of two buckets, a maker with batch norm, and data."""
    torch.manual_seed(12)
    judge = nn.Sequential(
        nn.Linear(12, 600), nn.LeakyReLU(), nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 1)
    )
    maker = nn.Sequential(nn.Linear(5, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 12))
    size = workers * BATCH * WORKING_STEPS
    return judge, maker, TensorDataset(torch.randn(size, 12), torch.randn(size, 5))


def _turns(step: Any, judge: Any, maker: Any, optimizers: Any, loops: str) -> None:
    """One step: a letter for each loop, J or M; ``step`` gives the batches of one, and ``judge`` and ``maker`` are called."""
    for letter in loops:
        optimizer = optimizers[letter == "M"]
        for real, noise in step(optimizer):
            loss = judge(maker(noise)).mean()
            if letter == "J":
                loss = judge(real).square().mean() - judge(maker(noise).detach()).mean()
            loss.backward()
        optimizer.step()
        for one in optimizers:
            one.zero_grad()


def plain_turns(rank: int, folder: Path, loops: str, workers: int, epochs: int) -> None:
    """Two models of torchrun's, each DistributedDataParallel, that are updated one after the other."""
    join(rank, workers, folder)
    judge, maker, data = adversaries(workers)
    loader = DataLoader(
        data, batch_size=BATCH, sampler=DistributedSampler(data, workers, rank, shuffle=False)
    )
    both = [DistributedDataParallel(judge), DistributedDataParallel(maker)]
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.003) for one in both]
    for _ in range(epochs):
        for batch in loader:
            _turns(lambda _, batch=batch: [batch], *both, optimizers, loops)
            if rank == 0:
                write(folder / "ddp", digest(nn.ModuleList([judge, maker])))
    leave(rank, workers, folder)


def our_turns(folder: Path, loops: str, workers: int, epochs: int) -> None:
    """The same with ``step.turn``."""
    run = elastic.Run(workers, order="ddp", threads=1)
    judge, maker, data = adversaries(workers)
    model = nn.ModuleList([judge, maker])
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.003) for one in model]
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, workers, 0, shuffle=False))
    for step in run.steps(run.adopt(model, loader, optimizer=optimizers), epochs=epochs):
        _turns(step.turn, judge, maker, optimizers, loops)
        if run.first:
            write(folder / "ours", digest(model))


def join(rank: int, size: int, folder: Path) -> None:
    """A gloo group on loopback, met in a file."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{folder}/meet")


def write(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


class Fork:
    """A forked process with the methods of ``subprocess`` that the supervisor uses."""

    def __init__(self, function: Callable[..., None], *arguments: Any, **environment: str) -> None:
        self.pid, self._code = os.fork(), None
        if self.pid == 0:
            code = 1
            faulthandler.register(signal.SIGUSR1)
            try:
                os.environ.update(environment)
                torch.set_num_threads(1)
                function(*arguments)
                code = 0
            except SystemExit as left:
                code = int(left.code or 0)
            except BaseException:
                traceback.print_exc()
            os._exit(code)

    def poll(self) -> int | None:
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if found else None
        return self._code

    def wait(self, timeout: float = LIMIT_S) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        code = self.poll()
        return -99 if code is None else code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGUSR1)  # where it stands
            time.sleep(0.2)
            os.kill(self.pid, 9)


def all_of(processes: list[Fork]) -> None:
    """Wait for all; none may fail or be left behind."""
    try:
        assert [process.wait() for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()


def reference(
    folder: Path, kind: str, workers: int, epochs: int = 2, function: Callable[..., None] = plain
) -> list[str]:
    """Digests of DDP of so many processes."""
    all_of([Fork(function, rank, folder, kind, workers, epochs) for rank in range(workers)])
    return (folder / "ddp").read_text().split()


def elastically(
    folder: Path, processes: int, function: Callable[..., None], *arguments: Any, watch: Any = None
) -> list[str]:
    """Digests of an elastic run of so many processes."""
    (folder / "ours").unlink(missing_ok=True)
    if processes == 0:  # alone, without supervisor
        all_of([Fork(function, folder, *arguments)])
        return (folder / "ours").read_text().split()
    most = 4 if watch else processes
    supervisor = Supervisor([], 1, most, start=lambda more: Fork(function, folder, *arguments, **more))
    supervisor.want(processes)
    deadline = time.monotonic() + LIMIT_S
    try:
        while supervisor.poll() is None:
            assert time.monotonic() < deadline, f"more than {LIMIT_S} s"
            if watch:
                done = folder / "ours"
                watch(supervisor, len(done.read_text().split()) if done.exists() else 0)
            time.sleep(0.01)
        assert supervisor.poll() == 0
    finally:
        supervisor.close()
    return (folder / "ours").read_text().split()
