"""Scripts for Lightning Fabric, as people write them and as they are afterwards; the diff is in docs/elastic-adapters.md."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from cotenant import elastic

_SPEC = importlib.util.spec_from_file_location("elastic_ordering", Path(__file__).with_name("ordering.py"))
ordering = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(ordering)
BATCH, EPOCHS = ordering.BATCH, 2


def before(rank: int, folder: Path, kind: str, workers: int, precision: str) -> None:
    """Under Fabric's ddp; process 0 writes a digest and the mean loss after each step."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(workers))
    os.environ.update(LOCAL_WORLD_SIZE=str(workers), TORCHELASTIC_RUN_ID="test")
    ordering.join(rank, workers, folder)
    fabric = Fabric(accelerator="cpu", devices=workers, strategy="ddp", precision=precision)
    fabric.launch()
    fabric.seed_everything(7)
    net, data = ordering.made(kind, workers)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = fabric.setup(net, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=BATCH, shuffle=True))
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            fabric.backward(loss)
            mean = fabric.all_reduce(loss.detach().clone())
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
            if fabric.is_global_zero:
                ordering.write(folder / "ddp", f"{ordering.digest(net)} {mean.item():.4f}")
    ordering.leave(rank, workers, folder)


def after(folder: Path, kind: str, workers: int, precision: str) -> None:
    """The same on any number of processes; the first writes."""
    run = elastic.Run(workers=workers, order="ddp", threads=1)
    fabric = run.fabric(accelerator="cpu", precision=precision)
    fabric.launch()
    fabric.seed_everything(7)
    net, data = ordering.made(kind, workers)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = fabric.setup(net, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=BATCH, shuffle=True))
    for step in fabric.steps(loader, epochs=EPOCHS):
        optimizer.zero_grad()
        for x, y in step:
            loss = cross_entropy(model(x), y)
            fabric.backward(loss)
            mean = fabric.all_reduce(loss.detach().clone())
        fabric.clip_gradients(model, optimizer, max_norm=0.5)
        optimizer.step()
        if fabric.is_global_zero:
            ordering.write(folder / "ours", f"{ordering.digest(net)} {mean.item():.4f}")


def accumulated_before(folder: Path, workers: int) -> None:
    """One device, gradients of so many batches accumulated."""
    fabric = Fabric(accelerator="cpu", devices=1)
    net, data = ordering.made("gpt", workers)
    model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=0.003))
    samplers: Any = [DistributedSampler(data, workers, rank, shuffle=False) for rank in range(workers)]
    mine = [[list(part) for part in torch.tensor(list(one)).split(BATCH)] for one in samplers]
    batches = [batch for step in zip(*mine, strict=True) for batch in step]
    loader = fabric.setup_dataloaders(DataLoader(data, batch_sampler=batches))
    for number, (x, y) in enumerate(loader):
        last = (number + 1) % workers == 0
        with fabric.no_backward_sync(model, enabled=not last):
            fabric.backward(cross_entropy(model(x), y) / workers)
        if last:
            optimizer.step()
            optimizer.zero_grad()
            ordering.write(folder / "ddp", ordering.digest(net))


def accumulated_after(folder: Path, workers: int) -> None:
    """The batches are the turns of a step."""
    run = elastic.Run(workers=workers, order="sequence", threads=1)
    fabric = run.fabric(accelerator="cpu", devices=1)
    net, data = ordering.made("gpt", workers)
    model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=0.003))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=BATCH))
    for step in fabric.steps(loader, epochs=1):
        for x, y in step:
            with fabric.no_backward_sync(model):
                fabric.backward(cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        if fabric.is_global_zero:
            ordering.write(folder / "ours", ordering.digest(net))


def changing(folder: Path, precision: str, epochs: int, state: str | None) -> None:
    """Dropout, BatchNorm, a scheduler, averaged weights, validation; fp16 with its scaler if asked."""
    run = elastic.Run(workers=4, threads=1, state=state)
    given: dict[str, Any] = {"precision": precision}
    if precision == "16-mixed":  # which Fabric itself makes bf16-mixed on CPUs
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_factor=16.0, growth_interval=2)
        given = {"plugins": MixedPrecision("16-mixed", "cpu", scaler)}
    fabric = run.fabric(accelerator="cpu", **given)
    fabric.seed_everything(3, verbose=False)
    net = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 40))
    _, data = ordering.made("mlp", 4, 6)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    averaged = torch.optim.swa_utils.AveragedModel(net)
    model, optimizer = fabric.setup(net, optimizer)
    fabric.keep(scheduler, extra={"averaged": averaged})
    loader, held = fabric.setup_dataloaders(
        DataLoader(data, batch_size=BATCH, shuffle=True), DataLoader(data, batch_size=24)
    )
    for step in fabric.steps(loader, epochs):
        for x, y in step:
            loss = cross_entropy(model(x), y)
            fabric.backward(loss)
            reduced = fabric.all_reduce({"loss": loss.detach(), "rank": fabric.global_rank}, reduce_op="max")
        fabric.clip_gradients(model, optimizer, clip_val=0.1)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        averaged.update_parameters(net)
        with torch.no_grad():
            right = fabric.all_reduce(sum(int((model(x).argmax(1) == y).sum()) for x, y in held))
        if fabric.is_global_zero:
            told = f"{ordering.digest(net)} {ordering.digest(averaged)} {scheduler.get_last_lr()[0]}"
            scale = fabric.strategy.precision.state_dict().get("scale")
            numbers = f"{reduced['loss']:.6f} {reduced['rank'].item()} {int(right)} {scale}"
            ordering.write(folder / "ours", f"{told} {numbers}".replace(" ", "|"))
    fabric.save(folder / "weights", {"model": model, "optimizer": optimizer})
