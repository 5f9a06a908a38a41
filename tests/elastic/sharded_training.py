"""A small training of a model that is sharded or not; writes a digest of the full state after every step."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from cotenant import elastic
from cotenant.elastic.members import Member
from cotenant.errors import InputError, StateError

_SPEC = importlib.util.spec_from_file_location("elastic_training", Path(__file__).with_name("training.py"))
training = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(training)


class Net(nn.Module):
    """Sizes that no number of processes divides; BatchNorm, dropout, a parameter never used, one by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 13), nn.BatchNorm1d(13), nn.ReLU(), nn.Dropout(0.2))
        self.second = nn.Linear(13, 11)
        self.last = nn.Linear(11, 4)
        self.never = nn.Parameter(torch.ones(3))
        self.some = nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        out = self.last(torch.tanh(self.second(self.first(x))))
        return out * self.some.to(out.dtype) if torch.rand(()) < 0.3 else out


class Skips(nn.Module):
    """Leaves out a block by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        out = torch.tanh(self.first(x))
        return self.last(out + self.second(out) if torch.rand(()) < 0.5 else out)


class Gpt(training.Gpt):
    """FSDP warns of views as output."""

    def forward(self, x: Any) -> Any:
        return super().forward(x).clone()


class Cast(nn.Module):
    """What MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32) means, unsharded."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        half = {name: p.bfloat16() for name, p in self.inner.named_parameters()}
        return functional_call(self.inner, half, (x.bfloat16() if x.is_floating_point() else x,))


def build(kind: str) -> tuple[Any, Any]:
    if kind == "gpt":
        return Gpt(), training.Words(50)
    if kind == "skips":
        return Skips(), training.Noisy(56, (6,), True)
    return Net(), training.Noisy(56, (6,), True)


def shard_with(options: dict[str, Any]) -> Any:
    policy: dict[str, Any] = {}
    if options.get("mixed"):
        policy["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if "output" in options:
        policy["mp_policy"] = MixedPrecisionPolicy(output_dtype=getattr(torch, options["output"]))
    if options.get("offload"):
        policy["offload_policy"] = CPUOffloadPolicy(pin_memory=False)

    def shard(model: Any, mesh: Any) -> None:
        if isinstance(model, (Net, Skips)):
            for block in (model.first, model.second):
                fully_shard(block, mesh=mesh, **policy)
        elif options.get("model") == "gpt":
            fully_shard(model.layer, mesh=mesh, **policy)
            if options.get("torn"):
                fully_shard(model.head, mesh=mesh, **policy)
        fully_shard(model, mesh=mesh, **policy)

    return shard


def optimizer_of(kind: str, model: Any) -> Any:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.01, foreach=True)
    if kind == "adafactor":
        return torch.optim.Adafactor(model.parameters())
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=kind == "fused")


def whole(value: Any) -> Any:
    """The same with full tensors for shards, all sent at once."""
    shards: list[Any] = []

    def visit(one: Any, found: Any) -> Any:
        if isinstance(one, DTensor):
            assert tuple(one.placements) == (Shard(0),)
            return found(one)
        if isinstance(one, dict):
            return {key: visit(item, found) for key, item in one.items()}
        return [visit(item, found) for item in one] if isinstance(one, (list, tuple)) else one

    visit(value, lambda shard: shards.append(shard.to_local().detach()))
    if not shards:
        return value
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, [shard.numpy() for shard in shards])
    full = iter([torch.from_numpy(numpy.concatenate(rows)) for rows in zip(*parts, strict=True)])
    return visit(value, lambda _: next(full))


def main(options: dict[str, Any]) -> None:
    try:
        train(options)
    except (InputError, StateError) as error:
        Path(options["log"] + ".error").write_text(str(error))
        raise


def be_late(seconds: float) -> None:
    """Between the last step's checkpoint and the end of the loop, as a process that is given no core."""
    finish = Member.finish

    def late(self: Member) -> None:
        time.sleep(seconds)
        finish(self)

    Member.finish = late  # type: ignore[method-assign]


def train(options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    run = elastic.Run(
        options.get("workers", 4),
        seed=3,
        order=options.get("order", "sequence"),
        state=options.get("state"),
        every_steps=options.get("every", 0),
        least=options.get("least", "statistical"),
    )
    model, data = build(options.get("model", "net"))
    trained = Cast(model) if options.get("mixed") and not options.get("sharded") else model
    more = {"shard": shard_with(options)} if options.get("sharded") else {}
    trained, loader = run.prepare(trained, data, 3, **more)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.get("precision", ""))
    scaler = torch.amp.GradScaler("cpu", enabled=half is torch.float16, init_scale=2.0**16)
    opt = optimizer_of(options.get("optimizer", "adamw"), trained)
    run.keep(opt, scaler=scaler)
    accumulate = options.get("accumulate", 1)
    for step in run.steps(loader, epochs=options.get("epochs", 2)):
        if step.number == 0 and options.get("late") and run.first:
            be_late(options["late"])
        for x, y in step:
            with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
                loss = cross_entropy(trained(x).float(), y)
            scaler.scale(loss).backward()
            step.note(loss=loss.item())
            training.die_if(options, step.number, "turn")
            time.sleep(options.get("sleep", 0.0))
        if (step.number + 1) % accumulate == 0:
            scaler.unscale_(opt)
            if options.get("norms"):
                norm = model.second.weight.grad.norm()
                _ = norm.item() if options["norms"] == "item" else norm.full_tensor()
            if options.get("torch_clip"):
                nn.utils.clip_grad_norm_(trained.parameters(), options.get("norm", 0.5))
            elif options.get("clip", True):
                run.clip_grad_norm_(trained.parameters(), options.get("norm", 0.5))
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "scaler": scaler.state_dict()}
        state = whole(state)
        if run.first:
            state["loss"] = step.mean("loss")
            with Path(options["log"]).open("a") as file:
                file.write(f"{step.number} {training.digest(state)} {run.processes} {os.getpid()}\n")
    if "final" in options:
        time.sleep(options["final"])
        full = whole(model.state_dict())
        if run.first:
            Path(options["log"] + ".final").write_text(training.digest(full))
    if run.first:
        Path(options["log"] + ".grade").write_text(str(run.grade))
