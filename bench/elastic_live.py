"""Two elastic trainings and a burst of short jobs under ``cotenant up``, against the same with fixed sizes.

On two of this machine's cores. At first one training is there, which an elastic scheduler lets have both; then the
other comes, then all short jobs at once, for which the cores must do; at the end the second one is alone. Fixed
sizes are one core for each, as the trainings ask for (``--gpus 1``); elastic ones may have ``1:2``. Told are when
each ended after it was submitted (JCT), when all was over (makespan), what was resized in place, and whether the
models of both runs are the same, bit for bit.

Run with ``python -m bench.elastic_live [--steps 60] [--short 4] [--json]``; about four minutes with these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.live.client import Client, connect, new_key
from cotenant.live.statedir import read_daemon

BATCH, WORKERS, SHORTS = 192, 4, 6
SECOND, BURST = 0.25, 0.42
"""When the second training and the burst come, as parts of the first one's length on one core."""


# -- what the jobs do ------------------------------------------------------------------------


def train(steps: int, batch: int, seed: int) -> None:
    """A small convolutional network on random images; the digest of its parameters is the last word."""
    import hashlib

    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from cotenant import elastic

    run = elastic.Run(workers=WORKERS, max_processes=2, seed=seed)
    data = TensorDataset(torch.randn(BATCH * WORKERS, 3, 32, 32), torch.randint(10, (BATCH * WORKERS,)))
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10)]
    model, loader = run.prepare(nn.Sequential(*layers), data, batch_size=batch)
    run.keep(optimizer := torch.optim.AdamW(model.parameters(), lr=0.01))
    for step in run.steps(loader, epochs=-(-steps * batch // BATCH)):
        for x, y in step:
            nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    if run.first:
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        sys.stdout.write(f"{digest.hexdigest()}\n")


def busy(seconds: float) -> None:
    """A short job: matrices for so many seconds of CPU time."""
    import numpy as np

    a = np.random.default_rng(0).standard_normal((200, 200))
    while time.process_time() < seconds:
        a = a @ a.T / 200.0


# -- the scheduler ---------------------------------------------------------------------------


@contextlib.contextmanager
def scheduler(folder: Path, devices: list[str]) -> Iterator[Client]:
    """A ``cotenant up`` of its own, gone afterwards with its jobs."""
    words = [sys.executable, "-m", "cotenant", "up", "--state", str(folder), "--settings", "restore_s=1"]
    words += ["--policy", "easyscale:round_s=2"]
    words += [word for name in devices for word in ("--device", name)]
    with (folder.parent / f"{folder.name}.out").open("wb") as out:
        process = subprocess.Popen([*words, "--settings", "min_quantum_s=0"], stdout=out, stderr=out)
    try:
        while (told := read_daemon(folder)) is None or told.pid != process.pid:
            if process.poll() is not None:
                raise SystemExit((folder.parent / f"{folder.name}.out").read_text())
            time.sleep(0.05)
        with Client(lambda: connect(folder)) as client:
            yield client
            for job in client.jobs(live=True):
                client.command(job.id, "cancel", new_key())
            while client.jobs(live=True):
                time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def job(name: str, *words: str, elastic: bool | None = None) -> dict[str, Any]:
    """A job of this file, on one device of its own; ``elastic`` None: a plain one."""
    command = [sys.executable, "-m", "bench.elastic_live", *words]
    found: dict[str, Any] = {"name": name, "command": command, "cwd": str(Path.cwd()), "sharing": "exclusive"}
    if elastic is not None:
        found["elastic"] = {"min_gpus": 1, "max_gpus": 2 if elastic else 1}
    return found


def play(folder: Path, devices: list[str], asked: argparse.Namespace, *, elastic: bool) -> dict[str, Any]:
    """Submit everything at its time; what came of it."""
    alone_s = asked.steps * asked.step_s
    training = ["--batch", str(asked.batch), "--steps"]
    due: list[tuple[float, dict[str, Any]]] = [
        (0.0, job("first", *training, str(asked.steps), "--train", "1", elastic=elastic)),
        (
            SECOND * alone_s,
            job("second", *training, str(asked.steps * 4 // 3), "--train", "2", elastic=elastic),
        ),
    ]
    due += [(BURST * alone_s, job(f"short-{n}", "--busy", str(asked.short))) for n in range(SHORTS)]
    with scheduler(folder, devices) as client:
        begun = time.monotonic()
        for at, one in due:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            (answer,) = client.submit([(new_key(), one)])
            if answer.error is not None:
                raise SystemExit(str(answer.error))
        while client.jobs(live=True):
            time.sleep(0.1)
        views = sorted(client.jobs(), key=lambda view: view.id)
        if bad := [f"{view.name}: {view.reason}" for view in views if view.status != "done"]:
            raise SystemExit("\n".join(bad))
        events = [json.loads(line) for line in client.log()]
        digests = {v.name: client.output(v.id)[1].decode().strip() for v in views[:2]}
    jct = {view.name: round((view.ended or 0.0) - view.submitted, 2) for view in views}
    return {
        "jct_s": jct,
        "mean_jct_s": round(sum(jct.values()) / len(jct), 2),
        "makespan_s": round(max(v.ended or 0.0 for v in views) - min(v.submitted for v in views), 2),
        "digests": digests,
        "resizes": resizes(events),
        "launches": sum(event["e"] == "launched" for event in events),
    }


def resizes(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each change of devices: of which job, to how many, and seconds until it was done."""
    found: list[dict[str, Any]] = []
    for event in events:
        if event["e"] == "resized":
            in_place = event.get("in_place", False)
            found.append(
                {"job": event["id"], "devices": len(event["devices"]), "in_place": in_place, "t": event["t"]}
            )
        elif event["e"] == "resettled":
            last = next(one for one in reversed(found) if one["job"] == event["id"])
            last |= {"took_s": round(event["t"] - last["t"], 2), "restarted": event.get("again", False)}
    return found


# -- telling ---------------------------------------------------------------------------------


def tell(fixed: dict[str, Any], elastic: dict[str, Any]) -> None:
    """A table of both."""
    say = sys.stdout.write
    say(f"{'seconds from submission to end':32}{'fixed':>10}{'elastic':>10}{'':>9}\n")
    rows = [(name, fixed["jct_s"][name], elastic["jct_s"][name]) for name in fixed["jct_s"]]
    rows += [
        (what, fixed[key], elastic[key]) for what, key in (("mean", "mean_jct_s"), ("makespan", "makespan_s"))
    ]
    for what, before, after in rows:
        say(f"{what:32}{before:10.1f}{after:10.1f}{100 * (after - before) / before:+8.0f}%\n")
    for one in elastic["resizes"]:
        how = f"in place, {one.get('took_s', 0.0):.1f} s" if one["in_place"] else "by a restart"
        say(f"job {one['job']} to {one['devices']} device(s) at {one['t']:.1f} s: {how}\n")
    for name, digest in fixed["digests"].items():
        same = "the same bits" if digest == elastic["digests"][name] else "ANOTHER MODEL"
        say(f"{name}: {digest[:16]} {elastic['digests'][name][:16]} {same}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic_live", description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=60, help="of the first training; the second has a third more"
    )
    parser.add_argument("--batch", type=int, default=BATCH, help="samples of a logical worker")
    parser.add_argument("--step-s", type=float, default=1.0, help="about what a step takes on one core")
    parser.add_argument("--short", type=float, default=4.0, help="CPU seconds of a short job")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--busy", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.train is not None:
        train(asked.steps, asked.batch, asked.train)
        return 0
    if asked.busy is not None:
        busy(asked.busy)
        return 0
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        parser.error("two cores are needed")
    devices = [f"cpu:{core}" for core in cores]
    with tempfile.TemporaryDirectory(prefix="elastic-live-") as folder:
        fixed = play(Path(folder) / "fixed", devices, asked, elastic=False)
        elastic = play(Path(folder) / "elastic", devices, asked, elastic=True)
    if asked.json:
        sys.stdout.write(json.dumps({"fixed": fixed, "elastic": elastic}, indent=1) + "\n")
    else:
        tell(fixed, elastic)
    return 0 if fixed["digests"] == elastic["digests"] else 1


if __name__ == "__main__":
    sys.exit(main())
