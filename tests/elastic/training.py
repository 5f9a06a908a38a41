"""A small training, run as a script: which model, how many processes, what to do to it.

Prints nothing; the first process writes a line for each step to the file ``log``: the step, and a
digest of parameters, buffers, optimiser, scheduler and scaler state.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cotenant import elastic
from cotenant.elastic import state as checkpoints
from cotenant.elastic import transfer
from cotenant.elastic.exchange import Broken, Group
from cotenant.elastic.members import Member


class Noisy(torch.utils.data.Dataset[Any]):
    """Pictures with noise from all three generators."""

    def __init__(self, size: int, shape: tuple[int, ...], noisy: bool) -> None:
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(size, *shape, generator=generator)
        self.y = torch.randint(4, (size,), generator=generator)
        self.noisy = noisy

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        x = self.x[index]
        if self.noisy:
            x = x + torch.randn(x.shape) * 0.1 + random.random() * 0.1 + float(np.random.rand()) * 0.1
        return x, self.y[index]


class Words(torch.utils.data.Dataset[Any]):
    """Sequences of 12 words of 40."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(6)
        self.x = torch.randint(40, (size, 12), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.x[index].sum() % 4


class Gpt(nn.Module):
    """One layer of attention, input and output embeddings tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.register_buffer("mask", torch.triu(torch.full((12, 12), float("-inf")), 1))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(self.embed(x), src_mask=self.mask)).mean(1)[:, :4]


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.drop(self.lstm(self.embed(x))[0][:, -1]))


class Gates(nn.Module):
    """Uses one of its branches by chance: parameters without gradient in some turns."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.never = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.a(x) if random.random() < 0.5 else self.b(x)


def build(kind: str) -> tuple[Any, Any]:
    """Model and data."""
    if kind == "cnn":
        body = [
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(64, 4),
        ]
        return nn.Sequential(*body), Noisy(50, (2, 6, 6), True)
    if kind == "gates":
        return Gates(), Noisy(70, (6,), False)
    return {"gpt": Gpt, "lstm": Lstm}[kind](), Words(50)


def edit(model: Any, optimizer: Any, name: str) -> None:
    """Change a parameter, a buffer, or (``optimizer NAME``) the state that an optimiser has for one."""
    kind, _, of = name.rpartition(" ")
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for tensor in optimizer.state[found[of]].values() if kind else [found[of]]:
            tensor.add_(0.1)


def digest(value: Any) -> str:
    """Of everything in it, whatever the layout in memory."""
    hashed = hashlib.sha256()

    def add(one: Any) -> None:
        if isinstance(one, dict):
            for key in sorted(one, key=str):
                hashed.update(str(key).encode())
                add(one[key])
        elif isinstance(one, (list, tuple)):
            for item in one:
                add(item)
        elif torch.is_tensor(one):
            hashed.update(one.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        else:
            hashed.update(repr(one).encode())

    add(value)
    return hashed.hexdigest()[:16]


def main(options: dict[str, Any]) -> None:
    if "script" in options:  # another training, in a file beside this
        runpy.run_path(str(Path(__file__).with_name(options.pop("script"))))["main"](options)
        return
    torch.set_num_threads(1)
    if "error" in options:
        sys.stderr = Path(options["error"]).open("a", buffering=1)  # noqa: SIM115 - until the process ends
    die_halfway(options)
    die_in_rendezvous(options)
    die_in_save(options)
    run = elastic.Run(
        options.get("workers", 4),
        options.get("most"),
        seed=3,
        order=options.get("order", "blocks"),
        state=options.get("state"),
        every_steps=options.get("every", 0),
    )
    model, data = build(options.get("model", "cnn"))
    model, loader = run.prepare(model, data, 3, num_workers=options.get("loaders", 0))
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.get("precision", ""))
    scaler = torch.amp.GradScaler("cpu", enabled=half is torch.float16, init_scale=2.0**16)
    if options.get("optimizer", "sgd") == "sgd":
        opt: Any = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    else:
        opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    run.keep(opt, sched, scaler)
    accumulate = options.get("accumulate", 1)
    pid, name = os.getpid(), os.environ.get("COTENANT_ELASTIC", "::alone").split(":")[2]
    for step in run.steps(loader, epochs=options.get("epochs", 2)):
        hold(options, step.number)
        for x, y in step:
            with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
                loss = cross_entropy(model(x).float(), y)
            scaler.scale(loss).backward()
            step.note(loss=loss.item())
            die_if(options, step.number, "turn")
            time.sleep(options.get("sleep", 0.0))
        if (step.number + 1) % accumulate == 0:
            before = scaler.get_scale()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            if scaler.get_scale() >= before:  # the step was not skipped
                sched.step()
        if run.first and step.number == options.get("edit"):  # what a script must not do
            edit(model, opt, options["parameter"])
        if run.first:
            state = {
                "model": model.state_dict(),
                "optimizer": opt.state_dict(),
                "scheduler": sched.state_dict()["last_epoch"],
                "scaler": scaler.state_dict(),
                "loss": step.mean("loss"),
                "between": torch.rand(1).item() if options.get("draw") else 0,
            }
            with Path(options["log"]).open("a") as file:
                parts = " ".join(digest(state[k])[:4] for k in state) if os.environ.get("PARTS") else ""
                file.write(f"{step.number} {digest(state)} {run.processes} {pid} {parts}\n")
        elif options.get("draw"):
            torch.rand(1)
        die_if(options, step.number, "script")
        if step.number == options.get("crash_after") and options.get("crash", name) == name:
            os._exit(0)
        if step.number == options.get("terminate"):
            os.kill(pid, signal.SIGTERM)
    if options.get("ends"):
        kept = {"model": model.state_dict(), "optimizer": opt.state_dict(), "scaler": scaler.state_dict()}
        Path(options["ends"], name).write_text(digest(kept))
    if run.first:
        hold(options, "end")
    time.sleep(options.get("linger", 0.0))
    if options.get("weights") and run.first:
        torch.save(model.state_dict(), options["weights"])


def hold(options: dict[str, Any], step: object) -> None:
    """Before this step, wait until the file is there that the test makes once all is as it should be."""
    path = options.get("holds", {}).get(str(step))
    while path is not None and not Path(path).exists():
        time.sleep(0.01)


def die_if(options: dict[str, Any], number: int, where: str) -> None:
    """Be killed once, at the step and place that the options name, if this process is to die."""
    mark = options.get("kill")
    if not mark:
        return
    flag = Path(mark["flag"])
    name = os.environ.get("COTENANT_ELASTIC", "::").split(":")[2]
    if mark["where"] == where and number == mark["step"] and name == mark["name"] and not flag.exists():
        flag.touch()
        die(mark.get("how", "kill"))


def die(how: str) -> None:
    """Be killed, or stopped, or go on for ever with nothing."""
    if how == "loop":
        while True:
            pass
    os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)


def die_in_rendezvous(options: dict[str, Any]) -> None:
    """Be killed or stopped when all have said that they are there; the others write when they notice."""
    mark = options.get("rendezvous")
    if not mark:
        return
    flag, group = Path(mark["flag"]), Member._group
    name = os.environ["COTENANT_ELASTIC"].split(":")[2]

    def dying(self: Any, *given: Any) -> Any:
        if name == mark["name"]:
            flag.write_text(str(time.monotonic()))
            die(mark["how"])
        try:
            return group(self, *given)
        except Broken:
            flag.with_suffix(".noticed").write_text(str(time.monotonic()))
            raise

    Member._group = dying  # type: ignore[method-assign]


def die_in_save(options: dict[str, Any]) -> None:
    """Be killed once, when the state after this step is to be written."""
    save = checkpoints.save

    def dying(folder: Any, content: Any, step: int, keep: int) -> None:
        die_if(options, step, "save")
        save(folder, content, step, keep)

    checkpoints.save = dying


def die_halfway(options: dict[str, Any]) -> None:
    """Be killed in the exchange of a step, when one of the others has its result, the next not."""
    mark = options.get("halfway")
    if not mark:
        return
    swap, kept = Group.swap, transfer._kept
    name = os.environ["COTENANT_ELASTIC"].split(":")[2]
    # Five calls when the group is made; five each step, of which the fourth sends results.
    last = 5 + 5 * mark["step"] + 4
    count = [0]

    def dying(self: Any, receive: Any, send: Any) -> None:
        count[0] += 1
        if name == "0" and count[0] == last:
            swap(self, receive, {1: send[1]})
            time.sleep(0.5)  # the third has sent its part to the second by then
            os.kill(os.getpid(), signal.SIGKILL)
        swap(self, receive, send)

    def giving(process: Any) -> Any:
        Path(mark["flag"]).write_text(str(process.place.step))
        return kept(process)

    Group.swap, transfer._kept = dying, giving  # type: ignore[method-assign]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
