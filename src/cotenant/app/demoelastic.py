"""The last part of the demo: one training on 1, 3 and 2 processes, one of them killed, with the same model at the end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cotenant.app.console import note, say, warn
from cotenant.errors import MissingExtraError

__all__ = ["show_elastic"]

_STEPS, _PACE_S = 50, 0.4
_PATIENCE_S = 150.0


def show_elastic(*, quiet: bool = False) -> None:
    """Train twice, once undisturbed, and compare digests of the parameters.

    Where PyTorch is missing that is said, and nothing else happens.
    """
    if importlib.util.find_spec("torch") is None:
        missing = MissingExtraError("the demo's last part, a training that grows and shrinks", "torch")
        say("")
        say(f"left out: {missing}")
        return
    tell = (lambda text: None) if quiet else note
    try:
        with tempfile.TemporaryDirectory(prefix="cotenant-demo-") as folder:
            # PyTorch's own cache would outlive the demo.
            env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
            undisturbed = _alone(env, tell)
            digest, sizes, killed = _disturbed(env, Path(folder) / "output", tell)
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        warn(f"the elastic part of the demo did not run here: {error}")
        return
    say("")
    say(
        f"an elastic training of {_STEPS} steps, on {' -> '.join(map(str, sizes))} processes, {killed} killed (kill -9)"
    )
    same = (
        "the same model, bit for bit"
        if digest == undisturbed
        else "ANOTHER MODEL: this is a fault, please report it"
    )
    say(f"  undisturbed, one process   {undisturbed[:32]}")
    say(f"  grown, shrunk and killed   {digest[:32]}   {same}")


def _words(pace_s: float) -> list[str]:
    return [sys.executable, "-m", "cotenant.elastic.example", "--steps", str(_STEPS), "--pace", f"{pace_s:g}"]


def _alone(env: dict[str, str], tell: Callable[[str], None]) -> str:
    tell(f"an elastic training, undisturbed: {_STEPS} steps on one process")
    done = subprocess.run(  # noqa: S603
        _words(0.0), capture_output=True, text=True, timeout=_PATIENCE_S, check=True, env=env
    )
    return done.stdout.split()[-1]


def _disturbed(env: dict[str, str], output: Path, tell: Callable[[str], None]) -> tuple[str, list[int], int]:
    """The digest, the numbers of processes that took steps, and how many were killed."""
    from cotenant.elastic.supervisor import Supervisor

    tell("the same training again: one process, then three, one of them killed, then two")
    with output.open("wb") as file:

        def start(more: Mapping[str, str]) -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603
                _words(_PACE_S), env={**env, **more}, stdout=file, stderr=subprocess.DEVNULL
            )

        sizes, killed = _drive(Supervisor([], 1, 3, threads=1, start=start))
    return output.read_text().split()[-1], sizes, killed


def _drive(supervisor: Any) -> tuple[list[int], int]:
    """Ask for 1, 3 and 2 processes, each once the one before has come about; kill one of the three."""
    supervisor.want(1)
    sizes: list[int] = []
    killed = 0
    since = time.monotonic()
    until = since + _PATIENCE_S
    try:
        while supervisor.poll() is None:
            if time.monotonic() > until:
                raise RuntimeError(f"it has not ended after {_PATIENCE_S:g} s")
            size = len(supervisor.members)
            if size and supervisor.settled and (not sizes or sizes[-1] != size):
                sizes.append(size)
                since = time.monotonic()
            worked = time.monotonic() - since > 1.0 and supervisor.settled
            if worked and size == 1 and not killed:
                supervisor.want(3)
            elif worked and size == 3 and not killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(supervisor.running[supervisor.members[-1]], signal.SIGKILL)
                killed += 1
                supervisor.want(2)
            time.sleep(0.05)
        if (code := supervisor.poll()) != 0:
            raise RuntimeError(f"it ended with exit code {code}")
    finally:
        supervisor.close()
    return sizes, killed
