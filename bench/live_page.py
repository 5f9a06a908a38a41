"""The picture of the live page in the documentation: a short scene of real jobs, drawn by a headless Chromium.

``python -m bench.live_page [--out docs/images/live-page.png]``; about two minutes. It brings up a scheduler of its
own on two cores, with a policy that puts jobs beside each other as they ask for it, and submits included trainings,
whose sizes are such that all is there at once: two that share a core, one that has a core for itself, one that its
owner suspends, and those that wait, each for a reason of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.browser import Browser, program
from bench.live_latency import CORES, Daemon
from cotenant.live.client import Client, connect, new_key

PATIENCE_S = 240.0
LONG = "4000"
"""Steps of those that are to be seen: some minutes."""


def submit(client: Client, name: str, job: str, steps: str = LONG, **fields: object) -> int:
    """Submit an included training; returns its number."""
    command = [sys.executable, "-m", "cotenant.profiles.jobs", job, "--steps", steps]
    body = {"name": name, "command": command, "suspend": "runtime", "sharing": "any", "model": job, **fields}
    (answer,) = client.submit([(new_key(), body)])
    if answer.id is None:
        raise SystemExit(f"{name}: {answer.error}")
    return answer.id


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.2)


def scene(client: Client) -> None:
    """Have jobs run, wait and stand aside, until each of them is as it should be."""

    def are(status: str, *numbers: int) -> Callable[[], bool]:
        return lambda: all(client.job(number).status == status for number in numbers)

    half = {"gpu_memory": "1GiB", "gpu_compute": "40%", "gpu_compute_limit": "60%"}
    warm = submit(client, "warm-up", "embedding", "60", gpu_memory="1GiB")
    until(are("done", warm), "the first one is done")
    first = submit(client, "resnet-cifar", "convolution", **half)
    until(are("running", first), "a job runs")
    beside = submit(client, "lstm-text", "recurrent", **half)
    aside = submit(client, "mlp-tabular", "embedding", gpu_memory="1GiB", gpu_compute="80%")
    until(are("running", beside, aside), "three run")
    until(lambda: client.job(aside).steps > 0, "the one that is to leave makes steps")
    client.command(aside, "suspend", new_key())
    until(are("held", aside), "one is suspended")
    alone = submit(client, "bert-tiny", "attention", gpu_memory="1GiB", sharing="exclusive")
    until(are("running", alone), "one has a core for itself")
    submit(client, "vae-faces", "convolution", gpu_memory="1GiB", gpu_compute="50%")
    submit(client, "gan-small", "convolution", gpu_memory="1GiB", gpu_compute="50%", priority=5)
    submit(client, "evaluate", "convolution", gpu_memory="1GiB", after=[alone])
    running = (first, beside, alone)
    until(lambda: all(client.job(number).steps > 20 for number in running), "they make steps")


def main() -> None:
    """Make the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/live-page.png"))
    parser.add_argument("--dark", action="store_true", help="as somebody sees it who prefers dark pages")
    asked = parser.parse_args()
    if (found := program()) is None:
        raise SystemExit("no Chromium here; install it")
    if len(CORES) < 2:
        raise SystemExit("it takes two cores")
    devices = [word for core in CORES[:2] for word in ("--device", f"cpu:{core}")]
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        daemon = Daemon(state, *devices, "--policy", "gaiagpu")
        daemon.start()
        try:
            with Client(lambda: connect(state)) as client:
                scene(client)
                browser = Browser(found, Path(folder, "profile"))
                try:
                    browser.look(1240, dark=asked.dark)
                    browser.sign_in(client_url(state), daemon.token)
                    time.sleep(2.0)  # two turns of refreshing
                    browser.shot(asked.out)
                finally:
                    browser.close()
        finally:
            words = [sys.executable, "-m", "cotenant", "down", "--jobs", "cancel", "--state", str(state)]
            subprocess.run(words, check=False, stdout=subprocess.DEVNULL, timeout=120)
            for process in daemon.processes:
                process.kill()
                process.wait()
    sys.stdout.write(f"{asked.out}\n")


def client_url(state: Path) -> str:
    """Where its page is."""
    return connect(state).url


if __name__ == "__main__":
    main()
