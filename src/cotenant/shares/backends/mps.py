"""NVIDIA's Multi-Process Service: clients of one server share a GPU, each with a part of its threads and memory.

Limits are variables that a client reads when it starts (``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``,
``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``); they do not change while it runs. A client must be ended through the server
(``terminate_client``) before its process is killed: a kill with work in flight can take the server and every
neighbour with it. docs.nvidia.com/deploy/mps: "Volta MPS execution resource provisioning", "Client early
termination", "Memory protection and error containment".
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping

from cotenant.errors import ConfigError
from cotenant.model.placement import DEVICE_MILLI
from cotenant.model.quantities import MIB
from cotenant.shares.backends.base import Applied, Enforcement, Want

__all__ = ["CONTROL", "Mps", "read_pids"]

CONTROL = "nvidia-cuda-mps-control"
_TIMEOUT_S = 3.0
_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"


def read_pids(text: str) -> list[int]:
    """Numbers of processes that the control daemon answers, one a line; other lines are no numbers.

    >>> read_pids("27119\\n27120\\n"), read_pids("Cannot find MPS control daemon process\\n")
    ([27119, 27120], [])
    """
    return [int(line) for line in text.split("\n") if line.strip().isdigit()]


def _ask(words: str) -> str:
    """Put a command to the control daemon; raises ``ConfigError`` if nobody answers."""
    program = shutil.which(CONTROL)
    if program is None:
        raise ConfigError(f"{CONTROL} is not installed")
    try:
        done = subprocess.run(  # noqa: S603
            [program], input=words + "\n", capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{CONTROL} does not answer: {error}") from None
    if done.returncode:
        told = (done.stderr or done.stdout).strip()
        raise ConfigError(f"{CONTROL}: {told or f'exit code {done.returncode}'}")
    return done.stdout


class Mps:
    """Limits of MPS clients.

    Parameters
    ----------
    ask : callable
        Takes a command of the control daemon, returns its answer; raises ``ConfigError``.
    environment : mapping, optional
        Where the daemon's pipe directory is named; this process's by default.
    """

    name = "MPS"
    enforcement = Enforcement(
        memory="hard",
        compute="hard",
        fault_isolation=False,
        adjustable=False,
        note="threads are limited from the client's start; a fatal fault of one client ends all of the server",
    )

    def __init__(
        self, ask: Callable[[str], str] = _ask, environment: Mapping[str, str] | None = None
    ) -> None:
        self._ask = ask
        self._environment = os.environ if environment is None else environment

    @classmethod
    def detect(cls, ask: Callable[[str], str] = _ask) -> Mps | None:
        """MPS, if its control daemon answers."""
        try:
            ask("get_server_list")
        except ConfigError:
            return None
        return cls(ask)

    def apply(self, want: Want) -> Applied:
        """Variables of the client, and how it is ended."""
        env: dict[str, str] = {}
        if pipe := self._environment.get(_PIPE_VARIABLE):
            env[_PIPE_VARIABLE] = pipe
        if want.share.mode == "spatial":
            limit = want.share.compute_limit_milli * 100.0 / DEVICE_MILLI
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{limit:g}"
            if want.share.memory_bytes:
                # Devices are numbered as the client sees them; M is 2**20 there.
                size = want.share.memory_bytes // MIB
                parts = [f"{number}={size}M" for number in range(len(want.uuids) or 1)]
                env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(parts)
        commands = [
            {"argv": [CONTROL], "input": f"terminate_client {server} {{pid}}\n"} for server in self.servers()
        ]
        return Applied(env=env, stop_commands=tuple(commands))

    def servers(self) -> list[int]:
        """Servers that run now; none if the daemon does not answer."""
        try:
            return read_pids(self._ask("get_server_list"))
        except ConfigError:
            return []

    def clients(self, server: int) -> list[int]:
        """Clients of a server."""
        try:
            return read_pids(self._ask(f"get_client_list {server}"))
        except ConfigError:
            return []

    def adjust(self, want: Want) -> None:
        """A running client keeps what it was started with."""

    def remove(self, key: str) -> None:
        """Nothing is kept."""

    def use_s(self, key: str) -> float | None:
        """Not counted here."""
        return None

    def memory_bytes(self, key: str) -> int | None:
        """Not counted here."""
        return None
